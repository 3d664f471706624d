//! The start of a connection: reading it never panics, and bytes that come in pieces are read like bytes in one.

use stanchion_http::{PROXY_HEADER_BYTES_MAX, ProxyStart, ProxyVersions, proxy_start};

/// How many beginnings of an input are read.
const CUTS_MAX: usize = 16;

pub(crate) fn look(bytes: &[u8]) {
    for versions in [ProxyVersions::V1, ProxyVersions::V2, ProxyVersions::Auto] {
        let whole = proxy_start(bytes, versions);
        for len in (0..bytes.len()).step_by(1 + bytes.len() / CUTS_MAX) {
            let part = proxy_start(&bytes[..len], versions);
            assert!(part == Ok(ProxyStart::Part) || part == whole);
        }
        if let Ok(ProxyStart::Header(header)) = whole {
            assert!(header.len <= bytes.len().min(PROXY_HEADER_BYTES_MAX));
            // The bytes behind the header change nothing.
            assert_eq!(proxy_start(&bytes[..header.len], versions), whole);
        }
    }
}
