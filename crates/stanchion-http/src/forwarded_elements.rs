//! The Forwarded field (RFC 7239): one element for each proxy that a request came through.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::fault::Fault;
use crate::octets::{TOKEN, trimmed};

/// A malformed field makes it impossible to say which proxy wrote which part: so its request is refused.
const MALFORMED: Fault = Fault::BadRequest("the Forwarded header is malformed");

/// The description that one proxy gives of its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ForwardedElement {
    /// The client's address; `None` if the proxy omits or hides it (section 6).
    pub(crate) client: Option<IpAddr>,
    /// The client's scheme.
    pub(crate) scheme: Option<&'static str>,
}

/// The elements of one field (section 4), in the order of the field. `host` and `by` are ignored.
pub(crate) fn elements(field: &[u8]) -> Result<Vec<ForwardedElement>, Fault> {
    let (mut elements, mut rest) = (Vec::new(), field);
    loop {
        let (element, behind) = element(rest)?;
        // An empty element is skipped (RFC 9110 section 5.6.1.2).
        elements.extend(element);
        match behind {
            [] => return Ok(elements),
            [_comma, behind @ ..] => rest = behind,
        }
    }
}

/// forwarded-element = [ forwarded-pair ] *( ";" [ forwarded-pair ] ), and the rest of the field from the comma behind it on.
fn element(mut rest: &[u8]) -> Result<(Option<ForwardedElement>, &[u8]), Fault> {
    let (mut element, mut names) = (ForwardedElement::default(), Vec::new());
    loop {
        rest = trimmed(rest);
        let name_len = TOKEN.run(rest);
        if name_len > 0 {
            let (name, behind) = rest.split_at(name_len);
            let name = name.to_ascii_lowercase();
            let (value, behind) = value(behind.strip_prefix(b"=").ok_or(MALFORMED)?)?;
            match &name[..] {
                b"for" => element.client = node(&value)?,
                b"proto" if value.eq_ignore_ascii_case(b"https") => element.scheme = Some("https"),
                b"proto" => element.scheme = Some("http"),
                _ => {}
            }
            if names.contains(&name) {
                return Err(MALFORMED);
            }
            names.push(name);
            rest = trimmed(behind);
        }
        match rest {
            [b';', behind @ ..] => rest = behind,
            [] | [b',', ..] => return Ok(((!names.is_empty()).then_some(element), rest)),
            _ => return Err(MALFORMED),
        }
    }
}

/// value = token / quoted-string (RFC 9110 section 5.6.4), and the rest of the field behind it. Many proxies omit the required quotes around an
/// address with a port or an IPv6 address, so those are accepted too.
fn value(text: &[u8]) -> Result<(Vec<u8>, &[u8]), Fault> {
    let Some(mut rest) = text.strip_prefix(b"\"") else {
        let is_plain = |byte: u8| TOKEN.has(byte) || b":[]".contains(&byte);
        let len = text.iter().position(|&byte| !is_plain(byte));
        let (value, rest) = text.split_at(len.unwrap_or(text.len()));
        return match value {
            [] => Err(MALFORMED),
            value => Ok((value.to_vec(), rest)),
        };
    };
    let mut value = Vec::new();
    loop {
        let (byte, behind) = match rest {
            [b'"', behind @ ..] => return Ok((value, behind)),
            [b'\\'] | [] => return Err(MALFORMED),
            [b'\\', byte, behind @ ..] | [byte, behind @ ..] => (byte, behind),
        };
        value.push(*byte);
        rest = behind;
    }
}

/// node = nodename [ ":" node-port ] (section 6): its address; `None` for `unknown` and for an identifier of the proxy's own.
fn node(text: &[u8]) -> Result<Option<IpAddr>, Fault> {
    let text = std::str::from_utf8(text).map_err(|_| MALFORMED)?;
    if let Some(inside) = text.strip_prefix('[') {
        let (address, port) = inside.split_once(']').ok_or(MALFORMED)?;
        let address: Ipv6Addr = address.parse().map_err(|_| MALFORMED)?;
        if !port.is_empty() && !port.starts_with(':') {
            return Err(MALFORMED);
        }
        return Ok(Some(IpAddr::V6(address).to_canonical()));
    }
    // The RFC requires brackets, but many proxies omit them.
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Ok(Some(IpAddr::V6(address).to_canonical()));
    }
    let name = text.split_once(':').map_or(text, |(name, _)| name);
    Ok(name.parse::<Ipv4Addr>().ok().map(IpAddr::V4))
}
