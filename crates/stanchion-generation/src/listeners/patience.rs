//! How long an address that is in use is tried.

use std::time::{Duration, Instant};

use stanchion_settings::{Bind, Seconds};
use tracing::warn;

/// Attempts of a worker if the address names no number, as in Unicorn.
const TRIES_OF_WORKER: i64 = 5;
/// The wait between two attempts if the address names none, as in Unicorn.
const DELAY: Duration = Duration::from_millis(500);
/// The shortest wait, so that waiting does not keep a core busy.
const DELAY_MIN: Duration = Duration::from_millis(10);
/// How often it is logged that an address is still in use.
const REMIND: Duration = Duration::from_secs(30);

/// How long an address in use is still tried, after the first attempt.
pub struct BindRetry {
    /// Below 0: without end.
    tries_left: i64,
    delay: Duration,
    reminded: Option<Instant>,
}

impl BindRetry {
    /// For an address of the server, which it tries once unless the address names a number.
    pub(super) fn of_server(bind: &Bind) -> Self {
        Self::new(bind, 1)
    }

    /// For an address of one worker.
    pub fn of_worker(bind: &Bind) -> Self {
        Self::new(bind, TRIES_OF_WORKER)
    }

    fn new(bind: &Bind, tries: i64) -> Self {
        let tries = bind.options.tries.unwrap_or(tries);
        let delay = bind.options.delay.map(Seconds::duration);
        Self {
            tries_left: if tries > 0 { tries - 1 } else { tries },
            delay: delay.map_or(DELAY, |delay| delay.max(DELAY_MIN)),
            reminded: None,
        }
    }

    /// How long to wait before the next attempt; `None` after the last.
    pub fn next(&mut self, bind: &Bind) -> Option<Duration> {
        if self.tries_left == 0 {
            return None;
        }
        if self.tries_left > 0 {
            self.tries_left -= 1;
        }
        let delay = self.delay;
        if self.reminded.is_none_or(|last| last.elapsed() >= REMIND) {
            warn!("{bind} is in use, trying again every {delay:?} (see `ss -lntxp`)");
            self.reminded = Some(Instant::now());
        }
        Some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(text: &str) -> Bind {
        Bind::parse(text).unwrap()
    }

    #[test]
    fn as_many_attempts_as_asked_for() {
        for (text, by_server, by_worker) in [
            (":80", Some(0), Some(4)),
            (":80?tries=1", Some(0), Some(0)),
            (":80?tries=3", Some(2), Some(2)),
            (":80?tries=-1", None, None),
        ] {
            let bind = bind(text);
            for (mut patience, left) in [
                (BindRetry::of_server(&bind), by_server),
                (BindRetry::of_worker(&bind), by_worker),
            ] {
                let more = std::iter::from_fn(|| patience.next(&bind));
                assert_eq!(more.take(100).count(), left.unwrap_or(100), "{text}");
            }
        }
        let slow = bind(":80?delay=5");
        let mut patience = BindRetry::of_worker(&slow);
        assert_eq!(patience.next(&slow), Some(Duration::from_secs(5)));
    }
}
