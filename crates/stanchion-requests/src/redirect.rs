//! The server redirects requests in clear text to https itself, without a worker (`redirect_to_https`).

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use stanchion_http::Head;
use stanchion_http::gateway::split_target;
use stanchion_http::put_uri;

use super::host::host_of;
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::reply::Reply;

/// The port of https, which a URI need not name.
const USUAL_PORT: u16 = 443;

/// The redirect of a request with this head to https at `port`.
///
/// # Errors
/// The request names no host to which a client can go on.
pub(crate) fn redirect(head: &Head, port: u16) -> Result<Reply, Refusal> {
    let host = host_of(head).ok().flatten().filter(|host| is_host(host));
    let host = host.ok_or(Refusal::BadRequest(
        "the request names no host for a redirect to https",
    ))?;
    let (path, query) = split_target(head.target());
    let mut location = format!("https://{host}");
    // A write to a string does not fail.
    if port != USUAL_PORT {
        let _ = write!(location, ":{port}");
    }
    // A request about the server as a whole has the target `*`.
    let path = if path.starts_with(b"/") { path } else { b"/" };
    put_uri(&mut location, path);
    if !query.is_empty() {
        location.push('?');
        put_uri(&mut location, query);
    }
    // Clients make a GET of a POST that is answered 301 (RFC 9110 section 15.4.2), and old ones know no 308.
    let status = match head.method() {
        "GET" | "HEAD" => 301,
        _ => 308,
    };
    let words = format!("{status}: only https is spoken here\n");
    Ok(Reply::text(status, words).with("Location", location))
}

/// Whether it is a name or an address, and has nothing that would mean something else in front of a path.
fn is_host(host: &str) -> bool {
    let inside = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    match inside {
        Some(inside) => inside.parse::<Ipv6Addr>().is_ok(),
        None => host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')),
    }
}

#[cfg(test)]
mod tests {
    use stanchion_http::{HeadReader, HeadRules};

    use super::*;

    fn sent_on(method: &str, target: &str, host: &str, port: u16) -> Option<(u16, String)> {
        let mut head = Head::of(method, target, &[]);
        // A reader lets no malformed host pass, but `redirect` does not rely on it.
        head.set("Host", host.as_bytes());
        let reply = redirect(&head, port).ok()?;
        let [(_, location)] = <[_; 1]>::try_from(reply.fields).ok()?;
        Some((reply.status, location))
    }

    #[test]
    fn the_same_place_by_https() {
        for (method, target, host, port, expected) in [
            ("GET", "/", "a.test", 443, (301, "https://a.test/")),
            (
                "HEAD",
                "/b?c=%20&d",
                "a.test:80",
                443,
                (301, "https://a.test/b?c=%20&d"),
            ),
            (
                "POST",
                "/b",
                "a.test:8080",
                8443,
                (308, "https://a.test:8443/b"),
            ),
            (
                "GET",
                "//evil.test/",
                "[::1]:80",
                443,
                (301, "https://[::1]//evil.test/"),
            ),
            (
                "GET",
                "http://a.test/b?c",
                "a.test",
                443,
                (301, "https://a.test/b?c"),
            ),
            ("OPTIONS", "*", "a.test", 443, (308, "https://a.test/")),
            ("GET", "/a\"b", "a.test", 443, (301, "https://a.test/a%22b")),
            (
                "GET",
                "/\\evil.test/<b>?{\"c\":`^|}",
                "a.test",
                443,
                (
                    301,
                    "https://a.test/%5Cevil.test/%3Cb%3E?%7B%22c%22:%60%5E%7C%7D",
                ),
            ),
            (
                "GET",
                "/caf\u{e9}?a[]=%5B",
                "a.test",
                443,
                (301, "https://a.test/caf%C3%A9?a[]=%5B"),
            ),
        ] {
            let (status, location) = sent_on(method, target, host, port).unwrap();
            assert_eq!((status, &*location), expected, "{target}");
        }
    }

    /// RFC 3986 section 2: whatever a target holds, the field is a URI, on one line, with the same host.
    #[test]
    fn the_field_is_a_uri_whatever_the_target_holds() {
        for byte in (0x21..=0xff).filter(|byte| !matches!(byte, b'#' | 0x7f)) {
            let mut head = Head::default();
            let text = [
                b"GET /\\",
                &[byte][..],
                b"?",
                &[byte],
                b" HTTP/1.1\r\nHost: a\r\n\r\n",
            ]
            .concat();
            HeadReader::default()
                .read(&text, &HeadRules::DEFAULT, &mut head)
                .expect("a head");
            let reply = redirect(&head, 443).expect("a reply");
            let (_, location) = &reply.fields[0];
            assert!(location.starts_with("https://a/%5C"), "{location}");
            let is_of_uri = |one: u8| one.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&one);
            assert!(location.bytes().all(is_of_uri), "{location}");
        }
    }

    #[test]
    fn what_is_no_host_is_not_sent_on_to() {
        for host in [
            "", ":80", "a@b", "a/b", "a b", "[::1", "[a]", "a%0d", "a?b", "a\\b", "a:b",
        ] {
            assert_eq!(sent_on("GET", "/", host, 443), None, "{host:?}");
        }
        assert!(redirect(&Head::of("GET", "/", &[]), 443).is_err());
    }
}
