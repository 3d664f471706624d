use std::fmt::Display;

use pyo3::prelude::*;
use stanchion_record::AnswerHead;

use super::rig::{text_of, value, with_python};
use crate::head::{AppHead, take_in_trailers};

/// The head as it would go out, or the exception.
fn outcome(head: &mut AppHead, taken: PyResult<()>) -> Result<String, String> {
    let whole = taken.and_then(|()| head.whole(None));
    whole.map(text_of).map_err(|error| error.to_string())
}

fn assert_came(came: &Result<String, String>, expected: Result<&str, &str>, of: impl Display) {
    let came = came.as_ref().map(String::as_str).map_err(String::as_str);
    assert_eq!(came, expected, "{of}");
}

/// Gives each row to `take_in`, and compares.
fn assert_outcomes(
    rows: &[(&str, Result<&str, &str>)],
    take_in: impl Fn(&mut AppHead, &Bound<'_, PyAny>) -> PyResult<()>,
) {
    with_python(|py| {
        for (given, expected) in rows {
            let mut head = AppHead::default();
            let taken = take_in(&mut head, &value(py, given));
            assert_came(&outcome(&mut head, taken), *expected, given);
        }
    });
}

const OK: &str = "HTTP/1.1 200 OK\r\n\r\n";
const NOT_LATIN_1: Result<&str, &str> =
    Err("ValueError: a character that is not in latin-1: \"\u{20ac}\"");

#[test]
fn a_status_of_wsgi_is_a_number_and_perhaps_a_reason() {
    let not_one = |repr: &str| format!("ValueError: not a status such as '200 OK': {repr}");
    let rows = [
        ("'200 OK'", Ok(OK)),
        ("'200'", Ok(OK)),
        ("'404 '", Ok("HTTP/1.1 404 Not Found\r\n\r\n")),
        ("'299 Of its own'", Ok("HTTP/1.1 299 Of its own\r\n\r\n")),
        ("'999 caf\\xe9'", Ok("HTTP/1.1 999 caf\u{e9}\r\n\r\n")),
        ("type('Text', (str,), {})('200 OK')", Ok(OK)),
        (
            "'200 \\u20ac'",
            Err("ValueError: a character that is not in latin-1: \"200 \u{20ac}\""),
        ),
        (
            "b'200 OK'",
            Err("TypeError: the status must be a str, not <class 'bytes'>"),
        ),
        (
            "200",
            Err("TypeError: the status must be a str, not <class 'int'>"),
        ),
    ];
    let by_status = |head: &mut AppHead, status: &Bound<'_, PyAny>| {
        head.take_in(status, &value(status.py(), "[]"))
    };
    assert_outcomes(&rows, by_status);
    for repr in [
        "''",
        "'OK'",
        "'20 OK'",
        "'2000 OK'",
        "'20x OK'",
        "'200OK'",
        "'100 Continue'",
        "'199 OK'",
        "'200 OK\\r\\nX-Injected: yes'",
        "'200 OK\\n'",
        "'200 \\x00'",
    ] {
        assert_outcomes(&[(repr, Err(&not_one(repr)))], by_status);
    }
}

#[test]
fn the_fields_of_wsgi_are_a_list_of_pairs_of_text() {
    let rows = [
        ("[]", Ok(OK)),
        (
            "[('X-One', '1'), ('x-two', '2'), ('X-One', '3')]",
            Ok("HTTP/1.1 200 OK\r\nX-One: 1\r\nx-two: 2\r\nX-One: 3\r\n\r\n"),
        ),
        (
            "[('X-A', ' \\t1\\t2 '), ('X-Empty', '')]",
            Ok("HTTP/1.1 200 OK\r\nX-A: 1\t2\r\nX-Empty: \r\n\r\n"),
        ),
        (
            "[('X-A', 'caf\\xe9 \\xff')]",
            Ok("HTTP/1.1 200 OK\r\nX-A: caf\u{e9} \u{ff}\r\n\r\n"),
        ),
        (
            "[(type('Text', (str,), {})('X-A'), '1')]",
            Ok("HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\n"),
        ),
        (
            "(('X-A', '1'),)",
            Err("TypeError: the headers must be a list of (name, value) pairs"),
        ),
        (
            "None",
            Err("TypeError: the headers must be a list of (name, value) pairs"),
        ),
        (
            "[('X-A',)]",
            Err("TypeError: not a pair of a name and a value: ('X-A',)"),
        ),
        (
            "[('X-A', '1', '2')]",
            Err("TypeError: not a pair of a name and a value: ('X-A', '1', '2')"),
        ),
        (
            "[['X-A', '1']]",
            Err("TypeError: not a pair of a name and a value: ['X-A', '1']"),
        ),
        (
            "[(b'X-A', '1')]",
            Err("TypeError: a header's name must be a str, not <class 'bytes'>"),
        ),
        (
            "[('X-A', b'1')]",
            Err("TypeError: the value of X-A must be a str, not <class 'bytes'>"),
        ),
        (
            "[('X-A', 1)]",
            Err("TypeError: the value of X-A must be a str, not <class 'int'>"),
        ),
        ("[('X-A', '\\u20ac')]", NOT_LATIN_1),
        ("[('\\u20ac', '1')]", NOT_LATIN_1),
        (
            "[('X-\\xe9', '1')]",
            Err("ValueError: not a header name: 'X-\u{e9}'"),
        ),
        (
            "[('X A', '1')]",
            Err("ValueError: not a header name: 'X A'"),
        ),
        ("[('', '1')]", Err("ValueError: not a header name: ''")),
        (
            "[('X-A: 1\\r\\nX-Injected', 'yes')]",
            Err("ValueError: not a header name: 'X-A: 1\\r\\nX-Injected'"),
        ),
        (
            "[('X-A', '1\\r\\nX-Injected: yes')]",
            Err("ValueError: a control character in the value of X-A: '1\\r\\nX-Injected: yes'"),
        ),
        (
            "[('X-A', '1\\nX-Injected: yes')]",
            Err("ValueError: a control character in the value of X-A: '1\\nX-Injected: yes'"),
        ),
        (
            "[('X-A', '1\\x00')]",
            Err("ValueError: a control character in the value of X-A: '1\\x00'"),
        ),
        (
            "[('X-A', '\\xe9\\r2')]",
            Err("ValueError: a control character in the value of X-A: '\u{e9}\\r2'"),
        ),
    ];
    assert_outcomes(&rows, |head, headers| {
        head.take_in(&value(headers.py(), "'200 OK'"), headers)
    });
}

#[test]
fn the_fields_of_asgi_are_pairs_of_bytes_in_any_iterable() {
    let rows = [
        ("[]", Ok(OK)),
        (
            "(pair for pair in [(b'x-one', b'1'), [b'X-Two', b' \\xff ']])",
            Ok("HTTP/1.1 200 OK\r\nx-one: 1\r\nX-Two: \u{ff}\r\n\r\n"),
        ),
        (
            "[(b'set-cookie', b'a=1'), (b'set-cookie', b'b=2'), (b'connection', b'x'), (b'transfer-encoding', b'chunked')]",
            Ok("HTTP/1.1 200 OK\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\r\n"),
        ),
        (
            "[(b'content-length', b'1'), (b'content-length', b'2')]",
            Err("ValueError: two Content-Length fields contradict each other"),
        ),
        ("5", Err("TypeError: 'int' object is not iterable")),
        ("[5]", Err("TypeError: 'int' object is not iterable")),
        (
            "[('x-one', b'1')]",
            Err("TypeError: names and values of headers must be bytes, not <class 'str'>"),
        ),
        (
            "[(b'x-one', bytearray(b'1'))]",
            Err("TypeError: names and values of headers must be bytes, not <class 'bytearray'>"),
        ),
        (
            "[(b'x-one',)]",
            Err("ValueError: not a pair of a name and a value: (b'x-one',)"),
        ),
        (
            "[[b'x-one', b'1', b'2']]",
            Err("ValueError: not a pair of a name and a value: [b'x-one', b'1', b'2']"),
        ),
        (
            "[(b'x-one', b'1\\r\\nx-two: 2')]",
            Err("ValueError: a control character in the value of x-one: \"1\\r\\nx-two: 2\""),
        ),
        (
            "[(b'x one', b'1')]",
            Err("ValueError: not a header name: \"x one\""),
        ),
        ("[(b'', b'1')]", Err("ValueError: not a header name: \"\"")),
    ];
    assert_outcomes(&rows, |head, headers| {
        head.take_in_bytes(200, Some(headers))
    });
    with_python(|_| {
        for (status, expected) in [
            (200, Ok(OK)),
            (999, Ok("HTTP/1.1 999 \r\n\r\n")),
            (99, Err("ValueError: not a status of an answer: 99")),
            (103, Err("ValueError: not a status of an answer: 103")),
            (1000, Err("ValueError: not a status of an answer: 1000")),
        ] {
            let mut head = AppHead::default();
            let taken = head.take_in_bytes(status, None);
            assert_came(&outcome(&mut head, taken), expected, status);
        }
    });
}

#[test]
fn an_app_says_how_long_its_body_is_and_that_its_connection_ends_but_does_not_frame_it() {
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";
    let closes = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
    let rows = [
        ("('200 OK', [('Content-Length', '4')])", Ok(length)),
        (
            "('200 OK', [('Content-Length', '4'), ('content-length', ' 4 ')])",
            Ok(length),
        ),
        (
            "('204 No Content', [('Content-Length', '4')])",
            Ok("HTTP/1.1 204 No Content\r\n\r\n"),
        ),
        (
            "('304 Not Modified', [('Content-Length', '4')])",
            Ok("HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n"),
        ),
        (
            "('200 OK', [('Content-Length', '4'), ('Content-Length', '5')])",
            Err("ValueError: two Content-Length fields contradict each other"),
        ),
        (
            "('200 OK', [('Content-Length', 'four')])",
            Err("ValueError: not a Content-Length: \"four\""),
        ),
        (
            "('200 OK', [('Content-Length', '-1')])",
            Err("ValueError: not a Content-Length: \"-1\""),
        ),
        (
            "('200 OK', [('Content-Length', '')])",
            Err("ValueError: not a Content-Length: \"\""),
        ),
        (
            "('200 OK', [('Transfer-Encoding', 'chunked'), ('Keep-Alive', 'x'), ('Upgrade', 'x'), ('Connection', 'x')])",
            Ok(OK),
        ),
        ("('200 OK', [('Connection', 'ClOsE')])", Ok(closes)),
        ("('200 OK', [('Connection', 'x-a,close')])", Ok(closes)),
        ("('200 OK', [('Connection', 'x-close')])", Ok(OK)),
    ];
    assert_outcomes(&rows, |head, given| {
        head.take_in(&given.get_item(0)?, &given.get_item(1)?)
    });
}

#[test]
fn a_head_over_the_limit_is_refused_when_it_is_to_go_out() {
    assert_outcomes(
        &[(
            "[('X-A', 'a' * 65536)]",
            Err("ValueError: the response's fields take 65560 bytes, over the limit of 65536"),
        )],
        |head, headers| head.take_in(&value(headers.py(), "'200 OK'"), headers),
    );
}

#[test]
fn a_head_of_the_very_objects_of_the_last_is_known_again_and_no_other() {
    with_python(|py| {
        let status = value(py, "'200 OK'");
        let headers = value(py, "[('X-By', 'the app'), ('Connection', 'close')]");
        let expected = "HTTP/1.1 200 OK\r\nX-By: the app\r\nConnection: close\r\n\r\n";
        let mut head = AppHead::default();
        assert!(!head.take_in_again(&status, &headers), "there was none");
        for _ in 0..2 {
            head.take_in(&status, &headers).expect("a head");
            // A length that was added for one body is not in the head of the next.
            head.tell_length(4);
            assert!(head.take_in_again(&status, &headers));
            assert_eq!(head.content_length, None);
            assert_eq!(outcome(&mut head, Ok(())).as_deref(), Ok(expected));
        }
        for (other, is_same) in [
            ("lambda headers: list(headers)", true),
            ("lambda headers: headers[:1]", false),
            ("lambda headers: headers + headers[:1]", false),
            ("lambda headers: headers[::-1]", false),
            ("lambda headers: tuple(headers)", false),
            ("lambda headers: [list(headers[0]), headers[1]]", false),
            ("lambda headers: [headers[0] + ('x',), headers[1]]", false),
            (
                "lambda headers: [('X-By', ''.join(['the ', 'app'])), headers[1]]",
                false,
            ),
        ] {
            let given = value(py, other).call1((&headers,)).expect("headers");
            assert_eq!(head.take_in_again(&status, &given), is_same, "{other}");
        }
        assert!(!head.take_in_again(&value(py, "''.join(['200', ' OK'])"), &headers));
        headers
            .call_method1("append", (("X", "Y"),))
            .expect("longer");
        assert!(!head.take_in_again(&status, &headers), "the list has grown");
    });
}

#[test]
fn a_head_that_is_no_text_of_usual_length_is_not_kept() {
    with_python(|py| {
        let status = value(py, "'200 OK'");
        let usual = value(py, "[('X-By', 'the app')]");
        for other in [
            "[(type('Text', (str,), {})('X-By'), 'the app')]",
            "[('X-By', 'the app')] * 33",
            "[('X-By', 'a' * 4096)]",
            "[('X By', 'the app')]",
        ] {
            let other = value(py, other);
            let mut head = AppHead::default();
            head.take_in(&status, &usual).expect("a head");
            assert!(head.take_in_again(&status, &usual));
            let _ = head.take_in(&status, &other);
            assert!(!head.take_in_again(&status, &other));
            assert!(!head.take_in_again(&status, &usual), "it is lost");
        }
    });
}

#[test]
fn hints_are_pairs_or_a_mapping_of_text_or_bytes() {
    let one = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";
    let rows = [
        ("[('Link', '</a.css>')]", Ok(one)),
        ("[[b'Link', ' </a.css> ']]", Ok(one)),
        ("{'Link': b'</a.css>'}", Ok(one)),
        ("(pair for pair in [('Link', '</a.css>')])", Ok(one)),
        (
            "[('Link', '</a.css>'), ('X-Other', '\\xe9\\t1')]",
            Ok("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nX-Other: \u{e9}\t1\r\n\r\n"),
        ),
        ("[]", Err("nothing")),
        ("{}", Err("nothing")),
        ("[('Connection', 'close')]", Err("nothing")),
        ("5", Err("TypeError: 'int' object is not iterable")),
        (
            "[('Link',)]",
            Err("ValueError: not a pair of a name and a value: ('Link',)"),
        ),
        (
            "'Link'",
            Err("ValueError: not a pair of a name and a value: 'L'"),
        ),
        (
            "[('Link', 5)]",
            Err("TypeError: a name or a value of a hint must be a str, not <class 'int'>"),
        ),
        ("[('Link', '\\u20ac')]", NOT_LATIN_1),
        (
            "[('Link', 'a\\nb')]",
            Err("ValueError: a control character in the value of Link: \"a\\nb\""),
        ),
        (
            "[('A Link', 'a')]",
            Err("ValueError: not a header name: \"A Link\""),
        ),
    ];
    with_python(|py| {
        for (given, expected) in rows {
            let mut head = AppHead::default();
            let came = match head.take_in_hints(&value(py, given)) {
                Ok(true) => Ok(text_of(head.whole_hints())),
                Ok(false) => Err("nothing".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            assert_came(&came, expected, given);
        }
        for (links, expected) in [
            ("[b'</a.css>']", Ok(true)),
            ("iter([b'</a.css>'])", Ok(true)),
            ("[]", Ok(false)),
            (
                "['</a.css>']",
                Err("TypeError: names and values of headers must be bytes, not <class 'str'>"),
            ),
            (
                "[b'a\\r\\nX-B: 1']",
                Err("ValueError: a control character in the value of link: \"a\\r\\nX-B: 1\""),
            ),
            ("5", Err("TypeError: 'int' object is not iterable")),
        ] {
            let came = AppHead::default().take_in_links(&value(py, links));
            let came = came.map_err(|error| error.to_string());
            assert_eq!(
                came.as_ref().map_err(String::as_str),
                expected.as_ref().map_err(|text| *text),
                "{links}"
            );
        }
    });
}

#[test]
fn an_app_that_accepts_a_websocket_leaves_the_handshake_to_the_server() {
    let rows = [
        ("(None, [])", Ok("HTTP/1.1 101 Switching Protocols\r\n\r\n")),
        (
            "('chat', [(b'x-one', b'1'), (b'Content-Length', b'4'), (b'connection', b'close'),\
              (b'Sec-WebSocket-Accept', b'x'), (b'sec-websocket-extensions', b'x')])",
            Ok(
                "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Protocol: chat\r\nx-one: 1\r\n\r\n",
            ),
        ),
        (
            "('two words', [])",
            Err("ValueError: not a subprotocol: \"two words\""),
        ),
        ("('', [])", Err("ValueError: not a subprotocol: \"\"")),
        (
            "(None, [(b'x one', b'1')])",
            Err("ValueError: not a header name: \"x one\""),
        ),
    ];
    assert_outcomes(&rows, |head, given| {
        let subprotocol: Option<String> = given.get_item(0)?.extract()?;
        head.take_in_switch(subprotocol.as_deref(), Some(&given.get_item(1)?))
    });
}

#[test]
fn trailers_are_fields_that_may_follow_a_body() {
    with_python(|py| {
        for (given, expected) in [
            (
                "[(b'x-sum', b' 1 '), [b'x-b', b'2']]",
                Ok("x-sum: 1\r\nx-b: 2\r\n"),
            ),
            (
                "[(b'content-length', b'4'), (b'transfer-encoding', b'x'), (b'x-b', b'2')]",
                Ok("x-b: 2\r\n"),
            ),
            (
                "[('x-b', b'2')]",
                Err("TypeError: names and values of headers must be bytes, not <class 'str'>"),
            ),
            (
                "[(b'x b', b'2')]",
                Err("ValueError: not a header name: \"x b\""),
            ),
            (
                "[(b'x-b', b'2\\n3')]",
                Err("ValueError: a control character in the value of x-b: \"2\\n3\""),
            ),
        ] {
            let mut trailers = AnswerHead::trailers();
            let taken = take_in_trailers(&mut trailers, &value(py, given));
            let came = taken.map(|()| String::from_utf8_lossy(trailers.wire()).into_owned());
            assert_came(&came.map_err(|error| error.to_string()), expected, given);
        }
    });
}
