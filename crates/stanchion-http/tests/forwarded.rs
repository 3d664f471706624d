//! The fields of proxies, and which proxies are believed.

use std::net::IpAddr;

use stanchion_http::{
    ClientField, Fault, ForwardedClient, Head, SchemeFields, WrongClock, forwarded, proxy_us,
};

#[test]
fn all_that_is_said_of_the_scheme_counts() {
    const PROTO: &str = "X-Forwarded-Proto";
    const PROTOCOL: &str = "x-forwarded-protocol";
    const SSL: &str = "x-forwarded-ssl";
    let contradiction = Err(Fault::BadRequest("contradictory scheme headers"));
    let table: &[(&[(&str, &str)], _)] = &[
        (&[], Ok(None)),
        (&[(PROTO, "https")], Ok(Some("https"))),
        (&[(PROTO, "HTTPS")], Ok(Some("https"))),
        (&[(PROTO, "http")], Ok(Some("http"))),
        (&[(PROTO, "")], Ok(Some("http"))),
        (&[(PROTO, "https, http")], Ok(Some("http"))),
        (&[(PROTOCOL, "ssl")], Ok(Some("https"))),
        (&[(SSL, "on")], Ok(Some("https"))),
        (
            &[(PROTO, "https"), (SSL, "on"), (PROTOCOL, "ssl")],
            Ok(Some("https")),
        ),
        (&[(PROTO, "http"), (SSL, "off")], Ok(Some("http"))),
        (&[(PROTO, "http"), (SSL, "on")], contradiction),
        (&[(PROTO, "https"), (PROTOCOL, "http")], contradiction),
        (&[(PROTO, "https"), (PROTO, "https")], Ok(Some("https"))),
        (&[(PROTO, "https"), (PROTO, "http")], contradiction),
        (&[(PROTO, "http"), (PROTO, "https")], contradiction),
        (
            &[(PROTO, "https"), (PROTO, "https"), (PROTO, "")],
            contradiction,
        ),
    ];
    let gunicorns = [(PROTOCOL, "ssl"), (PROTO, "https"), (SSL, "on")];
    let gunicorns = SchemeFields::new(gunicorns.into_iter());
    for (said, expected) in table {
        let head = Head::of("GET", "/", said);
        assert_eq!(gunicorns.scheme(&head), *expected, "{said:?}");
    }
}

#[test]
fn the_scheme_is_said_in_the_fields_that_are_named_and_no_others() {
    // The second is as long as the first plus 64 bytes.
    let long = format!("X-{}", "a".repeat(64 + 6));
    let middle = "a".repeat(40);
    let fields = [("FRONT-ON", "1"), (&*middle, "m"), (&*long, "yes")];
    let fields = SchemeFields::new(fields.into_iter());
    let contradiction = Err(Fault::BadRequest("contradictory scheme headers"));
    for (said, expected) in [
        (&[("Front-On", "1")][..], Ok(Some("https"))),
        (&[("Front-On", "on")], Ok(Some("http"))),
        (&[("X-Forwarded-Proto", "https")], Ok(None)),
        (&[("Front-Of", "1")], Ok(None)),
        (&[(&middle, "m")], Ok(Some("https"))),
        (&[(&long, "YES")], Ok(Some("https"))),
        (&[(&long, "YES"), ("Front-On", "1")], Ok(Some("https"))),
        (&[(&long, "yes"), ("Front-On", "0")], contradiction),
    ] {
        assert_eq!(
            fields.scheme(&Head::of("GET", "/", said)),
            expected,
            "{said:?}"
        );
    }
    let nobody = SchemeFields::new([].into_iter());
    let said = Head::of("GET", "/", &[("X-Forwarded-Proto", "https")]);
    assert_eq!(nobody.scheme(&said), Ok(None));
}

/// How long a proxy with these fields held a request, at `NOW_US`.
fn since(said: &[&str]) -> Result<Option<u64>, WrongClock> {
    let fields: Vec<_> = said.iter().map(|said| ("X-Request-Start", *said)).collect();
    proxy_us(&Head::of("GET", "/", &fields), NOW_US)
}

const NOW_US: u64 = 1_700_000_000_123_000;

#[test]
fn every_unit_that_is_in_use() {
    for text in [
        "t=1700000000.123",
        "1700000000.123",
        "t=1700000000123",
        "1700000000123",
        "1700000000123.0",
        "t=1700000000123000",
        "1700000000123000000",
    ] {
        assert_eq!(since(&[text]), Ok(Some(0)), "{text}");
    }
    assert_eq!(since(&["1700000000"]), Ok(Some(123_000)));
    for text in [
        "",
        "t=",
        "t=now",
        "-1",
        "1e9",
        "1.2.3",
        "0x10",
        "17000000001230000000",
        "1.0123456789",
    ] {
        assert_eq!(since(&[text]), Ok(None), "{text}");
    }
    assert_eq!(since(&[]), Ok(None));
    assert_eq!(since(&["1700000000", "1700000000"]), Ok(None));
}

#[test]
fn a_time_that_cannot_be_is_a_wrong_clock() {
    const S_US: u64 = 1_000_000;
    for (start_us, expected) in [
        (NOW_US - 1_500, Ok(Some(1_500))),
        (NOW_US, Ok(Some(0))),
        (NOW_US + S_US, Ok(Some(0))),
        (NOW_US + S_US + 1, Err(WrongClock)),
        (NOW_US - 3600 * S_US, Ok(Some(3600 * S_US))),
        (NOW_US - 3600 * S_US - 1, Err(WrongClock)),
    ] {
        assert_eq!(since(&[&start_us.to_string()]), expected, "{start_us}");
    }
}

#[test]
fn whose_a_request_is() {
    // Peer, values of X-Forwarded-For if the peer is trusted, other trusted proxies, the client.
    type Row = (
        &'static str,
        Option<&'static [&'static str]>,
        &'static [&'static str],
        &'static str,
    );
    let table: &[Row] = &[
        ("192.0.2.1", None, &[], "192.0.2.1"),
        ("127.0.0.1", Some(&[]), &["127.0.0.1"], "127.0.0.1"),
        (
            "127.0.0.1",
            Some(&["198.51.100.7"]),
            &["127.0.0.1"],
            "198.51.100.7",
        ),
        // The client may have written the addresses before.
        (
            "127.0.0.1",
            Some(&["10.1.1.1, 198.51.100.7"]),
            &[],
            "198.51.100.7",
        ),
        (
            "127.0.0.1",
            Some(&["10.1.1.1", "198.51.100.7"]),
            &[],
            "198.51.100.7",
        ),
        // Another trusted proxy in between.
        (
            "127.0.0.1",
            Some(&["198.51.100.7,10.0.0.2"]),
            &["10.0.0.2"],
            "198.51.100.7",
        ),
        (
            "127.0.0.1",
            Some(&["198.51.100.7", "10.0.0.2"]),
            &["10.0.0.2"],
            "198.51.100.7",
        ),
        // Trusted proxies only: the first of them speaks for itself.
        (
            "127.0.0.1",
            Some(&["10.0.0.3, 10.0.0.2"]),
            &["10.0.0.2", "10.0.0.3"],
            "10.0.0.3",
        ),
        (
            "127.0.0.1",
            Some(&["198.51.100.7, unknown"]),
            &[],
            "127.0.0.1",
        ),
        (
            "127.0.0.1",
            Some(&["unknown, 10.0.0.2"]),
            &["10.0.0.2"],
            "10.0.0.2",
        ),
        ("127.0.0.1", Some(&[""]), &[], "127.0.0.1"),
        // With a port, and in all forms of IPv6.
        (
            "127.0.0.1",
            Some(&["198.51.100.7:4711"]),
            &[],
            "198.51.100.7",
        ),
        (
            "127.0.0.1",
            Some(&["[2001:db8::1]:4711"]),
            &[],
            "2001:db8::1",
        ),
        ("127.0.0.1", Some(&["2001:db8::1"]), &[], "2001:db8::1"),
        (
            "127.0.0.1",
            Some(&["::ffff:198.51.100.7"]),
            &[],
            "198.51.100.7",
        ),
        // A unix socket.
        ("", Some(&["10.1.1.1, 198.51.100.7"]), &[], "198.51.100.7"),
        ("", None, &[], ""),
        ("", Some(&[]), &[], ""),
    ];
    for &(peer, said, proxies, expected) in table {
        let proxies: Vec<IpAddr> = proxies.iter().map(|proxy| proxy.parse().unwrap()).collect();
        let head = said.map(|said| {
            let fields: Vec<_> = said.iter().map(|said| ("X-Forwarded-For", *said)).collect();
            Head::of("GET", "/", &fields)
        });
        let is_proxy = |address| proxies.contains(&address);
        let client = ClientField::XForwardedFor.client(peer.parse().ok(), head.as_ref(), is_proxy);
        assert_eq!(client, expected.parse().ok(), "{peer:?} {said:?}");
    }
}

/// The client and scheme in fields of RFC 7239, where 10.0.0.0/8 and one address of IPv6 are proxies.
fn said(fields: &[&str]) -> Result<(String, &'static str), u16> {
    let proxy: IpAddr = "2001:db8::99".parse().expect("an address");
    let is_proxy = |ip: IpAddr| ip == proxy || ip.to_string().starts_with("10.");
    let said = forwarded(fields.iter().map(|field| field.as_bytes()), is_proxy);
    let ForwardedClient { client, scheme } = said.map_err(Fault::status)?;
    let client = client.map(|client| client.to_string()).unwrap_or_default();
    Ok((client, scheme.unwrap_or_default()))
}

#[test]
fn what_forwarded_says() {
    for (fields, client, scheme) in [
        (&[][..], "", ""),
        (&[""], "", ""),
        (&["for=192.0.2.1"], "192.0.2.1", ""),
        (&["For=192.0.2.1;PROTO=HTTPS"], "192.0.2.1", "https"),
        (
            &["proto=http;by=10.0.0.1;for=192.0.2.1;host=a"],
            "192.0.2.1",
            "http",
        ),
        (&["proto=ftp;for=192.0.2.1"], "192.0.2.1", "http"),
        (&["for=\"192.0.2.1:4711\""], "192.0.2.1", ""),
        (&["for=192.0.2.1:4711"], "192.0.2.1", ""),
        (&["for=\"192.0.2.1:_port\""], "192.0.2.1", ""),
        (&["for=\"[2001:db8::1]\""], "2001:db8::1", ""),
        (&["for=\"[2001:db8::1]:4711\""], "2001:db8::1", ""),
        (&["for=[2001:db8::1]"], "2001:db8::1", ""),
        (&["for=2001:db8::1"], "2001:db8::1", ""),
        (&["for=\"[::ffff:192.0.2.1]\""], "192.0.2.1", ""),
        (&["for=\"\\1\\92.0.2.1\""], "192.0.2.1", ""),
        // Hidden: the proxy stands for all its clients.
        (&["for=unknown;proto=https"], "", "https"),
        (&["for=_hidden"], "", ""),
        (&["for=\"_hidden:_port\""], "", ""),
        (&["proto=https"], "", "https"),
        (&["for=192.0.2.1, for=unknown"], "", ""),
        (
            &["for=unknown;proto=https, for=10.0.0.2"],
            "10.0.0.2",
            "https",
        ),
        // Several clients: the last one that is not a trusted proxy counts, because the client may have written the elements before.
        (
            &["for=203.0.113.9;proto=https, for=192.0.2.1;proto=http"],
            "192.0.2.1",
            "http",
        ),
        (
            &["for=203.0.113.9;proto=https", "for=192.0.2.1;proto=http"],
            "192.0.2.1",
            "http",
        ),
        (
            &["for=203.0.113.9;proto=https", "for=192.0.2.1"],
            "192.0.2.1",
            "",
        ),
        (
            &["for=192.0.2.1;proto=https, for=10.0.0.2;proto=http"],
            "192.0.2.1",
            "https",
        ),
        (
            &["for=192.0.2.1, for=10.0.0.2;proto=https"],
            "192.0.2.1",
            "",
        ),
        (
            &[
                "for=192.0.2.1;proto=https,for=\"[2001:db8::99]\"",
                "for=10.0.0.2",
            ],
            "192.0.2.1",
            "https",
        ),
        (
            &["for=10.0.0.3;proto=https, for=10.0.0.2"],
            "10.0.0.3",
            "https",
        ),
        // A malformed field before a client is not read at all.
        (&["for=\"", "for=192.0.2.1"], "192.0.2.1", ""),
        // Whitespace, empty elements and pairs, other parameters.
        (
            &[" for=192.0.2.1 ; proto=https\t, , ;"],
            "192.0.2.1",
            "https",
        ),
        (&[" for=192.0.2.1 ; proto=https\t"], "192.0.2.1", "https"),
        (
            &[";;for=192.0.2.1;;x=\"a,b;c=\\\"for=203.0.113.9\";"],
            "192.0.2.1",
            "",
        ),
    ] {
        assert_eq!(said(fields), Ok((client.to_owned(), scheme)), "{fields:?}");
    }
}

#[test]
fn a_forwarded_field_that_cannot_be_read_is_refused() {
    for field in [
        "for",
        "for=",
        "for=;proto=http",
        "=192.0.2.1",
        "for =192.0.2.1",
        "for= 192.0.2.1",
        "for=192.0.2.1 proto=https",
        "for=192.0.2.1;for=192.0.2.2",
        "for=192.0.2.1;x=1;X=2",
        "for=\"192.0.2.1",
        "for=\"192.0.2.1\"x",
        "for=1\"92.0.2.1\"",
        "for=\"192.0.2.1\\",
        "for=\"[2001:db8::1\"",
        "for=\"[192.0.2.1]\"",
        "for=\"[2001:db8::1]x\"",
        "for=192.0.2.1/24",
        "for=(192.0.2.1)",
        // A client opens a quoted string so that the proxy's element becomes a part of its own.
        "for=203.0.113.9;x=\", for=192.0.2.1;proto=http",
        "for=203.0.113.9;x=\", for=\"[2001:db8::1]\"",
        "for=203.0.113.9;x=\", for=192.0.2.1;host=\"a\"",
    ] {
        assert_eq!(said(&[field]), Err(400), "{field}");
        assert_eq!(said(&[field, "for=10.0.0.2"]), Err(400), "{field}");
    }
}
