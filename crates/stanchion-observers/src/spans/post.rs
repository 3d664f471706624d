//! One POST to a collector (OTLP specification, "OTLP/HTTP").

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use http::StatusCode;
use stanchion_http::rules::{content_length, has_body};
use stanchion_http::{Decoded, Decoder, Framing};

use super::proto::{ExportTracePartialSuccess, ExportTraceServiceResponse};
use stanchion_settings::Collector;

/// OpenTelemetry's default for one attempt. The lookup of the collector's name has limits of its own (resolv.conf(5)).
const LIMIT: Duration = Duration::from_secs(10);
/// The longest answer that the exporter reads, and the most fields that its head may have.
const ANSWER_BYTES_MAX: usize = 64 << 10;
const ANSWER_FIELDS_MAX: usize = 100;

/// Why the collector has not taken spans.
#[derive(Debug)]
pub(super) enum ExportFailure {
    /// The collector may take the spans later.
    Passing(String),
    /// The collector will never take some of the spans, or all.
    Refused {
        /// How many; `None` = all.
        spans: Option<u64>,
        why: String,
    },
}

/// Sends a message, and waits for the answer.
pub(super) fn post(collector: &Collector, message: &[u8]) -> Result<(), ExportFailure> {
    match exchange(collector, message) {
        Ok((status, body)) => judge(status, &body),
        // The kernel's answer to SO_RCVTIMEO and SO_SNDTIMEO is EAGAIN (socket(7)).
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
            ) =>
        {
            Err(ExportFailure::Passing(format!(
                "no answer within {} s",
                LIMIT.as_secs()
            )))
        }
        Err(error) => Err(ExportFailure::Passing(error.to_string())),
    }
}

/// Opens a connection for each message, since there is one in a second and no collector keeps idle connections for
/// ever.
fn exchange(collector: &Collector, message: &[u8]) -> io::Result<(StatusCode, Vec<u8>)> {
    let mut stream = Bounded::connect(collector, Instant::now() + LIMIT)?;
    let head = format!(
        "POST {} HTTP/1.1\r\n\
         Host: {}\r\n\
         User-Agent: stanchion/{}\r\n\
         Content-Type: application/json\r\n\
         Content-Length: {}\r\n\
         Connection: close\r\n\r\n",
        collector.path(),
        collector.authority(),
        env!("CARGO_PKG_VERSION"),
        message.len(),
    );
    let sent = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(message));
    // A collector may refuse a message before it has read all of it, and close: its answer says more than the reset.
    answer(&mut stream).map_err(|error| sent.err().unwrap_or(error))
}

/// A connection whose calls all end by one deadline.
struct Bounded {
    stream: TcpStream,
    deadline: Instant,
}

impl Bounded {
    /// Tries each address of the collector.
    fn connect(collector: &Collector, deadline: Instant) -> io::Result<Self> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
        for address in (collector.host(), collector.port()).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, left(deadline)?) {
                Ok(stream) => return Ok(Self { stream, deadline }),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

impl Read for Bounded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.deadline)?))?;
        self.stream.read(into)
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.deadline)?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The time until then, never zero.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// Reads an answer: its status and its body.
fn answer(from: &mut impl Read) -> io::Result<(StatusCode, Vec<u8>)> {
    let mut read = Vec::new();
    let mut piece = [0; 4096];
    while read.len() <= ANSWER_BYTES_MAX {
        let len = match from.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            len => len?,
        };
        read.extend_from_slice(&piece[..len]);
        if let Some(answer) = parse(&read, len == 0)? {
            return Ok(answer);
        }
    }
    Err(io::Error::other("its answer is too long"))
}

/// Parses an answer, if all of it is there. After `is_end` no more comes.
fn parse(bytes: &[u8], is_end: bool) -> io::Result<Option<(StatusCode, Vec<u8>)>> {
    let cut_short = || {
        if is_end {
            Err(io::ErrorKind::UnexpectedEof.into())
        } else {
            Ok(None)
        }
    };
    let mut input = bytes;
    let (status, framing) = loop {
        let mut fields = [httparse::EMPTY_HEADER; ANSWER_FIELDS_MAX];
        let mut head = httparse::Response::new(&mut fields);
        let parsed = head.parse(input).map_err(io::Error::other)?;
        let httparse::Status::Complete(head_len) = parsed else {
            return cut_short();
        };
        input = &input[head_len..];
        let code = head.code.unwrap_or_default();
        let status = StatusCode::from_u16(code).map_err(io::Error::other)?;
        if !status.is_informational() {
            break (status, framing(status, head.headers)?);
        }
    };
    let mut decoder = Decoder::new(framing);
    let mut body = Vec::new();
    loop {
        match decoder.decode(&mut input) {
            Ok(Decoded::Data(data)) => body.extend_from_slice(data),
            Ok(Decoded::End) => return Ok(Some((status, body))),
            Ok(Decoded::More) if is_end && decoder.end() => return Ok(Some((status, body))),
            Ok(Decoded::More) => return cut_short(),
            Err(fault) => return Err(io::Error::other(fault.reason())),
        }
    }
}

/// How the end of an answer's body is marked (RFC 9112 section 6.3).
fn framing(status: StatusCode, fields: &[httparse::Header<'_>]) -> io::Result<Framing> {
    let value = |name: &str| {
        let field = fields
            .iter()
            .find(|field| field.name.eq_ignore_ascii_case(name));
        field.map(|field| field.value.trim_ascii())
    };
    if !has_body(status.as_u16()) {
        return Ok(Framing::Empty);
    }
    match (value("transfer-encoding"), value("content-length")) {
        (Some(coding), _) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
        (None, Some(length)) => content_length(length)
            .map(Framing::Length)
            .ok_or_else(|| io::Error::other("its Content-Length is no number")),
        _ => Ok(Framing::ToEnd),
    }
}

/// Gives the meaning of an answer ("Failures", "Partial Success").
fn judge(status: StatusCode, body: &[u8]) -> Result<(), ExportFailure> {
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Err(ExportFailure::Passing(status.to_string())),
        _ if !status.is_success() => Err(ExportFailure::Refused {
            spans: None,
            why: status.to_string(),
        }),
        _ => {
            // Some collectors answer with another body than they should, though they took the spans.
            let answer: ExportTraceServiceResponse =
                serde_json::from_slice(body).unwrap_or_default();
            let rejected = answer
                .partial_success
                .and_then(ExportTracePartialSuccess::rejected);
            match rejected {
                Some((spans, why)) => Err(ExportFailure::Refused {
                    spans: Some(spans),
                    why,
                }),
                None => Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: u16, body: &[u8]) -> String {
        let status = StatusCode::from_u16(status).expect("a status");
        match judge(status, body) {
            Ok(()) => "taken".to_owned(),
            Err(ExportFailure::Passing(_)) => "later".to_owned(),
            Err(ExportFailure::Refused { spans, .. }) => format!("refused {spans:?}"),
        }
    }

    #[test]
    fn answers_mean_what_the_specification_says() {
        for (status, meaning) in [
            (200, "taken"),
            (202, "taken"),
            (301, "refused None"),
            (400, "refused None"),
            (404, "refused None"),
            (429, "later"),
            (500, "refused None"),
            (502, "later"),
            (503, "later"),
            (504, "later"),
        ] {
            assert_eq!(judged(status, b""), meaning, "{status}");
        }
        for (body, meaning) in [
            ("{}", "taken"),
            (r#"{"partialSuccess":{}}"#, "taken"),
            (r#"{"partialSuccess":null}"#, "taken"),
            (
                r#"{"partialSuccess":{"rejectedSpans":"0","errorMessage":"slow down"}}"#,
                "taken",
            ),
            (
                r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}"#,
                "refused Some(3)",
            ),
            (
                r#"{"partialSuccess":{"rejectedSpans":3}}"#,
                "refused Some(3)",
            ),
            (r#"{"partialSuccess":{"rejectedSpans":"-3"}}"#, "taken"),
            // A collector that answers in protobuf, or with a page.
            ("\u{a}\u{2}\u{8}\u{3}", "taken"),
            ("<html>", "taken"),
        ] {
            assert_eq!(judged(200, body.as_bytes()), meaning, "{body}");
        }
    }

    /// Gives one byte at a time.
    struct Dripping<'b>(&'b [u8]);

    impl Read for Dripping<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let len = self.0.len().min(1);
            self.0.read(&mut into[..len])
        }
    }

    #[test]
    fn an_answer_ends_where_its_framing_says() {
        for (text, status, body) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}ignored",
                200,
                "{}",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\n{\r\n1;a=b\r\n}\r\n0\r\nA: b\r\n\r\n",
                200,
                "{}",
            ),
            ("HTTP/1.0 200 \r\n\r\nup to the end", 200, "up to the end"),
            (
                "HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n",
                204,
                "",
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\ncontent-length:0\r\n\r\n",
                503,
                "",
            ),
        ] {
            let (read_status, read_body) = answer(&mut Dripping(text.as_bytes())).expect(text);
            assert_eq!(
                (read_status.as_u16(), &*read_body),
                (status, body.as_bytes()),
                "{text}"
            );
        }
    }

    #[test]
    fn an_answer_that_breaks_off_or_makes_no_sense_is_an_error() {
        let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(ANSWER_BYTES_MAX));
        for text in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "SSH-2.0-OpenSSH\r\n",
            &endless,
            &"HTTP/1.1 102 Processing\r\n\r\n".repeat(2_000),
        ] {
            assert!(answer(&mut text.as_bytes()).is_err(), "{text:.60}");
        }
    }
}
