//! The bytes of a long message, in pieces: bytes that have come are not copied when more come.

/// A piece grows up to this size, and is copied as it grows. Bytes beyond it go into another piece.
const PIECE_BYTES: usize = 64 << 10;
/// The memory is never more than this many times the bytes that have come. It grows at this rate, so that the bytes of
/// a piece are copied a few times at most, whatever the size of the parts in which they come.
const ROOM_TIMES: usize = 2;

/// Bytes in one or more pieces. No piece is empty, except a single one.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    full: Vec<Vec<u8>>,
    full_bytes: usize,
    full_room: usize,
    last: Vec<u8>,
}

impl Pieces {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.full_bytes + self.last.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For how many bytes the pieces have allocated memory.
    pub fn room(&self) -> usize {
        self.full_room + self.last.capacity()
    }

    /// The first piece.
    pub fn first(&self) -> &[u8] {
        self.full.first().unwrap_or(&self.last)
    }

    /// The pieces, one after the other.
    pub fn into_pieces(self) -> impl Iterator<Item = Vec<u8>> {
        let last = Some(self.last).filter(|last| !last.is_empty());
        self.full.into_iter().chain(last)
    }

    /// All bytes in one piece; several pieces are copied into it.
    pub(crate) fn into_whole(self) -> Vec<u8> {
        if self.full.is_empty() {
            return self.last;
        }
        let mut whole = Vec::with_capacity(self.len());
        self.into_pieces()
            .for_each(|piece| whole.extend_from_slice(&piece));
        whole
    }

    /// The piece that still grows.
    pub(crate) fn last(&self) -> &[u8] {
        &self.last
    }

    /// Moves a part of `bytes` behind the last piece; all pieces together have at most `len_max` bytes in the end. If
    /// it must begin another piece for the rest, it moves the last `torn` bytes of the old piece there.
    pub(crate) fn put_some(&mut self, bytes: &mut &[u8], torn: usize, len_max: usize) {
        if self.last.len() == PIECE_BYTES {
            self.begin_piece(torn, len_max);
        }
        let (part, rest) = bytes.split_at(bytes.len().min(PIECE_BYTES - self.last.len()));
        let len = self.last.len() + part.len();
        if len > self.last.capacity() {
            let left = len_max.saturating_sub(self.full_bytes);
            let room = (len * ROOM_TIMES).min(PIECE_BYTES).min(left).max(len);
            self.last.reserve_exact(room - self.last.len());
        }
        self.last.extend_from_slice(part);
        *bytes = rest;
    }

    /// Begins a piece. More bytes have come already than a piece has, so the new one may have all its room at once.
    fn begin_piece(&mut self, torn: usize, len_max: usize) {
        let at = self.last.len() - torn;
        let room = PIECE_BYTES.min(len_max.saturating_sub(self.full_bytes + at));
        let mut next = Vec::with_capacity(room.max(torn));
        next.extend_from_slice(&self.last[at..]);
        self.last.truncate(at);
        self.full_bytes += at;
        self.full_room += self.last.capacity();
        self.full.push(std::mem::replace(&mut self.last, next));
    }
}

impl From<Vec<u8>> for Pieces {
    fn from(last: Vec<u8>) -> Self {
        Self {
            last,
            ..Self::default()
        }
    }
}

/// Compares the bytes, whatever the pieces.
impl PartialEq for Pieces {
    fn eq(&self, other: &Self) -> bool {
        self.clone().into_whole() == other.clone().into_whole()
    }
}

impl Eq for Pieces {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of `len` bytes that came in parts of `step`.
    fn pieces(len: usize, step: usize, torn: usize) -> Pieces {
        let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let mut pieces = Pieces::default();
        for mut part in bytes.chunks(step) {
            while !part.is_empty() {
                pieces.put_some(&mut part, torn, len);
            }
        }
        assert_eq!(pieces.clone().into_whole(), bytes);
        pieces
    }

    #[test]
    fn no_piece_is_long_and_all_are_what_came() {
        for len in [
            1,
            PIECE_BYTES - 1,
            PIECE_BYTES,
            PIECE_BYTES + 1,
            5 * PIECE_BYTES + 7,
        ] {
            for (step, torn) in [(1_448, 0), (1_448, 3), (69_632, 0), (69_632, 1), (len, 0)] {
                let pieces = pieces(len, step, torn);
                assert_eq!(pieces.len(), len);
                assert!(pieces.room() >= len && pieces.room() <= len + torn * pieces.full.len());
                assert_eq!(pieces.first().first(), Some(&0));
                let mut lens = pieces.into_pieces().map(|piece| piece.len());
                assert!(lens.all(|len| len > 0 && len <= PIECE_BYTES));
            }
        }
    }

    #[test]
    fn what_has_come_stays_where_it_is_once_its_piece_is_full() {
        let mut pieces = Pieces::default();
        let mut seen = Vec::new();
        for _ in 0..1_000 {
            let mut part = &[7; 1_000][..];
            while !part.is_empty() {
                pieces.put_some(&mut part, 0, usize::MAX);
            }
            let places = pieces.full.iter().map(Vec::as_ptr).collect::<Vec<_>>();
            assert!(places.starts_with(&seen));
            seen = places;
        }
        assert_eq!(seen.len(), 1_000_000 / PIECE_BYTES);
    }
}
