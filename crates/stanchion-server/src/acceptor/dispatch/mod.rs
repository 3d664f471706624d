//! The line and the exchange together: requests join, go to seats in order, and come back
//! ([`collect`]). A few are for one worker alone ([`ports`]), and a few answers meet slow clients
//! ([`relief`]).

mod admission;
mod collect;
mod losses;
mod mending;
mod ports;
mod relief;
mod turned_away;
mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use stanchion_exchange::{AcceptorSide, Exchange, SlotState, Submitted, Tenant};
use stanchion_line::{Ahead, Line, LineLimits, Pulled, Reserve};
use stanchion_sys::channel::Channel;
use stanchion_sys::clock::monotonic_us;
use tokio::sync::Notify;

use super::durations::Durations;
use super::outflow::Limits;
use super::refusal::Refusal;
use super::ticket::{Answer, Stage, Ticket};
use crate::tally::{Outcome, Tally};
use crate::tree::Common;
use admission::{ClientLimit, Lanes, line_limits};
use mending::Poisoned;
use ports::Ports;
pub(super) use ports::{PortNumber, Who};

/// Sleeping seats are woken once per turn of the event loop; within a long turn, after this many
/// requests or this long at the latest.
const UNANNOUNCED_MAX: u32 = 8;
const UNANNOUNCED_US_MAX: u64 = 100;
/// Within a long turn of the event loop, answers are swept up this often.
const UNSWEPT_US_MAX: u64 = 200;
/// Once per turn answers are swept up again, for those that came while that was done, at most so often.
const SWEEPS_MAX: usize = 4;

/// Everything between the connections and the workers.
pub(super) struct Dispatch {
    exchange: &'static Exchange,
    side: AcceptorSide<'static>,
    line: Line<Rc<Ticket>>,
    pub(super) lanes: Lanes,
    reserve: Reserve,
    client_limit: Option<ClientLimit>,
    ports: Ports<Rc<Ticket>>,
    ahead: Ahead,
    /// Who has each slot.
    slots: Vec<Option<Rc<Ticket>>>,
    /// Requests in the exchange that anybody may take.
    submitted: usize,
    /// Workers that sit at their seats.
    workers: BTreeMap<u16, Sitting>,
    threads: u16,
    tally: &'static Tally,
    answers: Rc<Limits>,
    /// Uses of slots whose seats wait for a client.
    held: Vec<Submitted>,
    /// Notified when there are any.
    relief: Rc<Notify>,
    /// Files that arrived before the answers which name them, by slot, each with its turn.
    files: HashMap<u32, (u32, OwnedFd)>,
    files_channel: Option<Channel>,
    /// Messages there that were over the limit, since they were last logged.
    files_cut: u64,
    master: Rc<Channel>,
    /// Workers that must not go on, of which the master could not be told yet: index and tenure.
    unreported: BTreeSet<(u16, u16)>,
    /// When the oldest request was submitted that no seat was woken for.
    unannounced_since_us: u64,
    poisoned: Vec<Poisoned>,
    /// Uses of slots that were taken, and that nobody had in hand at the last looks, and at how many.
    strays: Vec<(Submitted, u32)>,
    /// When the exchange was last held to what we know of it.
    mended_us: u64,
    /// A request whose worker has died may be given to another one.
    retries: bool,
    /// When answers were last swept up.
    swept_us: u64,
    /// From the arrival of requests until a seat took them, and from there until they were done.
    pub(super) waits: Durations,
    pub(super) services: Durations,
}

#[derive(Clone, Copy)]
struct Sitting {
    tenure: u16,
    pid: i32,
}

impl Dispatch {
    pub(super) fn new(
        common: &'static Common,
        answers: &Rc<Limits>,
        relief: &Rc<Notify>,
        master: &Rc<Channel>,
    ) -> Self {
        let settings = &common.settings;
        let limits = line_limits(settings);
        let lanes = Lanes::new(settings);
        // Also of those whose workers ask for them.
        let share = LineLimits {
            waiting_max: (limits.waiting_max / (settings.workers as usize).max(1)).max(1),
            ..limits
        };
        let (base, count) = (settings.worker_port_base, settings.worker_ports());
        let own_max = common.exchange.geometry().own_per_worker();
        Self {
            exchange: &common.exchange,
            side: AcceptorSide::take_over(&common.exchange),
            line: lanes.line(limits),
            reserve: lanes.reserve(),
            lanes,
            client_limit: ClientLimit::new(settings),
            ports: Ports::new(base, count, share, own_max),
            ahead: Ahead::new(common.exchange.geometry().ahead_per_seat),
            slots: vec![None; common.exchange.geometry().slots()],
            submitted: 0,
            workers: BTreeMap::new(),
            threads: settings.threads as u16,
            tally: &common.tally,
            answers: Rc::clone(answers),
            held: Vec::new(),
            relief: Rc::clone(relief),
            files: HashMap::new(),
            files_channel: common.files.take_acceptor_end(),
            files_cut: 0,
            master: Rc::clone(master),
            unreported: BTreeSet::new(),
            unannounced_since_us: 0,
            poisoned: Vec::new(),
            strays: Vec::new(),
            mended_us: 0,
            retries: settings.retry_idempotent,
            swept_us: 0,
            waits: Durations::default(),
            services: Durations::default(),
        }
    }

    /// A request has arrived whole: it joins the line, or is told why not.
    pub(super) fn join(&mut self, ticket: &Rc<Ticket>) {
        let now_us = monotonic_us();
        match self.admit(ticket, now_us) {
            Ok(place) => {
                ticket.stage.set(Stage::Waiting(place));
                self.fill(now_us);
            }
            Err(refusal) => refuse(ticket, refusal),
        }
    }

    /// Moves the head of the line into the exchange while there is room for it: for each seat the
    /// request it answers and a few ahead. None ahead as long as seats are kept for some, since
    /// nothing in the exchange can be overtaken.
    fn fill(&mut self, now_us: u64) {
        self.expire_waiting(now_us);
        // First, as they are few, and what they are for may be to find out why all the others wait.
        self.fill_ports(now_us);
        let threads = usize::from(self.threads);
        let mut room = self.workers.len() * threads;
        if self.reserve.is_empty() {
            room *= 1 + self.ahead.per_seat();
        } else {
            let sitting = self.workers.keys().copied();
            let elsewhere = self.ports.seats_held(sitting, threads) + self.side.orphans();
            room = room.saturating_sub(elsewhere);
        }
        while self.submitted < room && self.side.can_submit() {
            let reserve = &self.reserve;
            let pulled = self
                .line
                .pull_if(now_us, |lane| reserve.may_enter(lane, room));
            let Some(Pulled { item: ticket, .. }) = pulled else {
                break;
            };
            let request = &ticket.request;
            let submitted = self
                .side
                .submit(request.arrived_us, |area| request.write(area));
            self.submitted(ticket, submitted);
        }
        self.announce_if_late(now_us);
    }

    fn submitted(&mut self, ticket: Rc<Ticket>, submitted: Option<Submitted>) {
        ticket.client_share.take();
        let Some(submitted) = submitted else {
            // Only with limits on fields that were raised far beyond their defaults.
            refuse(&ticket, Refusal::HeadTooLarge);
            return;
        };
        match ticket.request.peer.only_worker {
            None => {
                self.submitted += 1;
                self.reserve.entered(ticket.lane.get());
            }
            Some(port) => self.ports.entered(port),
        }
        ticket.stage.set(Stage::Submitted(submitted));
        self.slots[submitted.slot as usize] = Some(ticket);
    }

    fn announce_if_late(&mut self, now_us: u64) {
        match self.side.unannounced() {
            0 => self.unannounced_since_us = now_us,
            count
                if count >= UNANNOUNCED_MAX
                    || now_us - self.unannounced_since_us > UNANNOUNCED_US_MAX =>
            {
                self.side.announce();
                self.unannounced_since_us = now_us;
            }
            _ => {}
        }
    }

    /// What is done once per turn of the event loop, before it sleeps: answers are swept up,
    /// seats are filled and woken, and workers learn that we sleep.
    pub(super) fn turn(&mut self) {
        let asleep = tried(|| {
            self.sweep();
            self.side.try_sleep()
        });
        if !asleep {
            // Nobody rings for what comes from now on, as we have not said that we sleep: so the event
            // loop must not sleep either.
            self.exchange.doorbell().ring();
        }
    }

    /// The same, but for the sleep, within a turn that does not end: the event loop skips its
    /// hooks while any task has work, and a flood of small reads could keep answers waiting.
    pub(super) fn turn_if_late(&mut self) {
        if monotonic_us().saturating_sub(self.swept_us) > UNSWEPT_US_MAX {
            self.sweep();
        }
    }

    /// The event loop is up again.
    pub(super) fn awake(&self) {
        self.side.awake();
    }

    fn sweep(&mut self) {
        self.swept_us = monotonic_us();
        let mut news = Vec::new();
        self.side.sweep(|slot| news.push(slot));
        for slot in &news {
            self.look(*slot);
        }
        if !news.is_empty() {
            self.fill(self.swept_us);
        }
        self.side.announce();
    }

    fn free(&mut self, slot: u32) {
        self.left(slot);
        if !self.files.is_empty() {
            // Its worker died before it had named the file.
            self.files.remove(&slot);
        }
        self.side.release(slot);
    }

    /// A request is out of the exchange.
    fn left(&mut self, slot: u32) -> Option<Rc<Ticket>> {
        let ticket = self.slots[slot as usize].take()?;
        match ticket.request.peer.only_worker {
            None => {
                self.submitted -= 1;
                self.reserve.left(ticket.lane.get());
            }
            Some(port) => self.ports.left(port),
        }
        Some(ticket)
    }

    /// The connection has room again for a stream that filled its buffer.
    pub(super) fn refill(&mut self, ticket: &Ticket) {
        if ticket.outflow(|outflow| outflow.wants_more()) == Some(true) {
            self.look_for(ticket);
        }
    }

    /// Looks for more of a stream, or for why there is none.
    pub(super) fn look_for(&mut self, ticket: &Ticket) {
        if let Stage::Submitted(submitted) = ticket.stage.get() {
            self.look(submitted.slot);
        }
    }

    /// Nobody waits for this request any more. Gives where it was.
    pub(super) fn abandon(&mut self, ticket: &Ticket) -> Outcome {
        match ticket.stage.replace(Stage::Over) {
            Stage::Waiting(place) => {
                ticket.client_share.take();
                if let Some(line) = self.line_of(ticket) {
                    line.leave(place);
                }
                Outcome::AbandonedWaiting
            }
            Stage::Submitted(submitted) => {
                let withdrawn = self.withdraw(submitted.slot).is_some();
                if !withdrawn {
                    // For the log. A slot that makes no sense is dealt with when it is swept up.
                    if let Ok(SlotState::Running { tenant, taken_us }) =
                        self.side.state(submitted.slot)
                    {
                        self.seen_with(tenant, taken_us, ticket);
                    }
                    self.side.give_up(submitted.slot);
                }
                self.fill(monotonic_us());
                if withdrawn {
                    Outcome::AbandonedHandedOut
                } else if ticket.is_streaming() {
                    Outcome::AbandonedAnswering
                } else {
                    Outcome::AbandonedRunning
                }
            }
            Stage::New | Stage::Over => Outcome::AbandonedAnswering,
        }
    }

    /// A worker has sat down.
    pub(super) fn worker_ready(&mut self, worker: u16, tenure: u16, pid: i32) {
        self.workers.insert(worker, Sitting { tenure, pid });
        self.pass_ports_on();
        self.fill(monotonic_us());
    }

    fn pid_of(&self, tenant: Tenant) -> i32 {
        let sitting = self.workers.get(&(tenant.seat / self.threads));
        sitting
            .filter(|sitting| sitting.tenure == tenant.tenure)
            .map_or(0, |sitting| sitting.pid)
    }

    /// Takes back a request that no seat has taken.
    fn withdraw(&mut self, slot: u32) -> Option<Rc<Ticket>> {
        if !self.side.withdraw(slot) {
            return None;
        }
        self.left(slot)
    }
}

/// Tries to sleep, at most [`SWEEPS_MAX`] times: true if that went well. Workers that answer as fast as we
/// sweep would else keep us for as long as there are requests, while no answer is written.
fn tried(attempt: impl FnMut() -> bool) -> bool {
    std::iter::repeat_with(attempt)
        .take(SWEEPS_MAX)
        .any(|asleep| asleep)
}

fn refuse(ticket: &Ticket, refusal: Refusal) {
    ticket.client_share.take();
    ticket.stage.set(Stage::Over);
    ticket.answer(Answer::Refused(refusal));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_answer_all_the_time_do_not_keep_the_event_loop() {
        let mut attempts = 0;
        let never = || {
            attempts += 1;
            false
        };
        assert!(!tried(never));
        assert_eq!(attempts, SWEEPS_MAX);
        let mut attempts = 0;
        let second = || {
            attempts += 1;
            attempts == 2
        };
        assert!(tried(second));
        assert_eq!(attempts, 2);
    }
}
