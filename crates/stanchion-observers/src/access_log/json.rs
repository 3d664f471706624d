//! A line of the access log as a JSON object (RFC 8259). Its keys and their order are a promise
//! (docs/logs.md); an unknown value is null.

use std::io::Write as _;

use super::LogLine;
use super::atom::trace_id;
use super::object::{key, number, text};
use super::time::OFFSET_BYTES;
use super::user::user;

/// Appends the object.
pub(super) fn write(out: &mut Vec<u8>, line: &LogLine<'_>) {
    let (over, known) = (line.over, &line.known);
    let ticket = &over.ticket;
    let request = &ticket.request;
    let head = &request.head;
    let user = known.authorization.and_then(user);
    let address = Some(request.peer.address.as_bytes()).filter(|address| !address.is_empty());
    // A target that ends with `?` has a query, which is empty.
    let has_query = !head.query().is_empty() || head.target().ends_with(b"?");
    out.extend_from_slice(b"{\"time\":\"");
    let (second, offset) = line.time.split_at(line.time.len() - OFFSET_BYTES);
    out.extend_from_slice(second.as_bytes());
    // Writing to memory cannot fail.
    let _ = write!(out, ".{:03}", line.ms);
    out.extend_from_slice(offset.as_bytes());
    out.push(b'"');
    text(out, "remote_addr", address);
    text(out, "user", user.as_deref().map(str::as_bytes));
    text(out, "method", Some(head.method().as_bytes()));
    text(out, "host", head.host());
    text(out, "path", Some(head.path()));
    text(out, "query", has_query.then(|| head.query()));
    text(out, "protocol", Some(head.protocol().as_bytes()));
    number(out, "status", Some(over.status.into()));
    number(out, "bytes", Some(over.bytes));
    text(out, "referer", known.referer);
    text(out, "user_agent", known.user_agent);
    number(out, "duration_us", Some(line.took_us()));
    number(out, "wait_us", Some(line.wait_us()));
    number(out, "service_us", line.service_us());
    number(out, "proxy_us", request.proxy_us);
    text(out, "outcome", Some(over.outcome.name().as_bytes()));
    text(out, "lane", Some(line.lane.as_bytes()));
    number(out, "worker", ticket.worker_number().map(u64::from));
    number(out, "pid", ticket.worker_pid());
    text(out, "request_id", request.id().map(str::as_bytes));
    text(out, "trace_id", trace_id(head).map(str::as_bytes));
    key(out, "client");
    match line.client() {
        Some(address) => {
            // Writing to memory cannot fail.
            let _ = write!(out, "\"{address}\"");
        }
        None => out.extend_from_slice(b"null"),
    }
    if let Some(session) = ticket.session.get() {
        number(out, "close_code", session.code.map(u64::from));
        number(out, "messages_received", Some(session.received.count));
        number(out, "messages_sent", Some(session.sent.count));
        number(out, "bytes_received", Some(session.received.bytes));
    }
    let measured = ticket.measured();
    number(out, "cpu_us", measured.cpu_us);
    number(out, "core_us", measured.core_us);
    number(out, "gil_us", measured.gil_us);
    number(out, "arrived_us", Some(line.arrived_us()));
    out.push(b'}');
}
