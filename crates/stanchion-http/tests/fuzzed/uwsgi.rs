//! A packet of the uwsgi protocol: reading it never panics, gives the same result in pieces, and smuggles nothing.

use stanchion_http::{Framing, Head, HeadRules, Permits, read_packet};

const RULES: HeadRules = HeadRules {
    line_bytes: 4094,
    field_bytes: 8190,
    fields: 100,
    head_bytes: 65536,
    permits: Permits::NONE,
};

pub(crate) fn look(bytes: &[u8]) {
    let mut head = Head::default();
    let whole = read_packet(bytes, &RULES, &mut head);
    let mut part = Head::default();
    let read = read_packet(&bytes[..bytes.len() / 2], &RULES, &mut part);
    assert!(read == Ok(None) || (read == whole && (read.is_err() || part == head)));
    if let Ok(Some(len)) = whole {
        assert!(len <= bytes.len() && !head.keeps_alive() && !head.expects_continue());
        assert_ne!(head.framing(), Framing::Chunked);
        assert!(!head.target().is_empty());
        for (name, value) in head.fields().filter(|(name, _)| !name.starts_with(b":")) {
            assert!(!name.contains(&b'_') && !value.contains(&b'\n'));
        }
    }
}
