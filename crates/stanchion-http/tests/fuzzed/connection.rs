//! A connection reads the same requests however the bytes are cut, and reads them again from heads that the test
//! writes again.

use stanchion_http::{Framing, HeadRules, Permits, split_target};

#[path = "../connection/mod.rs"]
mod requests;

use requests::{ALL, Request, read_all, rewritten};

/// Small limits, so that inputs reach them.
const LIMITS: HeadRules = HeadRules {
    line_bytes: 200,
    field_bytes: 120,
    fields: 8,
    head_bytes: 400,
    permits: Permits::NONE,
};

/// The same limits, with every fault permitted.
const LAX: HeadRules = HeadRules {
    permits: ALL,
    ..LIMITS
};

pub(crate) fn look(bytes: &[u8]) {
    let strict = look_by(&LIMITS, bytes);
    let lax = look_by(&LAX, bytes);
    // Permits only add requests: a request that is read without them is the same with them.
    assert!(lax.starts_with(&strict));
}

fn look_by(rules: &HeadRules, bytes: &[u8]) -> Vec<Request> {
    let (requests, fault) = read_all(bytes, rules, bytes.len().max(1));
    for piece in [1, 2, 7] {
        let in_pieces = read_all(bytes, rules, piece);
        assert_eq!(in_pieces, (requests.clone(), fault), "in pieces of {piece}");
    }
    for request in &requests {
        let head = &request.head;
        assert_eq!(split_target(head.target()), (head.path(), head.query()));
        let mut again = rewritten(head);
        match head.framing() {
            Framing::Empty => assert_eq!(request.body, b""),
            Framing::Length(len) => assert_eq!(request.body.len() as u64, len),
            Framing::Chunked => again.extend_from_slice(b"0\r\n\r\n"),
            Framing::ToEnd => panic!("only a stream of HTTP/2 has an end of its own"),
        }
        if head.framing() != Framing::Chunked {
            again.extend_from_slice(&request.body);
        }
        let (read, fault) = read_all(
            &again,
            // A folded value is in one line now, and no space comes before a colon.
            &HeadRules {
                fields: rules.fields + 1,
                field_bytes: 200,
                head_bytes: 1000,
                permits: Permits {
                    obsolete_folding: false,
                    header_spaces: false,
                    ..rules.permits
                },
                ..*rules
            },
            3,
        );
        assert_eq!((read.len(), fault), (1, None), "{again:?}");
        let (read, before) = (&read[0].head, head);
        assert!(read.fields().eq(before.fields()));
        assert_eq!(
            (
                read.method(),
                read.path(),
                read.query(),
                read.framing(),
                read.keeps_alive(),
                read.expects_continue()
            ),
            (
                before.method(),
                before.path(),
                before.query(),
                before.framing(),
                before.keeps_alive(),
                before.expects_continue()
            ),
        );
    }
    requests
}
