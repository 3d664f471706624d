//! A resource that may run out. The log says so once when a shortage begins, and once when it is over.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use tracing::{error, info};

/// A shortage is over when nothing has failed for this long. Until then it is one event, and one
/// line in the log.
const CALM: Duration = Duration::from_secs(10);

/// A resource that may run out.
pub struct Shortage {
    /// The log line for it: the work that fails, and where to look.
    trouble: &'static str,
    now: Cell<Option<Episode>>,
}

#[derive(Clone, Copy)]
struct Episode {
    since_us: u64,
    last_us: u64,
    failures: u64,
}

impl Shortage {
    /// A shortage that the log calls by this name.
    pub fn of(trouble: &'static str) -> Self {
        let now = Cell::new(None);
        Self { trouble, now }
    }

    /// Notes that something failed for want of the resource, and logs the first failure of a shortage.
    pub fn failed(&self, now_us: u64, why: &io::Error) {
        let mut episode = self.now.get().unwrap_or_else(|| {
            error!("{}: {why}", self.trouble);
            Episode {
                since_us: now_us,
                last_us: now_us,
                failures: 0,
            }
        });
        episode.last_us = now_us;
        episode.failures += 1;
        self.now.set(Some(episode));
    }

    /// Looks whether the shortage is over, and logs that.
    pub fn settle(&self, now_us: u64) {
        let Some(episode) = self.now.get() else {
            return;
        };
        let calm_us = now_us.saturating_sub(episode.last_us);
        if u128::from(calm_us) >= CALM.as_micros() {
            self.now.set(None);
            let lasted = Duration::from_micros(episode.last_us - episode.since_us);
            info!(
                "over: {} ({} times in {:.1} s)",
                self.trouble,
                episode.failures,
                lasted.as_secs_f64()
            );
        }
    }
}
