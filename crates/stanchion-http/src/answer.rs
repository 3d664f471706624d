//! Heads of answers in wire form: written by a worker, checked by the acceptor, which believes it in nothing.
//!
//! Wire form is `HTTP/1.1 200 OK\r\n` and then a line `Name: value\r\n` for each field, without the empty line
//! at the end: whoever sends it adds fields of its own and the end.

use memchr::memchr;

use crate::head::Field;
use crate::octets::{TOKEN, before_control, trimmed};
use crate::rules::{
    STATUSES, content_length, has_body, is_field_text, is_hop_by_hop, may_be_trailer,
    may_tell_length,
};

/// What ends the data of a chunk (RFC 9112 section 7.1).
pub const CHUNK_END: &[u8] = b"\r\n";
/// The last chunk, and no trailer fields.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// Both, behind the data of the chunk before the last.
pub const CHUNK_END_AND_LAST: &[u8] = b"\r\n0\r\n\r\n";

const VERSION: &[u8] = b"HTTP/1.1 ";
/// RFC 9110 section 15.2.2.
const SWITCHING: u16 = 101;
/// The status of hints that go ahead of an answer (RFC 8297 section 2).
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

/// The reason that usually goes with a status: IANA's registry of HTTP status codes. Empty if there is none.
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

/// How long the body of an answer is, of this one to this method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// There is none (RFC 9112 section 6.3, point 1).
    Nothing,
    /// As its head says.
    Bytes(u64),
    /// Its head does not say.
    Unknown,
}

/// What the head of an answer says to whoever sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerFacts {
    /// Its status.
    pub status: u16,
    /// What of a body goes with it.
    pub length: BodyLength,
    /// Whether it has a `Server`.
    pub has_server: bool,
    /// Whether it has a `Date`.
    pub has_date: bool,
}

/// Holds a worker's head, in wire form, to the rules. `Err` says what no host would have let pass: its
/// worker is out of its mind or in somebody else's hands.
pub fn check(wire: &[u8], is_head_request: bool) -> Result<AnswerFacts, &'static str> {
    let (line, rest) = split_line(wire)?;
    let status = status_of(line)?;
    if !STATUSES.contains(&status) {
        return Err("an answer has a status that none may have");
    }
    let (told, facts) = check_fields(status, rest)?;
    let length = if is_head_request || !has_body(status) {
        BodyLength::Nothing
    } else {
        told.map_or(BodyLength::Unknown, BodyLength::Bytes)
    };
    Ok(AnswerFacts { length, ..facts })
}

/// Likewise of a worker's that lets a request have its WebSocket, if it is a 101: else `None`. What else of it is for the
/// connection is the acceptor's to say.
pub fn check_switch(wire: &[u8]) -> Result<Option<AnswerFacts>, &'static str> {
    let (line, rest) = split_line(wire)?;
    let status = status_of(line)?;
    if status != SWITCHING {
        return Ok(None);
    }
    let (told, facts) = check_fields(status, rest)?;
    if told.is_some() || fields(wire).any(|(name, _)| is_of_handshake(name)) {
        return Err("an answer that lets a connection switch speaks for it");
    }
    Ok(Some(facts))
}

/// Likewise of a worker's hints, which go ahead of an answer: they are a 103, with fields that may be the app's (RFC 8297).
pub fn check_hints(wire: &[u8]) -> Result<(), &'static str> {
    let (line, rest) = split_line(wire)?;
    if status_of(line)? != EARLY_HINTS {
        return Err("hints have another status than 103");
    }
    check_fields(EARLY_HINTS, rest).map(drop)
}

/// Likewise of a worker's trailers: lines of fields, without a status line, of which each may stand behind a body.
pub fn check_trailers(wire: &[u8]) -> Result<(), &'static str> {
    let mut rest = wire;
    while !rest.is_empty() {
        let (line, behind) = split_line(rest)?;
        rest = behind;
        let (name, _) = checked_field(line)?;
        if !may_be_trailer(name) {
            return Err("a trailer says how its body is to be read");
        }
    }
    Ok(())
}

/// Whether a field of the answer is the server's in the handshake of a WebSocket (RFC 6455 section 4.2.2).
pub fn is_of_handshake(name: &[u8]) -> bool {
    let names: [&[u8]; 2] = [b"sec-websocket-accept", b"sec-websocket-extensions"];
    names.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// The length that fields tell, if they do, and what else they say.
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
                let length = length.ok_or("an answer tells no length of HTTP")?;
                if told.replace(length).is_some() {
                    return Err("an answer tells its length twice");
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
    // Almost always there is no control character before those at its end.
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
        return Err("the reason of an answer is not HTTP");
    }
    Ok(status)
}

/// field-line (RFC 9112 section 5) of a field that may be the app's.
fn checked_field(line: &[u8]) -> Result<Field<'_>, &'static str> {
    let name_len = TOKEN.run(line);
    if name_len == 0 || line.get(name_len) != Some(&b':') {
        return Err("a field of an answer has no name of HTTP and a colon");
    }
    let (name, value) = (&line[..name_len], trimmed(&line[name_len + 1..]));
    if is_hop_by_hop(name) {
        return Err("an answer speaks for the connection");
    }
    if !is_field_text(value) {
        return Err("a field of an answer has no value of HTTP");
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

/// Likewise of lines without a status line before them.
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

/// The line before `len` bytes of data, which are followed by [`CHUNK_END`]. A chunk of none would be the
/// last one.
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
