//! Dispatch: the line and the exchange together. A request joins the line, goes to a seat in its turn, and comes back
//! with an answer ([`collect`]). A few requests are for one worker alone ([`PortNumber`]), and the answers of a few
//! meet slow clients ([`Dispatch::slow_clients`]). [`storage`] has the memory and the files that hold requests and
//! answers meanwhile, and each client's share of both.
//!
//! A request has arrived when its last byte is read, or, if uploads stream, with the start of its body. In the line it
//! can be refused, expire, or leave because its client hung up; then the app never runs for it. The dispatch moves the
//! oldest requests into the exchange, but only a few: for each seat the one that runs and one more (several while
//! requests take microseconds, `stanchion_line::Ahead`). So a busy worker finds its next request without a system call,
//! and the line's policy rules all others. A request in the exchange that no seat has taken yet can be withdrawn for
//! the same reasons.
//!
//! If a slot contains something impossible, the client gets 502, the master is asked to replace the worker that has the
//! slot, and the slot is not used again until that worker is dead. The descriptor of a file counts only if the kernel
//! says that it comes from the worker that has the slot, and only the acceptor has the end at which it can be received.
//!
//! This crate knows workers by the exchange and the master by its messages. It may not name sockets of clients, read a
//! clock, fork or use unsafe code: a [`ticket::Ticket`] carries what the crates above need to know of a request, and
//! callers pass the time as `now_us`. The threads of [`storage::disk`] are the only ones, because files may keep the
//! caller waiting.

#![forbid(unsafe_code)]

mod admission;
mod calling;
pub mod collect;
pub mod durations;
mod held;
pub mod hints;
mod losses;
mod mending;
pub mod outflow;
pub mod over;
mod ports;
pub mod random;
pub mod refusal;
pub mod reply;
pub mod request;
pub mod request_id;
#[cfg(debug_assertions)]
pub mod rig;
mod running;
pub mod sessions;
mod sitting;
mod standstill;
mod starving;
pub mod status;
pub mod storage;
pub mod ticket;
pub mod trace;
pub(crate) mod trailers;
mod turned_away;
pub mod uploads;
mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use admission::{ClientLimit, Lanes, line_limits};
use calling::Untaken;
use durations::Durations;
use mending::Poisoned;
use outflow::Limits;
pub use ports::PortNumber;
use ports::Ports;
use refusal::Refusal;
use sessions::Sessions;
use sitting::Sitting;
use stanchion_exchange::{AcceptorSide, Exchange, LoopLag, SlotState, Submitted, Unwanted};
use stanchion_generation::common::Common;
use stanchion_generation::messages::WorkerRef;
use stanchion_generation::tally::{Outcome, Tally};
use stanchion_line::{Ahead, Line, LineLimits, Pulled, Reserve};
use stanchion_settings::QueueOrder;
use stanchion_sys::channel::Channel;
use stanchion_sys::charge;
use standstill::Standstills;
use ticket::{Answer, Stage, Ticket};

/// The acceptor wakes sleeping seats once per turn of its loop, at the end. In a long turn it wakes them this long
/// after it has seen requests for them, at the latest.
const UNANNOUNCED_US_MAX: u64 = 100;
/// The acceptor hands out at most so many requests ahead of a seat if arrival is not the only order of the line
/// (`queue_order`, lanes): no request can overtake another one in the exchange.
const AHEAD_IN_ORDER_MAX: usize = 7;
/// The dispatch keeps at most so many buffers of sent answers for the next answers, and frees a buffer of more than
/// `SPARE_BYTES_MAX`.
const SPARE_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 32 << 10;

/// Everything between the connections and the workers.
pub struct Dispatch {
    exchange: &'static Exchange,
    side: AcceptorSide<'static>,
    line: Line<Rc<Ticket>>,
    /// The lanes of the line, by the settings.
    pub lanes: Lanes,
    reserve: Reserve,
    client_limit: Option<ClientLimit>,
    ports: Ports<Rc<Ticket>>,
    ahead: Ahead,
    /// The request in each slot.
    slots: Vec<Option<Rc<Ticket>>>,
    /// Requests in the exchange that any worker may take, without sessions, which have given their seats back.
    submitted: usize,
    sessions: Sessions,
    /// The workers at their seats, by index.
    workers: BTreeMap<u16, Sitting>,
    /// By worker number: how late the event loops of those workers were that are gone.
    lags_of_gone: BTreeMap<u16, LoopLag>,
    /// How many seats each worker has.
    seats_per_worker: usize,
    tally: &'static Tally,
    answers: Rc<Limits>,
    /// Slots whose seats wait for a client, each with its turn.
    held: Vec<Submitted>,
    /// Since when `held` has had entries that [`Dispatch::slow_clients`] has not looked at.
    held_since_us: Option<u64>,
    /// Files that arrived before the answers which name them, by slot, each with the turn of the slot.
    files: HashMap<u32, (u32, OwnedFd)>,
    files_channel: Option<Channel>,
    /// Messages on `files_channel` that were longer than the limit, since the log last gave their number.
    files_cut: u64,
    master: Rc<Channel>,
    /// Workers that must not go on, and that the acceptor could not yet ask the master to replace.
    unreported: BTreeSet<WorkerRef>,
    /// When [`Dispatch::announce_if_late`] first saw requests for which no seat has been woken.
    unannounced_since_us: Option<u64>,
    /// The oldest request that no event loop has taken, though one with room for it sleeps.
    untaken: Option<Untaken>,
    /// The oldest request that no seat has taken while other requests have all seats, as [`Dispatch::starving`] last
    /// saw it.
    oldest_ready: Option<Untaken>,
    poisoned: Vec<Poisoned>,
    /// Slots that a worker has taken but that no seat had in hand at the last looks, each with its turn, and the number
    /// of those looks.
    strays: Vec<(Submitted, u32)>,
    standstills: Standstills,
    /// When [`Dispatch::mend`] last compared the exchange with what the acceptor knows.
    mended_us: u64,
    /// Whether a request whose worker has died may go to another worker.
    retries: bool,
    /// How long a request may run.
    timeout_us: u64,
    /// The slots of which a sweep brings news; empty between sweeps.
    news: Vec<u32>,
    spare: Vec<Vec<u8>>,
    /// How long requests waited from their arrival until a seat took them.
    pub waits: Durations,
    /// How long seats ran them from then on.
    pub services: Durations,
}

impl Dispatch {
    /// Makes the dispatch of an acceptor. It reports to the master on this channel, and `answers` limit the bodies that clients have not taken.
    pub fn new(common: &'static Common, answers: &Rc<Limits>, master: &Rc<Channel>) -> Self {
        let settings = &common.settings;
        let limits = line_limits(settings);
        let lanes = Lanes::new(settings);
        // For the ports of `worker_port_base`, and for those that workers ask for.
        let share = LineLimits {
            waiting_max: (limits.waiting_max / (settings.workers as usize).max(1)).max(1),
            ..limits
        };
        let (base, count) = (settings.worker_port_base, settings.worker_ports());
        let own_max = common.exchange.geometry().own_per_worker();
        let mut ahead_max = common.exchange.geometry().ahead_per_seat;
        if settings.queue_order != QueueOrder::Fifo || !settings.lane.is_empty() {
            ahead_max = ahead_max.min(AHEAD_IN_ORDER_MAX);
        }
        Self {
            exchange: &common.exchange,
            side: AcceptorSide::take_over(&common.exchange),
            line: lanes.line(limits),
            reserve: lanes.reserve(),
            lanes,
            client_limit: ClientLimit::new(settings),
            ports: Ports::new(base, count, share, own_max),
            ahead: Ahead::new(ahead_max),
            slots: vec![None; common.exchange.geometry().slots()],
            submitted: 0,
            sessions: Sessions::new(settings),
            workers: BTreeMap::new(),
            lags_of_gone: BTreeMap::new(),
            seats_per_worker: settings.seats_per_worker(),
            tally: &common.tally,
            answers: Rc::clone(answers),
            held: Vec::new(),
            held_since_us: None,
            files: HashMap::new(),
            files_channel: common.files.take_acceptor_end(),
            files_cut: 0,
            master: Rc::clone(master),
            unreported: BTreeSet::new(),
            unannounced_since_us: None,
            untaken: None,
            oldest_ready: None,
            poisoned: Vec::new(),
            strays: Vec::new(),
            standstills: Standstills::default(),
            mended_us: 0,
            retries: settings.retry_idempotent,
            timeout_us: settings.timeout.duration().as_micros() as u64,
            news: Vec::new(),
            spare: Vec::new(),
            waits: Durations::default(),
            services: Durations::default(),
        }
    }

    /// Puts a request that has arrived into the line, or refuses it and says why.
    pub fn join(&mut self, ticket: &Rc<Ticket>, now_us: u64) {
        match self.admit(ticket, now_us) {
            Ok(place) => {
                ticket.stage.set(Stage::Waiting(place));
                self.fill(now_us);
            }
            Err(refusal) => refuse(ticket, refusal),
        }
    }

    /// Moves the head of the line into the exchange while there is room for it: for each seat the request it answers
    /// and a few ahead. It hands out none ahead while lanes have reserved seats, since no request can overtake another
    /// one in the exchange.
    fn fill(&mut self, now_us: u64) {
        // No client pays for requests of others, nor for the table of slots.
        let _charged = charge::to_nobody();
        self.expire_waiting(now_us);
        // Ports come first: their requests are few, and an operator may send one to find out why all the others wait.
        self.fill_ports(now_us);
        let mut room = self.workers.len() * self.seats_per_worker;
        let geometry = self.exchange.geometry();
        if !self.reserve.is_empty() {
            let sitting = self.workers.keys().copied();
            let elsewhere =
                self.ports.seats_held(sitting, self.seats_per_worker) + self.side.orphans();
            room = room.saturating_sub(elsewhere);
        } else if geometry.event_loops {
            room += self.workers.len() * geometry.spare_per_worker;
        } else {
            room *= 1 + self.ahead.per_seat();
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
    }

    fn submitted(&mut self, ticket: Rc<Ticket>, submitted: Option<Submitted>) {
        ticket.client_share.take();
        let Some(submitted) = submitted else {
            // The record is too large for a slot. It can only be so if the operator has raised the limits on fields far
            // beyond their defaults.
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
        ticket.request.forget_body(self.retries);
        if ticket.wants_room.get() {
            ticket.wake();
        }
        self.slots[submitted.slot as usize] = Some(ticket);
    }

    /// Takes what seats have written, and fills the seats again. It does so once per turn: what seats write meanwhile
    /// waits for the next turn, so that quick workers do not keep the loop from its clients.
    pub fn sweep(&mut self, now_us: u64) {
        let mut news = std::mem::take(&mut self.news);
        self.side.sweep(|slot| news.push(slot));
        for slot in &news {
            self.look(*slot, now_us);
        }
        if !news.is_empty() {
            self.fill(now_us);
        }
        news.clear();
        self.news = news;
    }

    /// Wakes seats for the requests that the dispatch has handed out since the last call.
    fn announce(&mut self) {
        self.unannounced_since_us = None;
        self.side.announce();
    }

    /// Does the same in the middle of a turn, if the turn has become a long one. It asks `clock` for the time only if
    /// there are seats to wake.
    pub fn announce_if_late(&mut self, clock: impl FnOnce() -> u64) {
        if !self.side.is_unannounced() {
            return;
        }
        let now_us = clock();
        let since_us = *self.unannounced_since_us.get_or_insert(now_us);
        if now_us.saturating_sub(since_us) > UNANNOUNCED_US_MAX {
            self.announce();
        }
    }

    /// Announces to the seats that the acceptor is about to sleep. Gives false if there is news for it: then it must
    /// not sleep.
    pub fn try_sleep(&self) -> bool {
        self.side.try_sleep()
    }

    /// Announces to the seats that the acceptor is awake again.
    pub fn awake(&self) {
        self.side.awake();
    }

    /// A buffer for an answer.
    pub fn spare(&mut self) -> Vec<u8> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        charge::take_over(&mut bytes);
        bytes
    }

    /// Keeps the buffer of an answer that has been sent, for the next answer.
    pub fn recycle(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE_MAX && bytes.capacity() <= SPARE_BYTES_MAX {
            bytes.clear();
            charge::give_back(&mut bytes);
            let _charged = charge::to_nobody();
            self.spare.push(bytes);
        }
    }

    /// How many slots are in use, orphans included.
    #[cfg(debug_assertions)]
    pub fn used_slots(&self) -> usize {
        self.slots.len() - self.side.free_slots()
    }

    /// Loses the notices that seats have posted, as happens when an app writes over them.
    #[cfg(debug_assertions)]
    pub fn lose_notices(&mut self) {
        self.side.sweep(|_| ());
    }

    fn free(&mut self, slot: u32) {
        // No client pays for the table of slots.
        let _charged = charge::to_nobody();
        self.left(slot);
        if !self.files.is_empty() {
            // The worker sent a file for its answer, and died before it had written the answer that names the file.
            self.files.remove(&slot);
        }
        self.side.release(slot);
    }

    /// Takes a request that has left the exchange out of the table of slots.
    fn left(&mut self, slot: u32) -> Option<Rc<Ticket>> {
        let ticket = self.slots[slot as usize].take()?;
        // A session gave its seat back when it began.
        if !ticket.is_session.get() {
            self.gives_seat_back(&ticket);
        }
        Some(ticket)
    }

    /// Counts a request that has given its seat back, or will not need one.
    fn gives_seat_back(&mut self, ticket: &Ticket) {
        match ticket.request.peer.only_worker {
            None => {
                self.submitted -= 1;
                self.reserve.left(ticket.lane.get());
            }
            Some(port) => self.ports.left(port),
        }
    }

    /// Takes more of a stream out of the exchange, if the connection has room again for one that filled its buffer.
    pub fn refill(&mut self, ticket: &Ticket, now_us: u64) {
        if ticket.outflow(|outflow| outflow.wants_more()) == Some(true) {
            self.look_for(ticket, now_us);
        }
    }

    /// Looks at the slot of a request for its connection: for more of its stream, or for the reason why there is none. It wakes no
    /// connection that wants room: this one has asked for room, got none, and would look for ever.
    pub fn look_for(&mut self, ticket: &Ticket, now_us: u64) {
        if let Stage::Submitted(submitted) = ticket.stage.get() {
            self.take_news(submitted.slot, now_us);
            if ticket.stage.get() == Stage::Over {
                // The slot is free for the next request in the line.
                self.fill(now_us);
            }
        }
    }

    /// Drops a request for whose answer no connection waits any more. Gives how far the request had come.
    pub fn abandon(&mut self, ticket: &Ticket, now_us: u64) -> Outcome {
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
                    // The log names the worker that has it. If the slot makes no sense, the look below finds that out.
                    if let Ok(SlotState::Running { tenant, taken_us }) =
                        self.side.state(submitted.slot)
                    {
                        self.seen_with(tenant, taken_us, ticket);
                    }
                    self.side.give_up(submitted.slot, Unwanted::ClientGone);
                    self.look(submitted.slot, now_us);
                }
                self.fill(now_us);
                if withdrawn {
                    Outcome::AbandonedHandedOut
                } else if ticket.is_streaming() {
                    Outcome::AbandonedAnswering
                } else {
                    Outcome::AbandonedRunning
                }
            }
            Stage::New => Outcome::AbandonedWaiting,
            Stage::Over => Outcome::AbandonedAnswering,
        }
    }

    /// Takes back a request that no seat has taken.
    fn withdraw(&mut self, slot: u32) -> Option<Rc<Ticket>> {
        // No client pays for the table of slots.
        let _charged = charge::to_nobody();
        if !self.side.withdraw(slot) {
            return None;
        }
        self.left(slot)
    }
}

fn refuse(ticket: &Ticket, refusal: Refusal) {
    ticket.client_share.take();
    ticket.stage.set(Stage::Over);
    ticket.answer(Answer::Refused(refusal));
}
