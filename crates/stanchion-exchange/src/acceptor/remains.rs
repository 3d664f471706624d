//! Remains: the bytes that long requests and answers leave in their slots.

/// Shorter requests and answers are wiped as soon as their slot is free.
pub(super) const BYTES_MIN: usize = 64 * 1024;

/// The bytes that answers have left in a slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Remains {
    /// How far they reach in the response ring; 0 = nothing is left.
    pub(super) bytes: usize,
    /// They were there at the last [`super::AcceptorSide::wipe_remains`], while the slot was in use.
    pub(super) is_due: bool,
    /// The slot may hold much memory, which is wiped once `bytes` is 0.
    pub(super) is_large: bool,
    /// Which turn the slot was in at the last [`super::AcceptorSide::wipe_remains`].
    pub(super) turn: u32,
}

impl Remains {
    /// Notes that an answer has ended that reached so far into its ring. Returns how many bytes to wipe at once.
    pub(super) fn leave(&mut self, reached: usize) -> usize {
        let bytes = reached.max(self.bytes);
        self.is_large |= bytes >= BYTES_MIN;
        if bytes < BYTES_MIN || self.is_due {
            (self.bytes, self.is_due) = (0, false);
            return bytes;
        }
        self.bytes = bytes;
        0
    }

    /// Notes that so many bytes of a request or an inflow were in the slot, which the caller wipes.
    pub(super) fn leave_others(&mut self, bytes: usize) {
        self.is_large |= bytes >= BYTES_MIN;
    }
}
