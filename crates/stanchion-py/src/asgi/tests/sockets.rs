use stanchion_record::{Close, Content, MessageKind, RequestFacts, close_record, message_head};

use super::rig::{Called, Turning};
use crate::tests::rig::{Answered, FACTS, failed, head, with_python};

pub(super) const ASKED: RequestFacts<'static> = RequestFacts {
    is_websocket: true,
    ..FACTS
};

/// Messages of an app, where these names stand for them.
const SHORT: &str = "(lambda accept, text, data, close: [MESSAGES])({'type': 'websocket.accept'}, \
    lambda text: {'type': 'websocket.send', 'text': text}, lambda data: {'type': 'websocket.send', 'bytes': data}, \
    lambda **of: dict(of, type='websocket.close'))";

/// Messages, what came of the last of them, and what has come in the end.
type Row<M> = (M, &'static str, Answered);

pub(super) fn call<'py>(turning: &mut Turning<'py>) -> Called<'py> {
    let handshake = head("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    turning.call(&handshake, &ASKED, b"")
}

fn assert_answers<M: AsRef<str>>(rows: &[Row<M>]) {
    with_python(|py| {
        let mut turning = Turning::new(py, "");
        for (messages, outcome, expected) in rows {
            let messages = messages.as_ref();
            let called = call(&mut turning);
            let given = turning.value(&SHORT.replace("MESSAGES", messages));
            let (last, answered) = turning.send_all(&called, &given);
            assert_eq!(last, *outcome, "{messages}");
            assert_eq!(answered, *expected, "{messages}");
        }
    });
}

/// A handshake with these fields, and records of messages.
fn opened(fields: &str, records: &[&[u8]]) -> Answered {
    let records = records.concat().into_iter().map(char::from);
    let records: String = records.collect();
    Answered::whole(format!(
        "HTTP/1.1 101 Switching Protocols\r\n{fields}\r\n{records}"
    ))
}

pub(super) fn record(kind: MessageKind, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("short");
    let mut record = message_head(Content::Message(kind.into()), len).to_vec();
    record.extend_from_slice(payload);
    record
}

fn closed(code: u16, reason: &str) -> Vec<u8> {
    close_record(&Close::new(code, reason))
}

#[test]
fn an_app_accepts_sends_and_closes() {
    let text = record(MessageKind::Text, "h\u{e9}".as_bytes());
    let bytes = record(MessageKind::Binary, b"\x00\xff");
    let well = closed(1000, "");
    assert_answers(&[
        ("accept", "None", opened("", &[&well])),
        (
            "dict(accept, subprotocol='chat', headers=[(b'x-one', b'1')], extra=1)",
            "None",
            opened("Sec-WebSocket-Protocol: chat\r\nx-one: 1\r\n", &[&well]),
        ),
        (
            "dict(accept, subprotocol=None, headers=[])",
            "None",
            opened("", &[&well]),
        ),
        (
            "accept, text('h\\xe9'), data(b'\\x00\\xff'), data(bytearray(b'\\x00\\xff')), data(memoryview(b'\\x00\\xff'))",
            "None",
            opened("", &[&text, &bytes, &bytes, &bytes, &well]),
        ),
        (
            "accept, dict(text(''), bytes=None), dict(data(b''), text=None)",
            "None",
            opened(
                "",
                &[
                    &record(MessageKind::Text, b""),
                    &record(MessageKind::Binary, b""),
                    &well,
                ],
            ),
        ),
        ("accept, close()", "None", opened("", &[&well])),
        (
            "accept, close(code=None, reason=None)",
            "None",
            opened("", &[&well]),
        ),
        (
            "accept, close(code=4999, reason='h\\xe9')",
            "None",
            opened("", &[&closed(4999, "h\u{e9}")]),
        ),
        (
            "accept, close(reason='r' * 123)",
            "None",
            opened("", &[&closed(1000, &"r".repeat(123))]),
        ),
    ]);
}

#[test]
fn an_app_refuses_by_a_close_or_by_an_answer_of_its_own() {
    let forbidden = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
    let start =
        "{'type': 'websocket.http.response.start', 'status': 401, 'headers': [(b'x-one', b'1')]}";
    let body = |rest: &str| format!("{{'type': 'websocket.http.response.body', {rest}}}");
    assert_answers(&[
        ("close()".to_owned(), "None", Answered::whole(forbidden)),
        (
            "close(code=4000, reason='r' * 200)".to_owned(),
            "None",
            Answered::whole(forbidden),
        ),
        (
            format!("{start}, {}", body("'body': b'no'")),
            "None",
            Answered::whole("HTTP/1.1 401 Unauthorized\r\nx-one: 1\r\nContent-Length: 2\r\n\r\nno"),
        ),
        (
            format!(
                "{start}, {}, {}",
                body("'body': b'n', 'more_body': True"),
                body("'body': b'o'")
            ),
            "None",
            Answered::whole("HTTP/1.1 401 Unauthorized\r\nx-one: 1\r\n\r\nno"),
        ),
        (
            format!("{start}, {}", body("'body': b'n', 'more_body': True")),
            "None",
            Answered::broken("HTTP/1.1 401 Unauthorized\r\nx-one: 1\r\n\r\nn"),
        ),
        (
            body("'body': b'no'"),
            "RuntimeError: websocket.http.response.body is not expected now",
            failed(),
        ),
        (
            format!("{start}, accept"),
            "RuntimeError: websocket.accept is not expected now",
            failed(),
        ),
        (
            format!("{start}, {start}"),
            "RuntimeError: websocket.http.response.start is not expected now",
            failed(),
        ),
        (
            format!("{start}, close()"),
            "RuntimeError: websocket.close is not expected now",
            failed(),
        ),
        (
            "{'type': 'websocket.http.response.start'}".to_owned(),
            "ValueError: websocket.http.response.start needs a status",
            failed(),
        ),
        (
            "{'type': 'websocket.http.response.start', 'status': 99}".to_owned(),
            "ValueError: not a status of an answer: 99",
            failed(),
        ),
        (
            format!("{start}, {}", body("'body': 'no'")),
            "TypeError: the body must be bytes, not <class 'str'>",
            failed(),
        ),
    ]);
}

#[test]
fn what_is_out_of_order_or_of_the_wrong_kind_is_refused() {
    let lost = closed(1011, "");
    let open = || opened("", &[&lost]);
    let after_close = || opened("", &[&closed(1000, "")]);
    let neither = "ValueError: websocket.send needs either text or bytes";
    assert_answers(&[
        ("", "None", failed()),
        (
            "text('early')",
            "RuntimeError: websocket.send is not expected now",
            failed(),
        ),
        (
            "accept, accept",
            "RuntimeError: websocket.accept is not expected now",
            open(),
        ),
        (
            "accept, close(), text('late')",
            "RuntimeError: websocket.send is not expected now",
            after_close(),
        ),
        (
            "accept, close(), close()",
            "RuntimeError: websocket.close is not expected now",
            after_close(),
        ),
        ("accept, {'type': 'websocket.send'}", neither, open()),
        ("accept, dict(text('a'), bytes=b'b')", neither, open()),
        (
            "accept, data('text')",
            "TypeError: the body must be bytes, not <class 'str'>",
            open(),
        ),
        (
            "accept, data(5)",
            "TypeError: the body must be bytes, not <class 'int'>",
            open(),
        ),
        (
            "accept, close(code=1005)",
            "ValueError: no code of a close that may be sent: 1005",
            open(),
        ),
        (
            "accept, close(code=5000)",
            "ValueError: no code of a close that may be sent: 5000",
            open(),
        ),
        (
            "accept, close(reason='r' * 124)",
            "ValueError: the reason has more than 123 bytes",
            open(),
        ),
        (
            "accept, close(reason='\\xe9' * 62)",
            "ValueError: the reason has more than 123 bytes",
            open(),
        ),
        (
            "dict(accept, subprotocol='two words')",
            "ValueError: not a subprotocol: \"two words\"",
            failed(),
        ),
        (
            "dict(accept, headers=[('x', '1')])",
            "TypeError: names and values of headers must be bytes, not <class 'str'>",
            failed(),
        ),
        (
            "'message'",
            "TypeError: send takes a dict, not <class 'str'>",
            failed(),
        ),
        (
            "{'text': 'x'}",
            "ValueError: send takes a dict with a type",
            failed(),
        ),
        (
            "{'type': 'http.response.start', 'status': 200}",
            "RuntimeError: a message that is not of WebSockets, or of an extension that the scope does not name: \
             \"http.response.start\"",
            failed(),
        ),
    ]);
}

/// Versions of Python differ in the text about these.
#[test]
fn values_of_the_wrong_type_are_refused() {
    let lost = closed(1011, "");
    with_python(|py| {
        let mut turning = Turning::new(py, "");
        for message in [
            "{'type': 'websocket.send', 'text': b'bytes'}",
            "{'type': 'websocket.close', 'code': '1000'}",
            "{'type': 'websocket.close', 'code': 70000}",
            "{'type': 'websocket.close', 'reason': 5}",
        ] {
            let called = call(&mut turning);
            let accept = turning.value("{'type': 'websocket.accept'}");
            assert_eq!(turning.send(&called, &accept), "None");
            let came = turning.send(&called, &turning.value(message));
            let is_refused = came.starts_with("TypeError: ") || came.starts_with("OverflowError: ");
            assert!(is_refused, "{message}: {came}");
            assert_eq!(
                turning.end(&called, Some("ValueError()")),
                opened("", &[&lost]),
                "{message}"
            );
        }
    });
}
