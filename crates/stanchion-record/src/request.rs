//! The record of a request.

use bytes::Bytes;
use stanchion_exchange::{Area, Taken};
use stanchion_http::{ByteSpan, Head, VARIABLE};

use super::{BadRecord, ByteReader, KEPT_BYTES, Numbers, TLS_BYTES_MAX};
use stanchion_log::describe;

/// The longest request head (request line and fields), in bytes, as it arrives.
pub const REQUEST_HEAD_BYTES_MAX: usize = 64 * 1024;
/// Room in the record of a request beyond its head and body: for addresses, lengths, the places of the fields, and the values
/// of its TLS. The acceptor refuses a request whose fields are too many for it.
pub const REQUEST_RECORD_EXTRA_BYTES: usize = 16 * 1024 + TLS_BYTES_MAX;
/// The numbers at the start of a request's record.
const FIXED_BYTES: usize = 81;
/// Where one field is: two spans of two numbers.
const FIELD_BYTES: usize = 16;
/// Fields whose places are written at a time.
const FIELDS_AT_ONCE: usize = 16;
/// A seat copies this much of a record at first, which is more than most heads need.
const USUAL_BYTES: usize = 2 * 1024;
/// Where a body is, as a number.
const MEMORY: u8 = 0;
const SPOOLED: u8 = 1;
const BEGUN: u8 = 2;
/// Stands for a time that no proxy has reported, and for a moment that the app is not told.
const UNKNOWN: u64 = u64::MAX;

/// A request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyRecord<'a> {
    /// Whole, in the record itself; see [`Taken::read_request`].
    Memory {
        /// Where it begins there.
        at: usize,
        /// Its length in bytes; may be 0.
        len: usize,
    },
    /// As much as had come when the request joined the line is in the record; the rest is the inflow.
    Begun {
        /// Where it begins there.
        at: usize,
        /// How much that is, in bytes.
        len: usize,
    },
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
pub enum BodySource<'a> {
    /// Whole and in memory, in the pieces in which it came.
    Memory(&'a [Bytes]),
    /// As much of it as has come, in the pieces in which it came.
    Begun(&'a [Bytes]),
    /// In a spool file.
    Spooled {
        /// Path of the file.
        path: &'a str,
        /// Its length in bytes.
        len: u64,
    },
}

/// Facts on a request besides its head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct RequestFacts<'a> {
    /// Whether it came by `https`, after what trusted proxies say.
    pub is_https: bool,
    /// The client's address; empty on a unix socket.
    pub peer_address: &'a [u8],
    /// The client's port; 0 on a unix socket.
    pub peer_port: u16,
    /// The listener's address or path.
    pub server_name: &'a [u8],
    /// The listener's port, or empty.
    pub server_port: &'a [u8],
    /// Whether the peer is a proxy we believe.
    pub trusted_peer: bool,
    /// Its id; empty if requests have none.
    pub request_id: &'a [u8],
    /// The values of its TLS, for [`tls_values`](super::tls_values); empty if it has none.
    pub tls: &'a [u8],
    /// How long it was with the proxies, in microseconds, as far as they say so.
    pub proxy_us: Option<u64>,
    /// When it arrived, in microseconds since the epoch, if the host is to set `X-Request-Start`. No such field is in the
    /// head then.
    pub request_start_us: Option<u64>,
    /// Whether it asks for a WebSocket, in a way that it can have one.
    pub is_websocket: bool,
    /// Whether hints may go ahead of its answer.
    pub takes_hints: bool,
    /// Whether its client takes trailers behind its answer.
    pub takes_trailers: bool,
    /// If messages of its WebSocket are compressed: the window for those to the client, as a power of two.
    pub deflate_bits: Option<u8>,
}

/// A request as the worker reads it.
#[derive(Clone, Copy, Debug)]
pub struct RequestRecord<'a> {
    /// Such as `GET`.
    pub method: &'a [u8],
    /// The request target as it was sent.
    pub target: &'a [u8],
    /// Such as `HTTP/1.1`.
    pub protocol: &'a [u8],
    /// Other facts.
    pub facts: RequestFacts<'a>,
    /// The body.
    pub body: BodyRecord<'a>,
    /// Where its fields are, and its head as it was sent. Two requests with the same here are alike in method, target,
    /// version and fields.
    pub as_sent: &'a [u8],
    head: &'a [u8],
    /// Checked against the head.
    spans: &'a [[u8; FIELD_BYTES]],
}

/// Appends to an area of fixed size; what does not fit is noticed at the end.
struct AreaWriter<'a> {
    area: Area<'a>,
    len: usize,
}

impl AreaWriter<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.area.put(self.len, bytes);
        self.len += bytes.len();
    }
}

/// Writes a request into `area`; `None` if it does not fit. The body comes last, so that the worker can
/// take it straight to where its app wants it.
pub fn write_request(
    area: Area<'_>,
    facts: &RequestFacts<'_>,
    head: &Head,
    body: &BodySource<'_>,
) -> Option<usize> {
    let (path, body_len, kind) = match body {
        BodySource::Memory(pieces) => ("", len_of(pieces), MEMORY),
        BodySource::Begun(pieces) => ("", len_of(pieces), BEGUN),
        BodySource::Spooled { path, len } => (*path, *len, SPOOLED),
    };
    let texts = [
        facts.peer_address,
        facts.server_name,
        facts.server_port,
        facts.request_id,
        facts.tls,
        path.as_bytes(),
    ];
    let texts_len = texts.iter().map(|text| text.len()).sum::<usize>();
    let body_at = FIXED_BYTES + texts_len + head.spans().len() * FIELD_BYTES + head.bytes().len();
    let mut fixed = Numbers::<FIXED_BYTES>::new();
    fixed.put(u32::try_from(body_at).ok()?.to_le_bytes());
    fixed.put(u32::try_from(head.bytes().len()).ok()?.to_le_bytes());
    fixed.put(u32::try_from(head.spans().len()).ok()?.to_le_bytes());
    put_span(&mut fixed, head.method_span());
    put_span(&mut fixed, head.target_span());
    put_span(&mut fixed, head.protocol_span());
    for text in texts {
        fixed.put(u16::try_from(text.len()).ok()?.to_le_bytes());
    }
    fixed.put(facts.peer_port.to_le_bytes());
    fixed.put([
        u8::from(facts.trusted_peer),
        u8::from(facts.is_https),
        kind,
        u8::from(facts.is_websocket),
        u8::from(facts.takes_hints),
        u8::from(facts.takes_trailers),
        facts.deflate_bits.unwrap_or(0),
    ]);
    fixed.put(facts.proxy_us.unwrap_or(UNKNOWN).to_le_bytes());
    fixed.put(facts.request_start_us.unwrap_or(UNKNOWN).to_le_bytes());
    fixed.put(body_len.to_le_bytes());
    let mut writer = AreaWriter { area, len: 0 };
    writer.put(&fixed.bytes);
    for text in texts {
        writer.put(text);
    }
    for spans in head.spans().chunks(FIELDS_AT_ONCE) {
        let mut numbers = Numbers::<{ FIELDS_AT_ONCE * FIELD_BYTES }>::new();
        for span in spans {
            put_span(&mut numbers, span.name);
            put_span(&mut numbers, span.value);
        }
        writer.put(&numbers.bytes[..numbers.len]);
    }
    writer.put(head.bytes());
    if let BodySource::Memory(pieces) | BodySource::Begun(pieces) = body {
        pieces.iter().for_each(|piece| writer.put(piece));
    }
    (writer.len <= writer.area.len()).then_some(writer.len)
}

fn len_of(pieces: &[Bytes]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

fn put_span<const N: usize>(numbers: &mut Numbers<N>, span: ByteSpan) {
    numbers.put(span.at.to_le_bytes());
    numbers.put(span.len.to_le_bytes());
}

/// A span at the front of these bytes.
fn span_at(bytes: &[u8]) -> Option<ByteSpan> {
    let (at, rest) = bytes.split_first_chunk()?;
    let (len, _) = rest.split_first_chunk()?;
    Some(ByteSpan {
        at: u32::from_le_bytes(*at),
        len: u32::from_le_bytes(*len),
    })
}

/// The bytes of a span, if it is within `bytes`.
fn within(span: ByteSpan, bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(span.at as usize..)?.get(..span.len as usize)
}

fn field<'a>(spans: &[u8; FIELD_BYTES], head: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (name, value) = spans.split_at(FIELD_BYTES / 2);
    Some((
        within(span_at(name)?, head)?,
        within(span_at(value)?, head)?,
    ))
}

impl<'a> RequestRecord<'a> {
    /// Reads what [`write_request`] wrote. `bytes` are the record's first, all that are before the body
    /// at least; `len` is the length of the whole.
    pub fn read(bytes: &'a [u8], len: usize) -> Result<Self, BadRecord> {
        let mut reader = ByteReader(bytes);
        let body_at = reader.word()?;
        let head_len = reader.word()?;
        let field_count = reader.word()?;
        let (method, target, protocol) = (reader.take(8)?, reader.take(8)?, reader.take(8)?);
        let mut lens = [0; 6];
        for len in &mut lens {
            *len = reader.short()?;
        }
        let peer_port = u16::from_le_bytes(reader.array()?);
        let [
            trusted,
            is_https,
            body_kind,
            is_websocket,
            takes_hints,
            takes_trailers,
            deflate_bits,
        ] = reader.array()?;
        let deflate_bits = match deflate_bits {
            0 => None,
            bits @ 9..=15 => Some(bits),
            _ => return Err(BadRecord),
        };
        let proxy_us = Some(reader.number()?).filter(|&us| us != UNKNOWN);
        let request_start_us = Some(reader.number()?).filter(|&us| us != UNKNOWN);
        let body_len = reader.number()?;
        let facts = RequestFacts {
            peer_address: reader.take(lens[0])?,
            server_name: reader.take(lens[1])?,
            server_port: reader.take(lens[2])?,
            request_id: reader.take(lens[3])?,
            tls: reader.take(lens[4])?,
            is_https: is_https != 0,
            peer_port,
            trusted_peer: trusted != 0,
            proxy_us,
            request_start_us,
            is_websocket: is_websocket != 0,
            takes_hints: takes_hints != 0,
            takes_trailers: takes_trailers != 0,
            deflate_bits,
        };
        let path = reader.take(lens[5])?;
        let spans_len = field_count.checked_mul(FIELD_BYTES).ok_or(BadRecord)?;
        let as_sent = reader.take(spans_len.checked_add(head_len).ok_or(BadRecord)?)?;
        let (spans, head) = as_sent.split_at(spans_len);
        let (spans, _) = spans.as_chunks();
        let part = |span| within(span_at(span)?, head);
        if bytes.len() - reader.0.len() != body_at
            || !spans.iter().all(|spans| field(spans, head).is_some())
        {
            return Err(BadRecord);
        }
        let at = body_at;
        let in_record = match body_kind {
            SPOOLED => 0,
            _ => usize::try_from(body_len).map_err(|_| BadRecord)?,
        };
        let body = match body_kind {
            MEMORY => BodyRecord::Memory { at, len: in_record },
            BEGUN => BodyRecord::Begun { at, len: in_record },
            SPOOLED => BodyRecord::Spooled {
                path: std::str::from_utf8(path).map_err(|_| BadRecord)?,
                len: body_len,
            },
            _ => return Err(BadRecord),
        };
        if body_at.checked_add(in_record) != Some(len) {
            return Err(BadRecord);
        }
        Ok(Self {
            method: part(method).ok_or(BadRecord)?,
            target: part(target).ok_or(BadRecord)?,
            protocol: part(protocol).ok_or(BadRecord)?,
            facts,
            body,
            as_sent,
            head,
            spans,
        })
    }

    /// The fields in the order in which they were sent, names as they were sent.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> {
        let head = self.head;
        let fields = self.spans.iter();
        fields.map(move |spans| field(spans, head).expect("it was checked when it was read"))
    }

    /// The value of a [variable](stanchion_http::uwsgi).
    pub fn variable(&self, name: &str) -> Option<&'a [u8]> {
        let mut fields = self.fields();
        let found =
            fields.find(|(known, _)| known.split_first() == Some((&VARIABLE, name.as_bytes())));
        found.map(|(_, value)| value)
    }

    /// Method, target and name, for logs.
    pub fn describe(&self) -> String {
        let method = String::from_utf8_lossy(self.method);
        let name = String::from_utf8_lossy(self.facts.request_id);
        describe(&method, self.target, &name)
    }
}

/// Where a seat keeps the records of its requests, one after the other.
#[derive(Debug, Default)]
pub struct RequestBuffer {
    bytes: Vec<u8>,
}

impl RequestBuffer {
    /// The record of a request, without a body that is in it.
    pub fn read(&mut self, taken: &Taken<'_>) -> Result<RequestRecord<'_>, BadRecord> {
        let len = taken.request_len();
        if self.bytes.len() < USUAL_BYTES {
            self.bytes.resize(USUAL_BYTES, 0);
        } else if self.bytes.len() > KEPT_BYTES {
            self.bytes.truncate(USUAL_BYTES);
            self.bytes.shrink_to_fit();
        }
        let mut copied = taken.read_request(0, &mut self.bytes[..USUAL_BYTES]);
        let body_at = ByteReader(&self.bytes[..copied]).word()?;
        if body_at > len {
            return Err(BadRecord);
        }
        if body_at > copied {
            self.bytes.resize(self.bytes.len().max(body_at), 0);
            copied += taken.read_request(copied, &mut self.bytes[copied..body_at]);
        }
        let before_body = self.bytes.get(..body_at.min(copied)).ok_or(BadRecord)?;
        RequestRecord::read(before_body, len)
    }

    /// The record of a request without a body that comes through no exchange.
    pub fn hold(
        &mut self,
        facts: &RequestFacts<'_>,
        head: &Head,
    ) -> Result<RequestRecord<'_>, BadRecord> {
        let room = REQUEST_RECORD_EXTRA_BYTES + head.bytes().len();
        self.bytes.resize(room, 0);
        let area = Area::over(&mut self.bytes);
        let len = write_request(area, facts, head, &BodySource::Memory(&[])).ok_or(BadRecord)?;
        RequestRecord::read(&self.bytes[..len], len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn facts() -> RequestFacts<'static> {
        RequestFacts {
            is_https: true,
            peer_address: b"127.0.0.1",
            peer_port: 4711,
            server_name: b"localhost",
            server_port: b"8000",
            trusted_peer: true,
            request_id: b"abc",
            tls: b"\x01\x00A\x00\x00",
            proxy_us: Some(7),
            request_start_us: Some(1_764_371_234_567_890),
            is_websocket: true,
            takes_hints: true,
            takes_trailers: true,
            deflate_bits: Some(9),
        }
    }

    fn fields() -> impl Strategy<Value = Vec<(String, String)>> {
        proptest::collection::vec(("[A-Za-z-]{1,12}", "[!-~]{0,20}"), 0..40)
    }

    fn head_of(method: &str, target: &str, fields: &[(String, String)]) -> Head {
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| (format!("X-{name}"), value))
            .collect();
        let pairs: Vec<_> = fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        Head::of(method, target, &pairs)
    }

    proptest! {
        #[test]
        fn a_request_comes_out_as_it_went_in(
            target in "/[a-z0-9?=&%./~-]{0,30}",
            method in "[A-Z]{1,8}",
            fields in fields(),
            body: Vec<u8>,
        ) {
            prop_assume!(method != "CONNECT");
            let mut area = vec![0; 1 << 16];
            let mut head = head_of(&method, &target, &fields);
            head.set("X-Set", b"later");
            let at = body.len() / 3;
            let pieces = [Bytes::copy_from_slice(&body[..at]), Bytes::copy_from_slice(&body[at..])];
            let whole = BodySource::Memory(&pieces);
            let len = write_request(Area::over(&mut area), &facts(), &head, &whole);
            let len = len.expect("it fits");
            let body_at = len - body.len();
            let record = RequestRecord::read(&area[..body_at], len).expect("readable");
            prop_assert_eq!(record.method, method.as_bytes());
            prop_assert_eq!(record.target, target.as_bytes());
            prop_assert_eq!(record.protocol, b"HTTP/1.1");
            prop_assert_eq!(record.facts, facts());
            prop_assert_eq!(record.fields().collect::<Vec<_>>(), head.fields().collect::<Vec<_>>());
            prop_assert_eq!(record.body, BodyRecord::Memory { at: body_at, len: body.len() });
            prop_assert_eq!(&area[body_at..len], &body);
            // One byte less or more, and it is refused, not cut.
            for wrong in [len - 1, len + 1] {
                prop_assert_eq!(RequestRecord::read(&area[..body_at], wrong).err(), Some(BadRecord));
            }
            prop_assert!(RequestRecord::read(&area[..body_at - 1], len).is_err());
            let refused = write_request(Area::over(&mut area[..len - 1]), &facts(), &head, &whole);
            prop_assert_eq!(refused, None);
        }

        #[test]
        fn garbage_is_refused_without_a_panic(bytes: Vec<u8>, len: usize) {
            if let Ok(record) = RequestRecord::read(&bytes, len) {
                let _ = record.fields().count();
            }
        }

        /// Garbage that is all but a record comes further.
        #[test]
        fn a_spoilt_record_is_read_or_refused_without_a_panic(
            fields in fields(),
            spoilt in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut area = vec![0; 1 << 13];
            let head = head_of("GET", "/", &fields);
            let whole = BodySource::Spooled { path: "/spool/1", len: 7 };
            let len = write_request(Area::over(&mut area), &facts(), &head, &whole).expect("it fits");
            for (at, byte) in spoilt {
                area[at.index(len)] = byte;
            }
            if let Ok(record) = RequestRecord::read(&area[..len], len) {
                prop_assert_eq!(record.fields().count(), fields.len());
            }
        }
    }

    #[test]
    fn a_request_that_comes_through_no_exchange_is_held_as_others_are() {
        let mut buffer = RequestBuffer::default();
        for target in ["/", "/a?b", "/"] {
            let head = Head::of(
                "GET",
                target,
                &[("Host", "shop.example"), ("Accept", "*/*")],
            );
            let record = buffer.hold(&facts(), &head).expect("it fits");
            assert_eq!(
                (record.method, record.target),
                (&b"GET"[..], target.as_bytes())
            );
            assert_eq!(record.facts, facts());
            assert!(record.fields().eq(head.fields()));
            assert!(matches!(record.body, BodyRecord::Memory { len: 0, .. }));
        }
        let fields = vec![("A", ""); REQUEST_RECORD_EXTRA_BYTES / FIELD_BYTES + 1];
        let too_many = buffer.hold(&facts(), &Head::of("GET", "/", &fields));
        assert_eq!(too_many.err(), Some(BadRecord));
    }

    #[test]
    fn a_body_that_is_still_coming_is_told_from_a_whole_one() {
        let mut area = [0; 256];
        let head = Head::of("PUT", "/", &[]);
        let pieces = [Bytes::from_static(b"abc")];
        let facts = RequestFacts::default();
        let begun = BodySource::Begun(&pieces);
        let len = write_request(Area::over(&mut area), &facts, &head, &begun).expect("it fits");
        let at = len - 3;
        let record = RequestRecord::read(&area[..at], len).expect("readable");
        assert_eq!(record.body, BodyRecord::Begun { at, len: 3 });
        assert_eq!(&area[at..len], b"abc");
    }

    #[test]
    fn a_spooled_body_is_a_path() {
        let mut area = [0; 256];
        let head = Head::of("PUT", "/", &[]);
        let whole = BodySource::Spooled {
            path: "/spool/1",
            len: u64::MAX,
        };
        let facts = RequestFacts::default();
        let len = write_request(Area::over(&mut area), &facts, &head, &whole).expect("it fits");
        let record = RequestRecord::read(&area[..len], len).expect("readable");
        let (path, body_len) = ("/spool/1", u64::MAX);
        let body = BodyRecord::Spooled {
            path,
            len: body_len,
        };
        assert_eq!((record.body, record.facts), (body, facts));
    }
}
