//! Writes the values of a format's atoms into a line.

use std::io::Write as _;
use std::net::IpAddr;

use stanchion_http::{Head, answer, percent_decoded};

use super::LogLine;
use super::format::{Atom, Own};
use super::text::{decimal_s, escaped, number};
use super::user::user;
use crate::traceparent::Traceparent;

impl Atom {
    /// Appends the value of the atom.
    pub(super) fn write(&self, out: &mut Vec<u8>, line: &LogLine<'_>) {
        let over = line.over;
        let request = &over.ticket.request;
        let head = &request.head;
        match self {
            Self::Address => match request.peer.address.as_str() {
                // The peer is on a unix socket, where gunicorn shows nothing.
                "" => address(out, line.client()),
                peer => text(out, Some(peer)),
            },
            Self::User => match line.known.authorization.and_then(user) {
                Some(user) => escaped(out, user.as_bytes()),
                None => out.push(b'-'),
            },
            Self::Time => text(out, Some(line.time)),
            // The request line is nearly always there in one piece.
            Self::RequestLine => match head.request_line() {
                Some(line) => escaped(out, line),
                None => {
                    text(out, Some(head.method()));
                    out.push(b' ');
                    escaped(out, head.target());
                    out.push(b' ');
                    text(out, Some(head.protocol()));
                }
            },
            Self::Method => text(out, Some(head.method())),
            Self::Path => escaped(out, &percent_decoded(head.path())),
            Self::Query => escaped(out, head.query()),
            Self::Protocol => text(out, Some(head.protocol())),
            Self::Status => number(out, over.status.into()),
            Self::Bytes => number(out, over.bytes),
            Self::Referer => known(out, line.known.referer),
            Self::Agent => known(out, line.known.user_agent),
            Self::Seconds => number(out, line.took_us() / 1_000_000),
            Self::Milliseconds => number(out, line.took_us() / 1_000),
            Self::Microseconds => number(out, line.took_us()),
            Self::DecimalSeconds => decimal_s(out, line.took_us()),
            Self::Worker => {
                out.push(b'<');
                number(out, over.ticket.worker_pid().unwrap_or_default());
                out.push(b'>');
            }
            Self::RequestField(name) => known(out, head.first(name)),
            Self::AnswerField(name) => known(out, answer_field(&over.head, name)),
            Self::Environ(name) => environ(out, name, line),
            Self::Own(own) => own.write(out, line),
        }
    }
}

impl Own {
    fn write(self, out: &mut Vec<u8>, line: &LogLine<'_>) {
        let ticket = &line.over.ticket;
        let session = ticket.session.get();
        match self {
            Self::WaitUs => number(out, line.wait_us()),
            Self::ServiceUs => known_number(out, line.service_us()),
            Self::ProxyUs => known_number(out, ticket.request.proxy_us),
            Self::Worker => known_number(out, ticket.worker_number().map(u64::from)),
            Self::Client => address(out, line.client()),
            Self::Outcome => text(out, Some(line.over.outcome.name())),
            Self::Lane => text(out, Some(line.lane)),
            Self::RequestId => text(out, ticket.request.id()),
            Self::CloseCode => {
                known_number(out, session.and_then(|session| session.code).map(u64::from));
            }
            Self::MessagesReceived => {
                known_number(out, session.map(|session| session.received.count));
            }
            Self::MessagesSent => known_number(out, session.map(|session| session.sent.count)),
            Self::CpuUs => known_number(out, ticket.measured().cpu_us),
            Self::CoreUs => known_number(out, ticket.measured().core_us),
            Self::GilUs => known_number(out, ticket.measured().gil_us),
            Self::ArrivedUs => number(out, line.arrived_us()),
            Self::TraceId => text(out, trace_id(&ticket.request.head)),
        }
    }
}

/// The trace that a request belongs to.
pub(super) fn trace_id(head: &Head) -> Option<&str> {
    Traceparent::of(head).map(|parent| parent.trace)
}

/// The first value of a field in the head of an answer.
fn answer_field<'h>(head: &'h [u8], lower_case: &str) -> Option<&'h [u8]> {
    let mut fields = answer::fields(head);
    let field = fields.find(|(name, _)| name.eq_ignore_ascii_case(lower_case.as_bytes()));
    field.map(|(_, value)| value)
}

/// Appends a value of the WSGI environ, if the acceptor knows it.
fn environ(out: &mut Vec<u8>, name: &str, line: &LogLine<'_>) {
    let ticket = &line.over.ticket;
    let request = &ticket.request;
    let head = &request.head;
    if let Some(header) = name.strip_prefix("http_") {
        known(out, head.first(&header.replace('_', "-")));
        return;
    }
    match name {
        "stanchion.queue_wait" => match ticket.taken_us() {
            0 => out.push(b'-'),
            taken_us => decimal_s(out, taken_us.saturating_sub(request.arrived_us)),
        },
        "request_method" => text(out, Some(head.method())),
        "raw_uri" => escaped(out, head.target()),
        "path_info" => escaped(out, &percent_decoded(head.path())),
        "query_string" => escaped(out, head.query()),
        "content_type" => known(out, head.first("content-type")),
        "content_length" => known(out, head.first("content-length")),
        "server_protocol" => text(out, Some(head.protocol())),
        "remote_addr" => text(out, Some(&request.peer.address)),
        "remote_port" => number(out, request.peer.port.into()),
        "server_name" => text(out, Some(&request.peer.server_name)),
        "server_port" => text(out, Some(&request.peer.server_port)),
        _ => out.push(b'-'),
    }
}

/// Appends text of the server's or the operator's.
fn text(out: &mut Vec<u8>, text: Option<&str>) {
    out.extend_from_slice(text.unwrap_or("-").as_bytes());
}

/// Appends text that a client or the app sent, if it did, escaped: one request is one line, and no request can write
/// another's.
fn known(out: &mut Vec<u8>, sent: Option<&[u8]>) {
    match sent {
        Some(sent) => escaped(out, sent),
        None => out.push(b'-'),
    }
}

fn address(out: &mut Vec<u8>, address: Option<IpAddr>) {
    match address {
        Some(address) => {
            // Writing to memory cannot fail.
            let _ = write!(out, "{address}");
        }
        None => out.push(b'-'),
    }
}

fn known_number(out: &mut Vec<u8>, known: Option<u64>) {
    match known {
        Some(known) => number(out, known),
        None => out.push(b'-'),
    }
}
