//! A message of a WebSocket's client that has come in part: its rest has to come as fast as the body of a request.

use crate::pace::{Pace, PaceLimits};
use stanchion_dispatch::storage::message_memory::OWN_BYTES;

/// How the rest of the message comes. A message so short that it takes no memory from others may stay as it is: a client
/// that makes a message as it goes sends fragments of it at its leisure (RFC 6455 section 5.4).
#[derive(Default)]
pub(super) struct Unfinished {
    /// How many bytes have come.
    bytes: usize,
    pace: Option<Pace>,
}

impl Unfinished {
    /// Notes how many bytes of it have come by now, and how much memory they take.
    pub(super) fn has(&mut self, bytes: usize, held: usize, limits: PaceLimits, now_us: u64) {
        let more = bytes.saturating_sub(self.bytes);
        self.bytes = bytes;
        if held <= OWN_BYTES {
            self.pace = None;
        } else if more > 0 {
            let begin = || Pace::begin_ahead(limits, now_us);
            self.pace.get_or_insert_with(begin).came(more, now_us);
        }
    }

    /// The message has come as a whole.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Sets whether the server waits for the client. It does not while it does not read from it.
    pub(super) fn waits(&mut self, waits: bool, now_us: u64) {
        match &mut self.pace {
            Some(pace) if waits => pace.go_on(now_us),
            Some(pace) => pace.hold(now_us),
            None => {}
        }
    }

    pub(super) fn is_too_slow(&self, now_us: u64) -> bool {
        let pace = self.pace.as_ref();
        pace.is_some_and(|pace| pace.too_slow(now_us).is_some())
    }

    /// When the message is too slow, if nothing more comes.
    pub(super) fn due_us(&self) -> u64 {
        self.pace.as_ref().map_or(u64::MAX, Pace::waits_until_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::LIMITS;
    use stanchion_requests::rig::S;

    /// A message of which so many bytes have come, at these seconds.
    fn came(pieces: &[(u64, usize)]) -> Unfinished {
        let mut unfinished = Unfinished::default();
        for (at_s, bytes) in pieces {
            unfinished.has(*bytes, *bytes, LIMITS, at_s * S);
            unfinished.waits(true, at_s * S);
        }
        unfinished
    }

    #[test]
    fn one_that_takes_from_others_has_to_go_on() {
        let stuck = came(&[(0, OWN_BYTES), (1, OWN_BYTES + 1), (2, OWN_BYTES + 1)]);
        assert_eq!(stuck.due_us(), 61 * S);
        assert!(!stuck.is_too_slow(61 * S - 1));
        assert!(stuck.is_too_slow(61 * S));
    }

    #[test]
    fn drops_do_not_keep_it_alive() {
        let drops =
            |bytes| (1..100).map(move |drop| (50 * drop, OWN_BYTES + 1 + bytes * drop as usize));
        let is_too_slow = |bytes| came(&drops(bytes).collect::<Vec<_>>()).is_too_slow(5_000 * S);
        assert!(is_too_slow(1));
        assert!(!is_too_slow(50 * 240));
    }

    #[test]
    fn a_short_one_may_stay_as_it_is_and_each_begins_anew() {
        assert_eq!(came(&[(0, OWN_BYTES)]).due_us(), u64::MAX);
        let mut ended = came(&[(0, 2 * OWN_BYTES)]);
        ended.end();
        assert_eq!(ended.due_us(), u64::MAX);
        // The next message is as long as the last one was.
        ended.has(2 * OWN_BYTES, 2 * OWN_BYTES, LIMITS, 59 * S);
        ended.waits(true, 59 * S);
        assert_eq!(ended.due_us(), 119 * S);
    }

    #[test]
    fn what_counts_is_the_memory_that_it_takes() {
        for (held, due_us) in [(OWN_BYTES, u64::MAX), (OWN_BYTES + 1, 60 * S)] {
            let mut roomy = Unfinished::default();
            roomy.has(OWN_BYTES / 2 + 1, held, LIMITS, 0);
            roomy.waits(true, 0);
            assert_eq!(roomy.due_us(), due_us);
        }
    }

    #[test]
    fn while_it_is_not_read_no_time_passes() {
        let mut held = came(&[(0, 2 * OWN_BYTES)]);
        held.waits(false, S);
        assert_eq!(held.due_us(), u64::MAX);
        assert!(!held.is_too_slow(1_000 * S));
        held.waits(true, 1_000 * S);
        assert_eq!(held.due_us(), 1_059 * S);
    }
}
