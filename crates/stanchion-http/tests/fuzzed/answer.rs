//! From the head that a worker wrote to the bytes on the wire: for a strict client, a head that passes is one answer with the same fields, followed
//! by the next answer. Hints that pass are one 103, followed by the answer.

use stanchion_http::answer::EARLY_HINTS;
use stanchion_http::{BodyLength, check, check_hints, fields};

#[path = "strict.rs"]
mod strict;

use strict::{Answer, read_answer};

const SECOND: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const BODY_BYTES_MAX: usize = 64;

pub(crate) fn look(wire: &[u8]) {
    for is_head_request in [false, true] {
        let Ok(facts) = check(wire, is_head_request) else {
            continue;
        };
        let len = match facts.length {
            BodyLength::Bytes(len) => match usize::try_from(len) {
                Ok(len) if len <= BODY_BYTES_MAX => len,
                _ => continue,
            },
            BodyLength::Nothing | BodyLength::Unknown => 0,
        };
        let body = vec![b'x'; len];
        let sent = [wire, b"\r\n", &body, SECOND].concat();
        let fields = fields_of(wire);
        let has = |name: &[u8]| fields.iter().any(|field| field.0 == name);
        assert_eq!(
            (facts.has_server, facts.has_date),
            (has(b"server"), has(b"date"))
        );
        let expected = Answer {
            status: facts.status,
            fields,
            body: &body,
        };
        let has_body = facts.length != BodyLength::Nothing;
        assert_eq!(read_answer(&sent, has_body), Some((expected, SECOND)));
    }
    if check_hints(wire).is_ok() {
        let sent = [wire, b"\r\n", SECOND].concat();
        let hints = Answer {
            status: EARLY_HINTS,
            fields: fields_of(wire),
            body: b"",
        };
        assert_eq!(read_answer(&sent, false), Some((hints, SECOND)));
    }
}

/// The fields as the strict client has them: names in lower case.
fn fields_of(wire: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    fields(wire)
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_vec()))
        .collect()
}
