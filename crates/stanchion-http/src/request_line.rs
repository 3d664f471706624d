//! The first line of a request: RFC 9112 section 3.

use crate::fault::Fault;
use crate::head::{ByteSpan, Head};
use crate::head_rules::Permits;
use crate::octets::{CONVENTIONAL_METHOD, TOKEN};
use crate::target;

/// The lengths of conventional methods, as gunicorn defines them.
const CONVENTIONAL_METHOD_BYTES: std::ops::RangeInclusive<usize> = 3..=20;

/// request-line = method SP request-target SP HTTP-version (RFC 9112 section 3).
pub(crate) fn request_line(text: &[u8], permits: Permits, head: &mut Head) -> Result<(), Fault> {
    let methods = if permits.unconventional_method {
        &TOKEN
    } else {
        &CONVENTIONAL_METHOD
    };
    let method_len = methods.run(text);
    if method_len == 0 || text.get(method_len) != Some(&b' ') {
        return Err(bad_method(text));
    }
    if !permits.unconventional_method && !CONVENTIONAL_METHOD_BYTES.contains(&method_len) {
        return Err(bad_method(text));
    }
    let (method, rest) = (&text[..method_len], &text[method_len + 1..]);
    let (target, minor_version) = http_version(rest, permits)?;
    let parts = target::parse(method, permits.casefold_method, target)?;
    let at = method_len + 1;
    let span = |range: std::ops::Range<usize>| ByteSpan::new(at + range.start, range.len());
    head.minor_version = minor_version;
    head.protocol = ByteSpan::new(text.len() - "HTTP/1.1".len(), "HTTP/1.1".len());
    head.method = ByteSpan::new(0, method_len);
    head.target = span(0..parts.len);
    head.path = span(parts.path);
    head.query = span(parts.query);
    head.authority = parts.authority.map(span);
    Ok(())
}

/// The fault of a method that is refused.
fn bad_method(text: &[u8]) -> Fault {
    match text.get(TOKEN.run(text)) {
        Some(b' ') if TOKEN.has(text[0]) => {
            Fault::BadRequest("a method with lower case or #, or not of 3 to 20 characters")
        }
        _ => Fault::BadRequest("the method is not a token and a space"),
    }
}

/// HTTP-version = HTTP-name "/" DIGIT "." DIGIT (RFC 9112 section 2.3): the text before it, and the minor version of HTTP/1 as which the request is
/// read.
fn http_version(rest: &[u8], permits: Permits) -> Result<(&[u8], u8), Fault> {
    let [
        target @ ..,
        b' ',
        b'H',
        b'T',
        b'T',
        b'P',
        b'/',
        major @ b'0'..=b'9',
        b'.',
        minor @ b'0'..=b'9',
    ] = rest
    else {
        return Err(Fault::BadRequest("the request line ends in no version"));
    };
    match (major, minor) {
        (b'1', b'0' | b'1') => Ok((target, minor - b'0')),
        _ if permits.unconventional_version => Ok((target, u8::from(*major > b'0'))),
        _ => Err(Fault::Version),
    }
}
