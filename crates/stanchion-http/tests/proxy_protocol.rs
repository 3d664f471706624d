//! PROXY headers: the client that they give, and headers that are refused.

use std::net::SocketAddr;

use stanchion_http::{
    PROXY_HEADER_BYTES_MAX, ProxyHeader, ProxyStart, ProxyVersions, is_proxy_header, proxy_start,
};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const V4: &[u8] = &[192, 0, 2, 1, 198, 51, 100, 2, 0x10, 0x01, 0x01, 0xbb];

fn v2(version_command: u8, family_transport: u8, parts: &[&[u8]]) -> Vec<u8> {
    let block = parts.concat();
    let len = (block.len() as u16).to_be_bytes();
    [
        SIGNATURE,
        &[version_command, family_transport],
        &len,
        &block,
    ]
    .concat()
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let len = (value.len() as u16).to_be_bytes();
    [&[kind], &len[..], value].concat()
}

fn addresses(source: &str, destination: &str) -> (SocketAddr, SocketAddr) {
    let place = |text: &str| text.parse().expect("an address and a port");
    (place(source), place(destination))
}

fn read(bytes: &[u8], versions: ProxyVersions) -> Result<ProxyStart, &'static str> {
    proxy_start(bytes, versions).map_err(|fault| {
        assert_eq!(fault.status(), 400);
        fault.reason()
    })
}

/// The whole header is read as `expected`, and each part of it as a part, whatever bytes follow.
#[track_caller]
fn is_read(bytes: &[u8], versions: &[ProxyVersions], expected: ProxyHeader) {
    for &versions in versions {
        for len in 0..bytes.len() {
            let part = read(&bytes[..len], versions);
            assert_eq!(part, Ok(ProxyStart::Part), "{len} {versions:?}");
        }
        for behind in [&b""[..], b"\n", b"GET / HTTP/1.1\r\n", bytes] {
            let all = [bytes, behind].concat();
            assert_eq!(
                read(&all, versions),
                Ok(ProxyStart::Header(expected)),
                "{versions:?}"
            );
        }
    }
}

#[test]
fn a_line_of_version_1() {
    let both = [ProxyVersions::V1, ProxyVersions::Auto];
    for (line, addresses) in [
        (
            "PROXY TCP4 192.0.2.1 198.51.100.2 4097 443\r\n",
            Some(addresses("192.0.2.1:4097", "198.51.100.2:443")),
        ),
        (
            "PROXY TCP4 255.255.255.255 255.255.255.255 65535 0\r\n",
            Some(addresses("255.255.255.255:65535", "255.255.255.255:0")),
        ),
        (
            "PROXY TCP6 2001:db8::1 ::1 1 2\r\n",
            Some(addresses("[2001:db8::1]:1", "[::1]:2")),
        ),
        // The longest possible header by section 2.1.
        (
            "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
            None,
        ),
        ("PROXY UNKNOWN\r\n", None),
        ("PROXY UNKNOWN whatever\tit is\r\n", None),
    ] {
        let header = ProxyHeader {
            len: line.len(),
            addresses,
            is_tls: false,
        };
        is_read(line.as_bytes(), &both, header);
    }
}

#[test]
fn a_line_that_is_not_quite_one() {
    for line in [
        "PROXY \r\n",
        "PROXY TCP4\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 4097\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 4097 443 1\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 4097 443 \r\n",
        "PROXY TCP4  192.0.2.1 198.51.100.2 4097 443\r\n",
        "PROXY TCP4\t192.0.2.1 198.51.100.2 4097 443\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 4097 443\n",
        "PROXY TCP4 2001:db8::1 ::1 1 2\r\n",
        "PROXY TCP6 192.0.2.1 198.51.100.2 1 2\r\n",
        "PROXY UDP4 192.0.2.1 198.51.100.2 1 2\r\n",
        "PROXY tcp4 192.0.2.1 198.51.100.2 1 2\r\n",
        "PROXY TCP4 192.0.2.01 198.51.100.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 01 2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 +1 2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 -1 2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 65536 2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2  2\r\n",
        "PROXY UNKNOWN2\r\n",
        "PROXY TCP6 fe80::1%1 ::1 1 2\r\n",
        "PROXY UNKNOWN \u{e9}",
    ] {
        for versions in [ProxyVersions::V1, ProxyVersions::Auto] {
            let seen = read(line.as_bytes(), versions);
            if line.ends_with('\n') {
                assert_eq!(
                    seen,
                    Err("a PROXY header that is not of version 1"),
                    "{line:?}"
                );
            } else {
                assert_eq!(seen, Ok(ProxyStart::Part));
            }
        }
    }
    let endless = ["PROXY UNKNOWN ", &"x".repeat(93)].concat();
    assert_eq!(endless.len(), 107);
    let part = read(&endless.as_bytes()[..106], ProxyVersions::V1);
    assert_eq!(part, Ok(ProxyStart::Part));
    let whole = read(endless.as_bytes(), ProxyVersions::V1);
    assert_eq!(whole, Err("a PROXY header over 107 bytes"));
    let late = [endless.as_bytes(), b"\r\n"].concat();
    assert_eq!(read(&late, ProxyVersions::V1), whole);
}

#[test]
fn a_header_of_version_2() {
    let both = [ProxyVersions::V2, ProxyVersions::Auto];
    let v6 = [
        &[0x20, 0x01, 0x0d, 0xb8][..],
        &[0; 11],
        &[1],
        &[0; 15],
        &[1, 0, 1, 0, 2],
    ]
    .concat();
    let told = Some(addresses("192.0.2.1:4097", "198.51.100.2:443"));
    let told_v6 = Some(addresses("[2001:db8::1]:1", "[::1]:2"));
    let tls = tlv(0x20, &[1, 0, 0, 0, 0]);
    let more_tls = tlv(
        0x20,
        &[
            7, 0, 0, 0, 0, 0x21, 0, 7, b'T', b'L', b'S', b'v', b'1', b'.', b'3',
        ],
    );
    // A certificate on this connection or an earlier one, but no TLS: a contradiction.
    let plain = tlv(0x20, &[6, 0, 0, 0, 1]);
    let others = [
        tlv(0x01, b"h2"),
        tlv(0x04, &[0; 9]),
        tlv(0xea, b""),
        tlv(0xff, b"?"),
    ]
    .concat();
    for (command, family, parts, addresses, is_tls) in [
        (0x21, 0x11, vec![V4], told, false),
        (0x21, 0x21, vec![&v6[..]], told_v6, false),
        (0x21, 0x11, vec![V4, &others], told, false),
        (0x21, 0x11, vec![V4, &tls], told, true),
        (
            0x21,
            0x11,
            vec![V4, &others, &more_tls, &others],
            told,
            true,
        ),
        (0x21, 0x11, vec![V4, &plain], told, false),
        (0x21, 0x21, vec![&v6, &tls], told_v6, true),
        (0x21, 0x31, vec![&[b'/'; 216][..], &tls], None, true),
        (0x21, 0x00, vec![], None, false),
        (0x21, 0x00, vec![&tls[..]], None, true),
        (0x21, 0x01, vec![], None, false),
        // LOCAL: the receiver discards the rest.
        (0x20, 0x00, vec![], None, false),
        (0x20, 0x11, vec![V4, &tls], None, false),
        (0x20, 0x77, vec![b"garbage"], None, false),
    ] {
        let bytes = v2(command, family, &parts);
        let header = ProxyHeader {
            len: bytes.len(),
            addresses,
            is_tls,
        };
        is_read(&bytes, &both, header);
    }
}

#[test]
fn a_header_of_version_2_that_makes_no_sense() {
    const FIT: &str = "a PROXY header whose type-length-values do not fit it";
    const SHORT: &str = "a PROXY header that is too short for its addresses";
    const OTHER: &str = "a PROXY header for something other than TCP or a unix socket";
    const UNKNOWN: &str = "a PROXY header of an unknown version or command";
    let tls = tlv(0x20, &[1, 0, 0, 0, 0]);
    for (command, family, parts, reason) in [
        (0x22, 0x11, vec![V4], UNKNOWN),
        (0x31, 0x11, vec![V4], UNKNOWN),
        (0x11, 0x11, vec![V4], UNKNOWN),
        (0x21, 0x12, vec![V4], OTHER),
        (0x21, 0x10, vec![V4], OTHER),
        (0x21, 0x41, vec![V4], OTHER),
        (0x21, 0x03, vec![V4], OTHER),
        (0x21, 0x11, vec![&V4[..11]], SHORT),
        (0x21, 0x11, vec![], SHORT),
        (0x21, 0x21, vec![&[0; 35][..]], SHORT),
        (0x21, 0x31, vec![&[0; 215][..]], SHORT),
        (0x21, 0x11, vec![V4, &[1]], FIT),
        (0x21, 0x11, vec![V4, &[1, 0]], FIT),
        (0x21, 0x11, vec![V4, &[1, 0, 1]], FIT),
        (0x21, 0x11, vec![V4, &[1, 0xff, 0xff, 0]], FIT),
        (0x21, 0x11, vec![V4, &tls, &[0]], FIT),
        (0x21, 0x11, vec![V4, &tls, &tls], FIT),
        (0x21, 0x11, vec![V4, &[0x20, 0, 4, 1, 0, 0, 0]], FIT),
        (0x21, 0x11, vec![V4, &[3, 0, 3, 0, 0, 0]], FIT),
    ] {
        for versions in [ProxyVersions::V2, ProxyVersions::Auto] {
            let bytes = v2(command, family, &parts);
            assert_eq!(
                read(&bytes, versions),
                Err(reason),
                "{command:x} {family:x} {parts:?}"
            );
        }
    }
    let most = v2(0x20, 0, &[&vec![0; PROXY_HEADER_BYTES_MAX - 16]]);
    assert!(matches!(
        read(&most, ProxyVersions::V2),
        Ok(ProxyStart::Header(ProxyHeader {
            len: PROXY_HEADER_BYTES_MAX,
            ..
        }))
    ));
    let too_much = v2(0x20, 0, &[&vec![0; PROXY_HEADER_BYTES_MAX - 15]]);
    // Refused before any of the rest has come.
    let seen = read(&too_much[..16], ProxyVersions::V2);
    assert_eq!(seen, Err("a PROXY header over 4096 bytes"));
}

#[test]
fn a_checksum_is_held_to() {
    // The checksum is computed over the header with four zeros in its place (section 2.2.5).
    let told = |checksum: [u8; 4]| v2(0x21, 0x11, &[V4, &tlv(0x03, &checksum)]);
    let right = told([0, 0, 0, 0]);
    let sum = reference_crc32c(&right).to_be_bytes();
    let header = ProxyHeader {
        len: right.len(),
        addresses: Some(addresses("192.0.2.1:4097", "198.51.100.2:443")),
        is_tls: false,
    };
    is_read(&told(sum), &[ProxyVersions::V2], header);
    for byte in 0..4 {
        let mut wrong = sum;
        wrong[byte] ^= 1;
        let seen = read(&told(wrong), ProxyVersions::V2);
        assert_eq!(seen, Err("a PROXY header whose checksum is wrong"));
    }
}

/// RFC 4960 appendix B by long division, bit by bit from the front, with bits reversed before and after.
fn reference_crc32c(bytes: &[u8]) -> u32 {
    let mut remainder = u32::MAX;
    for byte in bytes {
        remainder ^= u32::from(byte.reverse_bits()) << 24;
        for _ in 0..8 {
            let carry = remainder >> 31 != 0;
            remainder <<= 1;
            if carry {
                remainder ^= 0x1edc_6f41;
            }
        }
    }
    !remainder.reverse_bits()
}

#[test]
fn the_reference_is_right() {
    // The check value in the catalogue of CRCs.
    assert_eq!(reference_crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn what_is_no_header_is_refused_unless_there_need_be_none() {
    let (v1, v2) = (b"PROXY UNKNOWN\r\n", v2(0x20, 0, &[]));
    let none = Err("no PROXY header from a peer in proxy_allow_ips");
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"PROXX",
        b"POST",
        b"\x16\x03\x01",
        b"\r\nG",
        b"\r\n\r\n\0\r\nQUIT\r",
    ] {
        assert_eq!(
            read(bytes, ProxyVersions::Auto),
            Ok(ProxyStart::Absent),
            "{bytes:?}"
        );
        assert_eq!(read(bytes, ProxyVersions::V1), none, "{bytes:?}");
        assert_eq!(read(bytes, ProxyVersions::V2), none, "{bytes:?}");
        assert!(!is_proxy_header(bytes));
    }
    let other = read(&v2, ProxyVersions::V1);
    assert_eq!(
        other,
        Err("a PROXY header of version 2 where proxy_protocol is v1")
    );
    let other = read(v1, ProxyVersions::V2);
    assert_eq!(
        other,
        Err("a PROXY header of version 1 where proxy_protocol is v2")
    );
    assert!(is_proxy_header(v1) && is_proxy_header(&v2) && !is_proxy_header(b"PROXY /"));
    assert!(is_proxy_header(b"PROXY TCP6 "));
}
