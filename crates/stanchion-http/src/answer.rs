//! Heads of answers in wire form: a worker writes them, and the acceptor checks them, because it trusts nothing that a worker writes.
//!
//! Wire form is `HTTP/1.1 200 OK\r\n` and then a line `Name: value\r\n` for each field, without the empty line at the end: the acceptor adds fields
//! of its own and the empty line when it sends the head.
//!
//! The worker's host has applied the same rules to the app's values. The body must be as long as the head says, whether
//! it comes at once or in pieces: otherwise the next client on a proxy's connection would get the rest of this answer
//! as its own.

use memchr::memchr;

use crate::head::Field;
use crate::octets::{TOKEN, before_control, trimmed};
use crate::rules::{
    STATUSES, content_length, has_body, is_field_text, is_hop_by_hop, may_be_trailer,
    may_tell_length,
};

/// The CR LF behind the data of a chunk (RFC 9112 section 7.1).
pub const CHUNK_END: &[u8] = b"\r\n";
/// The last chunk, and no trailer fields.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// [`CHUNK_END`] and [`LAST_CHUNK`], behind the data of the last chunk that has any.
pub const CHUNK_END_AND_LAST: &[u8] = b"\r\n0\r\n\r\n";

const VERSION: &[u8] = b"HTTP/1.1 ";
/// RFC 9110 section 15.2.2.
const SWITCHING: u16 = 101;
/// The status of a response with hints, which a server sends ahead of an answer (RFC 8297 section 2).
pub const EARLY_HINTS: u16 = 103;

/// Writes a status line (RFC 9112 section 4), with the usual reason if none is given.
pub fn put_status(out: &mut Vec<u8>, status: u16, reason: &[u8]) {
    let reason = match reason {
        [] => canonical_reason(status).as_bytes(),
        given => given,
    };
    let digit = |unit: u16| b'0' + (status / unit % 10) as u8;
    out.extend_from_slice(VERSION);
    out.extend_from_slice(&[digit(100), digit(10), digit(1), b' ']);
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
}

/// Writes a field's line (RFC 9112 section 5).
pub fn put_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The reason that usually goes with a status: IANA's registry of HTTP status codes. Empty if the registry has none.
pub fn canonical_reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400..=499 => client_error(status),
        500..=599 => server_error(status),
        _ => "",
    }
}

fn client_error(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Payload Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        418 => "I'm a teapot",
        421 => "Misdirected Request",
        422 => "Unprocessable Entity",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        _ => "",
    }
}

fn server_error(status: u16) -> &'static str {
    match status {
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        510 => "Not Extended",
        511 => "Network Authentication Required",
        _ => "",
    }
}

/// The length of an answer's body, for the method of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// The answer has no body (RFC 9112 section 6.3, point 1).
    Nothing,
    /// The answer's head gives the length.
    Bytes(u64),
    /// The answer's head gives no length.
    Unknown,
}

/// The facts that the acceptor needs of an answer's head to send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerFacts {
    /// Its status.
    pub status: u16,
    /// The length of its body.
    pub length: BodyLength,
    /// Whether it has a `Server`.
    pub has_server: bool,
    /// Whether it has a `Date`.
    pub has_date: bool,
}

/// Checks a worker's head, in wire form, against the rules. `Err` names a fault that no host would have let pass: the worker is broken or
/// compromised.
pub fn check(wire: &[u8], is_head_request: bool) -> Result<AnswerFacts, &'static str> {
    let (line, rest) = split_line(wire)?;
    let status = status_of(line)?;
    if !STATUSES.contains(&status) {
        return Err("an answer has a status outside 200 to 999");
    }
    let (told, facts) = check_fields(status, rest)?;
    let length = if is_head_request || !has_body(status) {
        BodyLength::Nothing
    } else {
        told.map_or(BodyLength::Unknown, BodyLength::Bytes)
    };
    Ok(AnswerFacts { length, ..facts })
}

/// Checks a worker's answer to a request for a WebSocket in the same way, if it is a 101; any other status gives `None`. The acceptor itself adds the
/// other fields of the handshake, which concern the connection.
pub fn check_switch(wire: &[u8]) -> Result<Option<AnswerFacts>, &'static str> {
    let (line, rest) = split_line(wire)?;
    let status = status_of(line)?;
    if status != SWITCHING {
        return Ok(None);
    }
    let (told, facts) = check_fields(status, rest)?;
    if told.is_some() || fields(wire).any(|(name, _)| is_of_handshake(name)) {
        return Err("a 101 has a Content-Length, or a handshake field that the acceptor sets");
    }
    Ok(Some(facts))
}

/// Checks a worker's hints, which go ahead of an answer: a 103 with fields that an app may set (RFC 8297).
pub fn check_hints(wire: &[u8]) -> Result<(), &'static str> {
    let (line, rest) = split_line(wire)?;
    if status_of(line)? != EARLY_HINTS {
        return Err("hints have another status than 103");
    }
    check_fields(EARLY_HINTS, rest).map(drop)
}

/// Checks a worker's trailers: lines of fields without a status line, each of a field that may follow a body.
pub fn check_trailers(wire: &[u8]) -> Result<(), &'static str> {
    let mut rest = wire;
    while !rest.is_empty() {
        let (line, behind) = split_line(rest)?;
        rest = behind;
        let (name, _) = checked_field(line)?;
        if !may_be_trailer(name) {
            return Err("a trailer field says how to read the body and must come before it");
        }
    }
    Ok(())
}

/// Whether the server sets this field of the answer in the handshake of a WebSocket (RFC 6455 section 4.2.2).
pub fn is_of_handshake(name: &[u8]) -> bool {
    let names: [&[u8]; 2] = [b"sec-websocket-accept", b"sec-websocket-extensions"];
    names.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// The length that the fields give, if any, and the other facts in them.
fn check_fields(status: u16, mut rest: &[u8]) -> Result<(Option<u64>, AnswerFacts), &'static str> {
    let (mut told, mut has_server, mut has_date) = (None, false, false);
    while !rest.is_empty() {
        let (line, behind) = split_line(rest)?;
        rest = behind;
        let (name, value) = checked_field(line)?;
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name.len() {
            4 => has_date |= is("date"),
            6 => has_server |= is("server"),
            14 if is("content-length") => {
                let length = content_length(value).filter(|_| may_tell_length(status));
                let length = length
                    .ok_or("an answer has a malformed Content-Length, or a status without one")?;
                if told.replace(length).is_some() {
                    return Err("an answer has two Content-Lengths");
                }
            }
            _ => {}
        }
    }
    let facts = AnswerFacts {
        status,
        length: BodyLength::Unknown,
        has_server,
        has_date,
    };
    Ok((told, facts))
}

/// A line without its CR LF, and what follows it.
fn split_line(wire: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    // Usually the first control character is the CR at the end of the line.
    let len = before_control(wire);
    if let [b'\r', b'\n', rest @ ..] = &wire[len..] {
        return Ok((&wire[..len], rest));
    }
    let end = memchr(b'\n', wire).ok_or("the head of an answer does not end with a line")?;
    let line = wire[..end].strip_suffix(b"\r");
    let line = line.ok_or("a line of an answer's head ends without CR")?;
    Ok((line, &wire[end + 1..]))
}

/// status-line = HTTP-version SP status-code SP [ reason-phrase ] (RFC 9112 section 4).
fn status_of(line: &[u8]) -> Result<u16, &'static str> {
    let Some([hundreds, tens, ones, b' ', reason @ ..]) = line.strip_prefix(VERSION) else {
        return Err("an answer does not begin with a status line");
    };
    let mut status = 0;
    for digit in [hundreds, tens, ones] {
        if !digit.is_ascii_digit() {
            return Err("the status of an answer is not a number");
        }
        status = status * 10 + u16::from(digit - b'0');
    }
    if !is_field_text(reason) {
        return Err("the reason of an answer has a control character");
    }
    Ok(status)
}

/// Parses a field-line (RFC 9112 section 5) and checks that an app may set the field.
fn checked_field(line: &[u8]) -> Result<Field<'_>, &'static str> {
    let name_len = TOKEN.run(line);
    if name_len == 0 || line.get(name_len) != Some(&b':') {
        return Err("a field of an answer does not begin with a valid name and a colon");
    }
    let (name, value) = (&line[..name_len], trimmed(&line[name_len + 1..]));
    if is_hop_by_hop(name) {
        return Err("an answer has a field that only the acceptor may set for the connection");
    }
    if !is_field_text(value) {
        return Err("a field of an answer has a control character in its value");
    }
    Ok((name, value))
}

fn split_field(line: &[u8]) -> Option<Field<'_>> {
    let colon = memchr(b':', line)?;
    Some((&line[..colon], trimmed(&line[colon + 1..])))
}

/// The fields of a head in wire form that was checked.
pub fn fields(wire: &[u8]) -> impl Iterator<Item = Field<'_>> {
    field_lines(split_status(wire).1)
}

/// The status line of a head in wire form that was checked, and the lines of its fields.
pub(crate) fn split_status(wire: &[u8]) -> (&[u8], &[u8]) {
    let fields = split_line(wire).map_or(&[][..], |(_, rest)| rest);
    wire.split_at(wire.len() - fields.len())
}

/// The fields in lines that no status line precedes.
pub fn field_lines(lines: &[u8]) -> impl Iterator<Item = Field<'_>> {
    let mut rest = lines;
    std::iter::from_fn(move || {
        let (line, behind) = split_line(rest).ok()?;
        rest = behind;
        split_field(line)
    })
}

/// The line before the data of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct ChunkHead {
    bytes: [u8; Self::LEN_MAX],
    start: usize,
}

impl ChunkHead {
    const LEN_MAX: usize = usize::BITS as usize / 4 + CHUNK_END.len();
}

impl std::ops::Deref for ChunkHead {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// The line before `len` bytes of data, which [`CHUNK_END`] follows. `len` is not 0: a chunk without data is the last one.
pub fn chunk_head(len: usize) -> ChunkHead {
    debug_assert!(len > 0, "that is the last chunk");
    let mut bytes = [0; ChunkHead::LEN_MAX];
    let mut start = bytes.len() - CHUNK_END.len();
    bytes[start..].copy_from_slice(CHUNK_END);
    let mut left = len;
    loop {
        start -= 1;
        bytes[start] = b"0123456789abcdef"[left & 0xf];
        left >>= 4;
        if left == 0 {
            return ChunkHead { bytes, start };
        }
    }
}
