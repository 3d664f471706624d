//! The line and the exchange together: requests join, go to seats in order, and come back
//! ([`collect`]). A few are for one worker alone ([`ports`]), and a few answers meet slow clients
//! ([`held`]).

mod admission;
mod calling;
pub(crate) mod collect;
pub(crate) mod durations;
mod held;
pub(crate) mod hints;
mod losses;
mod mending;
pub(crate) mod outflow;
pub(crate) mod over;
mod ports;
pub(crate) mod random;
pub(crate) mod refusal;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod request_id;
mod running;
pub(crate) mod sessions;
mod sitting;
mod standstill;
mod starving;
pub(crate) mod status;
pub(crate) mod ticket;
pub(crate) mod trace;
pub(crate) mod trailers;
mod turned_away;
pub(crate) mod uploads;
mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use crate::messages::WorkerRef;
use crate::settings::QueueOrder;
use crate::tally::{Outcome, Tally};
use crate::tree::Common;
use admission::{ClientLimit, Lanes, line_limits};
use calling::Untaken;
use durations::Durations;
use mending::Poisoned;
use outflow::Limits;
pub(crate) use ports::PortNumber;
use ports::Ports;
use refusal::Refusal;
use sessions::Sessions;
use sitting::Sitting;
use stanchion_exchange::{AcceptorSide, Exchange, LoopLag, SlotState, Submitted, Unwanted};
use stanchion_line::{Ahead, Line, LineLimits, Pulled, Reserve};
use stanchion_sys::channel::Channel;
use stanchion_sys::charge;
use standstill::Standstills;
use ticket::{Answer, Stage, Ticket};

/// Sleeping seats are woken once per turn of the event loop; within a long turn, this long after they might have been
/// at the latest.
const UNANNOUNCED_US_MAX: u64 = 100;
/// So many requests are handed out ahead of a seat where the line has an order to keep besides who came first: what is
/// handed out cannot be overtaken.
const AHEAD_IN_ORDER_MAX: usize = 7;
/// Buffers of answers that are kept for the next ones; larger ones are given back.
const SPARE_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 32 << 10;

/// Everything between the connections and the workers.
pub(crate) struct Dispatch {
    exchange: &'static Exchange,
    side: AcceptorSide<'static>,
    line: Line<Rc<Ticket>>,
    pub(crate) lanes: Lanes,
    reserve: Reserve,
    client_limit: Option<ClientLimit>,
    ports: Ports<Rc<Ticket>>,
    ahead: Ahead,
    /// Who has each slot.
    slots: Vec<Option<Rc<Ticket>>>,
    /// Requests in the exchange that anybody may take.
    submitted: usize,
    sessions: Sessions,
    /// Workers that sit at their seats, by index.
    workers: BTreeMap<u16, Sitting>,
    /// By number: how late the event loops of those were that are gone.
    lags_of_gone: BTreeMap<u16, LoopLag>,
    /// Each of them at so many.
    seats_per_worker: usize,
    tally: &'static Tally,
    answers: Rc<Limits>,
    /// Uses of slots whose seats wait for a client.
    held: Vec<Submitted>,
    /// Since when there are any, without a look at them.
    held_since_us: Option<u64>,
    /// Files that arrived before the answers which name them, by slot, each with its turn.
    files: HashMap<u32, (u32, OwnedFd)>,
    files_channel: Option<Channel>,
    /// Messages there that were over the limit, since they were last logged.
    files_cut: u64,
    master: Rc<Channel>,
    /// Workers that must not go on, of which the master could not be told yet.
    unreported: BTreeSet<WorkerRef>,
    /// Since when there are requests that no seat was woken for, as far as we have looked.
    unannounced_since_us: Option<u64>,
    /// The oldest request that stands though somebody sleeps who has room for it.
    untaken: Option<Untaken>,
    /// The oldest that nobody has taken since somebody has looked, while all seats have others.
    oldest_ready: Option<Untaken>,
    poisoned: Vec<Poisoned>,
    /// Uses of slots that were taken, and that nobody had in hand at the last looks, and at how many.
    strays: Vec<(Submitted, u32)>,
    standstills: Standstills,
    /// When the exchange was last held to what we know of it.
    mended_us: u64,
    /// A request whose worker has died may be given to another one.
    retries: bool,
    /// How long a request may run.
    timeout_us: u64,
    /// Slots with news, in the middle of a sweep.
    news: Vec<u32>,
    spare: Vec<Vec<u8>>,
    /// From the arrival of requests until a seat took them, and from there until they were done.
    pub(crate) waits: Durations,
    pub(crate) services: Durations,
}

impl Dispatch {
    pub(crate) fn new(common: &'static Common, answers: &Rc<Limits>, master: &Rc<Channel>) -> Self {
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

    /// A request has arrived: it joins the line, or is told why not.
    pub(crate) fn join(&mut self, ticket: &Rc<Ticket>, now_us: u64) {
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
        // No client pays for requests of others, nor for the table of slots.
        let _charged = charge::to_nobody();
        self.expire_waiting(now_us);
        // First, as they are few, and what they are for may be to find out why all the others wait.
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
        ticket.request.forget_body(self.retries);
        if ticket.wants_room.get() {
            ticket.wake();
        }
        self.slots[submitted.slot as usize] = Some(ticket);
    }

    /// Sweeps up what seats have brought, once: what they bring meanwhile waits for the next turn, so that quick
    /// workers do not keep the loop from its clients. Fills seats.
    pub(crate) fn sweep(&mut self, now_us: u64) {
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

    /// Wakes seats for what has come since.
    fn announce(&mut self) {
        self.unannounced_since_us = None;
        self.side.announce();
    }

    /// Likewise, in the middle of a turn, if that has become a long one. `clock` tells the time, which is not asked for
    /// without need.
    pub(crate) fn announce_if_late(&mut self, clock: impl FnOnce() -> u64) {
        if !self.side.is_unannounced() {
            return;
        }
        let now_us = clock();
        let since_us = *self.unannounced_since_us.get_or_insert(now_us);
        if now_us.saturating_sub(since_us) > UNANNOUNCED_US_MAX {
            self.announce();
        }
    }

    /// Says that we are about to sleep; false if there is news, and it must not be.
    pub(crate) fn try_sleep(&self) -> bool {
        self.side.try_sleep()
    }

    /// We are up again.
    pub(crate) fn awake(&self) {
        self.side.awake();
    }

    /// A buffer for an answer.
    pub(crate) fn spare(&mut self) -> Vec<u8> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        charge::take_over(&mut bytes);
        bytes
    }

    /// The bytes of an answer are out, and their memory serves the next one.
    pub(crate) fn recycle(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE_MAX && bytes.capacity() <= SPARE_BYTES_MAX {
            bytes.clear();
            charge::give_back(&mut bytes);
            let _charged = charge::to_nobody();
            self.spare.push(bytes);
        }
    }

    /// Slots that are in use, and orphans.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn used_slots(&self) -> usize {
        self.slots.len() - self.side.free_slots()
    }

    fn free(&mut self, slot: u32) {
        // No client pays for the table of slots.
        let _charged = charge::to_nobody();
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
        // That of a session is another's by now.
        if !ticket.is_session.get() {
            self.gives_seat_back(&ticket);
        }
        Some(ticket)
    }

    /// A request has no seat any more.
    fn gives_seat_back(&mut self, ticket: &Ticket) {
        match ticket.request.peer.only_worker {
            None => {
                self.submitted -= 1;
                self.reserve.left(ticket.lane.get());
            }
            Some(port) => self.ports.left(port),
        }
    }

    /// The connection has room again for a stream that filled its buffer.
    pub(crate) fn refill(&mut self, ticket: &Ticket, now_us: u64) {
        if ticket.outflow(|outflow| outflow.wants_more()) == Some(true) {
            self.look_for(ticket, now_us);
        }
    }

    /// Looks for more of a stream, or for why there is none.
    pub(crate) fn look_for(&mut self, ticket: &Ticket, now_us: u64) {
        if let Stage::Submitted(submitted) = ticket.stage.get() {
            self.look(submitted.slot, now_us);
            if ticket.stage.get() == Stage::Over {
                // Its slot is free for the next one in the line.
                self.fill(now_us);
            }
        }
    }

    /// Nobody waits for this request any more. Gives where it was.
    pub(crate) fn abandon(&mut self, ticket: &Ticket, now_us: u64) -> Outcome {
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
