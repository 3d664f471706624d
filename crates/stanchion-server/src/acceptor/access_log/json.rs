//! A line of the access log as a JSON object (RFC 8259). Its keys and their order are a promise
//! (docs/reference/access-log.md); what is not known is null.

use std::fmt::Write as _;

use http::header::{HOST, REFERER, USER_AGENT};

use super::Line;
use super::atom::{field, protocol, trace_id};
use super::user::user;
use crate::log::is_obeyed;

/// Appends the object.
pub(super) fn write(out: &mut String, line: &Line<'_>) {
    let ticket = &line.entry.ticket;
    let request = &ticket.request;
    let (head, headers) = (&request.head, &request.head.headers);
    let user = user(headers);
    let address = Some(request.peer.address.as_bytes()).filter(|address| !address.is_empty());
    out.push_str("{\"time\":\"");
    out.push_str(line.time);
    out.push('"');
    text(out, "remote_addr", address);
    text(out, "user", user.as_deref().map(str::as_bytes));
    text(out, "method", Some(head.method.as_str().as_bytes()));
    text(out, "host", field(headers, HOST));
    text(out, "path", Some(head.uri.path().as_bytes()));
    text(out, "query", head.uri.query().map(str::as_bytes));
    text(out, "protocol", Some(protocol(head.version).as_bytes()));
    number(out, "status", Some(line.entry.status.as_u16().into()));
    number(out, "bytes", Some(line.entry.bytes));
    text(out, "referer", field(headers, REFERER));
    text(out, "user_agent", field(headers, USER_AGENT));
    number(out, "duration_us", Some(line.took_us()));
    number(out, "wait_us", Some(line.wait_us()));
    number(out, "service_us", line.service_us());
    number(out, "proxy_us", request.proxy_us);
    text(out, "outcome", Some(line.entry.outcome.name().as_bytes()));
    text(out, "lane", Some(line.lane.as_bytes()));
    number(out, "worker", ticket.worker.get().map(u64::from));
    let pid = ticket.worker_pid.get();
    number(out, "pid", u64::try_from(pid).ok().filter(|&pid| pid != 0));
    text(out, "request_id", request.id().map(str::as_bytes));
    text(out, "trace_id", trace_id(headers).map(str::as_bytes));
    out.push('}');
}

fn key(out: &mut String, key: &str) {
    out.push_str(",\"");
    out.push_str(key);
    out.push_str("\":");
}

fn number(out: &mut String, name: &str, number: Option<u64>) {
    key(out, name);
    // Writing to a String cannot fail.
    let _ = match number {
        Some(number) => write!(out, "{number}"),
        None => out.write_str("null"),
    };
}

fn text(out: &mut String, name: &str, text: Option<&[u8]>) {
    key(out, name);
    match text {
        None => out.push_str("null"),
        Some(text) => {
            out.push('"');
            for chunk in text.utf8_chunks() {
                escape(out, chunk.valid());
                // What is no text is shown as in the other form of the log: `\xe9`.
                for byte in chunk.invalid() {
                    let _ = write!(out, "\\\\x{byte:02x}");
                }
            }
            out.push('"');
        }
    }
}

/// RFC 8259 section 7; and whatever else a terminal would obey, since lines are also read there.
fn escape(out: &mut String, text: &str) {
    let plain = |byte: u8| matches!(byte, 0x20..=0x7e) && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
        out.push_str(text);
        return;
    }
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            char if is_obeyed(char) => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            char => out.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(bytes: &[u8]) -> String {
        let mut out = "{\"a\":1".to_owned();
        text(&mut out, "b", Some(bytes));
        out.push('}');
        out
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
