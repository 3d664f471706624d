//! Counts what requests demand, for the figures that autoscalers and balancers read (`stanchion_line::Demand`).

use std::collections::BTreeMap;

use stanchion_generation::demand_seconds::DemandSeconds;
use stanchion_http::WrongClock;
use stanchion_line::{Demand, DemandNow, DemandSecond};
use stanchion_sys::scheduling::CoreTimes;

use crate::durations::Durations;
use crate::request::Request;
use crate::service_times::ServiceTimes;
use crate::view::LineView;

/// How often the meter asks the kernel how long event loops had a core, and counts requests that have had a seat for long.
const LOOK_US: u64 = 1_000_000;

/// How often the meter notes how long requests have waited.
const NOTE_US: u64 = 10_000_000;

/// A request whose client leaves the line so soon has wanted no seat: clients that only come and go would buy servers.
const STAYS_US: u64 = 1_000_000;

/// The meter of one acceptor. It adds to seconds that all acceptors of the server share.
pub struct DemandMeter {
    /// Another generation has the seats: this one starts, or retires.
    pub others_have_seats: bool,
    seconds: &'static DemandSeconds,
    /// What was counted since the last addition.
    counted: DemandSecond,
    /// Of [`ServiceTimes`], at the last addition.
    served: u64,
    service_us: u64,
    /// How long proxies had requests before they came.
    fronts: Durations,
    /// The times of the event loop of each process when it was last looked at.
    core_times: BTreeMap<i32, CoreTimes>,
    /// The sums over all looks at event loops.
    pub(crate) loops: CoreTimes,
    /// How long requests had waited by the time that it was last noted, and by the time before that.
    waits: [Durations; 2],
    noted_us: u64,
    looked_us: u64,
    held: u64,
}

impl DemandMeter {
    pub(crate) fn new(seconds: &'static DemandSeconds) -> Self {
        Self {
            others_have_seats: false,
            seconds,
            counted: DemandSecond::default(),
            served: 0,
            service_us: 0,
            fronts: Durations::default(),
            core_times: BTreeMap::new(),
            loops: CoreTimes::default(),
            waits: Default::default(),
            noted_us: 0,
            looked_us: 0,
            held: 0,
        }
    }

    /// Counts a request for the app that has arrived. Gives false if the clock of the proxy in front must be wrong.
    pub(crate) fn arrived(&mut self, request: &Request) -> bool {
        self.counted.arrived += 1;
        let Ok(front_us) = front_us(request) else {
            return false;
        };
        if let Some(front_us) = front_us {
            self.counted.fronted += 1;
            self.counted.front_us += front_us;
            self.fronts.add(front_us);
        }
        true
    }

    /// Counts a request out again if its client has left the line at once. A request that was added to the seconds meanwhile stays there.
    pub(crate) fn left(&mut self, request: &Request, now_us: u64) {
        if now_us.saturating_sub(request.arrived_us) >= STAYS_US || self.counted.arrived == 0 {
            return;
        }
        self.counted.arrived -= 1;
        if let Ok(Some(front_us)) = front_us(request) {
            self.counted.fronted = self.counted.fronted.saturating_sub(1);
            self.counted.front_us = self.counted.front_us.saturating_sub(front_us);
        }
    }

    /// Counts what there is to count, a few times a second.
    pub(crate) fn measure(
        &mut self,
        view: &LineView<'_>,
        times: &ServiceTimes,
        core_times: impl Fn(i32) -> Option<CoreTimes>,
        now_us: u64,
    ) {
        if !self.others_have_seats {
            let (seats, in_exchange) = (view.seats(), view.in_exchange());
            self.counted.looks += 1;
            self.counted.seats += seats as u64;
            self.counted.busy += in_exchange.min(seats) as u64;
            self.counted.in_flight += view.in_flight() as u64;
        }
        if now_us.saturating_sub(self.looked_us) >= LOOK_US {
            self.looked_us = now_us;
            self.held = view.workers().busy_for(Demand::HELD_US, now_us) as u64;
            if view.seats_per_loop().is_some() {
                let loops = view.workers().iter().map(|(_, worker)| worker.pid);
                self.look_at_loops(loops.filter_map(|pid| Some((pid, core_times(pid)?))));
            }
        }
        self.flush(times, now_us);
    }

    /// Counts how long the event loops of these processes have had a core, and waited for one, since the last look.
    fn look_at_loops(&mut self, loops: impl Iterator<Item = (i32, CoreTimes)>) {
        let before = std::mem::take(&mut self.core_times);
        for (pid, now) in loops {
            // A worker has had its core for the import of the app before it was seen here.
            let before = before.get(&pid).copied().unwrap_or(now);
            let had_us = now.had_us.saturating_sub(before.had_us);
            self.counted.loop_us += had_us;
            self.loops.had_us += had_us;
            self.loops.waited_us += now.waited_us.saturating_sub(before.waited_us);
            self.core_times.insert(pid, now);
        }
    }

    /// Adds what was counted to the present second.
    fn flush(&mut self, times: &ServiceTimes, now_us: u64) {
        if now_us.saturating_sub(self.noted_us) >= NOTE_US {
            self.noted_us = now_us;
            self.waits.rotate_left(1);
            self.waits[1].clone_from(&times.waits);
        }
        let (served, service_us) = (times.services.count(), times.held_us());
        self.counted.served += served - self.served;
        self.counted.service_us += service_us - self.service_us;
        (self.served, self.service_us) = (served, service_us);
        if self.counted == DemandSecond::default() {
            return;
        }
        self.seconds.add(now_us, std::mem::take(&mut self.counted));
        let now = DemandNow {
            service_us: self.seconds.service_us(),
            ..DemandNow::default()
        };
        if served > 0 {
            let demand = Demand::of(&self.seconds.read(now_us), &now);
            self.seconds.keep_service_us(demand.service_us);
        }
    }

    /// How long proxies had the requests before they came.
    pub fn fronts(&self) -> &Durations {
        &self.fronts
    }

    /// How long the requests of the last ten to twenty seconds waited.
    pub fn recent_waits(&self, times: &ServiceTimes) -> Durations {
        times.waits.since(&self.waits[0])
    }

    /// The seats that are wanted, and what they are computed of.
    pub fn of(&self, view: &LineView<'_>, now_us: u64) -> Demand {
        let now = DemandNow {
            waiting: (view.untaken() + view.waiting_at_ports()) as u64,
            held: self.held,
            seats_per_loop: view.seats_per_loop(),
            service_us: self.seconds.service_us(),
        };
        Demand::of(&self.seconds.read(now_us), &now)
    }

    /// How busy event loops are, a mean of ten seconds; 0 if workers run threads. Of the seats of a loop hardly any is busy when
    /// its thread has no time left.
    pub fn load_of_loops(&self, view: &LineView<'_>, now_us: u64) -> f64 {
        match view.seats_per_loop() {
            Some(_) => self.of(view, now_us).load,
            None => 0.0,
        }
    }
}

/// How long the proxy in front had a request, if the proxy says it. An error is a time that only a wrong clock gives.
fn front_us(request: &Request) -> Result<Option<u64>, WrongClock> {
    let Some(proxy_us) = request.proxy_us else {
        return Ok(None);
    };
    // A client that sends its body slowly through the proxy does not wait in the proxy's line.
    let read_us = request.arrived_us.saturating_sub(request.started_us);
    let front_us = proxy_us.saturating_sub(read_us);
    if front_us > Demand::FRONT_US_MAX {
        return Err(WrongClock);
    }
    Ok(Some(front_us))
}
