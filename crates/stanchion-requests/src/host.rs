//! The host that a request is for.

use stanchion_http::Head;

/// The request does not name its host clearly.
#[derive(Debug, PartialEq, Eq)]
pub struct NoHost;

/// The host that a request is for, without a port. The host of a whole URI stands in the Host field too, once the head
/// was read (RFC 9112 section 3.2.2).
pub fn host_of(head: &Head) -> Result<Option<&str>, NoHost> {
    let mut fields = head.all("host");
    let Some(field) = fields.next() else {
        return Ok(None);
    };
    if fields.next().is_some() {
        return Err(NoHost);
    }
    let text = std::str::from_utf8(field).map_err(|_| NoHost)?;
    let host_len = match text.strip_prefix('[') {
        Some(inside) => inside.find(']').ok_or(NoHost)? + "[]".len(),
        None => text.find(':').unwrap_or(text.len()),
    };
    let (host, port) = text.split_at(host_len);
    let is_port = match port.strip_prefix(':') {
        Some(port) => port.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    };
    if host.is_empty() || host.contains('@') || !is_port {
        return Err(NoHost);
    }
    Ok(Some(host))
}
