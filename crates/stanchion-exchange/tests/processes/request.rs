//! The requests, and the answers that they must get.

use stanchion_exchange::{Area, Taken};
use stanchion_sys::process;
use stanchion_sys::signal::SIGKILL;

/// `SplitMix64`: small, seeded, and good enough to choose which process to kill.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Where a worker kills itself over a request, if it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fatal {
    No,
    Taken,
    Written,
    Published,
    Finished,
}

impl Fatal {
    pub(crate) const ALL: [Self; 5] = [
        Self::No,
        Self::Taken,
        Self::Written,
        Self::Published,
        Self::Finished,
    ];
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) answer_len: u32,
    pub(crate) fatal: Fatal,
}

impl Request {
    const LEN: usize = 13;

    pub(crate) fn encode(&self, mut area: Area<'_>) -> usize {
        area.put(0, &self.id.to_le_bytes());
        area.put(8, &self.answer_len.to_le_bytes());
        area.put(12, &[self.fatal as u8]);
        Self::LEN
    }

    fn decode(record: &[u8]) -> Self {
        assert_eq!(record.len(), Self::LEN);
        Self {
            id: u64::from_le_bytes(record[..8].try_into().unwrap()),
            answer_len: u32::from_le_bytes(record[8..12].try_into().unwrap()),
            fatal: Fatal::ALL[usize::from(record[12])],
        }
    }

    /// A piece of the answer; it differs from the pieces of every other request.
    pub(crate) fn answer(&self, from: usize, to: usize) -> Vec<u8> {
        let mixed = |position| Random(self.id ^ (position as u64) << 40).next() as u8;
        (from..to).map(mixed).collect()
    }
}

/// Answers as a worker does, piece by piece.
pub(crate) fn answer(mut taken: Taken<'_>) {
    /// Neither a divisor nor a multiple of the ring, so that writes wrap around its end.
    const PIECE_BYTES: usize = 37;

    let request = Request::decode(&taken.request());
    let die_at = |stage| {
        if request.fatal == stage {
            process::kill(process::pid(), SIGKILL).unwrap();
        }
    };
    die_at(Fatal::Taken);
    let len = request.answer_len as usize;
    for from in (0..len).step_by(PIECE_BYTES) {
        let piece = request.answer(from, len.min(from + PIECE_BYTES));
        if taken.write(&piece).is_err() {
            return;
        }
        die_at(Fatal::Written);
        if (request.id + from as u64).is_multiple_of(2) {
            taken.publish();
            die_at(Fatal::Published);
        }
    }
    taken.finish(stanchion_exchange::AnswerEnd::Complete);
    die_at(Fatal::Finished);
}
