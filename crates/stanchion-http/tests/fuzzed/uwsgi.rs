//! A packet of the uwsgi protocol: reading it never panics, gives the same result in pieces, and smuggles nothing.

use stanchion_http::{Framing, Head, HeadRules, read_packet};

pub(crate) fn look(bytes: &[u8]) {
    let mut head = Head::default();
    let whole = read_packet(bytes, &HeadRules::DEFAULT, &mut head);
    let mut part = Head::default();
    let read = read_packet(&bytes[..bytes.len() / 2], &HeadRules::DEFAULT, &mut part);
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
