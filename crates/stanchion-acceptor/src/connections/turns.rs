//! The turns of one connection: whether the connection stands behind others, and whether it is wasteful, since its client keeps
//! the acceptor busy with bytes that carry nothing (PINGs, windows of a byte, fragments of a byte).

/// A connection is wasteful once it has wasted more bytes than this: bytes of frames for which neither the bytes that they
/// carried nor time have paid.
const WASTE_BYTES_MAX: u64 = 8 << 10;
/// Each second pays for so many bytes, so that a connection may be kept open by PINGs.
const FORGIVEN_BYTES_PER_S: u64 = 1 << 10;
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
    wasted_bytes: u64,
    counted_us: u64,
}

impl Turns {
    /// The client has sent `came` bytes, which carried `carried` bytes, and `whole_bytes` for whole requests or messages.
    pub(super) fn count(&mut self, came: u64, carried: u64, whole_bytes: u64, now_us: u64) {
        let elapsed_us = now_us.saturating_sub(self.counted_us);
        self.counted_us = now_us;
        let forgiven = elapsed_us.saturating_mul(FORGIVEN_BYTES_PER_S) / 1_000_000;
        let paid = carried.saturating_mul(TIMES).saturating_add(whole_bytes);
        let wasted_bytes = self.wasted_bytes.saturating_add(came);
        self.wasted_bytes = wasted_bytes.saturating_sub(paid.saturating_add(forgiven));
    }

    /// Whether the connection goes on only in the small part of the acceptor's time that all wasteful connections share.
    pub(super) fn is_wasteful(&self) -> bool {
        self.wasted_bytes > WASTE_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    /// Whether so many frames in a second are wasteful. Each has `came` bytes, and carries `carried` of a body or message.
    fn is_wasteful(frames: u64, came: u64, carried: u64, whole_bytes: u64) -> bool {
        let mut turns = Turns::default();
        turns.count(0, 0, 0, 7 * S);
        for frame in 1..=frames {
            turns.count(came, carried, whole_bytes, 7 * S + frame * S / frames);
        }
        turns.is_wasteful()
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
        assert!(turns.is_wasteful());
        turns.count(0, 0, 0, 2 * S);
        assert!(!turns.is_wasteful());
    }
}
