use stanchion_http::Head;
use stanchion_record::RequestFacts;

use super::rig::Turning;
use crate::tests::rig::{Answered, FACTS, TAKES_HINTS, failed, head, head_of_http2, with_python};

fn get() -> Head {
    head("GET / HTTP/1.1\r\nHost: test\r\n\r\n")
}

/// The messages of an app, what came of the last of them, and the answer in the end.
type Row<M, O> = (M, O, Answered);

fn assert_answers<M: AsRef<str>, O: AsRef<str>>(
    rows: &[Row<M, O>],
    facts: &RequestFacts<'_>,
    settings: &str,
) {
    assert_answers_to(&get(), rows, facts, settings);
}

fn assert_answers_to<M: AsRef<str>, O: AsRef<str>>(
    head: &Head,
    rows: &[Row<M, O>],
    facts: &RequestFacts<'_>,
    settings: &str,
) {
    with_python(|py| {
        let mut turning = Turning::new(py, settings);
        for (messages, outcome, expected) in rows {
            let messages = messages.as_ref();
            let called = turning.call(head, facts, b"");
            let given = turning.value(messages);
            let (last, answered) = turning.send_all(&called, &given);
            assert_eq!(last, outcome.as_ref(), "{messages}");
            assert_eq!(answered, *expected, "{messages}");
        }
    });
}

fn ok(fields: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}\r\n{body}")
}

fn ok_of_length(len: usize, body: &str) -> String {
    ok(&format!("Content-Length: {len}\r\n"), body)
}

#[test]
fn an_answer_is_a_start_and_pieces_of_the_body() {
    assert_answers(
        &[
            (
                "[start(), body(b'plain')]",
                "None",
                Answered::whole(ok_of_length(5, "plain")),
            ),
            (
                "[start(), body(b'a', True), body(b'', True), body(b'b', True), body()]",
                "None",
                Answered::whole(ok("", "ab")),
            ),
            (
                "[start(), {'type': 'http.response.body'}]",
                "None",
                Answered::whole(ok_of_length(0, "")),
            ),
            (
                "[{'type': 'http.response.start', 'status': 201}, body(b'x')]",
                "None",
                Answered::whole("HTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx"),
            ),
            (
                "[dict(start(), extra=object()), dict(body(b'x'), extra=object())]",
                "None",
                Answered::whole(ok_of_length(1, "x")),
            ),
            (
                "[start(), body(memoryview(b'memory')[2:])]",
                "None",
                Answered::whole(ok_of_length(4, "mory")),
            ),
            (
                "[start(), body(bytearray(b'bytearray'))]",
                "None",
                Answered::whole(ok_of_length(9, "bytearray")),
            ),
            (
                "[start(), body(__import__('array').array('B', b'array'))]",
                "None",
                Answered::whole(ok_of_length(5, "array")),
            ),
            (
                "[start(headers=((name, b'1') for name in (b'x-one', b'x-two'))), body(b'x')]",
                "None",
                Answered::whole(ok("x-one: 1\r\nx-two: 1\r\nContent-Length: 1\r\n", "x")),
            ),
            (
                "[start(headers=[(b'connection', b'x-y, close')]), body(b'a', 1), body(b'b', 0)]",
                "None",
                Answered::whole(ok("Connection: close\r\n", "ab")),
            ),
            (
                "[start(204), body(b'not sent')]",
                "None",
                Answered::whole("HTTP/1.1 204 No Content\r\n\r\n"),
            ),
            (
                "[start(304, [(b'content-length', b'5')]), body(b'not sent')]",
                "None",
                Answered::whole("HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n"),
            ),
            (
                "[start(headers=[(b'content-length', b'4')]), body(b'ab', True), body(b'cd')]",
                "None",
                Answered::whole(ok("content-length: 4\r\n", "abcd")),
            ),
            (
                "[start(headers=[(b'content-length', b'3')]), body(b'ab', True), body(b'cd')]",
                "None",
                Answered::whole(ok("content-length: 3\r\n", "abc")),
            ),
        ],
        &FACTS,
        "",
    );
}

#[test]
fn an_answer_without_its_end_is_broken_off_and_one_without_a_body_is_a_500() {
    assert_answers(
        &[
            (
                "[start(), body(b'ab', True)]",
                "None",
                Answered::broken(ok("", "ab")),
            ),
            (
                "[start(headers=[(b'content-length', b'9')]), body(b'ab', True), body(b'cd')]",
                "None",
                Answered::broken(ok("content-length: 9\r\n", "abcd")),
            ),
            ("[start()]", "None", failed()),
            ("[]", "None", failed()),
        ],
        &FACTS,
        "",
    );
}

#[test]
fn what_is_out_of_order_is_refused() {
    let twice = "RuntimeError: http.response.start came already: http.response.body is expected";
    let beyond = "RuntimeError: http.response.body came after the last one: nothing more of the body is expected";
    assert_answers(
        &[
            (
                "[body(b'x')]",
                "RuntimeError: http.response.start is expected before http.response.body",
                failed(),
            ),
            ("[start(), start(201)]", twice, failed()),
            (
                "[start(), body(b'whole'), body(b'more')]",
                beyond,
                Answered::whole(ok_of_length(5, "whole")),
            ),
            (
                "[start(), body(b'whole'), start()]",
                twice,
                Answered::whole(ok_of_length(5, "whole")),
            ),
            (
                "[start(), body(b'half', True), start()]",
                twice,
                Answered::broken(ok("", "half")),
            ),
        ],
        &FACTS,
        "",
    );
}

#[test]
fn what_is_of_the_wrong_kind_is_refused_and_nothing_of_it_is_sent() {
    let not_of_http = |kind: &str| {
        format!(
            "RuntimeError: a message that is not of HTTP, or of an extension that the scope does not name: {kind:?}"
        )
    };
    let not_bytes = |kind: &str| format!("TypeError: the body must be bytes, not <class '{kind}'>");
    let rows = [
        (
            "[b'message']",
            "TypeError: send takes a dict, not <class 'bytes'>".to_owned(),
        ),
        (
            "[None]",
            "TypeError: send takes a dict, not <class 'NoneType'>".to_owned(),
        ),
        (
            "[{'status': 200}]",
            "ValueError: send takes a dict with a type".to_owned(),
        ),
        (
            "[{'type': 'http.response.nonsense'}]",
            not_of_http("http.response.nonsense"),
        ),
        (
            "[{'type': 'websocket.accept'}]",
            not_of_http("websocket.accept"),
        ),
        (
            "[{'type': 'http.response.pathsend', 'path': '/'}]",
            not_of_http("http.response.pathsend"),
        ),
        (
            "[{'type': 'http.response.trailers'}]",
            not_of_http("http.response.trailers"),
        ),
        (
            "[{'type': 'http.response.early_hint', 'links': []}]",
            not_of_http("http.response.early_hint"),
        ),
        (
            "[{'type': 'http.response.start'}]",
            "ValueError: http.response.start needs a status".to_owned(),
        ),
        (
            "[start(99)]",
            "ValueError: not a status of an answer: 99".to_owned(),
        ),
        (
            "[start(1000)]",
            "ValueError: not a status of an answer: 1000".to_owned(),
        ),
        (
            "[start(headers=[('x-one', '1')])]",
            "TypeError: names and values of headers must be bytes, not <class 'str'>".to_owned(),
        ),
        (
            "[start(headers=[(b'x-one', b'1\\r\\nx-two: 2')])]",
            "ValueError: a control character in the value of x-one: \"1\\r\\nx-two: 2\"".to_owned(),
        ),
        ("[start(), body('text')]", not_bytes("str")),
        ("[start(), body(5)]", not_bytes("int")),
        ("[start(), body(True)]", not_bytes("bool")),
        (
            "[start(), body(None)]",
            "TypeError: cannot convert 'NoneType' object to bytes".to_owned(),
        ),
    ];
    let rows = rows.map(|(messages, outcome)| (messages, outcome, failed()));
    assert_answers(&rows, &FACTS, "");
    // Versions of Python differ in the text about these.
    with_python(|py| {
        let mut turning = Turning::new(py, "");
        for message in [
            "start('200')",
            "start(2.5)",
            "start(-1)",
            "start(70000)",
            "{'type': 5}",
            "{'type': b'http.response.start', 'status': 200}",
        ] {
            let called = turning.call(&get(), &FACTS, b"");
            let came = turning.send(&called, &turning.value(message));
            let is_refused = came.starts_with("TypeError: ") || came.starts_with("OverflowError: ");
            assert!(is_refused, "{message}: {came}");
            assert_eq!(turning.end(&called, None), failed(), "{message}");
        }
    });
}

#[test]
fn head_has_the_head_of_get_and_an_app_may_go_on() {
    let rows = [
        ("[start(), body(b'plain')]", "Content-Length: 5\r\n"),
        ("[start(), body()]", ""),
        ("[start(), body(b'a', True), body(b'b')]", ""),
        (
            "[start(headers=[(b'content-length', b'4')]), body(b'ab', True), body(b'cd', True), body(b'ef')]",
            "content-length: 4\r\n",
        ),
    ];
    let rows = rows.map(|(messages, fields)| (messages, "None", Answered::whole(ok(fields, ""))));
    let head = head("HEAD / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_answers_to(&head, &rows, &FACTS, "");
}

#[test]
fn trailers_go_behind_the_body_of_a_client_that_takes_them() {
    let takes_trailers = RequestFacts {
        takes_trailers: true,
        ..FACTS
    };
    let start = "dict(start(), trailers=True)";
    let trailers =
        |headers: &str| format!("{{'type': 'http.response.trailers', 'headers': [{headers}]}}");
    let sum = trailers("(b'x-sum', b'1'), (b'content-length', b'4')");
    let unexpected = "RuntimeError: http.response.trailers is expected once, behind the last http.response.body, if \
                      http.response.start had trailers=True";
    let beyond = "RuntimeError: http.response.body came after the last one: nothing more of the body is expected";
    let too_long = trailers("(b'x', b'a' * 20000)");
    let rows = [
        (
            format!("[{start}, body(b'a', True), body(b'b'), {sum}]"),
            "None",
            Answered::whole(ok("", "ab|x-sum: 1\r\n")),
        ),
        (
            format!("[{start}, body(b'x'), dict({sum}, more_trailers=True), {sum}]"),
            "None",
            Answered::whole(ok("", "x|x-sum: 1\r\nx-sum: 1\r\n")),
        ),
        (
            format!("[{start}, body(b'x'), {{'type': 'http.response.trailers'}}]"),
            "None",
            Answered::whole(ok("", "x|")),
        ),
        (
            format!("[{start}, body(b'x')]"),
            "None",
            Answered::broken(ok("", "x")),
        ),
        (
            format!("[{start}, body(b'x'), body(b'y')]"),
            beyond,
            Answered::broken(ok("", "x")),
        ),
        (format!("[{start}, {sum}]"), unexpected, failed()),
        (
            format!("[{start}, body(b'x', True), {sum}]"),
            unexpected,
            Answered::broken(ok("", "x")),
        ),
        (
            format!("[start(), body(b'x'), {sum}]"),
            unexpected,
            Answered::whole(ok_of_length(1, "x")),
        ),
        (
            format!("[{start}, body(b'x'), {too_long}]"),
            "ValueError: the response's trailers take 20005 bytes, over the limit of 16384",
            Answered::broken(ok("", "x")),
        ),
        (
            format!("[{start}, body(b'x'), {}]", trailers("('x', '1')")),
            "TypeError: names and values of headers must be bytes, not <class 'str'>",
            Answered::broken(ok("", "x")),
        ),
    ];
    assert_answers_to(&head_of_http2(), &rows, &takes_trailers, "");
    // A client that takes none gets the same answer without them.
    let messages = format!("[{start}, body(b'x'), {sum}]");
    let rows = [(messages, "None", Answered::whole(ok("", "x")))];
    assert_answers_to(&head_of_http2(), &rows, &FACTS, "");
    // The scope of HTTP/1.1 names no trailers, so a promise of them counts for nothing.
    let messages = format!("[{start}, body(b'x')]");
    let rows = [(messages, "None", Answered::whole(ok_of_length(1, "x")))];
    assert_answers(&rows, &takes_trailers, "");
}

#[test]
fn hints_go_ahead_of_the_answer_of_a_client_that_takes_them() {
    let hint = |links: &str| format!("{{'type': 'http.response.early_hint', 'links': {links}}}");
    let one = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n";
    let x = ok_of_length(1, "x");
    let rows = [
        (
            format!("[{}, start(), body(b'x')]", hint("[b'</a.css>']")),
            "None",
            Answered::whole(format!("{one}{x}")),
        ),
        (
            format!(
                "[{0}, {0}, start(), body(b'x')]",
                hint("iter([b'</a.css>'])")
            ),
            "None",
            Answered::whole(format!("{one}{one}{x}")),
        ),
        (
            format!(
                "[{}, start(), body(b'x')]",
                hint("(b'</a.css>', b'</b.css>')")
            ),
            "None",
            Answered::whole(format!(
                "HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\nlink: </b.css>\r\n\r\n{x}"
            )),
        ),
        (
            format!("[{}, start(), body(b'x')]", hint("[]")),
            "None",
            Answered::whole(x.clone()),
        ),
        (
            "[{'type': 'http.response.early_hint'}]".to_owned(),
            "ValueError: http.response.early_hint needs links",
            failed(),
        ),
        (
            format!("[{}]", hint("['</a.css>']")),
            "TypeError: names and values of headers must be bytes, not <class 'str'>",
            failed(),
        ),
        (
            format!("[{}]", hint("5")),
            "TypeError: 'int' object is not iterable",
            failed(),
        ),
        (
            format!("[start(), {}]", hint("[b'</a.css>']")),
            "RuntimeError: http.response.early_hint came after http.response.start: http.response.body is expected",
            failed(),
        ),
    ];
    assert_answers(&rows, &TAKES_HINTS, "");
}

#[test]
fn a_path_is_sent_only_where_the_scope_names_the_extension() {
    let (path, content) = (
        concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        include_str!("../../../Cargo.toml"),
    );
    let send = |path: &str| format!("{{'type': 'http.response.pathsend', 'path': {path}}}");
    let shown = format!("{path:?}");
    let settings = r#", "pathsend": true, "sendfile": false"#;
    let rows = [
        (
            format!("[start(), {}]", send(&shown)),
            "None",
            Answered::whole(ok_of_length(content.len(), content)),
        ),
        (
            format!("[start(), {}, body(b'more')]", send(&shown)),
            "RuntimeError: http.response.body came after the last one: nothing more of the body is expected",
            Answered::whole(ok_of_length(content.len(), content)),
        ),
        (
            format!("[{}]", send(&shown)),
            "RuntimeError: http.response.pathsend is expected right after http.response.start",
            failed(),
        ),
        (
            "[start(), {'type': 'http.response.pathsend'}]".to_owned(),
            "ValueError: http.response.pathsend needs a path",
            failed(),
        ),
        (
            format!("[start(), {}]", send("'/'")),
            "OSError: http.response.pathsend: not a file",
            failed(),
        ),
        (
            format!("[start(), {}]", send("'/dev/null'")),
            "OSError: http.response.pathsend: not a file",
            failed(),
        ),
    ];
    assert_answers(&rows, &FACTS, settings);
}

#[test]
fn a_client_that_has_gone_is_an_event_and_what_is_sent_to_it_is_dropped() {
    with_python(|py| {
        let mut turning = Turning::new(py, "");
        let called = turning.call(&get(), &FACTS, b"");
        let got = "{'type': 'http.request', 'body': b'', 'more_body': False}";
        assert_eq!(turning.receive(&called), got);
        assert_eq!(turning.receive(&called), "waits");
        turning.give_up(&called);
        for _ in 0..2 {
            assert_eq!(turning.receive(&called), "{'type': 'http.disconnect'}");
        }
        for message in ["start()", "body(b'x', True)", "body()"] {
            assert_eq!(
                turning.send(&called, &turning.value(message)),
                "None",
                "{message}"
            );
        }
        assert_eq!(turning.end(&called, None), Answered::broken(""));
    });
}
