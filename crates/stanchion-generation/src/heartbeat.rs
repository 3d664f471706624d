//! How often loops show that they turn, and how often the master looks whether they do. Pure.

use std::time::Duration;

use stanchion_exchange::BEAT_US;

use stanchion_settings::Settings;

/// A turn of one connection in the acceptor's loop that takes more CPU time than this ends the process, after at most twice as
/// much (`spin::bound_turns`). The connections are lost, and the master starts another acceptor. Such a turn moves 256 KiB,
/// which takes some ms at most; a turn of the whole loop may take long, with many connections.
pub const TURN_CPU: Duration = Duration::from_secs(2);
/// An acceptor with nothing to do turns each second (`WATCH_IDLE`). An acceptor that makes no turn for so long stands still.
const STILL_MS_MAX: u64 = 5_000;

/// The turns of an acceptor, as the master sees them.
#[derive(Debug)]
pub struct AcceptorTurns {
    turns: u64,
    /// When the last turn was seen.
    since_ms: u64,
}

impl AcceptorTurns {
    /// Begins to watch.
    pub fn new(now_ms: u64) -> Self {
        Self {
            turns: 0,
            since_ms: now_ms,
        }
    }

    /// The acceptor could make no turn for so long, as far as the master knows.
    pub fn pause(&mut self, ms: u64) {
        self.since_ms += ms;
    }

    /// The acceptor has made so many turns. Gives for how long it has stood still, if that is too long.
    pub fn seen(&mut self, turns: u64, now_ms: u64) -> Option<u64> {
        if turns != self.turns {
            *self = Self {
                turns,
                since_ms: now_ms,
            };
        }
        let still_ms = now_ms.saturating_sub(self.since_ms);
        (still_ms > STILL_MS_MAX).then_some(still_ms)
    }
}

/// A loop that has nothing to do turns at least so often, and the master looks as often: it sleeps so long where it has
/// nothing else to do.
const REST_US_MAX: u64 = 1_000_000;
/// The shortest limit has so many parts: the master looks once in each, and so notices the end of the limit late by one part at most.
const PARTS: u64 = 5;

/// After how long without a turn a loop is named, and after how long its worker is replaced, in microseconds.
pub fn limits_us(settings: &Settings) -> [Option<u64>; 2] {
    [settings.event_loop.loop_timeout, settings.workers.timeout].map(|limit| {
        let limit = limit.as_duration()?;
        Some(u64::try_from(limit.as_micros()).unwrap_or(u64::MAX))
    })
}

/// How long a loop rests that has nothing to do, and the master that sees none that is late, in microseconds.
pub fn rest_us(settings: &Settings) -> u64 {
    let shortest_us = limits_us(settings).into_iter().flatten().min();
    shortest_us.map_or(REST_US_MAX, |limit_us| {
        (limit_us / PARTS).clamp(BEAT_US, REST_US_MAX)
    })
}

/// Whether a look comes so long after the one before that all processes were late: the machine stood, or a hook held the master up. That says nothing
/// about a loop.
pub fn was_held_up(between_us: u64, rest_us: u64) -> bool {
    between_us > 2 * rest_us
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest_of(text: &str) -> u64 {
        rest_us(&Settings::from_json(text).expect("settings"))
    }

    #[test]
    fn the_shortest_limit_is_seen_to_be_over_soon_and_no_host_is_woken_often_for_a_long_one() {
        for (text, expected_us) in [
            ("{}", 1_000_000),
            (r#"{"loop_timeout": 0, "timeout": 0}"#, 1_000_000),
            (r#"{"loop_timeout": 0, "timeout": 4}"#, 800_000),
            (r#"{"loop_timeout": 2.5}"#, 500_000),
            (r#"{"loop_timeout": 3, "timeout": 2}"#, 400_000),
            (r#"{"loop_timeout": 0.3}"#, BEAT_US),
        ] {
            assert_eq!(rest_of(text), expected_us, "{text}");
        }
    }

    #[test]
    fn an_acceptor_stands_still_once_it_has_made_no_turn_for_long() {
        let mut turns = AcceptorTurns::new(0);
        for (count, now_ms, still_ms) in [
            (0, 5_000, None),
            (0, 5_001, Some(5_001)),
            (1, 6_000, None),
            (2, 11_000, None),
            (2, 16_000, None),
            (2, 16_001, Some(5_001)),
            (3, 99_000, None),
        ] {
            assert_eq!(turns.seen(count, now_ms), still_ms, "{now_ms}");
        }
    }

    #[test]
    fn a_master_that_was_late_by_a_rest_has_not_seen_what_the_loops_did() {
        for text in ["{}", r#"{"timeout": 1}"#] {
            let rest_us = rest_of(text);
            assert!(!was_held_up(2 * rest_us, rest_us), "{text}");
            assert!(was_held_up(2 * rest_us + 1, rest_us), "{text}");
        }
        // Before it would have found that a loop is stuck which stood as it did.
        assert!(was_held_up(1_000_000, rest_of(r#"{"timeout": 1}"#)));
    }
}
