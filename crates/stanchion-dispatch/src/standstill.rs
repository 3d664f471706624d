//! The line stands: it is full, or its oldest request has waited for long. The log says why when that begins, and what it has cost
//! when it is over; `/status` says why as long as it lasts.

use std::fmt;

use stanchion_generation::tally::{Counts, Outcome, Tally};
use tracing::{info, warn};

use crate::status::{SeatCounts, SeatStatus, StandstillStatus};
use crate::view::LineView;
use crate::workers::Sitting;

/// The line stands if its oldest request has waited for so long.
const OLD_US: u64 = 5_000_000;
/// The line goes on once it has neither been full nor had so old a request for so long.
const CALM_US: u64 = 5_000_000;
/// How often the log says again why it stands.
const REPEAT_US: u64 = 60_000_000;
/// An event loop that is so late holds up its requests.
const LATE_US: u64 = 1_000_000;

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// The state of the line, at looks a few times a second.
#[derive(Debug, Default)]
pub(crate) struct Standstills {
    current: Option<Standstill>,
    /// Requests that the full line had turned away by the last look.
    turned_away: u64,
}

/// A standstill that lasts.
#[derive(Debug)]
struct Standstill {
    since_us: u64,
    /// When a look last found the line full or old.
    seen_us: u64,
    said_us: u64,
    longest_wait_us: u64,
    /// The counts when it began.
    before: Costs,
}

/// Requests that the line did not bring to a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Costs {
    turned_away: u64,
    late: u64,
    left: u64,
}

impl Costs {
    fn of(counts: &Counts) -> Self {
        let sum = |outcomes: &[Outcome]| outcomes.iter().map(|one| counts.ended(*one)).sum();
        Self {
            // Not TooManyOfClient: one client beyond its own limit says nothing of the line.
            turned_away: sum(&[Outcome::LineFull, Outcome::Shed]),
            late: sum(&[Outcome::WaitedTooLong]),
            left: sum(&[Outcome::AbandonedWaiting, Outcome::AbandonedHandedOut]),
        }
    }

    /// Subtracts the costs from `before`. Workers can write to the counts, so the later ones may be the smaller.
    fn since(self, before: Self) -> Self {
        Self {
            turned_away: self.turned_away.saturating_sub(before.turned_away),
            late: self.late.saturating_sub(before.late),
            left: self.left.saturating_sub(before.left),
        }
    }
}

/// The log's next line about the line, after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notice {
    Begins,
    Lasts { for_us: u64 },
    Over(Past),
}

/// A standstill from its begin to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Past {
    for_us: u64,
    longest_wait_us: u64,
    costs: Costs,
}

impl fmt::Display for Past {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Costs {
            turned_away,
            late,
            left,
        } = self.costs;
        write!(
            f,
            "{:.1} s: it turned away {turned_away}, {late} waited too long, {left} clients left, the longest wait was {:.1} s",
            seconds(self.for_us),
            seconds(self.longest_wait_us)
        )
    }
}

impl Standstills {
    /// Looks whether the line stands, a few times a second, and logs it. `workers` is how many there should be.
    pub(crate) fn log(&mut self, view: &LineView<'_>, tally: &Tally, workers: usize, now_us: u64) {
        let oldest_us = view.oldest_untaken_us(now_us);
        let costs = Costs::of(&tally.read());
        let Some(said) = self.look(oldest_us, view.is_full(), costs, now_us) else {
            return;
        };
        let (waiting, oldest_s) = (view.untaken(), seconds(oldest_us));
        match said {
            Notice::Begins => warn!(
                "the line stands: {waiting} wait, the oldest for {oldest_s:.1} s: {}",
                why_it_stands(view, workers, now_us)
            ),
            Notice::Lasts { for_us } => warn!(
                "the line still stands after {:.0} s: {waiting} wait, the oldest for {oldest_s:.1} s: {}",
                seconds(for_us),
                why_it_stands(view, workers, now_us)
            ),
            Notice::Over(past) => info!("the line goes on, after {past}"),
        }
    }

    /// Logs a standstill that lasts when the acceptor leaves, as no look will come any more that finds the line calm.
    pub(crate) fn log_end(&mut self, tally: &Tally) {
        if let Some(past) = self.end(Costs::of(&tally.read())) {
            info!("the acceptor leaves, and the line has stood for {past}");
        }
    }

    /// The standstill that lasts, for `/status`.
    pub(crate) fn status(
        &self,
        view: &LineView<'_>,
        workers: usize,
        now_us: u64,
    ) -> Option<StandstillStatus> {
        let current = self.current.as_ref()?;
        Some(StandstillStatus {
            since_s: seconds(now_us.saturating_sub(current.since_us)),
            waiting: view.untaken(),
            oldest_wait_s: seconds(view.oldest_untaken_us(now_us)),
            why: why_it_stands(view, workers, now_us),
        })
    }

    /// Takes note of a look: how long the oldest request has waited, whether the line is full, and how many requests
    /// the line has not brought to a worker until now. Gives what the log is to say.
    fn look(&mut self, oldest_us: u64, is_full: bool, costs: Costs, now_us: u64) -> Option<Notice> {
        let before = std::mem::replace(&mut self.turned_away, costs.turned_away);
        let stands = is_full || costs.turned_away > before || oldest_us >= OLD_US;
        let Some(current) = &mut self.current else {
            if !stands {
                return None;
            }
            self.current = Some(Standstill {
                since_us: now_us.saturating_sub(oldest_us),
                seen_us: now_us,
                said_us: now_us,
                longest_wait_us: oldest_us,
                before: Costs {
                    turned_away: before,
                    ..costs
                },
            });
            return Some(Notice::Begins);
        };
        current.longest_wait_us = current.longest_wait_us.max(oldest_us);
        if stands {
            current.seen_us = now_us;
        }
        let for_us = now_us.saturating_sub(current.since_us);
        if now_us.saturating_sub(current.seen_us) >= CALM_US {
            return self.end(costs).map(Notice::Over);
        }
        let is_due = stands && now_us.saturating_sub(current.said_us) >= REPEAT_US;
        is_due.then(|| {
            current.said_us = now_us;
            Notice::Lasts { for_us }
        })
    }

    /// Ends the standstill: it is over, or no look will see its end.
    fn end(&mut self, costs: Costs) -> Option<Past> {
        let Standstill {
            since_us,
            seen_us,
            longest_wait_us,
            before,
            ..
        } = self.current.take()?;
        Some(Past {
            for_us: seen_us.saturating_sub(since_us),
            longest_wait_us,
            costs: costs.since(before),
        })
    }
}

fn why_it_stands(view: &LineView<'_>, workers: usize, now_us: u64) -> String {
    let seated = view.workers();
    let late = seated.iter().find_map(|(index, sitting)| {
        let lag_us = seated.loop_now(index, now_us)?.lag_us;
        (lag_us >= LATE_US).then_some((sitting, lag_us))
    });
    if let Some((Sitting { number, pid, .. }, lag_us)) = late {
        let late_s = seconds(lag_us);
        return format!(
            "the event loop of worker {number} ({pid}) has not turned for {late_s:.1} s"
        );
    }
    let busy = view.seat_statuses(workers, now_us);
    why(
        view.untaken(),
        &view.all_at_max(now_us),
        seated.running(workers, now_us).counts,
        &busy,
    )
}

/// `at_max` has the lanes that may have no more seats, if no other request waits.
fn why(
    waiting: usize,
    at_max: &[(&str, usize)],
    counts: SeatCounts,
    seats: &[SeatStatus],
) -> String {
    if waiting == 0 {
        // The line was full or old a moment ago. The seats have no part in that any more.
        let calm_s = CALM_US / 1_000_000;
        return format!(
            "no request waits any more, and the standstill is over once that has lasted for {calm_s} s"
        );
    }
    if !at_max.is_empty() {
        let lanes: Vec<_> = at_max
            .iter()
            .map(|(name, max)| format!("{name} {max}"))
            .collect();
        let lanes = lanes.join(", ");
        return format!(
            "each lane in which requests wait has as many seats as it may: {lanes} (seats_max)"
        );
    }
    let all = counts.busy + counts.idle + counts.empty;
    let longest = seats.iter().filter(|seat| seat.running_us.is_some());
    let longest = longest.max_by_key(|seat| seat.running_us);
    let Some(longest) = longest else {
        return match counts.idle {
            0 => format!("none of {all} seats has a worker that is ready"),
            idle => format!("{idle} of {all} seats are idle and take nothing"),
        };
    };
    let run_s = seconds(longest.running_us.unwrap_or_default());
    let name = |seat: &SeatStatus| seat.method.clone().zip(seat.path.clone());
    let what = match name(longest) {
        Some((method, path)) => {
            let alike = seats.iter().filter(|seat| name(seat) == name(longest));
            match alike.count() - 1 {
                0 => format!(" with {method} {path}"),
                more => format!(" with {method} {path}, {more} more like it"),
            }
        }
        None => String::new(),
    };
    let how_many = if counts.busy == all {
        match all {
            1 => "the only seat is busy".to_owned(),
            _ => format!("all {all} seats are busy"),
        }
    } else {
        format!("{} of {all} seats are busy", counts.busy)
    };
    match all {
        1 => format!("{how_many}, for {run_s:.1} s{what}"),
        _ => format!("{how_many}, the longest for {run_s:.1} s{what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::status::SeatDoes;
    use super::*;

    const S: u64 = 1_000_000;

    fn turned_away(count: u64) -> Costs {
        Costs {
            turned_away: count,
            ..Costs::default()
        }
    }

    #[test]
    fn a_line_that_gets_old_is_told_of_once_a_minute_and_when_it_is_over() {
        let mut line = Standstills::default();
        let mut heard = Vec::new();
        for second in 0..200 {
            // The oldest waits from second 10 to 95.
            let oldest_s = if (10..=95).contains(&second) {
                second - 10
            } else {
                0
            };
            let costs = Costs {
                late: if second < 50 { 3 } else { 7 },
                ..Costs::default()
            };
            let said = line.look(oldest_s * S, false, costs, second * S);
            heard.extend(said.map(|said| (second, said)));
        }
        let costs = Costs {
            late: 4,
            ..Costs::default()
        };
        let expected = [
            (15, Notice::Begins),
            (75, Notice::Lasts { for_us: 65 * S }),
            (
                100,
                Notice::Over(Past {
                    for_us: 85 * S,
                    longest_wait_us: 85 * S,
                    costs,
                }),
            ),
        ];
        assert_eq!(heard, expected);
    }

    #[test]
    fn a_line_that_turns_clients_away_stands_also_if_a_look_finds_it_with_room() {
        let mut line = Standstills::default();
        assert_eq!(line.look(0, false, turned_away(0), 0), None);
        assert_eq!(line.look(0, false, turned_away(5), S), Some(Notice::Begins));
        assert_eq!(line.look(0, false, turned_away(9), 2 * S), None);
        assert_eq!(line.look(0, false, turned_away(9), 6 * S), None);
        let past = Past {
            for_us: S,
            longest_wait_us: 0,
            costs: turned_away(9),
        };
        let over = Some(Notice::Over(past));
        assert_eq!(line.look(0, false, turned_away(9), 7 * S), over);
        assert_eq!(line.end(turned_away(9)), None, "it was told");
    }

    #[test]
    fn counts_that_a_worker_has_written_over_are_no_cost() {
        let late = |late| Costs {
            late,
            ..Costs::default()
        };
        assert_eq!(late(3).since(late(7)), Costs::default());
    }

    #[test]
    fn a_line_in_which_requests_wait_for_a_moment_does_not_stand() {
        let mut line = Standstills::default();
        for look in 0..100 {
            assert_eq!(
                line.look(4_999_999, false, Costs::default(), look * S),
                None
            );
        }
    }

    fn seat(running_s: Option<u64>, path: &str) -> SeatStatus {
        SeatStatus {
            worker: 0,
            seat: 0,
            pid: 1,
            nth: 1,
            state: running_s.map_or(SeatDoes::Idle, |_| SeatDoes::Busy),
            running_us: running_s.map(|running_s| running_s * S),
            method: running_s.map(|_| "GET".to_owned()),
            path: running_s.map(|_| path.to_owned()),
            served: 0,
            busy_us: 0,
        }
    }

    #[test]
    fn the_reason_is_what_the_seats_do() {
        let counts = |busy, idle, empty| SeatCounts { busy, idle, empty };
        let pay = |running_s| seat(Some(running_s), "/pay");
        for (counts, seats, reason) in [
            (
                counts(4, 0, 0),
                vec![pay(3), pay(14), seat(Some(1), "/"), pay(9)],
                "all 4 seats are busy, the longest for 14.0 s with GET /pay, 2 more like it",
            ),
            (
                counts(1, 0, 0),
                vec![pay(7)],
                "the only seat is busy, for 7.0 s with GET /pay",
            ),
            (
                counts(1, 1, 0),
                vec![pay(7), seat(None, "")],
                "1 of 2 seats are busy, the longest for 7.0 s with GET /pay",
            ),
            (
                counts(0, 2, 0),
                vec![seat(None, ""), seat(None, "")],
                "2 of 2 seats are idle and take nothing",
            ),
            (
                counts(0, 0, 2),
                vec![],
                "none of 2 seats has a worker that is ready",
            ),
        ] {
            assert_eq!(why(9, &[], counts, &seats), reason);
        }
        let idle = [seat(None, ""), seat(Some(0), "/")];
        assert_eq!(
            why(0, &[], counts(1, 1, 0), &idle),
            "no request waits any more, and the standstill is over once that has lasted for 5 s"
        );
        let at_max = [("streams", 1), ("reports", 2)];
        assert_eq!(
            why(9, &at_max, counts(1, 1, 0), &idle),
            "each lane in which requests wait has as many seats as it may: streams 1, reports 2 (seats_max)"
        );
    }
}
