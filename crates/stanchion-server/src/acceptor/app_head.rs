//! The head of an answer, as a worker wrote it: believed in nothing. What it gets wrong a host
//! would not have let pass, so its worker is out of its mind or in somebody else's hands.

use http::header::SERVER;
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use stanchion_exchange::Corrupt;
use stanchion_http::answer::{self, BodyLength};

/// The head of an answer that can be sent.
pub(super) struct AppHead {
    pub(super) parts: Parts,
    /// What of a body goes with it.
    pub(super) body: Promised,
}

/// How long the body of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promised {
    /// There is none: of this request, or with this status (RFC 9112 section 6.3, point 1).
    Nothing,
    /// As the head says.
    Bytes(u64),
    /// The head does not say.
    Unknown,
}

impl Promised {
    /// Bytes of it, if that is known.
    pub(super) fn bytes(self) -> Option<u64> {
        match self {
            Self::Nothing => Some(0),
            Self::Bytes(bytes) => Some(bytes),
            Self::Unknown => None,
        }
    }

    /// A body of so many bytes, all of it, is to go out. If it were not what the head says, the client would
    /// take what is left for another answer, or wait for it.
    pub(super) fn keep_with(self, whole: u64) -> Result<(), Corrupt> {
        match self.bytes() {
            Some(bytes) if bytes != whole => Err(Corrupt("an answer is not as long as it says")),
            Some(_) | None => Ok(()),
        }
    }
}

impl AppHead {
    /// Holds the head of a worker's answer to `method`, in wire form, to the rules.
    pub(super) fn check(wire: &[u8], method: &Method) -> Result<Self, Corrupt> {
        let facts = answer::check(wire, *method == Method::HEAD).map_err(Corrupt)?;
        let no_http = |_| Corrupt("the head of an answer is not HTTP");
        let (mut parts, ()) = http::Response::new(()).into_parts();
        parts.status = StatusCode::from_u16(facts.status)
            .map_err(|_| Corrupt("an answer has no such status"))?;
        let reason = reason(wire);
        if !reason.is_empty() && parts.status.canonical_reason().map(str::as_bytes) != Some(reason)
        {
            let reason = hyper::ext::ReasonPhrase::try_from(reason)
                .map_err(|_| Corrupt("the reason of an answer is not HTTP"))?;
            parts.extensions.insert(reason);
        }
        let mut headers = HeaderMap::new();
        for (name, value) in answer::fields(wire) {
            let name = HeaderName::from_bytes(name)
                .map_err(|_| Corrupt("a field of an answer has no name of HTTP"))?;
            headers.append(name, HeaderValue::from_bytes(value).map_err(no_http)?);
        }
        if !facts.has_server {
            headers.insert(SERVER, HeaderValue::from_static("stanchion"));
        }
        parts.headers = headers;
        let body = match facts.length {
            BodyLength::Nothing => Promised::Nothing,
            BodyLength::Bytes(bytes) => Promised::Bytes(bytes),
            BodyLength::Unknown => Promised::Unknown,
        };
        Ok(Self { parts, body })
    }
}

/// What stands behind the status in a head that was checked.
fn reason(wire: &[u8]) -> &[u8] {
    let line = wire.split(|&byte| byte == b'\r').next();
    line.and_then(|line| line.get(b"HTTP/1.1 200 ".len()..))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::Full;
    use hyper_util::rt::TokioIo;
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::record::{AnswerHead, PREFIX_BYTES, answer_prefix};

    type Fields<'a> = &'a [(&'a [u8], &'a [u8])];

    /// The head of an answer in wire form.
    fn head(status: u16, fields: Fields<'_>) -> Vec<u8> {
        let mut head = AnswerHead::default();
        head.begin(status, b"");
        for (name, value) in fields {
            head.field(name, value);
        }
        head.wire().to_vec()
    }

    #[test]
    fn what_a_body_is_promised_to_be() {
        let table: [(Method, u16, Fields<'_>, Promised); 9] = [
            (Method::GET, 200, &[], Promised::Unknown),
            (
                Method::GET,
                200,
                &[(b"content-length", b"7")],
                Promised::Bytes(7),
            ),
            (
                Method::GET,
                200,
                &[(b"Content-Length", b"007")],
                Promised::Bytes(7),
            ),
            (
                Method::HEAD,
                200,
                &[(b"content-length", b"7")],
                Promised::Nothing,
            ),
            (Method::HEAD, 200, &[], Promised::Nothing),
            (Method::GET, 204, &[], Promised::Nothing),
            (
                Method::GET,
                304,
                &[(b"content-length", b"7")],
                Promised::Nothing,
            ),
            (
                Method::POST,
                599,
                &[(b"content-length", b"0")],
                Promised::Bytes(0),
            ),
            (Method::PUT, 999, &[], Promised::Unknown),
        ];
        for (method, status, fields, expected) in table {
            let head = head(status, fields);
            let checked = AppHead::check(&head, &method).map(|head| head.body);
            let shown = String::from_utf8_lossy(&head);
            assert_eq!(checked, Ok(expected), "{method} {shown}");
        }
    }

    #[test]
    fn what_no_worker_may_say_is_refused() {
        let length = |value| -> [(&[u8], &[u8]); 1] { [(b"content-length", value)] };
        for status in [
            "000", "099", "100", "101", "103", "199", "1000", "20", "2x0",
        ] {
            let wire = format!("HTTP/1.1 {status} OK\r\n");
            assert!(
                AppHead::check(wire.as_bytes(), &Method::GET).is_err(),
                "{status}"
            );
        }
        assert!(AppHead::check(&head(204, &length(b"0")), &Method::GET).is_err());
        let fields: [Fields<'_>; 21] = [
            &[(b"connection", b"close")],
            &[(b"Connection", b"keep-alive")],
            &[(b"keep-alive", b"timeout=5")],
            &[(b"proxy-authenticate", b"Basic")],
            &[(b"proxy-authorization", b"x")],
            &[(b"proxy-connection", b"keep-alive")],
            &[(b"te", b"trailers")],
            &[(b"trailer", b"x")],
            &[(b"transfer-encoding", b"chunked")],
            &[(b"Transfer-Encoding", b"identity")],
            &[(b"upgrade", b"h2c")],
            &length(b""),
            &length(b"+7"),
            &length(b"7, 7"),
            &length(b"0x7"),
            &[(b"content-length", b"7"), (b"content-length", b"8")],
            &[(b"content-length", b"7"), (b"Content-Length", b"7")],
            &[(b"a", b"x\r\n folded")],
            &[(b"", b"x")],
            &[(b"a b", b"x")],
            &[(b"a", b"x\0")],
        ];
        for fields in fields {
            assert!(
                AppHead::check(&head(200, fields), &Method::GET).is_err(),
                "{fields:?}"
            );
        }
        for reason in [&b"OK\r\nx"[..], b"\n", b"\0", b"\x7f"] {
            let mut head = AnswerHead::default();
            head.begin(200, reason);
            let checked = AppHead::check(head.wire(), &Method::GET);
            assert!(checked.is_err(), "{reason:?}");
        }
    }

    #[test]
    fn a_whole_body_is_as_long_as_was_promised() {
        for (promised, whole, keeps) in [
            (Promised::Nothing, 0, true),
            (Promised::Nothing, 1, false),
            (Promised::Bytes(5), 5, true),
            (Promised::Bytes(5), 4, false),
            (Promised::Bytes(5), 6, false),
            (Promised::Bytes(5), 0, false),
            (Promised::Unknown, 6, true),
        ] {
            assert_eq!(
                promised.keep_with(whole).is_ok(),
                keeps,
                "{promised:?} {whole}"
            );
        }
    }

    /// What a client gets that asks twice over one connection, the second time to hear [`SECOND`].
    fn wire(head: AppHead, method: &Method, body: &[u8]) -> Vec<u8> {
        let first = std::cell::Cell::new(Some((head.parts, Bytes::copy_from_slice(body))));
        let service = hyper::service::service_fn(|_| {
            let (parts, body) = first.take().unwrap_or_else(|| {
                let (parts, ()) = http::Response::new(()).into_parts();
                (parts, Bytes::from_static(SECOND))
            });
            let response = http::Response::from_parts(parts, Full::new(body));
            async { Ok::<_, Infallible>(response) }
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let (mut client, server) = tokio::net::UnixStream::pair().expect("a pair");
            let asked = format!(
                "{method} / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            );
            client.write_all(asked.as_bytes()).await.expect("sent");
            let mut http = hyper::server::conn::http1::Builder::new();
            let served = http.pipeline_flush(true);
            // What came of it shows on the wire, whose buffer has room for all of it.
            let _ = served
                .serve_connection(TokioIo::new(server), service)
                .await;
            let mut got = Vec::new();
            client.read_to_end(&mut got).await.expect("read");
            got
        })
    }

    const SECOND: &[u8] = b"the second";

    /// One answer as a strict client reads it: status and body; and what is left.
    fn read_one(bytes: &[u8], is_head: bool) -> Option<(u16, &[u8], &[u8])> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let lines: Vec<&[u8]> = bytes[..end]
            .split(|&byte| byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .collect();
        let odd = |line: &&[u8]| line.iter().any(|byte| matches!(byte, b'\r' | b'\0'));
        if lines.iter().any(odd)
            || bytes[..end]
                .windows(2)
                .any(|two| two[1] == b'\n' && two[0] != b'\r')
        {
            return None;
        }
        let status = std::str::from_utf8(lines[0].get(9..12)?)
            .ok()?
            .parse()
            .ok()?;
        let mut lengths = lines.iter().filter_map(|line| {
            let (name, value) = line.split_at_checked(15)?;
            name.eq_ignore_ascii_case(b"content-length:")
                .then_some(value)
        });
        let coded = lines.iter().any(|line| {
            line.get(..18)
                .is_some_and(|name| name.eq_ignore_ascii_case(b"transfer-encoding:"))
        });
        let length = lengths.next();
        if coded || lengths.next().is_some() {
            return None;
        }
        let len = match length {
            _ if is_head || matches!(status, 204 | 304) => 0,
            Some(value) => std::str::from_utf8(value.trim_ascii()).ok()?.parse().ok()?,
            None => return None,
        };
        let (body, rest) = bytes[end + 4..].split_at_checked(len)?;
        Some((status, body, rest))
    }

    fn nasty_name() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => "x-[a-z]{1,4}".prop_map(String::into_bytes),
            4 => Just(b"content-length".to_vec()),
            1 => Just(b"transfer-encoding".to_vec()),
            1 => Just(b"Connection".to_vec()),
            1 => proptest::collection::vec(any::<u8>(), 0..4),
        ]
    }

    fn nasty_value() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (0..6u8).prop_map(|digit| vec![b'0' + digit]),
            1 => Just(b"chunked".to_vec()),
            1 => Just(b"x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec()),
            1 => proptest::collection::vec(any::<u8>(), 0..6),
        ]
    }

    proptest! {
        /// From the bytes in a ring to the bytes on the wire: whatever a worker writes, the client reads one
        /// answer and then the next one, or the worker is found out.
        #[test]
        fn no_answer_of_a_worker_can_be_taken_for_two(
            status in prop_oneof![4 => Just(200), 1 => Just(204), 1 => Just(304), 1 => any::<u16>()],
            reason in prop_oneof![4 => Just(vec![]), 1 => proptest::collection::vec(any::<u8>(), 0..4)],
            fields in proptest::collection::vec((nasty_name(), nasty_value()), 0..4),
            body in proptest::collection::vec(any::<u8>(), 0..6),
            spoilt in proptest::option::of((any::<proptest::sample::Index>(), any::<u8>())),
            method in prop_oneof![3 => Just(Method::GET), 1 => Just(Method::HEAD)],
        ) {
            let mut head = AnswerHead::default();
            head.begin(status, &reason);
            for (name, value) in &fields {
                head.field(name, value);
            }
            let mut bytes = head.whole(None).to_vec();
            bytes.extend_from_slice(&body);
            if let Some((at, byte)) = spoilt {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let Ok(prefix) = answer_prefix(&bytes) else { return Ok(()) };
            let behind = &bytes[PREFIX_BYTES..];
            let Some((head, body)) = behind.split_at_checked(prefix.head_len) else { return Ok(()) };
            let Ok(head) = AppHead::check(head, &method) else { return Ok(()) };
            if head.body.keep_with(body.len() as u64).is_err() {
                return Ok(());
            }
            let status = head.parts.status.as_u16();
            let promised = head.body;
            let wire = wire(head, &method, body);
            let shown = String::from_utf8_lossy(&wire).into_owned();
            let first = read_one(&wire, method == Method::HEAD);
            let (got, got_body, rest) = first.ok_or_else(|| TestCaseError::fail(shown.clone()))?;
            prop_assert_eq!(got, status, "{}", shown);
            prop_assert_eq!(got_body, if promised == Promised::Nothing { &[] } else { body }, "{}", shown);
            let (got, got_body, rest) = read_one(rest, false).ok_or_else(|| TestCaseError::fail(shown.clone()))?;
            prop_assert_eq!((got, got_body, rest), (200, SECOND, &b""[..]), "{}", shown);
        }
    }
}
