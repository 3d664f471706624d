//! The meter of a seat that has a thread of its own: how long its requests have a core, wait for a core, and wait for the
//! interpreter's lock.
//!
//! Two readings of the thread's clocks take 3 µs, which is too much for each request of 30 µs. So the meter reads both
//! clocks around one request in a millisecond, and around each request that takes longer. The acceptor assumes of the
//! others that they went like the last one that was measured.
//!
//! The times in a request's slot are memory that its worker writes: their reader limits them to the time that the request
//! was at its seat.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stanchion_sys::thread_clock::{ThreadClock, ThreadTimes};

/// How long a seat runs for each pair of readings: a pair takes 0.3 % of that.
const EVERY_US: u64 = 1_000;
/// How much of that time a seat saves up while it waits, or runs long requests.
const SAVED_US_MAX: u64 = 4_000;

/// A seat owes at most so long a wait for the lock: requests that end much later have no part in it.
const OWED_US_MAX: u64 = 2_000_000;

/// The times that a seat has measured of a request, in microseconds. `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTimes {
    /// How long its thread had a core.
    pub cpu_us: Option<u32>,
    /// How long its thread was ready to run and waited for a core.
    pub core_us: Option<u32>,
    /// How long its thread waited for the interpreter's lock.
    pub gil_us: Option<u32>,
}

impl RunTimes {
    /// The word in a slot for a time that is unknown.
    const UNKNOWN: u32 = u32::MAX;

    /// The words of the times, for a slot.
    pub(crate) fn words(self) -> [u32; 3] {
        [self.cpu_us, self.core_us, self.gil_us].map(|us| us.unwrap_or(Self::UNKNOWN))
    }

    /// The times in the words of a slot.
    pub(crate) fn of_words(words: [u32; 3]) -> Self {
        let [cpu_us, core_us, gil_us] = words.map(|word| (word != Self::UNKNOWN).then_some(word));
        Self {
            cpu_us,
            core_us,
            gil_us,
        }
    }
}

/// The meter of one seat.
#[derive(Debug)]
pub struct SeatMeter {
    clock: ThreadClock,
    pace: Mutex<MeterPace>,
    /// `None` if no process looks whether the seat waits for the lock.
    gil: Option<Mutex<GilDebt>>,
}

impl SeatMeter {
    /// A meter of the calling thread. If it `knows_gil`, a thread of its process calls [`SeatMeter::waited_for_gil`].
    ///
    /// # Errors
    /// The C library has no clock for the thread.
    pub fn of_this_thread(knows_gil: bool) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            clock: ThreadClock::of_this_thread()?,
            pace: Mutex::new(MeterPace::new()),
            gil: knows_gil.then(Mutex::default),
        }))
    }

    /// Notes that the seat was seen waiting for the interpreter's lock, by a look that stands for so long.
    pub fn waited_for_gil(&self, us: u64) {
        if let Some(debt) = &self.gil {
            locked(debt).owe(us);
        }
    }

    /// The seat has taken a request.
    pub(crate) fn begin(self: &Arc<Self>, now_us: u64) -> Option<Metering> {
        let mut pace = locked(&self.pace);
        let is_own = pace.is_due(now_us);
        if is_own {
            pace.last = self.clock.read().ok().map(|times| (now_us, times));
        }
        let (at_us, times) = pace.last?;
        Some(Metering {
            meter: Arc::clone(self),
            at_us,
            times,
            is_own,
        })
    }
}

/// One request on the meter.
#[derive(Debug)]
pub(crate) struct Metering {
    meter: Arc<SeatMeter>,
    /// The reading before the request, and when it was made.
    at_us: u64,
    times: ThreadTimes,
    /// The reading was made for this request; else for one before it.
    is_own: bool,
}

impl Metering {
    /// The request that was taken then is done now.
    pub(crate) fn end(&self, taken_us: u64, now_us: u64) -> RunTimes {
        let service_us = now_us.saturating_sub(taken_us);
        let gil = self.meter.gil.as_ref().map(locked);
        let is_measured = self.is_own || service_us >= EVERY_US;
        let now = is_measured.then(|| self.meter.clock.read().ok()).flatten();
        let Some(now) = now else {
            if let Some(mut debt) = gil {
                debt.ran(service_us);
            }
            return RunTimes::default();
        };
        // Of a reading for an earlier request, this request gets its share of the time since.
        let since_us = now_us.saturating_sub(self.at_us).max(service_us);
        let share = |ns: u64| part(ns / 1_000, service_us, since_us);
        let cpu_us = share(now.cpu_ns.saturating_sub(self.times.cpu_ns)).min(service_us);
        let left_us = service_us - cpu_us;
        let waited_ns = now.core_ns.zip(self.times.core_ns);
        let core_us =
            waited_ns.map(|(now_ns, then_ns)| share(now_ns.saturating_sub(then_ns)).min(left_us));
        let left_us = left_us - core_us.unwrap_or_default();
        let gil_us = gil.map(|mut debt| {
            debt.ran(service_us);
            debt.pay(service_us, left_us)
        });
        RunTimes {
            cpu_us: Some(word(cpu_us)),
            core_us: core_us.map(word),
            gil_us: gil_us.map(word),
        }
    }
}

/// When the meter reads the clocks.
#[derive(Debug)]
struct MeterPace {
    saved_us: u64,
    seen_us: u64,
    /// The last reading before a request, and when it was made.
    last: Option<(u64, ThreadTimes)>,
}

impl MeterPace {
    fn new() -> Self {
        Self {
            saved_us: SAVED_US_MAX,
            seen_us: 0,
            last: None,
        }
    }

    /// Whether the request that begins now has a reading of its own.
    fn is_due(&mut self, now_us: u64) -> bool {
        let passed_us = now_us.saturating_sub(self.seen_us);
        self.seen_us = now_us;
        self.saved_us = self.saved_us.saturating_add(passed_us).min(SAVED_US_MAX);
        let is_due = self.saved_us >= EVERY_US;
        if is_due {
            self.saved_us -= EVERY_US;
        }
        is_due
    }
}

/// The time that a seat was seen waiting for the interpreter's lock, until requests have it on their account. Each look
/// stands for the time since the look before, which is longer than most requests: so the requests that end next share it.
#[derive(Debug, Default)]
struct GilDebt {
    owed_us: u64,
    /// How long requests have run since a request last paid.
    ran_us: u64,
}

impl GilDebt {
    fn owe(&mut self, us: u64) {
        self.owed_us = self.owed_us.saturating_add(us).min(OWED_US_MAX);
    }

    fn ran(&mut self, service_us: u64) {
        self.ran_us = self.ran_us.saturating_add(service_us);
    }

    /// A request that ran for `service_us` pays for itself, and for the others that have run since a request last paid. It
    /// pays no more than `left_us`, and the rest stays for later requests.
    fn pay(&mut self, service_us: u64, left_us: u64) -> u64 {
        let ran_us = std::mem::take(&mut self.ran_us).max(1);
        let paid_us = part(self.owed_us, service_us, ran_us).min(left_us);
        let for_all_us = part(paid_us, ran_us, service_us);
        self.owed_us = self.owed_us.saturating_sub(for_all_us);
        paid_us
    }
}

/// The part of `us` that `of` is of `whole`.
fn part(us: u64, of: u64, whole: u64) -> u64 {
    let part = u128::from(us) * u128::from(of) / u128::from(whole.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

fn word(us: u64) -> u32 {
    u32::try_from(us).map_or(RunTimes::UNKNOWN - 1, |us| us.min(RunTimes::UNKNOWN - 1))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_in_a_millisecond_has_readings_of_its_own() {
        let mut pace = MeterPace::new();
        let read = (0..100_000_u64).filter(|at| at % 30 == 0 && pace.is_due(5_000_000 + at));
        // Four from the time before, and one for each millisecond.
        assert_eq!(read.count(), 4 + 99);
        for after_us in [4_000, 1_000_000] {
            let now_us = pace.seen_us + after_us;
            let read = (0..10).filter(|_| pace.is_due(now_us)).count();
            assert_eq!(read, 4, "{after_us}");
        }
    }

    #[test]
    fn a_clock_that_steps_back_gives_no_readings() {
        let mut pace = MeterPace::new();
        assert_eq!((0..9).filter(|_| pace.is_due(1_000)).count(), 4);
        assert!(!pace.is_due(0));
    }

    #[test]
    fn requests_share_the_time_in_which_their_seat_waited_for_the_lock() {
        let mut debt = GilDebt::default();
        debt.owe(50_000);
        // A long one that has no more time left than this.
        debt.ran(40_000);
        assert_eq!((debt.pay(40_000, 30_000), debt.owed_us), (30_000, 20_000));
        debt.ran(90_000);
        assert_eq!((debt.pay(90_000, 80_000), debt.owed_us), (20_000, 0));
        // The meter reads one of 50 short requests, which pays its part for all of them.
        debt.owe(50_000);
        (0..49).for_each(|_| debt.ran(2_000));
        debt.ran(2_000);
        assert_eq!((debt.pay(2_000, 2_000), debt.owed_us), (1_000, 0));
        debt.owe(u64::MAX);
        debt.owe(u64::MAX);
        debt.ran(u64::MAX);
        assert_eq!(debt.pay(0, 0), 0);
    }

    #[test]
    fn what_is_unknown_stays_unknown_in_a_slot() {
        for times in [
            RunTimes::default(),
            RunTimes {
                cpu_us: Some(0),
                core_us: None,
                gil_us: Some(word(u64::MAX)),
            },
        ] {
            assert_eq!(RunTimes::of_words(times.words()), times);
        }
    }

    #[test]
    fn the_parts_are_no_longer_than_the_request() {
        let meter = SeatMeter::of_this_thread(true).expect("a clock");
        meter.waited_for_gil(1_000_000);
        let metering = meter.begin(10).expect("a reading");
        let read = |seen: &Metering| seen.meter.clock.read().expect("a clock").cpu_ns;
        let start_ns = read(&metering);
        while read(&metering) - start_ns < 2_000_000 {}
        for service_us in [0, 1, 1_000] {
            let times = metering.end(10, 10 + service_us);
            let words = [times.cpu_us, times.core_us, times.gil_us];
            let sum: u32 = words.into_iter().flatten().sum();
            assert_eq!(u64::from(sum), service_us, "{times:?}");
        }
        let times = metering.end(10, 1_000_010);
        assert!(times.cpu_us >= Some(2_000), "{times:?}");
    }

    #[test]
    fn a_short_request_without_readings_of_its_own_is_unknown_and_a_long_one_is_not() {
        let meter = SeatMeter::of_this_thread(false).expect("a clock");
        for _ in 0..4 {
            assert!(meter.begin(10).expect("a reading").is_own);
        }
        let last = meter.begin(10).expect("that of the one before");
        assert!(!last.is_own);
        assert_eq!(last.end(10, 10 + EVERY_US - 1), RunTimes::default());
        let times = last.end(10, 10 + EVERY_US);
        assert!(
            times.cpu_us.is_some() && times.gil_us.is_none(),
            "{times:?}"
        );
    }
}
