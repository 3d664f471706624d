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
/// The window of the peak for autoscalers that add up what servers say, in seconds. Such an autoscaler looks every [`DRAIN_S`], and the servers that it
/// adds take a part of that time to start. If the peaks of old servers last until its next look, then these and the load of the new servers
/// are the same requests, and it adds some more: in the simulation of its law a step took five to seven changes by a peak of 20 s, and
/// three or four by this one.
const PEAK: usize = 12;
/// The seconds of which the rates that make the peak are means.
const RATE: usize = 6;
/// The rate of [`RATE`] seconds is another one than that of [`SHORT`] if they differ by so many standard deviations.
const DEVIATIONS: f64 = 4.0;
/// The mean service time is that of so many seconds, or of more if they have too few requests for a mean.
const SERVICE: usize = 15;
const SERVED_MIN: u64 = 100;
/// The wait in front may grow by at most so much of each second, as far as the rate is concerned: at most six times as many come to
/// the proxy as come here.
const SLOPE_MAX: f64 = 5.0 / 6.0;
/// And it may fall by at most so much.
const SLOPE_FALL_MAX: f64 = 5.0;
/// A proxy that holds a line for seats keeps them busy for at least this share of the time.
const BUSY: f64 = 0.7;
/// No figure is larger: the memory that processes share may hold anything once a worker has written to it.
const FIGURE_MAX: f64 = 1e9;
/// A loop is full if its thread has a core for this share of the time.
const FULL: f64 = 0.9;

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
    /// Seats wanted by the rate of the last ten seconds, or of the last six if the load has changed.
    pub seats_10s: f64,
    /// Seats wanted by the largest rate of six seconds in the last twelve.
    pub seats_peak_12s: f64,
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
        let front = each.front_line(seconds);
        let waiting = to_f64(now.waiting) + front.waiting;
        let (drain, held) = (each.seats(waiting / DRAIN_S), to_f64(now.held));
        let newest = each.offered(front.window);
        let present = newest + drain;
        let peak = |seconds: &[DemandSecond]| {
            let rates = seconds.windows(RATE).map(|window| each.offered(window));
            rates.fold(present, f64::max) + held
        };
        let all = sum(short);
        let cores = each.cores(short);
        let share = |part: u64| to_f64(part) / to_f64(all.seats.max(1));
        let bounded = |figure: f64| figure.min(FIGURE_MAX);
        Self {
            seats_10s: bounded(each.offered_now(short, newest) + drain + held),
            seats_peak_12s: bounded(peak(last(seconds, PEAK))),
            seats_peak_60s: bounded(peak(seconds)),
            arrived_per_s: bounded(to_f64(all.arrived) / length_s(short)),
            service_us: bounded(each.service_s * 1e6),
            front_us: bounded(front.wait_us),
            utilization: share(all.busy).max(cores).min(1.0),
            load: bounded(share(all.in_flight).max(cores)),
        }
    }
}

/// What one request takes.
struct Each {
    service_s: f64,
    /// For event loops that are full: how long the thread of the loop has a core for it.
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
        let service_s = match all.served {
            0 => now.service_us / 1e6,
            _ => of_one(all.service_us),
        };
        let mut each = Self {
            service_s,
            loop_s: 0.0,
            seats_per_loop: now.seats_per_loop.map(to_f64),
        };
        // As long as loops have time left, the time that they had is what is wanted of them, whatever they had it for.
        if all.served > 0 && each.cores(last(seconds, RATE)) >= FULL {
            each.loop_s = of_one(all.loop_us).min(service_s);
        }
        each
    }

    /// The seats that so many requests in a second keep busy.
    fn seats(&self, per_s: f64) -> f64 {
        per_s
            * self
                .service_s
                .max(self.loop_s * self.seats_per_loop.unwrap_or_default())
    }

    /// The seats that the requests of these seconds keep busy, at whatever servers they are: as many as there were requests at most. The
    /// threads of event loops have work besides requests: messages of sessions.
    fn offered(&self, window: &[DemandSecond]) -> f64 {
        let all = sum(window);
        let per_s = self.arrivals(window).per_s();
        let in_flight = to_f64(all.in_flight) / to_f64(all.looks.max(1));
        let requests = per_s * length_s(window) + in_flight;
        let loops_s = to_f64(all.loop_us) / 1e6 / length_s(window);
        let loops = loops_s.max(per_s * self.loop_s);
        let of_loops = loops * self.seats_per_loop.unwrap_or_default();
        (per_s * self.service_s).min(requests).max(of_loops)
    }

    /// The same of [`SHORT`] seconds, or after a change of the load what the `newest` [`RATE`] of them offer: an autoscaler that looks then would
    /// see the mean of two loads.
    fn offered_now(&self, window: &[DemandSecond], newest: f64) -> f64 {
        let mean = self.offered(window);
        // The number of requests that come at random varies by its square root.
        let expected = to_f64(sum(window).arrived) * to_f64(RATE as u64) / to_f64(SHORT as u64);
        let is_another = (newest - mean).abs() > DEVIATIONS * mean / expected.max(1.0).sqrt();
        if is_another { newest } else { mean }
    }

    /// The share of a core that the threads of event loops had; 0 if there are none.
    fn cores(&self, window: &[DemandSecond]) -> f64 {
        let Some(each) = self.seats_per_loop else {
            return 0.0;
        };
        let all = sum(window);
        let loops = to_f64(all.seats) / each / to_f64(all.looks.max(1));
        let had = to_f64(all.loop_us) / 1e6 / length_s(window);
        if loops > 0.0 { had / loops } else { 0.0 }
    }

    /// Whether the seats of these seconds were so busy that a line in front of them can be for their sake. A request that a slow client or a
    /// wrong clock made old says nothing then.
    fn are_busy(&self, window: &[DemandSecond]) -> bool {
        let all = sum(window);
        let seats = to_f64(all.busy) / to_f64(all.seats.max(1));
        seats.max(self.cores(window)) >= BUSY
    }

    /// How many requests come in a second, to the proxy if it says when and holds a line.
    fn arrivals(&self, window: &[DemandSecond]) -> Arrivals {
        let all = sum(window);
        // Of a line that grows, the requests that come through within a second came to the proxy within less than a second.
        let slope = if self.are_busy(window) {
            Front::of(window).slope
        } else {
            0.0
        };
        Arrivals {
            plain_per_s: to_f64(all.arrived.saturating_sub(all.fronted)) / length_s(window),
            fronted_per_s: to_f64(all.fronted) / length_s(window) / (1.0 - slope),
        }
    }

    /// The line in front. If no request has arrived for a while though the seats are busy, that line is as it was then, and has grown
    /// older. Requests that arrive without the proxy's word say that there is none: its clock is wrong, or other clients have all seats.
    fn front_line<'s>(&self, seconds: &'s [DemandSecond]) -> FrontLine<'s> {
        let present = last(seconds, RATE);
        let latest = seconds.iter().rposition(|one| one.arrived > 0);
        let found = latest.filter(|&at| seconds[at].fronted > 0);
        let Some(at) = found.filter(|_| self.are_busy(present)) else {
            return FrontLine {
                window: present,
                wait_us: Front::of(present).last_us,
                waiting: 0.0,
            };
        };
        let window = last(&seconds[..=at], RATE);
        let wait_us = Front::of(window).last_us + to_f64((seconds.len() - 1 - at) as u64) * 1e6;
        FrontLine {
            window,
            wait_us,
            waiting: self.arrivals(window).fronted_per_s * wait_us / 1e6,
        }
    }
}

/// How many requests come in a second.
struct Arrivals {
    plain_per_s: f64,
    fronted_per_s: f64,
}

impl Arrivals {
    fn per_s(&self) -> f64 {
        self.plain_per_s + self.fronted_per_s
    }
}

/// The line in front of this server.
struct FrontLine<'s> {
    /// The last seconds in which requests came.
    window: &'s [DemandSecond],
    /// How long the request has waited that is next, in microseconds.
    wait_us: f64,
    /// How many requests wait there for this server.
    waiting: f64,
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
            slope: slope.unwrap_or(0.0).clamp(-SLOPE_FALL_MAX, SLOPE_MAX),
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
mod tests;
