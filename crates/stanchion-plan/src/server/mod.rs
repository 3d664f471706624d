//! The simulated server: a line, seats, and what requests need at a seat. It goes from event to event.

mod at_seat;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use stanchion_line::{Ahead, Clients, Expiry, LaneId, Line, Place, Reserve};

use crate::chance::Chance;
use crate::idle::IdleSeats;
use crate::offered::{Delays, Offered, Outside};
use crate::outcome::{RunOutcome, TurnedAway};
use crate::scenario::Scenario;
use crate::seat::{SeatModel, SeatNeeds};
use crate::staff::Staff;
use crate::station::Station;

/// How often the acceptor looks at the line if nothing else happens, in microseconds.
const LOOK_US: u64 = 250_000;
/// A thread that holds the interpreter's lock gives it up after so long if another wants it: `sys.getswitchinterval()`.
const SWITCH_US: u64 = 5_000;
/// So many events happen between two reports of progress.
const REPORT_EVERY: u64 = 1 << 16;
/// A simulation ends before this, after four years: a timer has 48 bits for its time, and a request has its seat for some hours at most.
pub(crate) const END_US_MAX: u64 = 1 << 47;

/// The requests that a server is offered, and what is known of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfferedLoad<'a> {
    /// In the order of their arrival.
    pub(crate) requests: &'a [Offered],
    /// How late seats begin.
    pub(crate) delays: &'a Delays,
    /// How much of the measured waiting stays.
    pub(crate) outside: Outside,
    /// How many requests are served elsewhere at once without slowing each other down; `None`: any number.
    pub(crate) pool: Option<f64>,
}

/// Why a simulation did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The caller does not want it any more.
    Stopped,
    /// Requests take until [`END_US_MAX`].
    Endless,
}

/// The simulation of a server.
#[derive(Debug)]
pub(crate) struct ServerModel<'a> {
    load: OfferedLoad<'a>,
    rules: ServerRules,
    line: Line<u32>,
    clients: Clients<u32>,
    handed: HandedOut,
    seats: Vec<SeatModel>,
    idle: IdleSeats,
    /// By worker: how many of its seats have a request.
    busy_of: Vec<u16>,
    staff: Staff,
    needs: SeatNeeds,
    /// At most one for each seat: the time, and in the last 16 bits the seat.
    timers: BinaryHeap<Reverse<u64>>,
    /// When clients leave that wait.
    leavers: BinaryHeap<Reverse<(u64, u32, Place)>>,
    chance: Chance,
    outcome: RunOutcome,
    now_us: u64,
}

/// The rules that follow from the scenario.
#[derive(Debug)]
struct ServerRules {
    seats_each: usize,
    event_loop: bool,
    rate_factor: f64,
    client_max: u64,
    /// By lane: whether one client may have all of its room.
    are_for_all: Vec<bool>,
    ahead_max: usize,
    /// A request may be turned away after it has waited.
    has_expiry: bool,
    /// A request needs its seat for as long as it was measured, whatever else happens.
    is_plain: bool,
    outside: Outside,
    /// How long a request has the lock at a time.
    turn_us: u64,
}

/// The requests that have left the line.
#[derive(Debug)]
struct HandedOut {
    /// Requests that no seat has taken.
    ring: VecDeque<u32>,
    reserve: Reserve,
    ahead: Ahead,
    /// All of them.
    taken: usize,
    /// Requests that have a seat.
    busy: usize,
    /// Requests that wait in the line or in the ring.
    waiting: usize,
    look_us: u64,
}

impl<'a> ServerModel<'a> {
    /// A server of this scenario, on which no request has come. The seed decides what chance there is in the simulation itself.
    pub(crate) fn new(scenario: &Scenario, load: OfferedLoad<'a>, seed: u64) -> Self {
        let lanes = scenario.all_lanes().len();
        let (workers, seats_each) = (Staff::numbers(scenario), scenario.seats_each());
        let seats = usize::from(workers) * seats_each;
        let rules = ServerRules::new(scenario, load.outside);
        let last_us = load.requests.last().map_or(0, |last| last.at_us);
        let span_us = rules.scaled(last_us);
        let staff = Staff::new(scenario, span_us);
        let needs = SeatNeeds::new(scenario, load.pool, workers);
        let rules = ServerRules {
            is_plain: scenario.as_recorded || needs.are_none(),
            ..rules
        };
        let mut idle = IdleSeats::new(scenario.event_loop, workers, seats_each);
        let ready = usize::from(staff.ready()) * seats_each;
        (0..ready).for_each(|seat| idle.put(seat / seats_each, seat as u16));
        Self {
            line: scenario.line(),
            clients: Clients::default(),
            handed: HandedOut {
                ring: VecDeque::with_capacity(seats),
                reserve: scenario.reserve(),
                ahead: Ahead::new(rules.ahead_max),
                taken: 0,
                busy: 0,
                waiting: 0,
                look_us: u64::MAX,
            },
            seats: vec![SeatModel::EMPTY; seats],
            idle,
            busy_of: vec![0; usize::from(workers)],
            staff,
            needs,
            timers: BinaryHeap::with_capacity(seats),
            leavers: BinaryHeap::new(),
            chance: Chance::of(seed),
            outcome: RunOutcome::new(lanes, span_us),
            now_us: 0,
            load,
            rules,
        }
    }

    /// Goes on until the last request is over. `go_on` learns now and then how many requests have arrived, and says whether to go on.
    pub(crate) fn run(mut self, go_on: &mut dyn FnMut(usize) -> bool) -> Result<RunOutcome, Halt> {
        let (mut coming, mut events) = (0, 0_u64);
        let mut arrival_us = self.arrival_us(coming);
        loop {
            let timer_us = self
                .timers
                .peek()
                .map_or(u64::MAX, |Reverse(timer)| timer >> 16);
            let other_us = self.other_due_us();
            let next_us = arrival_us.min(timer_us).min(other_us);
            if arrival_us == u64::MAX && self.handed.busy + self.handed.waiting == 0 {
                break;
            }
            if next_us >= END_US_MAX {
                return Err(Halt::Endless);
            }
            events += 1;
            if events.is_multiple_of(REPORT_EVERY) && !go_on(coming) {
                return Err(Halt::Stopped);
            }
            self.now_us = next_us;
            if timer_us == next_us {
                self.timer();
            } else if other_us == next_us {
                self.other();
            } else {
                self.arrive(coming as u32);
                coming += 1;
                arrival_us = self.arrival_us(coming);
            }
            self.end_event();
        }
        let mut outcome = self.outcome;
        outcome.line.end(self.now_us);
        outcome.ended_us = self.now_us;
        outcome.attendance = self.staff.into_attendance(self.now_us);
        Ok(outcome)
    }

    fn arrival_us(&self, request: usize) -> u64 {
        let request = self.load.requests.get(request);
        request.map_or(u64::MAX, |request| self.rules.scaled(request.at_us))
    }

    /// When the next thing happens that is neither an arrival nor a timer.
    fn other_due_us(&self) -> u64 {
        let stations = [&self.needs.cores, &self.needs.elsewhere];
        let stations = stations.into_iter().flatten().map(Station::due_us);
        let leaver = self.leavers.peek().map(|Reverse((at_us, ..))| *at_us);
        let staff_us = self.staff.due_us().min(self.handed.look_us);
        stations.chain(leaver).fold(staff_us, u64::min)
    }

    /// Does one such thing.
    fn other(&mut self) {
        let now_us = self.now_us;
        if let Some(seat) = self
            .needs
            .cores
            .as_mut()
            .and_then(|cores| cores.leave(now_us))
        {
            self.work_over(seat);
        } else if let Some(seat) = self
            .needs
            .elsewhere
            .as_mut()
            .and_then(|pool| pool.leave(now_us))
        {
            self.piece_over(seat);
        } else if let Some(worker) = self.staff.booted(now_us) {
            let each = self.rules.seats_each;
            let first = usize::from(worker) * each;
            (first..first + each).for_each(|seat| self.idle.put(usize::from(worker), seat as u16));
            self.fill();
        } else if let Some(&Reverse((at_us, request, place))) = self.leavers.peek()
            && at_us <= now_us
        {
            self.leavers.pop();
            self.client_leaves(request, place);
        } else {
            self.look();
        }
    }

    fn end_event(&mut self) {
        self.outcome
            .line
            .note(self.now_us, self.handed.waiting as u64);
        if self.handed.waiting == 0 || !self.rules.has_expiry {
            self.handed.look_us = u64::MAX;
        } else if self.handed.look_us == u64::MAX {
            self.handed.look_us = self.now_us + LOOK_US;
        }
        if self.staff.is_elastic() {
            let (waiting, _) = self.waiting_for_seats();
            self.staff.note(self.now_us, self.handed.taken, waiting);
        }
    }

    /// A look of the acceptor at what has stood for a while.
    fn look(&mut self) {
        let now_us = self.now_us;
        self.handed.look_us = now_us + LOOK_US;
        let mut index = 0;
        while let Some(&request) = self.handed.ring.get(index) {
            if self
                .line
                .is_overdue(self.arrival_us(request as usize), now_us)
            {
                self.handed.ring.remove(index);
                self.turned_away_from_ring(request, TurnedAway::TimedOut);
            } else {
                index += 1;
            }
        }
        self.fill();
        if self.staff.is_elastic() {
            self.decide();
        }
    }

    fn decide(&mut self) {
        let now_us = self.now_us;
        let (waiting, oldest_us) = self.waiting_for_seats();
        self.staff.note(now_us, self.handed.taken, waiting);
        let in_ring_us = self
            .handed
            .ring
            .front()
            .map_or(0, |&request| now_us - self.arrival_us(request as usize));
        let busy_rank = self
            .busy_of
            .iter()
            .rposition(|&busy| busy > 0)
            .map_or(0, |worker| worker as u16 + 1);
        self.staff
            .decide(now_us, oldest_us.max(in_ring_us), busy_rank);
        while let Some(worker) = self.staff.next_leaver(now_us) {
            let each = self.rules.seats_each;
            let index = usize::from(worker);
            self.idle
                .take_all_of(index, |seat| usize::from(seat) / each == index);
            if self.busy_of[index] == 0 {
                self.staff.gone(now_us, worker);
            }
        }
    }

    /// The requests in the line whose lanes may have more seats, and how long the oldest has waited.
    fn waiting_for_seats(&self) -> (usize, u64) {
        let lanes = (0..self.rules.are_for_all.len()).map(LaneId::new);
        let lanes = lanes.filter(|&lane| !self.handed.reserve.is_at_max(lane));
        let views = lanes.map(|lane| self.line.view(self.now_us, lane));
        views.fold((0, 0), |(waiting, oldest_us), view| {
            (waiting + view.waiting, oldest_us.max(view.oldest_wait_us))
        })
    }

    fn lane_of(&self, request: u32) -> usize {
        // A scenario may have fewer lanes than the recording.
        let lane = usize::from(self.load.requests[request as usize].lane);
        if lane < self.rules.are_for_all.len() {
            lane
        } else {
            0
        }
    }

    fn arrive(&mut self, request: u32) {
        let (now_us, lane) = (self.now_us, self.lane_of(request));
        self.outcome.arrived(lane);
        if !self.take_share(request, lane) {
            self.outcome.turned_away(lane, TurnedAway::Refused);
            return;
        }
        match self.line.join(now_us, LaneId::new(lane), request) {
            Ok(place) => {
                self.handed.waiting += 1;
                let patience_us = u64::from(self.load.requests[request as usize].patience_us);
                if patience_us > 0 {
                    self.leavers
                        .push(Reverse((now_us + patience_us, request, place)));
                }
                self.fill();
            }
            Err(_) => {
                self.outcome.turned_away(lane, TurnedAway::Refused);
                self.give_share_back(request, lane);
            }
        }
    }

    /// Whether the client may have one more request in the line.
    fn take_share(&mut self, request: u32, lane: usize) -> bool {
        let client = self.load.requests[request as usize].client;
        !self.has_share(client, lane) || self.clients.take(client, 1, self.rules.client_max)
    }

    fn give_share_back(&mut self, request: u32, lane: usize) {
        let client = self.load.requests[request as usize].client;
        if self.has_share(client, lane) {
            self.clients.give_back(client, 1);
        }
    }

    fn has_share(&self, client: u32, lane: usize) -> bool {
        self.rules.client_max > 0 && client != 0 && !self.rules.are_for_all[lane]
    }

    fn client_leaves(&mut self, request: u32, place: Place) {
        // A place has one entry for ever, so a request that is gone is not found.
        if self.line.leave(place).is_some() {
            self.turned_away_from_line(request, TurnedAway::Left);
        } else if let Some(index) = self.handed.ring.iter().position(|&one| one == request) {
            self.handed.ring.remove(index);
            self.turned_away_from_ring(request, TurnedAway::Left);
            self.fill();
        }
    }

    fn turned_away_from_line(&mut self, request: u32, why: TurnedAway) {
        let lane = self.lane_of(request);
        self.handed.waiting -= 1;
        self.give_share_back(request, lane);
        self.outcome.turned_away(lane, why);
    }

    fn turned_away_from_ring(&mut self, request: u32, why: TurnedAway) {
        let lane = self.lane_of(request);
        self.handed.waiting -= 1;
        self.handed.left(lane);
        self.outcome.turned_away(lane, why);
    }

    /// Refuses what has waited too long, hands out the head of the line as the dispatch does, and gives idle seats requests.
    fn fill(&mut self) {
        let now_us = self.now_us;
        while let Some((expiry, expired)) = self.line.expire(now_us) {
            let why = match expiry {
                Expiry::TimedOut => TurnedAway::TimedOut,
                Expiry::Shed => TurnedAway::Shed,
            };
            self.turned_away_from_line(expired.item, why);
        }
        let room = self.room();
        while self.handed.taken < room {
            let reserve = &self.handed.reserve;
            let Some(pulled) = self
                .line
                .pull_if(now_us, |lane| reserve.may_enter(lane, room))
            else {
                break;
            };
            let lane = pulled.place.lane();
            self.give_share_back(pulled.item, lane.index());
            self.handed.reserve.entered(lane);
            self.handed.taken += 1;
            self.handed.ring.push_back(pulled.item);
        }
        while let Some(&request) = self.handed.ring.front()
            && let Some(seat) = self.idle.take()
        {
            self.handed.ring.pop_front();
            self.take(seat, request);
        }
    }

    /// How many requests have left the line at most.
    fn room(&self) -> usize {
        let workers = usize::from(self.staff.ready());
        let seats = workers * self.rules.seats_each;
        if self.handed.reserve.keeps_seats() {
            seats
        } else if self.rules.event_loop {
            seats + workers * Ahead::PER_LOOP
        } else {
            seats * (1 + self.handed.ahead.per_seat())
        }
    }
}

impl ServerRules {
    fn new(scenario: &Scenario, outside: Outside) -> Self {
        let has_turns = scenario.gil && !scenario.event_loop;
        Self {
            seats_each: scenario.seats_each(),
            event_loop: scenario.event_loop,
            rate_factor: scenario.rate_factor,
            client_max: scenario.max_waiting_per_client.into(),
            are_for_all: scenario.are_for_all(),
            ahead_max: if scenario.has_order() {
                Ahead::IN_ORDER_MAX
            } else {
                Ahead::PER_SEAT_MAX
            },
            has_expiry: scenario.has_expiry(),
            is_plain: false,
            outside: if scenario.as_recorded {
                Outside::ALL
            } else {
                outside
            },
            turn_us: if has_turns { SWITCH_US } else { u64::MAX },
        }
    }

    /// When a request arrives at the rate of the scenario.
    fn scaled(&self, at_us: u64) -> u64 {
        if self.rate_factor.to_bits() == 1.0_f64.to_bits() {
            at_us
        } else {
            (at_us as f64 / self.rate_factor).round() as u64
        }
    }
}

impl HandedOut {
    fn left(&mut self, lane: usize) {
        self.taken -= 1;
        self.reserve.left(LaneId::new(lane));
    }
}

#[cfg(test)]
mod tests;
