//! How many requests event loops run at once.

/// Most requests that can run at once in event loops: as many seats as a slot's word can name.
const LOOP_SEATS_MAX: u64 = 65_535;
/// Event loops there are seats for beyond those asked for: for TTIN, and for successors that come before those they
/// replace are gone.
pub const EVENT_LOOPS_SPARE: u64 = 8;

/// Seats of each of so many event loops, if each may have up to `most`.
pub(super) fn loop_seats(workers: u64, most: u64) -> u64 {
    most.min(LOOP_SEATS_MAX / (workers + EVENT_LOOPS_SPARE))
}
