//! The names and values that CGI (RFC 3875) and PEP 3333 derive from a request. Nothing here depends on the app's language.

use std::borrow::Cow;

use crate::head::{Head, VARIABLE};

/// Path and query of a target in any of its forms (RFC 9112 section 3.2).
pub fn split_target(target: &[u8]) -> (&[u8], &[u8]) {
    let mut rest = target;
    if !rest.starts_with(b"/")
        && let Some(at) = rest.windows(3).position(|window| window == b"://")
    {
        let authority = &rest[at + 3..];
        let path = authority
            .iter()
            .position(|byte| matches!(byte, b'/' | b'?'));
        rest = path.map_or(b"/", |path| &authority[path..]);
    }
    match rest.iter().position(|&byte| byte == b'?') {
        // RFC 9110 section 4.2.3: an empty path is equivalent to `/`.
        Some(0) => (b"/", &rest[1..]),
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, b""),
    }
}

/// A path with its percent-encoded bytes decoded (RFC 3986 section 2.1); a malformed encoding stays as it is.
pub fn percent_decoded(path: &[u8]) -> Cow<'_, [u8]> {
    if !path.contains(&b'%') {
        return path.into();
    }
    let digit = |at: usize| path.get(at).and_then(|&byte| char::from(byte).to_digit(16));
    let mut decoded = Vec::with_capacity(path.len());
    let mut at = 0;
    while let Some(&byte) = path.get(at) {
        if let (b'%', Some(high), Some(low)) = (byte, digit(at + 1), digit(at + 2)) {
            decoded.push((high * 16 + low) as u8);
            at += 3;
        } else {
            decoded.push(byte);
            at += 1;
        }
    }
    decoded.into()
}

/// Writes the name of a field in an environ (RFC 3875 section 4.1.18): `HTTP_X_REQUEST_ID` for `X-Request-Id`, but `CONTENT_TYPE` and
/// `CONTENT_LENGTH` have names of their own (sections 4.1.2 and 4.1.3). The name replaces the content of `out`. A [variable](crate::uwsgi) has its
/// own name. Bytes beyond ASCII, which no token has, become the characters of latin-1.
pub fn environ_name(name: &[u8], out: &mut String) {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    out.clear();
    if let [VARIABLE, name @ ..] = name {
        out.extend(name.iter().copied().map(char::from));
        return;
    }
    if !is("content-type") && !is("content-length") {
        out.push_str("HTTP_");
    }
    out.extend(name.iter().map(|&byte| match byte {
        b'-' => '_',
        byte => char::from(byte.to_ascii_uppercase()),
    }));
}

/// The reason with which [`FieldRules`] refuse a request.
pub const UNDERSCORE: &str = "a field with an underscore in its name";

/// The setting for fields with an underscore in their names: in an environ `X_Real_IP` would be the same as `X-Real-IP`, which a proxy vouches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderMap {
    /// The app does not see them.
    Drop,
    /// The server refuses a request that has one.
    Refuse,
    /// The app sees them.
    Dangerous,
}

/// The decision about one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldDecision {
    /// The app sees it.
    Shown,
    /// The app does not see it.
    Dropped,
    /// The server refuses its request.
    Refused,
}

/// Which fields an app sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRules {
    header_map: HeaderMap,
    /// Names that are shown if a trusted proxy sends them, whatever `header_map` says.
    forwarded: Vec<Box<[u8]>>,
    forwards_any: bool,
}

impl FieldRules {
    /// `forwarder_headers` are names with commas between, or `*` for all names.
    pub fn new(header_map: HeaderMap, forwarder_headers: &str) -> Self {
        let names = forwarder_headers.split(',').map(str::trim);
        let (any, names): (Vec<&str>, Vec<&str>) = names.partition(|name| *name == "*");
        Self {
            header_map,
            forwarded: names
                .into_iter()
                .map(|name| name.as_bytes().into())
                .collect(),
            forwards_any: !any.is_empty(),
        }
    }

    /// Decides about a field of this name, which came from a trusted proxy or from any other client.
    pub fn fate(&self, name: &[u8], from_proxy: bool) -> FieldDecision {
        if !name.contains(&b'_') || name.starts_with(&[VARIABLE]) {
            return FieldDecision::Shown;
        }
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        // An app may pass the field on as `Content-Length` or `Transfer-Encoding`: that would frame the message in a way that this server has not
        // seen.
        let is_framing = is(b"content_length") || is(b"transfer_encoding");
        let is_forwarded =
            from_proxy && (self.forwards_any || self.forwarded.iter().any(|one| is(one)));
        match self.header_map {
            HeaderMap::Refuse if is_framing || !is_forwarded => FieldDecision::Refused,
            _ if is_framing => FieldDecision::Dropped,
            HeaderMap::Drop if !is_forwarded => FieldDecision::Dropped,
            _ => FieldDecision::Shown,
        }
    }

    /// The name of the first field for which a request with this head is refused.
    pub fn refused<'h>(&self, head: &'h Head, from_proxy: bool) -> Option<&'h [u8]> {
        if self.header_map != HeaderMap::Refuse {
            return None;
        }
        let mut names = head.fields().map(|(name, _)| name);
        names.find(|name| self.fate(name, from_proxy) == FieldDecision::Refused)
    }
}

/// Whether a field of this name gives the path where the app is mounted, if a proxy sends it that may do so.
pub fn is_script_name(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"script_name")
}

/// The separator between the values of repeated fields: they form one list (RFC 9110 section 5.2), and cookies have a separator of their own (RFC
/// 6265 section 4.2.1).
pub fn separator(name: &[u8]) -> &'static str {
    if name.eq_ignore_ascii_case(b"cookie") {
        "; "
    } else {
        ","
    }
}

/// `PATH_INFO` below `SCRIPT_NAME` (RFC 3875 section 4.1.5), where the app is mounted; `None` if the path is
/// outside of that.
pub fn split_mount<'p>(path: &'p [u8], script_name: &[u8]) -> Option<&'p [u8]> {
    match path.strip_prefix(script_name) {
        Some(rest @ ([] | [b'/', ..])) => Some(rest),
        _ => None,
    }
}

/// Host and port of a Host field.
pub fn split_host<'h>(host: &'h [u8], default_port: &'h [u8]) -> (&'h [u8], &'h [u8]) {
    match host.iter().rposition(|&byte| byte == b':') {
        // A colon inside the brackets belongs to an IPv6 address.
        Some(at) if !host[at..].contains(&b']') => (&host[..at], &host[at + 1..]),
        _ => (host, default_port),
    }
}
