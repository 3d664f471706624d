//! The log would have the same line thousands of times a second: it shows some, and counts the others. Under overload a
//! server that logs every request has a second problem.

use std::cell::RefCell;
use std::time::Duration;

use stanchion_sys::charge;
use tracing::{info, warn};

use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::ticket::Ticket;
use stanchion_generation::tally::{Event, Outcome};

/// The log has at most so many lines of each reason in a second; the access log and the counts have them all.
const LINES_MAX: u64 = 10;
const SECOND_US: u64 = 1_000_000;

/// How often each reason has come within the last second.
#[derive(Default)]
pub struct Repeats(RefCell<Vec<Repeat>>);

/// Why there is a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    Request(Outcome),
    Connection(Event),
}

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Self::Request(outcome) => outcome.name(),
            Self::Connection(event) => event.name(),
        }
    }
}

struct Repeat {
    reason: Reason,
    since_us: u64,
    count: u64,
}

impl Repeats {
    /// Logs a request that was refused; names its lane if there are several, and adds `detail` to a client's fault.
    pub fn refused(
        &self,
        ticket: &Ticket,
        refusal: Refusal,
        (lane, detail): (Option<&str>, &str),
        now_us: u64,
    ) {
        if !self.shows(Reason::Request(refusal.outcome()), now_us) {
            return;
        }
        let (status, reason) = (refusal.status(), refusal.reason());
        let request = ticket.request.describe();
        if refusal.is_clients() {
            info!("{status} {request}: a client's fault: {reason}{detail}");
            return;
        }
        let ran = match refusal {
            Refusal::WorkerTimedOut { ran_ms } => {
                format!(", {:.1} s", Duration::from_millis(ran_ms).as_secs_f64())
            }
            _ => String::new(),
        };
        let worker = ticket.shown_worker();
        let lane = lane.map_or(String::new(), |lane| format!(" lane={lane}"));
        warn!("{status} {request}: {reason}{ran}{worker}{lane}");
    }

    /// Logs the refusal of a request whose head was not read.
    pub fn refused_unread(&self, refusal: Refusal, address: &str, now_us: u64) {
        if self.shows(Reason::Request(refusal.outcome()), now_us) {
            let (status, reason) = (refusal.status(), refusal.reason());
            info!("{status}: a client's fault: {reason} (from {address:?})");
        }
    }

    /// Logs a client that has so many connections over its limit that the acceptor resets some without an answer.
    pub fn turned_out(&self, address: &str, now_us: u64) {
        if self.shows(Reason::Request(Outcome::TooManyConnections), now_us) {
            info!(
                "a client's fault: connection reset, far above max_connections_per_client (from {address:?})"
            );
        }
    }

    /// Logs a client that is cut off.
    pub fn cut_off(&self, event: Event, why: &str, address: &str, now_us: u64) {
        if self.shows(Reason::Connection(event), now_us) {
            info!("a client's fault: {why} (from {address:?})");
        }
    }

    /// Counts a line, and gives whether the log is to show it.
    fn shows(&self, reason: Reason, now_us: u64) -> bool {
        self.settle(now_us);
        let mut repeats = self.0.borrow_mut();
        let Some(repeat) = repeats.iter_mut().find(|one| one.reason == reason) else {
            // The table is for all clients, so no single one pays for it.
            let _charged = charge::to_nobody();
            repeats.push(Repeat {
                reason,
                since_us: now_us,
                count: 1,
            });
            return true;
        };
        repeat.count += 1;
        repeat.count <= LINES_MAX
    }

    /// Logs how many lines were not shown, once their second is over.
    pub fn settle(&self, now_us: u64) {
        let is_over = |repeat: &mut Repeat| now_us.saturating_sub(repeat.since_us) >= SECOND_US;
        for Repeat { reason, count, .. } in self.0.borrow_mut().extract_if(.., is_over) {
            if count > LINES_MAX {
                let more = count - LINES_MAX;
                warn!("{more} more like that in a second: {}", reason.name());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE_FULL: Reason = Reason::Request(Outcome::LineFull);

    fn shown(repeats: &Repeats, reason: Reason, times: u64, now_us: u64) -> usize {
        (0..times).filter(|_| repeats.shows(reason, now_us)).count()
    }

    #[test]
    fn ten_a_second_of_each_reason() {
        let repeats = Repeats::default();
        assert_eq!(shown(&repeats, LINE_FULL, 1_000, 5), 10);
        let other = Reason::Request(Outcome::Shed);
        assert_eq!(shown(&repeats, other, 4, 5), 4, "another reason");
        let cut_off = Reason::Connection(Event::CutOff);
        assert_eq!(shown(&repeats, cut_off, 11, 5), 10, "of connections, too");
        assert_eq!(shown(&repeats, LINE_FULL, 9, SECOND_US + 4), 0);
        assert_eq!(shown(&repeats, LINE_FULL, 11, SECOND_US + 5), 10);
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let repeats = Repeats::default();
        shown(&repeats, LINE_FULL, 1_000, 0);
        repeats.settle(SECOND_US - 1);
        assert_eq!(repeats.0.borrow().len(), 1);
        repeats.settle(SECOND_US);
        assert!(repeats.0.borrow().is_empty());
    }
}
