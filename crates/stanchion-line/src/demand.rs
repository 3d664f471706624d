//! How many seats the arriving requests want: the figure that an autoscaler divides by the seats of one server.
//!
//! Requests in flight are no such figure: a server that is full never has more at its seats than it has seats, so an
//! autoscaler that looks at them grows by small steps while the line stands. The wait in the line is none either: it says
//! 0 of all servers that are large enough, also of those that are ten times too large. What arrives does not depend on
//! what there is. Little's law makes seats of it: requests that arrive in a second, times the seconds that each has a seat.
//!
//! Three more things want seats:
//!
//! - Requests that wait, here and in the proxy in front: they are to be served within [`DRAIN_S`], which is how often
//!   the autoscaler of Kubernetes looks.
//! - Requests that have had a seat for longer than [`Demand::HELD_US`]: streams, and requests that hang. They would spoil the mean
//!   of the others, and they end too seldom to be counted at their end. So each of them wants its own seat, and the mean is of
//!   times that are cut at [`Demand::HELD_US`].
//! - The core of an event loop. A loop has hundreds of seats, and is full when its thread has a core for itself. So the
//!   same law makes loops of the time that the threads had a core, and a loop is worth all its seats.
//!
//! A proxy that lets in only as many requests as there are seats hides both the rate and the line from the server. The
//! proxy's `X-Request-Start` shows them: if requests wait longer by half a second each second, then twice as many come to the proxy as come here.

use std::ops::AddAssign;

use crate::drain_rate::to_f64;

/// The time in which requests that wait are to be served.
const DRAIN_S: f64 = 15.0;

/// The short window, in seconds.
const SHORT: usize = 10;
/// The window of the peak for autoscalers that look every [`DRAIN_S`], in seconds. After servers were added, the longer peaks of old
/// servers and the load of new ones count the same requests, so this window is as short as it may be.
const PEAK: usize = 20;
/// The seconds of which the rates that make the peak are means.
const RATE: usize = 6;
/// The mean service time is that of so many seconds, or of more if they have too few requests for a mean.
const SERVICE: usize = 15;
const SERVED_MIN: u64 = 100;
/// The wait in front may grow by at most so much of each second, as far as the rate is concerned: at most six times as many come to
/// the proxy as come here.
const SLOPE_MAX: f64 = 5.0 / 6.0;

/// What happened in one second, in counts that several processes can add to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DemandSecond {
    /// Requests for the app that arrived, also those that were refused.
    pub arrived: u64,
    /// Those of them of which a proxy says when they came to it.
    pub fronted: u64,
    /// How long the proxy had these, in microseconds, in all.
    pub front_us: u64,
    /// Requests that seats were done with.
    pub served: u64,
    /// How long they had their seats, each up to [`Demand::HELD_US`], in microseconds, in all.
    pub service_us: u64,
    /// How long the threads of event loops had a core, in microseconds, in all.
    pub loop_us: u64,
    /// How often the seats were looked at.
    pub looks: u64,
    /// The seats that there were at these looks, in all.
    pub seats: u64,
    /// Those of them that had a request.
    pub busy: u64,
    /// Requests that waited or had a seat at these looks, in all.
    pub in_flight: u64,
}

/// The present state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DemandNow {
    /// Requests that no seat has taken.
    pub waiting: u64,
    /// Requests that have had a seat for longer than [`Demand::HELD_US`].
    pub held: u64,
    /// The seats of one event loop; `None` if workers run threads.
    pub seats_per_loop: Option<u64>,
    /// The mean service time to use if the seconds have none, in microseconds.
    pub service_us: f64,
}

/// The seats that are wanted, and what they are computed of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Seats wanted by the rate of the last ten seconds.
    pub seats_10s: f64,
    /// Seats wanted by the largest rate of six seconds in the last twenty.
    pub seats_peak_20s: f64,
    /// Seats wanted by the largest rate of six seconds in the last minute.
    pub seats_peak_60s: f64,
    /// Requests that arrived in a second, over ten seconds.
    pub arrived_per_s: f64,
    /// The mean service time, in microseconds; 0 if none was measured.
    pub service_us: f64,
    /// How long the proxy had the requests of the last seconds, in microseconds.
    pub front_us: f64,
    /// Seats that had a request, of the seats that there were, over ten seconds; for event loops the share of a core that their threads
    /// had, if that is more. At most 1.
    pub utilization: f64,
    /// Requests that waited or had a seat, of the seats that there were, over ten seconds; for event loops as above. More than 1 while
    /// requests wait.
    pub load: f64,
}

impl DemandSecond {
    /// How many counts there are.
    pub const COUNTS: usize = 10;

    /// The counts in the order of the fields.
    pub fn counts(self) -> [u64; Self::COUNTS] {
        [
            self.arrived,
            self.fronted,
            self.front_us,
            self.served,
            self.service_us,
            self.loop_us,
            self.looks,
            self.seats,
            self.busy,
            self.in_flight,
        ]
    }
}

impl From<[u64; Self::COUNTS]> for DemandSecond {
    fn from(counts: [u64; Self::COUNTS]) -> Self {
        let [
            arrived,
            fronted,
            front_us,
            served,
            service_us,
            loop_us,
            looks,
            seats,
            busy,
            in_flight,
        ] = counts;
        Self {
            arrived,
            fronted,
            front_us,
            served,
            service_us,
            loop_us,
            looks,
            seats,
            busy,
            in_flight,
        }
    }
}

impl AddAssign for DemandSecond {
    /// The memory in which processes share these counts may hold anything once a worker has written to it.
    fn add_assign(&mut self, more: Self) {
        let mut counts = self.counts();
        for (count, more) in counts.iter_mut().zip(more.counts()) {
            *count = count.saturating_add(more);
        }
        *self = counts.into();
    }
}

impl Demand {
    /// How many seconds [`Demand::of`] looks back at, which is also the window of the longer peak.
    pub const SECONDS: usize = 60;
    /// A request that has had a seat for longer wants that seat for itself.
    pub const HELD_US: u64 = 15_000_000;
    /// A proxy that says it had a request for longer than this has a clock that is wrong.
    pub const FRONT_US_MAX: u64 = 60_000_000;

    /// Computes it of the last [`Demand::SECONDS`] seconds that are over, the oldest first. Seconds before a server was there are empty: what
    /// several servers want is added up, and the requests of those seconds count at others.
    pub fn of(seconds: &[DemandSecond], now: &DemandNow) -> Self {
        let each = Each::of(seconds, now);
        let short = last(seconds, SHORT);
        let present = last(seconds, RATE);
        let (rate, front) = (Arrivals::of(present), Front::of(present));
        let waiting = to_f64(now.waiting) + rate.fronted_per_s * front.last_us / 1e6;
        let (drain, held) = (each.seats(waiting / DRAIN_S), to_f64(now.held));
        let present = each.offered(present) + drain;
        let peak = |seconds: &[DemandSecond]| {
            let rates = seconds.windows(RATE).map(|window| each.offered(window));
            rates.fold(present, f64::max) + held
        };
        let all = sum(short);
        let cores = each.cores(&all, length_s(short));
        let share = |part: u64| to_f64(part) / to_f64(all.seats.max(1));
        Self {
            seats_10s: each.offered(short) + drain + held,
            seats_peak_20s: peak(last(seconds, PEAK)),
            seats_peak_60s: peak(seconds),
            arrived_per_s: to_f64(all.arrived) / length_s(short),
            service_us: each.service_s * 1e6,
            front_us: front.last_us,
            utilization: share(all.busy).max(cores).min(1.0),
            load: share(all.in_flight).max(cores),
        }
    }
}

/// What one request takes.
struct Each {
    service_s: f64,
    /// For event loops: how long the thread of the loop has a core for it.
    loop_s: f64,
    seats_per_loop: Option<f64>,
}

impl Each {
    fn of(seconds: &[DemandSecond], now: &DemandNow) -> Self {
        let mut all = DemandSecond::default();
        for (index, second) in seconds.iter().rev().enumerate() {
            if index >= SERVICE && all.served >= SERVED_MIN {
                break;
            }
            all += *second;
        }
        let of_one = |us: u64| to_f64(us) / 1e6 / to_f64(all.served.max(1));
        Self {
            service_s: match all.served {
                0 => now.service_us / 1e6,
                _ => of_one(all.service_us),
            },
            loop_s: if all.served > 0 {
                of_one(all.loop_us)
            } else {
                0.0
            },
            seats_per_loop: now.seats_per_loop.map(to_f64),
        }
    }

    /// The seats that so many requests in a second keep busy.
    fn seats(&self, per_s: f64) -> f64 {
        let loops = self.seats_per_loop.map_or(0.0, |each| self.loop_s * each);
        per_s * self.service_s.max(loops)
    }

    /// The seats that the requests of these seconds keep busy, at whatever servers they are. The threads of event loops have work besides
    /// requests: messages of sessions.
    fn offered(&self, window: &[DemandSecond]) -> f64 {
        let loops_s = to_f64(sum(window).loop_us) / 1e6 / length_s(window);
        let of_sessions = self.seats_per_loop.map_or(0.0, |each| loops_s * each);
        self.seats(Arrivals::of(window).per_s()).max(of_sessions)
    }

    /// The share of a core that the threads of event loops had; 0 if there are none.
    fn cores(&self, all: &DemandSecond, length_s: f64) -> f64 {
        let Some(each) = self.seats_per_loop else {
            return 0.0;
        };
        let loops = to_f64(all.seats) / each / to_f64(all.looks.max(1));
        let had = to_f64(all.loop_us) / 1e6 / length_s;
        if loops > 0.0 { had / loops } else { 0.0 }
    }
}

/// How many requests come in a second, to the proxy if it says when.
struct Arrivals {
    plain_per_s: f64,
    fronted_per_s: f64,
}

impl Arrivals {
    fn of(window: &[DemandSecond]) -> Self {
        let all = sum(window);
        // Of a line that grows, the requests that come through within a second came to the proxy within less than a second.
        let slower = 1.0 - Front::of(window).slope;
        Self {
            plain_per_s: to_f64(all.arrived.saturating_sub(all.fronted)) / length_s(window),
            fronted_per_s: to_f64(all.fronted) / length_s(window) / slower,
        }
    }

    fn per_s(&self) -> f64 {
        self.plain_per_s + self.fronted_per_s
    }
}

/// How long a proxy has requests, and by how much that changes.
struct Front {
    /// In the last third of the window, in microseconds.
    last_us: f64,
    /// Seconds more in each second; negative if the line in front becomes shorter.
    slope: f64,
}

impl Front {
    fn of(window: &[DemandSecond]) -> Self {
        let third = window.len() / 3;
        let mean_us = |part: &[DemandSecond]| {
            let part = sum(part);
            (part.fronted > 0).then(|| to_f64(part.front_us) / to_f64(part.fronted))
        };
        let (first, rest) = window.split_at(third);
        let (first_us, last_us) = (mean_us(first), mean_us(last(rest, third)));
        let slope = first_us.zip(last_us).map(|(first_us, last_us)| {
            (last_us - first_us) / 1e6 / to_f64((window.len() - third) as u64)
        });
        Self {
            last_us: last_us.unwrap_or(0.0),
            slope: slope.unwrap_or(0.0).min(SLOPE_MAX),
        }
    }
}

fn last(seconds: &[DemandSecond], count: usize) -> &[DemandSecond] {
    &seconds[seconds.len().saturating_sub(count)..]
}

fn length_s(window: &[DemandSecond]) -> f64 {
    to_f64(window.len().max(1) as u64)
}

fn sum(window: &[DemandSecond]) -> DemandSecond {
    let mut all = DemandSecond::default();
    for one in window {
        all += *one;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: usize = Demand::SECONDS;

    /// A second in which so many requests of so long were served.
    fn second(arrived: u64, service_ms: u64) -> DemandSecond {
        DemandSecond {
            arrived,
            served: arrived,
            service_us: arrived * service_ms * 1_000,
            looks: 4,
            seats: 4 * 4,
            busy: 4 * 3,
            in_flight: 4 * 6,
            ..DemandSecond::default()
        }
    }

    fn near(actual: f64, expected: f64) {
        let is_near = (actual - expected).abs() <= 0.001 * expected.abs().max(1.0);
        assert!(is_near, "{actual} is not {expected}");
    }

    #[test]
    fn the_rate_times_the_service_is_wanted_by_every_window() {
        let demand = Demand::of(&[second(80, 50); MINUTE], &DemandNow::default());
        for seats in [
            demand.seats_10s,
            demand.seats_peak_20s,
            demand.seats_peak_60s,
        ] {
            near(seats, 4.0);
        }
        near(demand.arrived_per_s, 80.0);
        near(demand.service_us, 50_000.0);
        near(demand.utilization, 0.75);
        near(demand.load, 1.5);
        assert_eq!(Demand::of(&[], &DemandNow::default()), Demand::default());
    }

    #[test]
    fn a_burst_counts_as_long_as_its_window() {
        for (ago, peak_20s, peak_60s) in [
            (0, 6.0, 6.0),
            (12, 6.0, 6.0),
            (30, 1.0, 6.0),
            (54, 1.0, 6.0),
        ] {
            let mut seconds = [second(20, 50); MINUTE];
            for one in &mut seconds[MINUTE - 6 - ago..MINUTE - ago] {
                *one = second(120, 50);
            }
            let demand = Demand::of(&seconds, &DemandNow::default());
            near(demand.seats_peak_20s, peak_20s);
            near(demand.seats_peak_60s, peak_60s);
        }
    }

    #[test]
    fn requests_that_wait_or_hang_want_seats_of_their_own() {
        let now = DemandNow {
            waiting: 300,
            held: 3,
            ..DemandNow::default()
        };
        let demand = Demand::of(&[second(80, 50); MINUTE], &now);
        near(demand.seats_10s, 4.0 + 300.0 * 0.05 / 15.0 + 3.0);
        near(demand.seats_peak_60s, demand.seats_10s);
    }

    #[test]
    fn the_last_service_time_holds_while_no_request_ends() {
        let arrived = DemandSecond {
            arrived: 40,
            ..DemandSecond::default()
        };
        let now = DemandNow {
            service_us: 100_000.0,
            ..DemandNow::default()
        };
        near(Demand::of(&[arrived; MINUTE], &now).seats_10s, 4.0);
    }

    #[test]
    fn a_new_service_time_counts_once_there_are_enough_requests_of_it() {
        for (rate, expected_ms) in [(100, 200.0), (5, (15.0 * 200.0 + 5.0 * 50.0) / 20.0)] {
            let mut seconds = [second(rate, 50); MINUTE];
            seconds[MINUTE - SERVICE..].fill(second(rate, 200));
            let demand = Demand::of(&seconds, &DemandNow::default());
            near(demand.service_us / 1e3, expected_ms);
        }
    }

    #[test]
    fn a_growing_wait_in_front_shows_the_rate_in_front() {
        // 120 requests in a second came to a proxy that lets 40 through, as many as two seats serve.
        let fronted = |second: usize| DemandSecond {
            fronted: 40,
            front_us: 40 * (second as u64 * 2_000_000 / 3),
            ..self::second(40, 50)
        };
        let mut seconds = [second(40, 50); MINUTE];
        for (index, one) in seconds[MINUTE - 8..].iter_mut().enumerate() {
            *one = fronted(index);
        }
        let demand = Demand::of(&seconds, &DemandNow::default());
        let wait_s = 6.5 * 2.0 / 3.0;
        near(demand.front_us, wait_s * 1e6);
        let least = 6.0 + 120.0 * wait_s * 0.05 / 15.0;
        near(demand.seats_peak_20s, least);
        assert!(demand.seats_peak_20s >= 2.7 * 2.0);
        // A front that stands still gives no rate beyond a bound.
        for one in &mut seconds[MINUTE - 2..] {
            one.front_us = 40 * 60_000_000;
        }
        assert!(
            Demand::of(&seconds, &DemandNow::default())
                .seats_10s
                .is_finite()
        );
    }

    #[test]
    fn an_event_loop_is_worth_all_its_seats_once_its_core_is_full() {
        let of_loops = |loop_ms: u64| DemandSecond {
            loop_us: loop_ms * 1_000,
            seats: 4 * 2 * 1_000,
            ..second(100, 50)
        };
        let now = DemandNow {
            seats_per_loop: Some(1_000),
            ..DemandNow::default()
        };
        let demand = |loop_ms| Demand::of(&[of_loops(loop_ms); MINUTE], &now);
        // Requests wait for a database: five seats of two thousand.
        near(demand(2).seats_10s, 5.0);
        // One and a half cores of two are full.
        near(demand(1_500).seats_10s, 1_500.0);
        near(demand(1_500).utilization, 0.75);
        // Twice as many arrive as two loops serve.
        let mut seconds = [of_loops(2_000); MINUTE];
        for one in &mut seconds {
            one.arrived = 200;
        }
        near(Demand::of(&seconds, &now).seats_10s, 4_000.0);
        // Only sessions have the core.
        for one in &mut seconds {
            (one.arrived, one.served, one.service_us) = (0, 0, 0);
        }
        near(Demand::of(&seconds, &now).seats_10s, 2_000.0);
    }

    #[test]
    fn nonsense_in_shared_memory_is_harmless() {
        let seconds = [DemandSecond::from([u64::MAX; DemandSecond::COUNTS]); MINUTE];
        let demand = Demand::of(&seconds, &DemandNow::default());
        assert!(demand.seats_10s.is_finite() && demand.load.is_finite());
        assert_eq!(DemandSecond::from(seconds[0].counts()), seconds[0]);
    }
}
