//! Fields of clients and proxies about a request: reading them never panics, and only the proxies' own are believed.

use std::net::{IpAddr, Ipv4Addr};

use stanchion_http::{
    ClientField, FieldRules, Head, HeaderMap, SchemeFields, environ_name, forwarded,
    percent_decoded, proxy_us, split_host, split_mount,
};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const NOW_US: u64 = 1_700_000_000_000_000;

pub(crate) fn look(bytes: &[u8]) {
    let mut head = Head::of("GET", "/", &[]);
    head.set("X-Forwarded-For", bytes);
    head.set("X-Forwarded-Proto", bytes);
    head.set("X-Request-Start", bytes);
    assert_eq!(
        ClientField::XForwardedFor.client(Some(PEER), None, |_| true),
        Some(PEER)
    );
    let client = ClientField::XForwardedFor.client(Some(PEER), Some(&head), |_| false);
    let text = String::from_utf8_lossy(bytes);
    let last = text.rsplit(',').next().unwrap_or_default();
    if !last.contains(|char: char| char.is_ascii_hexdigit() || char == ':') {
        assert_eq!(client, Some(PEER), "it names no address");
    }
    // A client cannot change the proxy's element, neither in a field of its own nor in the same field.
    let proxys = b"for=192.0.2.1;proto=http";
    let own = forwarded([bytes, proxys].into_iter(), |_| false).expect("the proxy's can be read");
    let same = forwarded([&[bytes, b", ", proxys].concat()[..]].into_iter(), |_| {
        false
    });
    assert!(same.is_err() || same == Ok(own), "{same:?}");
    let fields = SchemeFields::new([("x-forwarded-proto", "https")].into_iter());
    let scheme = fields
        .scheme(&head)
        .expect("one value contradicts no other");
    assert_eq!(
        scheme == Some("https"),
        bytes.eq_ignore_ascii_case(b"https")
    );
    let us = proxy_us(&head, NOW_US).unwrap_or_default();
    assert!(us.is_none_or(|us| us <= 3_600_000_000));
    assert!(percent_decoded(bytes).len() <= bytes.len());
    let mut name = String::new();
    environ_name(bytes, &mut name);
    // A variable of a uwsgi packet keeps its name; no field of HTTP can have such a name.
    let is_variable = bytes.first() == Some(&b':');
    assert!(is_variable || !name.contains('-'));
    assert!(name.chars().count() <= bytes.len() + "HTTP_".len());
    for header_map in [HeaderMap::Drop, HeaderMap::Refuse, HeaderMap::Dangerous] {
        let _ = FieldRules::new(header_map, &text).fate(bytes, true);
    }
    let (host, port) = split_host(bytes, b"80");
    assert!(bytes.starts_with(host) && (port == b"80" || bytes.ends_with(port)));
    if let Some(rest) = split_mount(bytes, b"/a") {
        assert_eq!([b"/a", rest].concat(), bytes);
    }
}
