//! The start of a connection: reading it never panics, and bytes in two pieces are read like bytes in one.

use stanchion_http::{PROXY_HEADER_BYTES_MAX, ProxyStart, ProxyVersions, proxy_start};

pub(crate) fn look(bytes: &[u8]) {
    for versions in [ProxyVersions::V1, ProxyVersions::V2, ProxyVersions::Auto] {
        let whole = proxy_start(bytes, versions);
        let part = proxy_start(&bytes[..bytes.len() / 2], versions);
        assert!(part == Ok(ProxyStart::Part) || part == whole);
        if let Ok(ProxyStart::Header(header)) = whole {
            assert!(header.len <= bytes.len().min(PROXY_HEADER_BYTES_MAX));
            // The bytes behind the header change nothing.
            assert_eq!(proxy_start(&bytes[..header.len], versions), whole);
        }
    }
}
