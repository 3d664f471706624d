//! The turns of one connection: whether the connection stands behind others, and whether it is wasteful, since its client keeps
//! the acceptor busy with bytes that carry nothing (PINGs, windows of a byte, fragments of a byte).

/// A connection is wasteful once it has wasted more bytes than this: bytes of frames for which neither the bytes that they
/// carried nor time have paid.
const WASTE_BYTES_MAX: u64 = 8 << 10;
/// Time pays for a byte in so long, so that a connection may be kept open by PINGs.
const BYTE_US: u64 = 1_000;
/// Time pays for all that a client has wasted in so long, however much it was.
const REPAID_US_MAX: u64 = 60_000_000;
/// A byte of a body, an answer or a message pays for so many bytes of frames: frames of a few bytes carry enough, and frames of
/// one byte do not.
const TIMES: u64 = 4;
/// A whole request or message pays for so many bytes besides.
pub(super) const WHOLE_BYTES: u64 = 256;

/// The turns of one connection.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The connection stands behind others, which go first.
    pub(super) is_behind: bool,
    /// `waste` has the bytes that earlier connections of its client have wasted.
    pub(super) is_met: bool,
    pub(super) waste: Waste,
}

/// Bytes that a client has wasted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waste {
    /// When time will have paid for it.
    repaid_us: u64,
}

impl Turns {
    /// The client has sent `came` bytes, which carried `carried` bytes, and `whole_bytes` for whole requests or messages.
    pub(super) fn count(&mut self, came: u64, carried: u64, whole_bytes: u64, now_us: u64) {
        let paid = carried.saturating_mul(TIMES).saturating_add(whole_bytes);
        self.waste.add(came, paid, now_us);
    }

    /// Whether the connection goes on only in the small part of the acceptor's time that all wasteful connections share.
    pub(super) fn is_wasteful(&self, now_us: u64) -> bool {
        self.waste.is_too_much(now_us)
    }
}

impl Waste {
    fn add(&mut self, came: u64, paid: u64, now_us: u64) {
        let us = |bytes: u64| bytes.saturating_mul(BYTE_US);
        let repaid_us = self.repaid_us.max(now_us).saturating_add(us(came));
        let repaid_us = repaid_us.saturating_sub(us(paid)).max(now_us);
        self.repaid_us = repaid_us.min(now_us.saturating_add(REPAID_US_MAX));
    }

    pub(super) fn is_too_much(self, now_us: u64) -> bool {
        self.repaid_us > now_us.saturating_add(WASTE_BYTES_MAX * BYTE_US)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    /// Whether so many frames in a second are wasteful. Each has `came` bytes, and carries `carried` of a body or message.
    fn is_wasteful(frames: u64, came: u64, carried: u64, whole_bytes: u64) -> bool {
        let mut turns = Turns::default();
        for frame in 1..=frames {
            turns.count(came, carried, whole_bytes, 7 * S + frame * S / frames);
        }
        turns.is_wasteful(8 * S)
    }

    #[test]
    fn frames_that_carry_less_than_a_quarter_of_their_bytes_are_wasteful() {
        for (what, frames, came, carried, whole_bytes, expected) in [
            ("PING", 10_000, 17, 0, 0, true),
            ("a PING each 100 ms", 10, 17, 0, 0, false),
            ("a window of a byte", 10_000, 13, 1, 0, true),
            ("a window of 16 KiB", 10_000, 13, 16 << 10, 0, false),
            ("a fragment of a byte", 10_000, 7, 1, 0, true),
            ("a fragment of 64 bytes", 10_000, 70, 64, 0, false),
            ("a message of a byte", 10_000, 7, 1, WHOLE_BYTES, false),
            ("a request", 10_000, 60, 0, WHOLE_BYTES, false),
        ] {
            assert_eq!(
                is_wasteful(frames, came, carried, whole_bytes),
                expected,
                "{what}"
            );
        }
    }

    #[test]
    fn a_long_transfer_is_no_credit_and_rest_makes_good() {
        let mut turns = Turns::default();
        turns.count(1 << 30, 1 << 30, 0, S);
        turns.count(WASTE_BYTES_MAX + 1, 0, 0, S);
        assert!(turns.is_wasteful(S));
        assert!(!turns.is_wasteful(S + BYTE_US));
        turns.count(u64::MAX, 0, 0, 2 * S);
        let repaid_us = 2 * S + REPAID_US_MAX - WASTE_BYTES_MAX * BYTE_US;
        assert!(turns.is_wasteful(repaid_us - 1) && !turns.is_wasteful(repaid_us));
    }

    #[test]
    fn time_pays_however_often_it_is_counted() {
        let mut turns = Turns::default();
        turns.count(2 * WASTE_BYTES_MAX, 0, 0, S);
        let repaid_us = S + WASTE_BYTES_MAX * BYTE_US;
        (S..repaid_us)
            .step_by(100)
            .for_each(|now_us| turns.count(0, 0, 0, now_us));
        assert!(turns.is_wasteful(repaid_us - 1) && !turns.is_wasteful(repaid_us));
    }
}
