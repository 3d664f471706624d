//! How a request and the head of its answer are laid out as bytes in the exchange.
//!
//! Numbers are little-endian; a text is its length (`u32`) and its bytes. The worker reads what
//! the acceptor wrote and the other way round, both of one build, so there is no version; but the
//! acceptor checks every length, since a worker's memory is the app's to spoil.

use bytes::Bytes;
use stanchion_exchange::Area;

use crate::log::describe;

/// The longest request head (request line and fields), in bytes, as it arrives.
pub const REQUEST_HEAD_BYTES_MAX: usize = 64 * 1024;
/// What the record of a request takes beyond its head and body: addresses, lengths, counts.
pub const REQUEST_RECORD_EXTRA_BYTES: usize = 16 * 1024;
/// The longest record of an answer's head; a longer one is the app's fault.
pub const ANSWER_HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a slot's response ring: an answer up to this size frees its worker at once, however
/// slowly the client reads. It has room for the longest head.
pub const RESPONSE_RING_BYTES: usize = 128 * 1024;

/// Stands for a time that nobody has told.
const UNKNOWN: u64 = u64::MAX;

/// The record ends before it should, or says something impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRecord;

impl std::fmt::Display for BadRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a record in the exchange makes no sense")
    }
}

impl std::error::Error for BadRecord {}

/// A request's body, which has arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyRecord<'a> {
    /// In the record itself; may be empty.
    Memory(&'a [u8]),
    /// In a spool file, too large for the record.
    Spooled {
        /// Path of the file.
        path: &'a str,
        /// Its length in bytes.
        len: u64,
    },
}

/// A request's body on its way into a record.
#[derive(Clone, Copy, Debug)]
pub enum WholeBody<'a> {
    /// In memory, in the pieces in which it came.
    Memory(&'a [Bytes]),
    /// In a spool file.
    Spooled {
        /// Path of the file.
        path: &'a str,
        /// Its length in bytes.
        len: u64,
    },
}

/// The facts of a request besides its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLine<'a> {
    /// Such as `GET`.
    pub method: &'a str,
    /// The request target as it was sent.
    pub target: &'a [u8],
    /// Minor version of HTTP/1: 0 or 1.
    pub minor_version: u8,
    /// `http` or `https`, after what trusted proxies say.
    pub scheme: &'a str,
    /// The client's address; empty on a unix socket.
    pub peer_address: &'a str,
    /// The client's port; 0 on a unix socket.
    pub peer_port: u16,
    /// The listener's address or path.
    pub server_name: &'a str,
    /// The listener's port, or empty.
    pub server_port: &'a str,
    /// Whether the peer is a proxy we believe.
    pub trusted_peer: bool,
    /// What it is called; empty if requests have no names.
    pub request_id: &'a str,
    /// How long it was with the proxies, in microseconds, as far as they say so.
    pub proxy_us: Option<u64>,
}

impl RequestLine<'_> {
    /// Method, target and name, for logs.
    pub fn describe(&self) -> String {
        describe(self.method, self.target, self.request_id)
    }
}

/// A request as the worker reads it.
#[derive(Clone, Copy, Debug)]
pub struct RequestRecord<'a> {
    /// The facts.
    pub line: RequestLine<'a>,
    /// The body.
    pub body: BodyRecord<'a>,
    fields: &'a [u8],
    field_count: u32,
}

/// Appends to an area of fixed size; what does not fit is noticed at the end.
struct Writer<'a> {
    area: Area<'a>,
    len: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.area.put(self.len, bytes);
        self.len += bytes.len();
    }

    fn text(&mut self, bytes: &[u8]) {
        self.put(&(bytes.len() as u32).to_le_bytes());
        self.put(bytes);
    }

    fn number(&mut self, number: u64) {
        self.put(&number.to_le_bytes());
    }
}

/// Writes a request into `area`; `None` if it does not fit. The fields come last but one, the
/// body last, so that the worker need not touch what it does not ask for.
pub fn write_request<'f>(
    area: Area<'_>,
    line: &RequestLine<'_>,
    fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    body: &WholeBody<'_>,
) -> Option<usize> {
    let mut writer = Writer { area, len: 0 };
    writer.put(&[line.minor_version, u8::from(line.trusted_peer)]);
    writer.number(u64::from(line.peer_port));
    writer.number(line.proxy_us.unwrap_or(UNKNOWN));
    for text in [
        line.method,
        line.scheme,
        line.peer_address,
        line.server_name,
        line.server_port,
        line.request_id,
    ] {
        writer.text(text.as_bytes());
    }
    writer.text(line.target);
    match body {
        WholeBody::Memory(pieces) => {
            writer.put(&[0]);
            writer.number(pieces.iter().map(|piece| piece.len() as u64).sum());
        }
        WholeBody::Spooled { path, len } => {
            writer.put(&[1]);
            writer.number(*len);
            writer.text(path.as_bytes());
        }
    }
    let count_at = writer.len;
    writer.put(&[0; 8]);
    let fields_at = writer.len;
    let mut count = 0_u32;
    for (name, value) in fields {
        writer.text(name);
        writer.text(value);
        count += 1;
    }
    let fields_len = (writer.len - fields_at) as u32;
    if let WholeBody::Memory(pieces) = body {
        pieces.iter().for_each(|piece| writer.put(piece));
    }
    let Writer { mut area, len } = writer;
    if len > area.len() {
        return None;
    }
    area.put(count_at, &count.to_le_bytes());
    area.put(count_at + 4, &fields_len.to_le_bytes());
    Some(len)
}

/// Reads from the front of a slice.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], BadRecord> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(BadRecord)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, BadRecord> {
        Ok(self.take(1)?[0])
    }

    fn short(&mut self) -> Result<u32, BadRecord> {
        Ok(u32::from_le_bytes(
            self.take(4)?.try_into().map_err(|_| BadRecord)?,
        ))
    }

    fn number(&mut self) -> Result<u64, BadRecord> {
        Ok(u64::from_le_bytes(
            self.take(8)?.try_into().map_err(|_| BadRecord)?,
        ))
    }

    fn bytes(&mut self) -> Result<&'a [u8], BadRecord> {
        let len = self.short()?;
        self.take(len as usize)
    }

    fn text(&mut self) -> Result<&'a str, BadRecord> {
        std::str::from_utf8(self.bytes()?).map_err(|_| BadRecord)
    }
}

impl<'a> RequestRecord<'a> {
    /// Reads what [`write_request`] wrote.
    pub fn read(bytes: &'a [u8]) -> Result<Self, BadRecord> {
        let mut reader = Reader(bytes);
        let minor_version = reader.byte()?;
        let trusted_peer = reader.byte()? != 0;
        let peer_port = reader.number()? as u16;
        let proxy_us = Some(reader.number()?).filter(|&us| us != UNKNOWN);
        let method = reader.text()?;
        let scheme = reader.text()?;
        let peer_address = reader.text()?;
        let server_name = reader.text()?;
        let server_port = reader.text()?;
        let request_id = reader.text()?;
        let target = reader.bytes()?;
        let spooled = reader.byte()? != 0;
        let body_len = reader.number()?;
        let path = if spooled { reader.text()? } else { "" };
        let field_count = reader.short()?;
        let fields_len = reader.short()?;
        let fields = reader.take(fields_len as usize)?;
        let body = if spooled {
            BodyRecord::Spooled {
                path,
                len: body_len,
            }
        } else {
            BodyRecord::Memory(reader.take(usize::try_from(body_len).map_err(|_| BadRecord)?)?)
        };
        let line = RequestLine {
            method,
            target,
            minor_version,
            scheme,
            peer_address,
            peer_port,
            server_name,
            server_port,
            trusted_peer,
            request_id,
            proxy_us,
        };
        Ok(Self {
            line,
            body,
            fields,
            field_count,
        })
    }

    /// Length of the body in bytes.
    pub fn body_len(&self) -> u64 {
        match self.body {
            BodyRecord::Memory(bytes) => bytes.len() as u64,
            BodyRecord::Spooled { len, .. } => len,
        }
    }

    /// The fields in the order in which they were sent, names in lower case.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        read_fields(self.fields, self.field_count)
    }
}

fn read_fields(bytes: &[u8], count: u32) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut reader = Reader(bytes);
    (0..count).map_while(move |_| Some((reader.bytes().ok()?, reader.bytes().ok()?)))
}

/// A path with its encoded bytes decoded (RFC 3986 section 2.1); what is not one stays as it is.
pub fn percent_decoded(path: &[u8]) -> std::borrow::Cow<'_, [u8]> {
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

/// Part of a file that the acceptor is to send as the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// Where it starts.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// The head of an answer.
#[derive(Clone, Debug, Default)]
pub struct AnswerHead<'a> {
    /// 100 to 599.
    pub status: u16,
    /// Such as `OK`; may be empty.
    pub reason: &'a [u8],
    /// The body, if it is (part of) a file whose descriptor travels beside the exchange.
    pub file: Option<FilePart>,
    /// Names and values.
    pub fields: Vec<(&'a [u8], &'a [u8])>,
}

/// Writes the head of an answer; the first four bytes are the length of the whole.
pub fn write_answer_head(out: &mut Vec<u8>, head: &AnswerHead<'_>) {
    let start = out.len();
    let text = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
    };
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&head.status.to_le_bytes());
    out.push(u8::from(head.file.is_some()));
    let file = head.file.unwrap_or(FilePart { offset: 0, len: 0 });
    out.extend_from_slice(&file.offset.to_le_bytes());
    out.extend_from_slice(&file.len.to_le_bytes());
    text(out, head.reason);
    out.extend_from_slice(&(head.fields.len() as u32).to_le_bytes());
    for (name, value) in &head.fields {
        text(out, name);
        text(out, value);
    }
    let len = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

/// Reads the head of an answer from the start of `bytes`; gives it and its length.
pub fn read_answer_head(bytes: &[u8]) -> Result<(AnswerHead<'_>, usize), BadRecord> {
    let mut reader = Reader(bytes);
    let len = reader.short()? as usize;
    if len > ANSWER_HEAD_BYTES_MAX {
        return Err(BadRecord);
    }
    let mut reader = Reader(bytes.get(4..len).ok_or(BadRecord)?);
    let status = u16::from_le_bytes(reader.take(2)?.try_into().map_err(|_| BadRecord)?);
    let is_file = reader.byte()? != 0;
    let (offset, file_len) = (reader.number()?, reader.number()?);
    let reason = reader.bytes()?;
    let count = reader.short()?;
    // Each field takes eight bytes at least, so a wild count cannot make us reserve much.
    let mut fields = Vec::with_capacity((count as usize).min(len / 8));
    for _ in 0..count {
        fields.push((reader.bytes()?, reader.bytes()?));
    }
    if !reader.0.is_empty() {
        return Err(BadRecord);
    }
    let file = is_file.then_some(FilePart {
        offset,
        len: file_len,
    });
    Ok((
        AnswerHead {
            status,
            reason,
            file,
            fields,
        },
        len,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line<'a>(target: &'a [u8], method: &'a str) -> RequestLine<'a> {
        RequestLine {
            method,
            target,
            minor_version: 1,
            scheme: "http",
            peer_address: "127.0.0.1",
            peer_port: 4711,
            server_name: "localhost",
            server_port: "8000",
            trusted_peer: true,
            request_id: "abc",
            proxy_us: Some(7),
        }
    }

    proptest! {
        #[test]
        fn a_request_comes_out_as_it_went_in(
            target: Vec<u8>,
            method in "[A-Z]{1,8}",
            fields: Vec<(Vec<u8>, Vec<u8>)>,
            body: Vec<u8>,
        ) {
            let mut area = vec![0; 1 << 16];
            let pairs = || fields.iter().map(|(name, value)| (&name[..], &value[..]));
            let line = line(&target, &method);
            let at = body.len() / 3;
            let pieces = [Bytes::copy_from_slice(&body[..at]), Bytes::copy_from_slice(&body[at..])];
            let whole = WholeBody::Memory(&pieces);
            let len = write_request(Area::over(&mut area), &line, pairs(), &whole);
            let len = len.expect("it fits");
            let record = RequestRecord::read(&area[..len]).expect("readable");
            prop_assert_eq!(record.line, line);
            prop_assert_eq!(record.fields().collect::<Vec<_>>(), pairs().collect::<Vec<_>>());
            prop_assert_eq!(record.body, BodyRecord::Memory(&body));
            // One byte less, and it is refused, not cut.
            let refused = write_request(Area::over(&mut area[..len - 1]), &line, pairs(), &whole);
            prop_assert_eq!(refused, None);
        }

        #[test]
        fn an_answer_comes_out_as_it_went_in(
            status: u16,
            reason in "[ -~]{0,20}",
            fields: Vec<(Vec<u8>, Vec<u8>)>,
            file in proptest::option::of((any::<u64>(), any::<u64>())),
            rest: Vec<u8>,
        ) {
            let file = file.map(|(offset, len)| FilePart { offset, len });
            let fields: Vec<_> = fields.iter().map(|(n, v)| (&n[..], &v[..])).collect();
            let head = AnswerHead { status, reason: reason.as_bytes(), file, fields: fields.clone() };
            let mut bytes = Vec::new();
            write_answer_head(&mut bytes, &head);
            let written = bytes.len();
            bytes.extend_from_slice(&rest);
            let (read, len) = read_answer_head(&bytes).expect("readable");
            prop_assert_eq!(len, written);
            prop_assert_eq!((read.status, read.reason, read.file), (status, reason.as_bytes(), file));
            prop_assert_eq!(read.fields, fields);
        }

        #[test]
        fn garbage_is_refused_without_a_panic(bytes: Vec<u8>) {
            let _ = read_answer_head(&bytes);
            if let Ok(record) = RequestRecord::read(&bytes) {
                let _ = record.fields().count();
            }
        }
    }
}
