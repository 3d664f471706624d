//! Whether the client of a WebSocket is there: the server pings it, and it has to answer in time.

use crate::pace::end_of;
use stanchion_settings::Settings;

/// When the server pings a client, and when the client must have answered.
pub(super) struct Pings {
    /// When the next ping is due, or, if one is unanswered, when its answer is.
    due_us: u64,
    /// How many bytes the server had written when it sent the ping; `None` if no ping is unanswered.
    pinged_at: Option<u64>,
}

/// The action that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Ping,
    /// Close the session, since the client is taken for gone.
    Close,
}

/// The observations that the verdict on a client rests on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observations {
    /// How many bytes the server has written to its socket.
    pub(super) written: u64,
    /// How many of these bytes its kernel has taken.
    pub(super) taken: u64,
    /// Whether more bytes wait for it than the socket has room for.
    pub(super) is_behind: bool,
    /// Whether the server reads from it. It does not while the worker takes nothing.
    pub(super) is_read: bool,
}

impl Pings {
    pub(super) fn new(settings: &Settings, now_us: u64) -> Self {
        let interval = settings.event_loop.ws_ping_interval.as_duration();
        Self {
            due_us: end_of(now_us, interval),
            pinged_at: None,
        }
    }

    pub(super) fn due_us(&self) -> u64 {
        self.due_us
    }

    /// Notes that the client has answered.
    pub(super) fn answered(&mut self, settings: &Settings, now_us: u64) {
        *self = Self::new(settings, now_us);
    }

    /// The action that is due at this time, if any.
    pub(super) fn tick(
        &mut self,
        seen: Observations,
        settings: &Settings,
        now_us: u64,
    ) -> Option<Due> {
        if now_us < self.due_us {
            return None;
        }
        let timeout = settings.event_loop.ws_ping_timeout.as_duration();
        let answers_by_us = end_of(now_us, timeout);
        let Some(pinged_at) = self.pinged_at else {
            self.pinged_at = Some(seen.written);
            self.due_us = answers_by_us;
            return Some(Due::Ping);
        };
        if seen.is_behind {
            // `write_timeout` deals with a client that takes nothing.
            self.due_us = answers_by_us;
            return None;
        }
        if !seen.is_read && seen.taken > pinged_at {
            // The client may have answered, behind messages that the worker does not take yet. Its kernel has taken the
            // ping, so the machine is there: the next ping asks again.
            self.answered(settings, now_us);
            return None;
        }
        Some(Due::Close)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    fn settings() -> Settings {
        let settings = r#"{"interface": "asgi", "ws_ping_interval": 10, "ws_ping_timeout": 5}"#;
        Settings::from_json(settings).expect("settings")
    }

    /// Pings after one was sent, behind `written` bytes.
    fn pinged(settings: &Settings, written: u64) -> Pings {
        let mut pings = Pings::new(settings, 0);
        let seen = Observations {
            written,
            ..Observations::default()
        };
        assert_eq!(pings.tick(seen, settings, 10 * S - 1), None);
        assert_eq!(pings.tick(seen, settings, 10 * S), Some(Due::Ping));
        assert_eq!(pings.due_us(), 15 * S);
        pings
    }

    #[test]
    fn who_answers_is_pinged_again_and_who_does_not_is_gone() {
        let settings = settings();
        let heard = Observations {
            taken: 1000,
            is_read: true,
            ..Observations::default()
        };
        let mut there = pinged(&settings, 100);
        there.answered(&settings, 11 * S);
        assert_eq!(there.tick(heard, &settings, 20 * S), None);
        assert_eq!(there.tick(heard, &settings, 21 * S), Some(Due::Ping));
        let mut gone = pinged(&settings, 100);
        assert_eq!(gone.tick(heard, &settings, 15 * S - 1), None);
        assert_eq!(gone.tick(heard, &settings, 15 * S), Some(Due::Close));
    }

    #[test]
    fn who_is_not_heard_is_there_as_long_as_its_kernel_takes_pings() {
        let settings = settings();
        let unheard = |taken| Observations {
            written: 102,
            taken,
            ..Observations::default()
        };
        let mut pings = pinged(&settings, 100);
        assert_eq!(pings.tick(unheard(102), &settings, 15 * S), None);
        let again = pings.tick(unheard(102), &settings, 25 * S);
        assert_eq!(again, Some(Due::Ping));
        let dead = pings.tick(unheard(102), &settings, 30 * S);
        assert_eq!(dead, Some(Due::Close));
    }

    #[test]
    fn who_takes_nothing_is_not_judged_by_pings() {
        let settings = settings();
        let behind = Observations {
            is_behind: true,
            ..Observations::default()
        };
        let mut pings = pinged(&settings, 100);
        assert_eq!(pings.tick(behind, &settings, 15 * S), None);
        assert_eq!(pings.due_us(), 20 * S);
    }
}
