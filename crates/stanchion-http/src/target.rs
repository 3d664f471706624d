//! The target of a request in its forms (RFC 9112 section 3.2), and the host it names.

use std::net::Ipv6Addr;
use std::ops::Range;

use crate::fault::Fault;
use crate::octets::{PATH, QUERY, REG_NAME, TARGET, number};
use crate::stray::stray;

/// Where the parts of a target are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The length without a fragment, which no target should have.
    pub(crate) len: usize,
    /// Empty only in absolute-form, where that means `/` (RFC 9110 section 4.2.3).
    pub(crate) path: Range<usize>,
    pub(crate) query: Range<usize>,
    /// The authority of an absolute-form: it replaces the Host field (RFC 9112 section 3.2.2).
    pub(crate) authority: Option<Range<usize>>,
}

/// Splits a target that was sent with `method`. With `casefold` the method's case does not matter.
pub(crate) fn parse(method: &[u8], casefold: bool, target: &[u8]) -> Result<Parts, Fault> {
    let is = |known: &[u8]| method == known || casefold && method.eq_ignore_ascii_case(known);
    match target {
        _ if is(b"CONNECT") => Err(Fault::Unimplemented("CONNECT, which is for proxies")),
        [b'/', ..] => path_and_query(target, 0),
        b"*" if is(b"OPTIONS") => Ok(Parts {
            len: 1,
            path: 0..1,
            query: 1..1,
            authority: None,
        }),
        b"*" => Err(Fault::BadRequest(
            "the target * with another method than OPTIONS",
        )),
        _ => absolute_form(target),
    }
}

/// absolute-path [ "?" query ] (RFC 9112 section 3.2.1), and a fragment, which is cut off.
fn path_and_query(target: &[u8], start: usize) -> Result<Parts, Fault> {
    let path_end = start + PATH.run(&target[start..]);
    let (query, len) = match target.get(path_end) {
        Some(b'?') => {
            let query_start = path_end + 1;
            let query_end = query_start + QUERY.run(&target[query_start..]);
            (query_start..query_end, query_end)
        }
        _ => (path_end..path_end, path_end),
    };
    // A fragment follows, or a byte that no target may hold.
    let vetted = len + TARGET.run(&target[len..]);
    if let Some(&byte) = target.get(vetted) {
        return Err(stray(byte));
    }
    Ok(Parts {
        len,
        path: start..path_end,
        query,
        authority: None,
    })
}

/// absolute-URI with an authority (RFC 9112 section 3.2.2).
fn absolute_form(target: &[u8]) -> Result<Parts, Fault> {
    let start = after_scheme(target).ok_or(Fault::BadRequest("the target is not a path"))?;
    let is_end = |byte: &u8| matches!(byte, b'/' | b'?' | b'#');
    let end = target[start..].iter().position(is_end);
    let end = end.map_or(target.len(), |len| start + len);
    let authority = &target[start..end];
    if authority.contains(&b'@') {
        return Err(Fault::BadRequest("the target has user information"));
    }
    if matches!(authority, [] | [b':', ..]) || !is_host(authority) {
        return Err(Fault::BadRequest("the target names no host"));
    }
    let parts = path_and_query(target, end)?;
    Ok(Parts {
        authority: Some(start..end),
        ..parts
    })
}

/// The offset behind scheme "://" (RFC 3986 section 3.1).
fn after_scheme(target: &[u8]) -> Option<usize> {
    let len = target.iter().position(|&byte| byte == b':')?;
    let (scheme, rest) = target.split_at(len);
    let is_scheme_byte = |&byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let is_scheme = scheme.first()?.is_ascii_alphabetic() && scheme.iter().all(is_scheme_byte);
    (is_scheme && rest.starts_with(b"://")).then_some(len + "://".len())
}

/// uri-host [ ":" port ], where either may be empty (RFC 9112 section 3.2, RFC 3986 section 3.2). User information is refused: a server that takes it
/// for a host is deceived about the host (RFC 9110 section 4.2.4). Percent-encoding is refused: no such name is in use.
pub(crate) fn is_host(value: &[u8]) -> bool {
    let host_len = match value {
        [b'[', inside @ ..] => {
            let Some(len) = inside.iter().position(|&byte| byte == b']') else {
                return false;
            };
            if !is_ip_literal(&inside[..len]) {
                return false;
            }
            "[]".len() + len
        }
        _ => REG_NAME.run(value),
    };
    match &value[host_len..] {
        [] => true,
        [b':', port @ ..] => is_port(port),
        _ => false,
    }
}

/// A number that a port may have, or nothing.
fn is_port(digits: &[u8]) -> bool {
    digits.is_empty() || number(digits).is_some_and(|number| u16::try_from(number).is_ok())
}

/// `IPv6address` or `IPvFuture` (RFC 3986 section 3.2.2).
fn is_ip_literal(inside: &[u8]) -> bool {
    if let [b'v' | b'V', future @ ..] = inside {
        let digits = future.iter().take_while(|byte| byte.is_ascii_hexdigit());
        let digits = digits.count();
        return match &future[digits..] {
            [b'.', address @ ..] if digits > 0 && !address.is_empty() => address
                .iter()
                .all(|&byte| byte == b':' || REG_NAME.has(byte)),
            _ => false,
        };
    }
    std::str::from_utf8(inside).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}
