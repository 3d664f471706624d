//! A line of the access log as a JSON object (RFC 8259). Its keys and their order are a promise
//! (docs/reference/access-log.md); an unknown value is null.

use std::io::Write as _;

use super::LogLine;
use super::atom::trace_id;
use super::text::{byte_escaped, is_plain, number as digits};
use super::time::OFFSET_BYTES;
use super::user::user;
use stanchion_log::is_obeyed;

/// Appends the object.
pub(super) fn write(out: &mut Vec<u8>, line: &LogLine<'_>) {
    let (over, known) = (line.over, &line.known);
    let ticket = &over.ticket;
    let request = &ticket.request;
    let head = &request.head;
    let user = known.authorization.and_then(user);
    let address = Some(request.peer.address.as_bytes()).filter(|address| !address.is_empty());
    // A target that ends with `?` has a query, which is empty.
    let has_query = !head.query().is_empty() || head.target().ends_with(b"?");
    out.extend_from_slice(b"{\"time\":\"");
    let (second, offset) = line.time.split_at(line.time.len() - OFFSET_BYTES);
    out.extend_from_slice(second.as_bytes());
    // Writing to memory cannot fail.
    let _ = write!(out, ".{:03}", line.ms);
    out.extend_from_slice(offset.as_bytes());
    out.push(b'"');
    text(out, "remote_addr", address);
    text(out, "user", user.as_deref().map(str::as_bytes));
    text(out, "method", Some(head.method().as_bytes()));
    text(out, "host", head.host());
    text(out, "path", Some(head.path()));
    text(out, "query", has_query.then(|| head.query()));
    text(out, "protocol", Some(head.protocol().as_bytes()));
    number(out, "status", Some(over.status.into()));
    number(out, "bytes", Some(over.bytes));
    text(out, "referer", known.referer);
    text(out, "user_agent", known.user_agent);
    number(out, "duration_us", Some(line.took_us()));
    number(out, "wait_us", Some(line.wait_us()));
    number(out, "service_us", line.service_us());
    number(out, "proxy_us", request.proxy_us);
    text(out, "outcome", Some(over.outcome.name().as_bytes()));
    text(out, "lane", Some(line.lane.as_bytes()));
    number(out, "worker", ticket.worker_number().map(u64::from));
    number(out, "pid", ticket.worker_pid());
    text(out, "request_id", request.id().map(str::as_bytes));
    text(out, "trace_id", trace_id(head).map(str::as_bytes));
    key(out, "client");
    match line.client() {
        Some(address) => {
            // Writing to memory cannot fail.
            let _ = write!(out, "\"{address}\"");
        }
        None => out.extend_from_slice(b"null"),
    }
    if let Some(session) = ticket.session.get() {
        number(out, "close_code", session.code.map(u64::from));
        number(out, "messages_received", Some(session.received.count));
        number(out, "messages_sent", Some(session.sent.count));
        number(out, "bytes_received", Some(session.received.bytes));
    }
    out.push(b'}');
}

fn key(out: &mut Vec<u8>, key: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

fn number(out: &mut Vec<u8>, name: &str, number: Option<u64>) {
    key(out, name);
    match number {
        Some(number) => digits(out, number),
        None => out.extend_from_slice(b"null"),
    }
}

fn text(out: &mut Vec<u8>, name: &str, text: Option<&[u8]>) {
    key(out, name);
    let Some(text) = text else {
        out.extend_from_slice(b"null");
        return;
    };
    out.push(b'"');
    if text.iter().fold(true, |all, &byte| all & is_plain(byte)) {
        out.extend_from_slice(text);
    } else {
        escape(out, text);
    }
    out.push(b'"');
}

/// Escapes what RFC 8259 section 7 asks for, and whatever else a terminal would obey, since operators read lines there
/// too.
fn escape(out: &mut Vec<u8>, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '"' => out.extend_from_slice(b"\\\""),
                '\\' => out.extend_from_slice(b"\\\\"),
                char if is_obeyed(char) => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                    }
                }
                char => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        // Bytes that are no text are shown as in the other form of the log: `\xe9`.
        for &byte in chunk.invalid() {
            out.push(b'\\');
            byte_escaped(out, byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(bytes: &[u8]) -> String {
        let mut out = b"{\"a\":1".to_vec();
        text(&mut out, "b", Some(bytes));
        out.push(b'}');
        String::from_utf8(out).expect("text")
    }

    proptest! {
        #[test]
        fn whatever_a_client_sends_is_json_on_one_line(bytes: Vec<u8>) {
            let json = written(&bytes);
            prop_assert!(!json.chars().any(char::is_control), "{json:?}");
            let read: serde_json::Value = serde_json::from_str(&json).expect("JSON");
            let shown = read["b"].as_str().expect("a text");
            if let Ok(text) = std::str::from_utf8(&bytes) {
                prop_assert_eq!(shown, text);
            }
        }

        #[test]
        fn a_text_comes_out_as_it_went_in(text: String) {
            let read: serde_json::Value = serde_json::from_str(&written(text.as_bytes())).expect("JSON");
            prop_assert_eq!(read["b"].as_str(), Some(&text[..]));
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_shown() {
        assert_eq!(
            written(b"a\xe9\"\\\n\xc3\xa9"),
            r#"{"a":1,"b":"a\\xe9\"\\\u000a"#.to_owned() + "\u{e9}\"}"
        );
    }
}
