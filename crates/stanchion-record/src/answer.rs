//! The head of an answer, hints that go ahead of it, trailers that come behind its body, and what stands before each.

use stanchion_http::answer::{put_field, put_status};

use super::{BadRecord, ByteReader, KEPT_BYTES, Numbers};

/// The longest head of an answer in wire form; a longer one is the app's fault.
pub const ANSWER_HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a slot's response ring: an answer whose body has up to a MiB frees its worker at once, with any head, and however
/// slowly the client reads.
pub const RESPONSE_RING_BYTES: usize = 1024 * 1024 + ANSWER_HEAD_BYTES_MAX;
/// The same of an event loop, which has thousands of clients at a time, and waits for each without holding up the others.
const LOOP_RESPONSE_RING_BYTES: usize = 512 * 1024 + ANSWER_HEAD_BYTES_MAX;

/// Bytes of the response ring of each slot, in a server of event loops or of threads.
pub fn response_ring_bytes(event_loops: bool) -> usize {
    if event_loops {
        LOOP_RESPONSE_RING_BYTES
    } else {
        RESPONSE_RING_BYTES
    }
}

/// Bytes of the prefix before the head of an answer.
pub const PREFIX_BYTES: usize = 24;
/// The most hints that go ahead of one answer (RFC 8297).
pub const HINTS_MAX: usize = 32;
/// The longest hint in wire form. nginx reads a hint, as it reads the head of an answer, into 4 KiB (`proxy_buffer_size`), of
/// which a cache takes some 340 bytes and its key. It answers 502 if the hint is longer.
pub const HINT_BYTES_MAX: usize = 3_584;
/// The most bytes of all hints of one answer, in wire form. No seat waits for room for a hint: beside all of them any head
/// has room in the ring.
pub const HINTS_BYTES_MAX: usize = 16 * 1024;
const _: () = assert!(
    HINTS_MAX * PREFIX_BYTES + HINTS_BYTES_MAX + PREFIX_BYTES + ANSWER_HEAD_BYTES_MAX
        <= LOOP_RESPONSE_RING_BYTES
);

/// The most bytes of all trailers of one answer, in wire form. A client of gRPC takes 8 KiB unless its settings say otherwise.
pub const TRAILERS_BYTES_MAX: usize = 16 * 1024;

/// Kinds of content behind a prefix: a head whose body follows, a head whose body is a file, or hints.
const HEAD: u32 = 0;
const HEAD_OF_FILE: u32 = 1;
const HINTS: u32 = 2;
/// Further kinds: a head whose body comes in pieces, each behind such a prefix; one of these pieces; and the trailers behind them.
const HEAD_OF_PIECES: u32 = 3;
const PIECE: u32 = 4;
const TRAILERS: u32 = 5;
/// Set beside the kind of a head: no other answer follows on its connection.
const CLOSES: u32 = 1 << 31;

/// Part of a file that the acceptor is to send as the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// Where it starts.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// The head of an answer on its way out: in wire form, behind room for its prefix. It can be used again,
/// so that a head of usual shape allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct AnswerHead {
    bytes: Vec<u8>,
    closes: bool,
}

impl AnswerHead {
    /// Begins a head, and forgets the one before. `reason`, such as `OK`, may be empty.
    pub fn begin(&mut self, status: u16, reason: &[u8]) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.bytes.resize(PREFIX_BYTES, 0);
        self.closes = false;
        put_status(&mut self.bytes, status, reason);
    }

    /// Whether its connection, if it is its own, is to end behind this answer.
    pub fn close(&mut self, closes: bool) {
        self.closes = closes;
    }

    /// Whether its connection is to end behind it, by [`Self::close`].
    pub fn closes(&self) -> bool {
        self.closes
    }

    /// Begins trailers, which are fields alone.
    pub fn trailers() -> Self {
        Self {
            bytes: vec![0; PREFIX_BYTES],
            closes: false,
        }
    }

    /// Adds a field, whose name and value have been checked.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        put_field(&mut self.bytes, name, value);
    }

    /// Takes back what was added since its wire form was so long.
    pub fn shorten(&mut self, wire_len: usize) {
        self.bytes.truncate(PREFIX_BYTES + wire_len);
    }

    /// The head so far, as the client will read it.
    pub fn wire(&self) -> &[u8] {
        self.bytes.get(PREFIX_BYTES..).unwrap_or_default()
    }

    /// All of it, for the exchange. The body is `file`, if there is one, whose descriptor travels beside the
    /// exchange, and else what comes behind.
    pub fn whole(&mut self, file: Option<FilePart>) -> &[u8] {
        let kind = if file.is_some() { HEAD_OF_FILE } else { HEAD };
        self.behind_prefix(self.marked(kind), file)
    }

    /// All of it, for the exchange, if it is no head but hints that go ahead of one.
    pub fn whole_hints(&mut self) -> &[u8] {
        self.behind_prefix(HINTS, None)
    }

    /// All of it, for the exchange, if trailers come behind the body. [`answer_part`] reads the parts that follow.
    pub fn whole_before_pieces(&mut self) -> &[u8] {
        self.behind_prefix(self.marked(HEAD_OF_PIECES), None)
    }

    /// All of them, for the exchange, if they are trailers.
    pub fn whole_trailers(&mut self) -> &[u8] {
        self.behind_prefix(TRAILERS, None)
    }

    fn marked(&self, kind: u32) -> u32 {
        if self.closes { kind | CLOSES } else { kind }
    }

    fn behind_prefix(&mut self, kind: u32, file: Option<FilePart>) -> &[u8] {
        let part = file.unwrap_or(FilePart { offset: 0, len: 0 });
        let prefix = prefix(self.wire().len() as u32, kind, part);
        if let Some(room) = self.bytes.first_chunk_mut() {
            *room = prefix;
        }
        &self.bytes
    }
}

fn prefix(head_len: u32, kind: u32, part: FilePart) -> [u8; PREFIX_BYTES] {
    let mut prefix = Numbers::<PREFIX_BYTES>::new();
    prefix.put(head_len.to_le_bytes());
    prefix.put(kind.to_le_bytes());
    prefix.put(part.offset.to_le_bytes());
    prefix.put(part.len.to_le_bytes());
    prefix.bytes
}

/// The prefix of a piece of so many bytes, of a body behind which trailers come.
pub fn piece_prefix(len: u64) -> [u8; PREFIX_BYTES] {
    prefix(0, PIECE, FilePart { offset: 0, len })
}

/// The parts of an answer with trailers, behind its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerPart {
    /// So many bytes of the body.
    Piece(u64),
    /// So many bytes of trailers, which are the end.
    Trailers(usize),
}

/// Reads the prefix of a part of an answer with trailers.
pub fn answer_part(prefix: &[u8]) -> Result<AnswerPart, BadRecord> {
    let mut reader = ByteReader(prefix);
    let (len, kind) = (reader.word()?, u32::from_le_bytes(reader.array()?));
    let (_, piece_len) = (reader.number()?, reader.number()?);
    match kind {
        PIECE => Ok(AnswerPart::Piece(piece_len)),
        TRAILERS if len <= TRAILERS_BYTES_MAX => Ok(AnswerPart::Trailers(len)),
        _ => Err(BadRecord),
    }
}

/// The content of the prefix before the head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerPrefix {
    /// Bytes of the head, which comes next.
    pub head_len: usize,
    /// The body, if it is (part of) a file whose descriptor travels beside the exchange.
    pub file: Option<FilePart>,
    /// The body comes in pieces, and trailers behind it: see [`answer_part`].
    pub has_trailers: bool,
    /// The app wants its connection to end behind this answer.
    pub closes: bool,
}

/// Reads the first [`PREFIX_BYTES`] of an answer. The caller checks whether `head_len` more bytes are there.
pub fn answer_prefix(bytes: &[u8]) -> Result<AnswerPrefix, BadRecord> {
    let mut reader = ByteReader(bytes);
    let head_len = reader.word()?;
    let marked = u32::from_le_bytes(reader.array()?);
    let (kind, closes) = (marked & !CLOSES, marked & CLOSES != 0);
    let (offset, len) = (reader.number()?, reader.number()?);
    if head_len > ANSWER_HEAD_BYTES_MAX {
        return Err(BadRecord);
    }
    let file = match kind {
        HEAD | HEAD_OF_PIECES => None,
        HEAD_OF_FILE => Some(FilePart { offset, len }),
        _ => return Err(BadRecord),
    };
    Ok(AnswerPrefix {
        head_len,
        file,
        has_trailers: kind == HEAD_OF_PIECES,
        closes,
    })
}

/// How long the hints are that come behind a prefix; `None` if it is a head that comes there.
pub fn hints_len(prefix: &[u8]) -> Option<usize> {
    let mut reader = ByteReader(prefix);
    let (len, kind) = (reader.word().ok()?, reader.word().ok()?);
    (kind == HINTS as usize).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_answer_comes_out_as_it_went_in(
            fields: Vec<(Vec<u8>, Vec<u8>)>,
            file in proptest::option::of((any::<u64>(), any::<u64>())),
            again: bool,
            closes: bool,
        ) {
            let file = file.map(|(offset, len)| FilePart { offset, len });
            let mut head = AnswerHead::default();
            if again {
                head.begin(500, b"Not This");
                head.field(b"X-Not", b"this");
                head.close(true);
            }
            head.begin(200, b"Fine");
            prop_assert!(!head.closes());
            head.close(closes);
            let mut expected = b"HTTP/1.1 200 Fine\r\n".to_vec();
            for (name, value) in &fields {
                head.field(name, value);
                put_field(&mut expected, name, value);
            }
            prop_assert_eq!(head.wire(), &expected);
            let whole = head.whole(file).to_vec();
            let prefix = answer_prefix(&whole).expect("readable");
            prop_assert_eq!(prefix, AnswerPrefix { head_len: expected.len(), file, has_trailers: false, closes });
            prop_assert_eq!(&whole[PREFIX_BYTES..], &expected);
            prop_assert!(answer_part(&whole).is_err());
            let before_pieces = answer_prefix(head.whole_before_pieces()).expect("readable");
            prop_assert_eq!(before_pieces, AnswerPrefix { file: None, has_trailers: true, ..prefix });
            prop_assert_eq!(answer_prefix(&whole[..PREFIX_BYTES - 1]), Err(BadRecord));
            head.field(b"X-Later", b"and taken back");
            head.shorten(expected.len());
            prop_assert_eq!(head.wire(), &expected);
        }

        #[test]
        fn garbage_is_refused_without_a_panic(bytes: Vec<u8>) {
            if let Ok(prefix) = answer_prefix(&bytes) {
                prop_assert!(prefix.head_len <= ANSWER_HEAD_BYTES_MAX);
            }
            if let Ok(AnswerPart::Trailers(len)) = answer_part(&bytes) {
                prop_assert!(len <= TRAILERS_BYTES_MAX);
            }
        }
    }

    #[test]
    fn hints_are_told_from_heads() {
        let mut hints = AnswerHead::default();
        hints.begin(103, b"");
        hints.field(b"Link", b"</a.css>; rel=preload");
        let wire = hints.wire().to_vec();
        assert!(wire.starts_with(b"HTTP/1.1 103 Early Hints\r\nLink: "));
        let (prefix, behind) = hints.whole_hints().split_at(PREFIX_BYTES);
        assert_eq!((hints_len(prefix), behind), (Some(wire.len()), &wire[..]));
        assert_eq!(answer_prefix(prefix), Err(BadRecord));
        for file in [None, Some(FilePart { offset: 2, len: 2 })] {
            assert_eq!(hints_len(hints.whole(file)), None);
        }
    }

    #[test]
    fn pieces_are_told_from_trailers() {
        assert_eq!(answer_part(&piece_prefix(7)), Ok(AnswerPart::Piece(7)));
        assert_eq!(answer_prefix(&piece_prefix(7)), Err(BadRecord));
        let mut trailers = AnswerHead::trailers();
        for (value, is_fit) in [(TRAILERS_BYTES_MAX - 5, true), (1, false)] {
            trailers.field(b"a", &b"x".repeat(value));
            let len = trailers.wire().len();
            let whole = trailers.whole_trailers();
            let expected = is_fit.then_some(AnswerPart::Trailers(len));
            assert_eq!(answer_part(whole).ok(), expected);
            assert_eq!(answer_prefix(whole), Err(BadRecord));
        }
    }

    #[test]
    fn a_prefix_that_cannot_be_is_refused() {
        let prefix = |head_len: usize, is_file: u32| {
            let mut bytes = (head_len as u32).to_le_bytes().to_vec();
            bytes.extend_from_slice(&is_file.to_le_bytes());
            bytes.resize(PREFIX_BYTES, 0);
            answer_prefix(&bytes).is_ok()
        };
        assert!(prefix(ANSWER_HEAD_BYTES_MAX, 0));
        assert!(prefix(0, 1));
        assert!(!prefix(ANSWER_HEAD_BYTES_MAX + 1, 0));
        assert!(!prefix(0, HINTS));
        assert!(!prefix(0, PIECE));
        assert!(!prefix(0, 6));
        assert!(prefix(0, CLOSES));
        assert!(!prefix(0, CLOSES | HINTS));
        assert!(!prefix(0, CLOSES >> 1));
    }
}
