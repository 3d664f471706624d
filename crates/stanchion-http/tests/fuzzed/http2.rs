//! A head of HTTP/2, from any output of HPACK: reading it never panics, and no part of it becomes two.

use stanchion_http::{Framing, HTTP2, Head, HeadRules, StreamHead};

const LIST_BYTES_MAX: usize = 65536;
/// The separator of the parts of the input: it is not valid in HTTP's text.
const BETWEEN: u8 = 0xff;

pub(crate) fn look(bytes: &[u8]) {
    let Some((&flags, rest)) = bytes.split_first() else {
        return;
    };
    let mut parts = rest.split(|&byte| byte == BETWEEN);
    let mut next = || parts.next().unwrap_or_default();
    let (method, path, authority) = (next(), next(), next());
    let stream_head = StreamHead {
        method,
        path: (flags & 1 == 0).then_some(path),
        authority: (flags & 2 == 0).then_some(authority),
        is_all: flags & 4 == 0,
        is_websocket: flags & 8 != 0,
    };
    let parts: Vec<_> = parts.collect();
    let fields = parts.chunks_exact(2).map(|pair| (pair[0], pair[1]));
    let fields: Vec<_> = fields.collect();
    let mut head = Head::default();
    if stream_head
        .read(&fields, LIST_BYTES_MAX, &HeadRules::DEFAULT, &mut head)
        .is_err()
    {
        return;
    }
    if stream_head.is_websocket {
        head.remove_handshake();
    }
    let method = if stream_head.is_websocket {
        b"GET"
    } else {
        method
    };
    assert_eq!((head.method().as_bytes(), head.protocol()), (method, HTTP2));
    assert!(!head.keeps_alive() && head.framing() != Framing::Chunked);
    assert!(head.framing() == Framing::Empty || !stream_head.is_all);
    let crumbs = fields.iter().filter(|(name, _)| *name == b"cookie").count();
    // A repeated Content-Length of the same value is dropped (RFC 9110 section 8.6).
    let lengths = fields.iter().filter(|(name, _)| *name == b"content-length");
    let lengths = lengths.count().saturating_sub(1);
    let hosts = fields.iter().filter(|(name, _)| *name == b"host").count();
    let keys = fields
        .iter()
        .filter(|(name, _)| *name == b"sec-websocket-key" && stream_head.is_websocket);
    let expected = fields.len() - keys.count() - crumbs.saturating_sub(1) - lengths - hosts + 1;
    assert_eq!(head.fields().count(), expected);
    for (name, value) in head.fields() {
        assert!(!name.is_empty() && !name.iter().any(u8::is_ascii_uppercase));
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
    }
}
