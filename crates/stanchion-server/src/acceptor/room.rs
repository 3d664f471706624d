//! Room for connections: where there is none, those that idle go first, and then one waits.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use stanchion_sys::clock::monotonic_us;
use stanchion_sys::process;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{error, info, warn};

use super::Shared;
use super::connection::{Order, Phase};
use crate::settings::Settings;
use crate::tally::Event;

/// Without descriptors, memory or disk, how long accepting pauses.
const PAUSE: Duration = Duration::from_millis(100);
/// Only who has idled for this long is closed for the sake of others: one that has just been
/// answered, or has just come, is about to ask something, and its request would be lost.
const SPARED_AFTER: Duration = Duration::from_secs(1);
/// This share of those that idle is closed at once, and this many at most, as in nginx.
const SHED_SHARE: usize = 8;
pub(super) const SHED_MAX: usize = 32;
/// A shortage is over when nothing has failed for this long. Until then it is one event, and one
/// line in the log.
const CALM: Duration = Duration::from_secs(10);

/// How many connections past those that it may have a client has at a time to be told so on.
const TURNED_AWAY_MAX_EACH: u64 = 16;

/// Descriptors kept for other things than connections: logs, listeners.
const DESCRIPTORS_SPARE: usize = 64;
/// A connection's socket, and the file it sends or the spool file it fills.
const DESCRIPTORS_EACH: usize = 2;

/// How many connections there may be at a time. Makes room for their descriptors, so that none has to
/// wait for one; to be called before there are threads.
pub(super) fn connections_max(settings: &Settings) -> usize {
    let limit = process::raise_open_files();
    let descriptors = usize::try_from(limit).unwrap_or(usize::MAX);
    let wanted = settings.max_connections as usize;
    let connections_max = wanted
        .min(descriptors.saturating_sub(DESCRIPTORS_SPARE) / DESCRIPTORS_EACH)
        // Never none, which would be a server that is up and serves nobody.
        .max(1);
    if connections_max < wanted {
        info!(
            "at most {connections_max} connections: the limit of open files is {limit} (ulimit -Hn)"
        );
    }
    let needed = connections_max * DESCRIPTORS_EACH + DESCRIPTORS_SPARE;
    if let Err(error) = process::reserve_descriptors(needed.min(descriptors)) {
        warn!(
            "accepting will pause for some 10 ms, now and then, until {needed} files were open once: {error}"
        );
    }
    connections_max
}

/// How many of so many connections one client may have, if there is a limit: never so many that nobody else
/// has one.
pub(super) fn connections_max_each(settings: &Settings, connections_max: usize) -> Option<u64> {
    let wanted = u64::from(settings.max_connections_per_client);
    (wanted > 0).then(|| wanted.min(connections_max as u64 / 2).max(1))
}

/// How many of so many connections one client may have that is only being told that it has too many: each
/// takes a place until that is said.
pub(super) fn turned_away_max_each(connections_max: usize) -> u64 {
    TURNED_AWAY_MAX_EACH.min(connections_max as u64 / 4)
}

/// A resource that may run out.
pub(super) struct Shortage {
    /// What cannot be done, and where to look.
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
    pub(super) fn of(trouble: &'static str) -> Self {
        let now = Cell::new(None);
        Self { trouble, now }
    }

    /// Something failed for it.
    pub(super) fn failed(&self, now_us: u64, why: &io::Error) {
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

    /// Looks whether it is over.
    pub(super) fn settle(&self, now_us: u64) {
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

/// Somebody is at the door for whom there is no room, for as long as this lives.
struct Pressing<'s>(&'s Cell<u32>);

impl<'s> Pressing<'s> {
    fn on(pressed: &'s Cell<u32>) -> Self {
        pressed.set(pressed.get() + 1);
        Self(pressed)
    }
}

impl Drop for Pressing<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Shared {
    /// Whether somebody waits for a place: answers then say that the connection closes, so that
    /// clients who never idle for long share the places with those who have none.
    pub(super) fn is_pressed(&self) -> bool {
        self.pressed.get() > 0
    }

    /// Whether nobody can be spared for those who wait for a place.
    pub(super) fn is_starved(&self) -> bool {
        self.is_pressed() && self.connections.borrow().spare() == 0
    }

    /// Waits until there is room for one more connection, and makes some if it can.
    pub(super) async fn wait_for_room(&self) {
        let paused_until = self.paused_until.get();
        if paused_until > Instant::now() {
            sleep_until(paused_until).await;
        }
        let mut pressing = None;
        loop {
            let ended = self.room.notified();
            if self.connections.borrow().len() < self.connections_max {
                return;
            }
            pressing.get_or_insert_with(|| {
                self.common.tally.happened(Event::Waited);
                Pressing::on(&self.pressed)
            });
            // Either a place is free by then, or somebody may be spared.
            let _ = timeout(self.shed(), ended).await;
        }
    }

    /// Accepting failed for want of something.
    pub(super) async fn cannot_accept(&self, error: &io::Error) {
        self.unaccepted.failed(monotonic_us(), error);
        self.pause();
        sleep_until(self.paused_until.get()).await;
    }

    /// A body or an answer could not be spooled for want of something: who is here comes first.
    pub(super) fn cannot_spool(&self, error: &io::Error) {
        self.unspooled.failed(monotonic_us(), error);
        self.pause();
    }

    fn pause(&self) {
        self.paused_until.set(Instant::now() + PAUSE);
        self.common.tally.happened(Event::Paused);
        self.shed();
    }

    /// Closes some of those that have idled for the longest. Gives how long to wait until it may
    /// be tried again.
    fn shed(&self) -> Duration {
        let now_us = monotonic_us();
        let mut connections = self.connections.borrow_mut();
        let batch = (connections.spare() / SHED_SHARE).clamp(1, SHED_MAX);
        for _ in 0..batch {
            let Some((number, connection)) = connections.longest_spare() else {
                break;
            };
            let idle_us = now_us.saturating_sub(connection.spare_since_us().unwrap_or(now_us));
            let left = SPARED_AFTER.saturating_sub(Duration::from_micros(idle_us));
            if !left.is_zero() {
                return left;
            }
            connection.order(match connection.phase() {
                Phase::Idle { .. } => Order::Close,
                _ => Order::Drop,
            });
            connections.set_spare(number, false);
            self.common.tally.happened(Event::Shed);
        }
        SPARED_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_never_has_all_connections() {
        for (asked, all, expected) in [
            (1_024, 16_384, Some(1_024)),
            (1_024, 480, Some(240)),
            (1_024, 3, Some(1)),
            (1_024, 1, Some(1)),
            (7, 16_384, Some(7)),
            (20_000, 16_384, Some(8_192)),
            (0, 16_384, None),
        ] {
            let settings = format!(r#"{{"max_connections_per_client": {asked}}}"#);
            let settings = Settings::from_json(&settings).unwrap();
            let each = connections_max_each(&settings, all);
            assert_eq!(each, expected, "{asked} of {all}");
            let most = each.map_or(0, |each| each + turned_away_max_each(all));
            assert!(all == 1 || most < all as u64, "{asked} of {all}");
        }
    }
}
