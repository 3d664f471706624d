//! What a line of the access log may hold: gunicorn's atoms, and ours.

use std::fmt::Write as _;

use http::header::{AsHeaderName, REFERER, USER_AGENT};
use http::{HeaderMap, HeaderName, Version};

use super::Line;
use super::user::user;
use crate::acceptor::request::target;
use crate::acceptor::ticket::Ticket;
use crate::acceptor::traceparent::Traceparent;
use crate::log::escape_into;
use stanchion_http::gateway::percent_decoded;

/// A piece of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Atom(Atom),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Atom {
    Address,
    Dash,
    User,
    Time,
    RequestLine,
    Method,
    Path,
    Query,
    Protocol,
    Status,
    Bytes,
    Referer,
    Agent,
    Seconds,
    Milliseconds,
    Microseconds,
    DecimalSeconds,
    Worker,
    RequestField(HeaderName),
    AnswerField(HeaderName),
    Environ(String),
    Own(Own),
}

/// What gunicorn has no atom for: `%({name}x)s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    WaitUs,
    ServiceUs,
    ProxyUs,
    Lane,
    Worker,
    Outcome,
    RequestId,
    TraceId,
}

/// Reads a format. Python's `%(name)s` is all there is of Python's formatting; as in gunicorn, an
/// atom that does not exist shows as `-`, unless it would be one of ours.
pub(super) fn parse(format: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            text.push('%');
            rest = after;
            continue;
        }
        let (name, after) = rest
            .strip_prefix('(')
            .and_then(|inner| inner.split_once(")s"))
            .ok_or_else(|| format!("access log format: '%{rest}' does not begin with %(name)s"))?;
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        pieces.push(Piece::Atom(atom(name)?));
        rest = after;
    }
    text.push_str(rest);
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

fn atom(name: &str) -> Result<Atom, String> {
    if let Some((inner, kind)) = name.strip_prefix('{').and_then(|name| name.split_once('}')) {
        return Ok(match kind {
            // What cannot be a name is nobody's.
            "i" => inner.parse().map_or(Atom::Dash, Atom::RequestField),
            "o" => inner.parse().map_or(Atom::Dash, Atom::AnswerField),
            "e" => Atom::Environ(inner.to_ascii_lowercase()),
            "x" => Atom::Own(own(inner)?),
            _ => Atom::Dash,
        });
    }
    Ok(match name {
        "h" => Atom::Address,
        "u" => Atom::User,
        "t" => Atom::Time,
        "r" => Atom::RequestLine,
        "m" => Atom::Method,
        "U" => Atom::Path,
        "q" => Atom::Query,
        "H" => Atom::Protocol,
        "s" => Atom::Status,
        "B" | "b" => Atom::Bytes,
        "f" => Atom::Referer,
        "a" => Atom::Agent,
        "T" => Atom::Seconds,
        "M" => Atom::Milliseconds,
        "D" => Atom::Microseconds,
        "L" => Atom::DecimalSeconds,
        "p" => Atom::Worker,
        _ => Atom::Dash,
    })
}

fn own(name: &str) -> Result<Own, String> {
    Ok(match name {
        "wait_us" => Own::WaitUs,
        "service_us" => Own::ServiceUs,
        "proxy_us" => Own::ProxyUs,
        "lane" => Own::Lane,
        "worker" => Own::Worker,
        "outcome" => Own::Outcome,
        "request_id" => Own::RequestId,
        "trace_id" => Own::TraceId,
        _ => return Err(format!("access log format: there is no %({{{name}}}x)s")),
    })
}

impl Atom {
    /// Appends what it stands for.
    pub(super) fn write(&self, line: &mut String, of: &Line<'_>) {
        let entry = of.entry;
        let request = &entry.ticket.request;
        let head = &request.head;
        // Writing to a String cannot fail, hence the ignored results.
        let _ = match self {
            Self::Address if !request.peer.address.is_empty() => {
                line.push_str(&request.peer.address);
                Ok(())
            }
            Self::Address | Self::Dash => line.write_char('-'),
            Self::User => {
                escaped(line, user(&head.headers).as_deref().map(str::as_bytes));
                Ok(())
            }
            Self::Time => line.write_str(of.time),
            Self::RequestLine => {
                line.push_str(head.method.as_str());
                line.push(' ');
                escaped(line, Some(target(&head.uri).as_bytes()));
                line.push(' ');
                line.write_str(protocol(head.version))
            }
            Self::Method => line.write_str(head.method.as_str()),
            Self::Path => {
                escaped(line, Some(&percent_decoded(head.uri.path().as_bytes())));
                Ok(())
            }
            Self::Query => {
                escaped(line, Some(head.uri.query().unwrap_or_default().as_bytes()));
                Ok(())
            }
            Self::Protocol => line.write_str(protocol(head.version)),
            Self::Status => line.write_str(entry.status.as_str()),
            Self::Bytes => write!(line, "{}", entry.bytes),
            Self::Referer => {
                escaped(line, field(&head.headers, REFERER));
                Ok(())
            }
            Self::Agent => {
                escaped(line, field(&head.headers, USER_AGENT));
                Ok(())
            }
            Self::Seconds => write!(line, "{}", of.took_us() / 1_000_000),
            Self::Milliseconds => write!(line, "{}", of.took_us() / 1_000),
            Self::Microseconds => write!(line, "{}", of.took_us()),
            Self::DecimalSeconds => {
                let took_us = of.took_us();
                write!(line, "{}.{:06}", took_us / 1_000_000, took_us % 1_000_000)
            }
            Self::Worker => write!(line, "<{}>", entry.ticket.worker_pid.get()),
            Self::RequestField(name) => {
                escaped(line, field(&head.headers, name));
                Ok(())
            }
            Self::AnswerField(name) => {
                escaped(line, field(&entry.fields, name));
                Ok(())
            }
            Self::Environ(name) => environ(line, name, &entry.ticket),
            Self::Own(own) => own.write(line, of),
        };
    }
}

impl Own {
    fn write(self, line: &mut String, of: &Line<'_>) -> std::fmt::Result {
        let ticket = &of.entry.ticket;
        match self {
            Self::WaitUs => write!(line, "{}", of.wait_us()),
            Self::ServiceUs => number(line, of.service_us()),
            Self::ProxyUs => number(line, ticket.request.proxy_us),
            Self::Worker => number(line, ticket.worker.get().map(u64::from)),
            Self::Outcome => line.write_str(of.entry.outcome.name()),
            Self::Lane => line.write_str(of.lane),
            Self::RequestId => line.write_str(ticket.request.id().unwrap_or("-")),
            Self::TraceId => line.write_str(trace_id(&ticket.request.head.headers).unwrap_or("-")),
        }
    }
}

fn number(line: &mut String, number: Option<u64>) -> std::fmt::Result {
    match number {
        Some(number) => write!(line, "{number}"),
        None => line.write_char('-'),
    }
}

/// The trace that a request belongs to.
pub(super) fn trace_id(headers: &HeaderMap) -> Option<&str> {
    Traceparent::of(headers).map(|parent| parent.trace)
}

pub(super) fn protocol(version: Version) -> &'static str {
    if version == Version::HTTP_10 {
        "HTTP/1.0"
    } else {
        "HTTP/1.1"
    }
}

pub(super) fn field(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&[u8]> {
    headers.get(name).map(http::HeaderValue::as_bytes)
}

/// What the acceptor knows of the environ.
fn environ(line: &mut String, name: &str, ticket: &Ticket) -> std::fmt::Result {
    let request = &ticket.request;
    let head = &request.head;
    if let Some(header) = name.strip_prefix("http_") {
        escaped(line, field(&head.headers, header.replace('_', "-")));
        return Ok(());
    }
    match name {
        "stanchion.queue_wait" => match ticket.taken_us.get() {
            0 => line.write_char('-'),
            taken_us => {
                let wait_us = taken_us.saturating_sub(request.arrived_us);
                write!(line, "{}.{:06}", wait_us / 1_000_000, wait_us % 1_000_000)
            }
        },
        "request_method" => write!(line, "{}", head.method),
        "raw_uri" => {
            escaped(line, Some(target(&head.uri).as_bytes()));
            Ok(())
        }
        "path_info" => {
            escaped(line, Some(&percent_decoded(head.uri.path().as_bytes())));
            Ok(())
        }
        "query_string" => {
            escaped(line, Some(head.uri.query().unwrap_or_default().as_bytes()));
            Ok(())
        }
        "content_type" => {
            escaped(line, field(&head.headers, "content-type"));
            Ok(())
        }
        "content_length" => {
            escaped(line, field(&head.headers, "content-length"));
            Ok(())
        }
        "server_protocol" => line.write_str(protocol(head.version)),
        "remote_addr" => line.write_str(&request.peer.address),
        "remote_port" => write!(line, "{}", request.peer.port),
        "server_name" => line.write_str(&request.peer.server_name),
        "server_port" => line.write_str(&request.peer.server_port),
        _ => line.write_char('-'),
    }
}

/// One request is one line, and nobody writes another's.
fn escaped(line: &mut String, text: Option<&[u8]>) {
    match text {
        Some(text) => escape_into(line, text),
        None => line.push('-'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read_as_gunicorn_reads_them() {
        let pieces = parse("%(h)s 100%% \"%({X-Id}i)s\" %(nonsense)s").expect("a good format");
        let expected = [
            Piece::Atom(Atom::Address),
            Piece::Text(" 100% \"".to_owned()),
            Piece::Atom(Atom::RequestField(HeaderName::from_static("x-id"))),
            Piece::Text("\" ".to_owned()),
            Piece::Atom(Atom::Dash),
        ];
        assert_eq!(pieces, expected);
        let ours = [Piece::Atom(Atom::Own(Own::WaitUs))];
        assert_eq!(parse("%({wait_us}x)s").expect("ours"), ours);
        assert_eq!(parse("%({a b}i)s"), Ok(vec![Piece::Atom(Atom::Dash)]));
        assert!(parse("%({wait}x)s").is_err(), "a slip of the pen");
        assert!(parse("%h").is_err());
        assert!(parse("%(h)d").is_err());
    }

    #[test]
    fn what_a_client_sends_cannot_end_the_line() {
        let mut line = String::new();
        escaped(&mut line, Some(b"a\"b\\c\r\nd\xe9"));
        assert_eq!(line, "a\\\"b\\\\c\\x0d\\x0ad\\xe9");
    }
}
