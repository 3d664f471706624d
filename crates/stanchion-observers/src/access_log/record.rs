//! A record of a request for the scribe: a JSON object from which Python makes the arguments of `Logger.access`
//! (python/stanchion/scribe.py). Texts are as in WSGI: each character is a byte (PEP 3333).

use stanchion_http::{answer, percent_decoded};

use super::LogLine;
use super::format::{Atom, OWN};
use super::json;
use super::object::{key, latin1, number, text};
use super::text::number as digits;
use stanchion_log::{ACCESS, LINE_BYTES_MAX};

/// If a request is too long to be sent whole, the record has so many bytes of each text; if it is still too long, since
/// a byte may take six, so many. These fit, whatever they are.
const SHORT_TEXT_BYTES: [usize; 2] = [512, 64];
/// The fields that such a record has, the first of each name.
const SHORT_FIELDS: [&[u8]; 3] = [b"host", b"referer", b"user-agent"];

/// Appends the object; if `json`, with the line that a log of JSON lines would have.
pub(super) fn write(out: &mut Vec<u8>, line: &LogLine<'_>, json: bool) {
    let start = out.len();
    object(out, line, json, usize::MAX);
    for text_bytes in SHORT_TEXT_BYTES {
        if out.len() - start < LINE_BYTES_MAX {
            return;
        }
        out.truncate(start);
        object(out, line, false, text_bytes);
    }
}

fn object(out: &mut Vec<u8>, line: &LogLine<'_>, json: bool, text_bytes_max: usize) {
    let over = line.over;
    let request = &over.ticket.request;
    let (head, peer) = (&request.head, &request.peer);
    let is_short = text_bytes_max < usize::MAX;
    let cut = |text| cut(text, text_bytes_max);
    let path = percent_decoded(cut(head.path()));
    out.extend_from_slice(ACCESS);
    out.extend_from_slice(b"{\"time_us\":");
    digits(out, stanchion_sys::clock::wall_us());
    for (name, value) in [
        ("took_us", line.took_us()),
        ("status", over.status.into()),
        ("bytes", over.bytes),
        ("remote_port", peer.port.into()),
        ("pid", over.ticket.worker_pid().unwrap_or_default()),
    ] {
        number(out, name, Some(value));
    }
    for (name, value) in [
        ("method", head.method().as_bytes()),
        ("target", head.target()),
        ("path", &path),
        ("query", head.query()),
        ("protocol", head.protocol().as_bytes()),
        ("scheme", request.scheme.as_bytes()),
        ("remote_addr", peer.address.as_bytes()),
        ("server_name", peer.server_name.as_bytes()),
        ("server_port", peer.server_port.as_bytes()),
        ("reason", reason(&over.head)),
    ] {
        key(out, name);
        latin1(out, cut(value));
    }
    let mut missing = SHORT_FIELDS.to_vec();
    let mut is_first = |name: &[u8]| {
        let found = missing
            .iter()
            .position(|one| name.eq_ignore_ascii_case(one));
        found.map(|found| missing.swap_remove(found)).is_some()
    };
    let sent = head
        .fields()
        .filter(|(name, _)| !is_short || is_first(name));
    fields(out, "fields", sent.map(|(name, value)| (name, cut(value))));
    let answered = answer::fields(&over.head).filter(|_| !is_short);
    fields(out, "answer", answered);
    atoms(out, line, json, text_bytes_max);
    if json {
        let mut shown = Vec::new();
        json::write(&mut shown, line);
        text(out, "line", Some(&shown));
    }
    out.extend_from_slice(b"}}");
}

/// Appends the atoms that gunicorn does not have, or that the scribe would get wrong: it is not the worker's process, and it
/// writes later.
fn atoms(out: &mut Vec<u8>, line: &LogLine<'_>, json: bool, text_bytes_max: usize) {
    out.extend_from_slice(b",\"atoms\":{");
    let mut shown = Vec::new();
    let mut add = |[start, name, end]: [&str; 3], atom: &Atom| {
        out.push(b'"');
        for part in [start, name, end] {
            out.extend_from_slice(part.as_bytes());
        }
        out.extend_from_slice(b"\":");
        shown.clear();
        atom.write(&mut shown, line);
        latin1(out, cut(&shown, text_bytes_max));
        out.push(b',');
    };
    add(["", "h", ""], &Atom::Address);
    add(["", "p", ""], &Atom::Worker);
    for (name, own) in OWN {
        add(["{", name, "}x"], &Atom::Own(own));
    }
    // The other line, if there is one, has the time in its own form.
    if !json {
        add(["", "t", ""], &Atom::Time);
    }
    // The last one has no comma behind it.
    out.pop();
    out.push(b'}');
}

/// The words behind the status.
fn reason(head: &[u8]) -> &[u8] {
    let end = head.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    let status_line = &head[..end.unwrap_or(head.len())];
    let mut words = status_line.splitn(3, |&byte| byte == b' ');
    words.nth(2).unwrap_or_default()
}

fn fields<'f>(out: &mut Vec<u8>, name: &str, fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) {
    key(out, name);
    out.push(b'[');
    for (number, (name, value)) in fields.enumerate() {
        if number > 0 {
            out.push(b',');
        }
        out.push(b'[');
        latin1(out, name);
        out.push(b',');
        latin1(out, value);
        out.push(b']');
    }
    out.push(b']');
}

fn cut(text: &[u8], bytes_max: usize) -> &[u8] {
    &text[..text.len().min(bytes_max)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_bytes_come_each_is_a_character_of_one_line(bytes: Vec<u8>) {
            let mut out = Vec::new();
            latin1(&mut out, &bytes);
            prop_assert!(!out.contains(&b'\n'));
            let read: String = serde_json::from_slice(&out).expect("JSON");
            let expected: String = bytes.iter().copied().map(char::from).collect();
            prop_assert_eq!(read, expected);
        }
    }

    #[test]
    fn the_reason_is_what_stands_behind_the_status() {
        for (head, expected) in [
            (&b"HTTP/1.1 404 Not Found\r\nA: b\r\n\r\n"[..], "Not Found"),
            (b"HTTP/1.1 200 \r\n", ""),
            (b"HTTP/1.1 200\r\n", ""),
            (b"", ""),
        ] {
            assert_eq!(reason(head), expected.as_bytes());
        }
    }
}
