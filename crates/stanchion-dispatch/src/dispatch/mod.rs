//! The line and the exchange together: a request joins the line, goes to a seat in its turn, and comes back with an answer.

mod losses;
mod turned_away;

use std::rc::Rc;

use stanchion_exchange::{SlotState, Submitted, Unwanted};
use stanchion_generation::common::Common;
use stanchion_generation::messages::WorkerRef;
use stanchion_generation::tally::{Event, Outcome, Tally};
use stanchion_sys::channel::Channel;
use stanchion_sys::charge;
use stanchion_sys::scheduling::CoreTimes;
use tracing::info;

use crate::collect::{AfterLook, SlotReader};
use crate::demand::DemandMeter;
use crate::lines::Lines;
use crate::outflow::Limits;
use crate::ports::PortPassed;
use crate::refusal::Refusal;
use crate::request::PortNumber;
use crate::service_times::ServiceTimes;
use crate::slots::SlotTable;
use crate::slow_clients::SlowClients;
use crate::spare_buffers::SpareBuffers;
use crate::stage::RequestStage;
use crate::standstill::Standstills;
use crate::status::StandstillStatus;
use crate::ticket::Ticket;
use crate::view::LineView;
use crate::wakeups::{Untaken, Wakeups};
use crate::workers::Sitting;

/// How often the acceptor compares the exchange with what it knows. This bounds how long a request can stand in a ring
/// in which no seat sees it, and how long an answer can be there without a notice.
const MEND_US: u64 = 1_000_000;

/// Everything between the connections and the workers.
pub struct Dispatch {
    lines: Lines,
    /// The requests that have left the line, and their workers: for the connections that exchange bodies with them.
    pub slots: SlotTable,
    /// Buffers for answers.
    pub buffers: SpareBuffers,
    /// How long requests waited and ran.
    pub times: ServiceTimes,
    /// The limits on the bodies that clients have not taken.
    answers: Rc<Limits>,
    slow: SlowClients,
    wakeups: Wakeups,
    standstills: Standstills,
    /// What requests demand.
    pub demand: DemandMeter,
    tally: &'static Tally,
    /// Whether a request whose worker has died may go to another worker.
    retries: bool,
    /// How long a request may run.
    timeout_us: u64,
    /// When [`Dispatch::mend`] last compared the exchange with what the acceptor knows.
    mended_us: u64,
    /// The oldest request that no seat has taken while other requests have all seats, as [`Dispatch::starving`] last
    /// saw it.
    oldest_ready: Option<Untaken>,
    /// The slots of which a sweep brings news; empty between sweeps.
    news: Vec<u32>,
}

impl Dispatch {
    /// Makes the dispatch of an acceptor. It reports to the master on this channel, and `answers` limit the bodies that clients have not taken.
    pub fn new(common: &'static Common, answers: &Rc<Limits>, master: &Rc<Channel>) -> Self {
        let settings = &common.settings;
        let lines = Lines::new(settings);
        Self {
            slots: SlotTable::new(common, lines.reserve(), master),
            lines,
            buffers: SpareBuffers::default(),
            times: ServiceTimes::new(common, master),
            answers: Rc::clone(answers),
            slow: SlowClients::new(&common.tally),
            wakeups: Wakeups::default(),
            standstills: Standstills::default(),
            demand: DemandMeter::new(&common.figures.demand),
            tally: &common.tally,
            retries: settings.workers.retry_idempotent,
            timeout_us: settings.workers.timeout.duration().as_micros() as u64,
            mended_us: 0,
            oldest_ready: None,
            news: Vec::new(),
        }
    }

    /// Puts a request that has arrived into the line, or refuses it and says why.
    pub fn join(&mut self, ticket: &Rc<Ticket>, now_us: u64) {
        let waiting = u16::try_from(self.lines.waiting());
        ticket.waiting.set(waiting.unwrap_or(u16::MAX));
        let admitted = self.lines.admit(ticket, now_us);
        // Requests that no further server would help demand nothing: those of a client over its own limit, and those in a lane over a
        // limit that the operator gave it. A session is no request of a seat's: event loops tell by their core what sessions take.
        let counts = match admitted {
            Ok(()) => true,
            Err(Refusal::LineFull { .. }) => !self.lines.has_room_of_its_own(ticket),
            Err(_) => false,
        };
        let counts = counts && ticket.request.websocket.is_none();
        if counts && !self.demand.arrived(&ticket.request) {
            self.tally.happened(Event::ProxyTimeDropped);
        }
        match admitted {
            Ok(()) => self.fill(now_us),
            Err(refusal) => ticket.refuse(refusal),
        }
    }

    /// Moves the head of the line into the exchange while there is room for it.
    fn fill(&mut self, now_us: u64) {
        // No client pays for requests of others, nor for the table of slots.
        let _charged = charge::to_nobody();
        self.expire_waiting(now_us);
        // Ports come first: their requests are few, and an operator may send one to find out why all the others wait.
        self.fill_ports(now_us);
        let room = self.room();
        while self.slots.taken.by_any() < room && self.slots.side.can_submit(None) {
            let taken = &self.slots.taken;
            let Some(ticket) = self.lines.pull(now_us, |lane| taken.may_enter(lane, room)) else {
                break;
            };
            self.submit(&ticket, None);
        }
    }

    /// How many requests that any worker may take the exchange holds at most: for each seat the request it answers and a few
    /// ahead. None is ahead while lanes have reserved seats, since no request can overtake another one in the exchange.
    fn room(&self) -> usize {
        let workers = &self.slots.workers;
        let room = workers.len() * workers.seats_each();
        let geometry = self.slots.exchange.geometry();
        if self.slots.taken.are_reserved() {
            let sitting = workers.iter().map(|(index, _)| index);
            let ports = &self.lines.ports;
            let at_ports = ports.seats_held(sitting, workers.seats_each(), &self.slots.taken);
            room.saturating_sub(at_ports + self.slots.side.orphans())
        } else if geometry.event_loops {
            room + workers.len() * geometry.spare_per_worker
        } else {
            room * (1 + self.times.ahead_per_seat())
        }
    }

    /// Moves the heads of the ports' lines into the exchange.
    fn fill_ports(&mut self, now_us: u64) {
        if self.lines.ports.waiting() == 0 {
            return;
        }
        let most = self.slots.exchange.geometry().own_per_worker();
        for port in self.lines.ports.numbers() {
            while let Some(worker) = self.lines.ports.awaited(port)
                && !self
                    .lines
                    .ports
                    .have_handed(worker, most, &self.slots.taken)
                && self.slots.workers.get(worker).is_some()
                && self.slots.side.can_submit(Some(worker))
                && let Some(line) = self.lines.ports.line(port)
                && let Some(pulled) = line.pull(now_us)
            {
                self.submit(&pulled.item, Some(worker));
            }
        }
    }

    fn submit(&mut self, ticket: &Rc<Ticket>, worker: Option<u16>) {
        if !self.slots.submit(ticket, worker) {
            ticket.refuse(Refusal::HeadTooLarge);
            return;
        }
        ticket.request.forget_body(self.retries);
        ticket.may_have_room();
    }

    /// Takes what seats have written, and fills the seats again. It does so once per turn: what seats write meanwhile
    /// waits for the next turn, so that quick workers do not keep the loop from its clients.
    pub fn sweep(&mut self, now_us: u64) {
        let mut news = std::mem::take(&mut self.news);
        self.slots.side.sweep(|slot| news.push(slot));
        for slot in &news {
            self.look(*slot, now_us);
        }
        if !news.is_empty() {
            self.fill(now_us);
        }
        news.clear();
        self.news = news;
    }

    /// Takes what the seat of a slot has written. There may be room for more of the body, too, so a connection that wants room asks.
    fn look(&mut self, slot: u32, now_us: u64) {
        if let Some(ticket) = self.slots.ticket(slot) {
            ticket.may_have_room();
        }
        self.take_news(slot, now_us);
    }

    /// Takes what the seat of a slot has written.
    fn take_news(&mut self, slot: u32, now_us: u64) {
        // No client pays for the tables of slots: this slot may be another client's.
        let _charged = charge::to_nobody();
        if self.slots.side.settle_orphan(slot, false) || self.slots.is_poisoned(slot) {
            return;
        }
        if let Some(ticket) = self.slots.ticket(slot).cloned() {
            self.advance(slot, &ticket, now_us, true);
        }
    }

    /// Takes what the slot's seat has written since the last look. If it `may_leave` some, it leaves in the exchange
    /// what the connection fetches itself, or has no room for.
    fn advance(&mut self, slot: u32, ticket: &Ticket, now_us: u64, may_leave: bool) {
        let mut reader = SlotReader {
            slots: &mut self.slots,
            buffers: &mut self.buffers,
            limits: &self.answers,
            slow: &mut self.slow,
            times: &mut self.times,
            slot,
            ticket,
            now_us,
        };
        match reader.advance(may_leave) {
            Ok(AfterLook::Kept) => {}
            Ok(AfterLook::Freed) => self.lines.drained(ticket, now_us),
            Err(corrupt) => self.slots.poison(slot, ticket, corrupt),
        }
    }

    /// Takes more of a stream out of the exchange, if the connection has room again for one that filled its buffer.
    pub fn refill(&mut self, ticket: &Ticket, now_us: u64) {
        if ticket.outflow(|outflow| outflow.wants_more()) == Some(true) {
            self.look_for(ticket, now_us);
        }
    }

    /// Looks at the slot of a request for its connection, which is at work and has sent all it had. Gives whether there is
    /// news: more of the stream, or its end. The connection is not woken for the news.
    pub fn news(&mut self, ticket: &Ticket, now_us: u64) -> bool {
        let is_found = ticket.has_news_after(|| self.look_for(ticket, now_us));
        is_found || ticket.outflow(|outflow| outflow.has_news()) == Some(true)
    }

    /// Looks at the slot of a request for its connection: for more of its stream, or for the reason why there is none. It wakes no
    /// connection that wants room: this one has asked for room, got none, and would look for ever.
    pub fn look_for(&mut self, ticket: &Ticket, now_us: u64) {
        if let Some(submitted) = ticket.submitted() {
            self.take_news(submitted.slot, now_us);
            if ticket.is_over() {
                // The slot is free for the next request in the line.
                self.fill(now_us);
            }
        }
    }

    /// Drops a request for whose answer no connection waits any more. Gives how far the request had come.
    pub fn abandon(&mut self, ticket: &Ticket, now_us: u64) -> Outcome {
        match ticket.ends() {
            RequestStage::Waiting { place, .. } => {
                self.lines.leave(ticket, place);
                self.count_out(ticket, now_us);
                Outcome::AbandonedWaiting
            }
            RequestStage::Handed(Submitted { slot, .. })
            | RequestStage::Running(Submitted { slot, .. }, _) => {
                let withdrawn = self.slots.withdraw(slot).is_some();
                if !withdrawn {
                    // The log names the worker that has it. If the slot makes no sense, the look below finds that out.
                    if let Ok(SlotState::Running { tenant, taken_us }) = self.slots.side.state(slot)
                    {
                        self.slots.seen_with(tenant, taken_us, ticket);
                    }
                    self.slots.side.give_up(slot, Unwanted::ClientGone);
                    self.look(slot, now_us);
                }
                self.fill(now_us);
                if withdrawn {
                    self.count_out(ticket, now_us);
                    Outcome::AbandonedHandedOut
                } else if ticket.is_streaming() {
                    Outcome::AbandonedAnswering
                } else {
                    Outcome::AbandonedRunning
                }
            }
            RequestStage::New => Outcome::AbandonedWaiting,
            RequestStage::Over(_) => Outcome::AbandonedAnswering,
        }
    }

    /// A client has left before any seat took its request.
    fn count_out(&mut self, ticket: &Ticket, now_us: u64) {
        if ticket.request.websocket.is_none() {
            self.demand.left(&ticket.request, now_us);
        }
    }

    /// Compares the exchange with what the acceptor knows, and repairs it; called now and then.
    pub fn mend(&mut self, now_us: u64) {
        self.slots.side.wipe_remains();
        if now_us.saturating_sub(self.mended_us) < MEND_US {
            return;
        }
        self.mended_us = now_us;
        self.slots.mend();
        // Notices of seats may be lost too, so each slot gets a look.
        for slot in 0..self.slots.count() {
            self.look(slot, now_us);
        }
        self.slots.look_around();
        self.fill(now_us);
        self.wakeups.announce(&mut self.slots.side);
    }

    /// Notes that a worker is ready: its number, how many workers have had that number, and its process.
    pub fn worker_ready(
        &mut self,
        worker: WorkerRef,
        (number, nth, pid): (u16, u32, i32),
        now_us: u64,
    ) {
        let workers = &mut self.slots.workers;
        workers.sit_down(worker, (number, nth, pid), now_us);
        self.pass_ports_on(now_us);
        self.fill(now_us);
    }

    /// Notes that a worker asks for a port, and passes the port to it if it is first.
    pub fn claim_port(&mut self, port: PortNumber, worker: WorkerRef, name: &str, now_us: u64) {
        self.lines.ports.claim(port, worker, name);
        self.pass_ports_on(now_us);
        self.fill(now_us);
    }

    /// The worker whose turn it is to have a port.
    pub fn claimant(&self, port: PortNumber) -> Option<WorkerRef> {
        self.lines.ports.claimant(port)
    }

    /// Passes ports to successors after workers have come or gone. The requests that wait in the exchange for the
    /// worker before go back to the line.
    fn pass_ports_on(&mut self, now_us: u64) {
        let sitting = self.slots.workers.by_age();
        for PortPassed { port, to } in self.lines.ports.pass_on(&sitting) {
            let name = self.lines.ports.name(port);
            if let Some(Sitting { number, pid, .. }) = self.slots.workers.get(to) {
                info!("{name} passes to worker {number} ({pid})");
            }
            for ticket in self.withdraw_all_of(port) {
                // The part of a body that came later was in the slot, and cannot be handed over again.
                let is_whole = ticket.request.is_whole();
                let place = is_whole.then(|| self.lines.put_back(&ticket, now_us));
                match place.flatten() {
                    Some(place) => ticket.joins(place, None),
                    None => self.refuse_without_worker(&ticket, now_us),
                }
            }
        }
    }

    /// When the dispatch is to look at workers that wait for clients, if there are any.
    pub fn held_due_us(&self) -> Option<u64> {
        self.slow.due_us()
    }

    /// Gives the answers to slow clients whose workers wait: their bytes should go to a file.
    pub fn slow_clients(&mut self, now_us: u64) -> Vec<Rc<Ticket>> {
        for submitted in self.slow.take() {
            // Other answers may have freed memory meanwhile. If not, this look finds that the worker waits again.
            if submitted == self.slots.side.submitted(submitted.slot) {
                self.look(submitted.slot, now_us);
            }
        }
        let slots = &self.slots;
        self.slow.slow(|slot| slots.ticket(slot), now_us)
    }

    /// Ends a turn: wakes seats for the requests that came in it, and notes whether a request stands though a loop with
    /// room sleeps, and how many requests and workers there are.
    pub fn end_turn(&mut self, now_us: u64) {
        let view = LineView::new(&self.lines, &self.slots);
        self.times.staffing.note(&view, now_us);
        self.wakeups.end_turn(&mut self.slots.side, now_us);
    }

    /// Wakes seats in the middle of a turn, if the turn has become a long one. It asks `clock` for the time only if
    /// there are seats to wake.
    pub fn announce_if_late(&mut self, clock: impl FnOnce() -> u64) {
        self.wakeups.announce_if_late(&mut self.slots.side, clock);
    }

    /// When the acceptor is to wake all loops, if a request stands.
    pub fn call_due_us(&self) -> Option<u64> {
        self.wakeups.call_due_us()
    }

    /// Wakes all loops if it is time.
    pub fn call_if_due(&mut self, now_us: u64) {
        self.wakeups.call_if_due(&self.slots.side, now_us);
    }

    /// Announces to the seats that the acceptor is about to sleep. Gives false if there is news for it: then it must
    /// not sleep.
    pub fn try_sleep(&self) -> bool {
        self.slots.side.try_sleep()
    }

    /// Announces to the seats that the acceptor is awake again.
    pub fn awake(&self) {
        self.slots.side.awake();
    }

    /// Looks whether the line stands, a few times a second, and logs it.
    pub fn look_at_line(&mut self, now_us: u64) {
        let view = LineView::new(&self.lines, &self.slots);
        let workers = self.times.staffing.wanted();
        self.standstills.log(&view, self.tally, workers, now_us);
    }

    /// Logs a standstill that lasts when the acceptor leaves, as no look will come any more that finds the line calm.
    pub fn end_standstill(&mut self) {
        self.standstills.log_end(self.tally);
    }

    /// The state of the line and of the seats, for operators.
    pub fn view(&self) -> LineView<'_> {
        LineView::new(&self.lines, &self.slots)
    }

    /// The standstill that lasts, for `/status`.
    pub fn standstill(&self, now_us: u64) -> Option<StandstillStatus> {
        let workers = self.times.staffing.wanted();
        self.standstills.status(&self.view(), workers, now_us)
    }

    /// The operator's name for the lane of a request; `None` if there is only the default lane.
    pub fn lane_name(&self, ticket: &Ticket) -> Option<&str> {
        self.lines.lane_name(ticket.lane.get())
    }

    /// Counts what requests demand, a few times a second. `core_times` gives those of the first thread of a process.
    pub fn measure(&mut self, core_times: impl Fn(i32) -> Option<CoreTimes>, now_us: u64) {
        self.times.causes.note(now_us, self.demand.loops);
        let view = LineView::new(&self.lines, &self.slots);
        self.demand.measure(&view, &self.times, core_times, now_us);
    }

    /// Decides whether another number of workers is wanted, and reports that to the master.
    pub fn staff(&mut self, now_us: u64) {
        let view = LineView::new(&self.lines, &self.slots);
        let times = &mut self.times;
        let known = (&mut times.curve, &times.causes);
        times.staffing.step(&view, known, now_us);
    }

    /// Whether there is no request at all.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.slots.is_empty()
    }

    /// How many requests wait in the line.
    pub fn waiting(&self) -> usize {
        self.lines.waiting()
    }

    /// How long the oldest request in the line has waited; 0 if none waits.
    pub fn oldest_wait_us(&self, now_us: u64) -> u64 {
        self.lines.oldest_wait_us(now_us)
    }

    /// Whether a worker is at its seats.
    pub fn has_workers(&self) -> bool {
        !self.slots.workers.is_empty()
    }
}
