//! An event loop that does not turn.

/// An event loop that does not turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct LateLoop {
    /// Its last sign of life.
    pub(super) beat_us: u64,
    /// Until then its process was stopped: from then on it counts.
    pub(super) stopped_until_us: u64,
}
