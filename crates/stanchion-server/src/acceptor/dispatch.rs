//! The line and the exchange together: requests join, go to seats in order, and come back.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::Bytes;
use stanchion_exchange::{
    AcceptorSide, Corrupt, Ending, Exchange, SLOTS_PER_SEAT, SlotState, Tenant,
};
use stanchion_line::{Line, LineLimits, Pulled};
use stanchion_sys::channel::{Channel, Received};
use stanchion_sys::clock::monotonic_us;
use tracing::{error, warn};

use super::answer::app_head;
use super::refusal::Refusal;
use super::tally::Tally;
use super::ticket::{Answer, AppAnswer, Stage, Start, StreamEnd, Ticket};
use crate::messages::{self, Gone, ToMaster};
use crate::record::{FilePart, read_answer_head};
use crate::tree::Common;

/// Sleeping seats are woken once per turn of the event loop; within a long turn, after this many
/// requests or this long at the latest.
const UNANNOUNCED_MAX: u32 = 8;
const UNANNOUNCED_US_MAX: u64 = 100;
/// Descriptors of files that arrived before the answers which name them: one per slot at most in
/// a healthy tree, and the newest ones win in a sick one.
const FILES_MAX: usize = 1024;

/// Everything between the connections and the workers.
pub(super) struct Dispatch {
    exchange: &'static Exchange,
    side: AcceptorSide<'static>,
    line: Line<Rc<Ticket>>,
    /// Who has each slot.
    slots: Vec<Option<Rc<Ticket>>>,
    /// Requests in the exchange.
    submitted: usize,
    /// Workers that sit at their seats.
    workers: BTreeMap<u16, Sitting>,
    threads: u16,
    timeout_us: u64,
    response_buffer: usize,
    files: HashMap<(u32, u32), OwnedFd>,
    files_channel: &'static Channel,
    reports: &'static Channel,
    /// When the oldest request was submitted that no seat was woken for.
    unannounced_since_us: u64,
    /// Slots that cannot be freed before this worker is dead, since it writes where it should not.
    poisoned: Vec<(u32, u16)>,
    pub(super) tally: Tally,
}

#[derive(Clone, Copy)]
struct Sitting {
    tenure: u16,
    pid: i32,
}

impl Dispatch {
    pub(super) fn new(common: &'static Common) -> Self {
        let settings = &common.settings;
        let us = |seconds: crate::settings::Seconds| {
            seconds.as_duration().map_or(0, |duration| duration.as_micros() as u64)
        };
        let line = Line::new(LineLimits {
            waiting_max: settings.max_waiting as usize,
            queue_timeout_us: us(settings.queue_timeout),
        });
        Self {
            exchange: common.exchange,
            side: AcceptorSide::take_over(common.exchange),
            line,
            slots: vec![None; common.exchange.geometry().slots()],
            submitted: 0,
            workers: BTreeMap::new(),
            threads: settings.threads as u16,
            timeout_us: us(settings.timeout),
            response_buffer: settings.response_buffer,
            files: HashMap::new(),
            files_channel: &common.files.acceptor_end,
            reports: &common.reports.child_end,
            unannounced_since_us: 0,
            poisoned: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// A request has arrived whole: it joins the line, or is told why not.
    pub(super) fn join(&mut self, ticket: &Rc<Ticket>) {
        let now_us = monotonic_us();
        match self.line.join(now_us, Rc::clone(ticket)) {
            Ok(place) => {
                ticket.stage.set(Stage::Waiting(place));
                self.fill(now_us);
            }
            Err((ticket, stanchion_line::Refusal::Full { retry_after_s })) => {
                refuse(&ticket, Refusal::LineFull { retry_after_s });
            }
        }
    }

    /// Moves the head of the line into the exchange while there is room for it: for each seat the
    /// request it answers and one ahead.
    fn fill(&mut self, now_us: u64) {
        let room = self.workers.len() * usize::from(self.threads) * SLOTS_PER_SEAT;
        while self.submitted < room && self.side.free_slots() > 0 {
            let Some(Pulled { item: ticket, .. }) = self.line.pull(now_us) else { break };
            let request = &ticket.request;
            let mut written = None;
            let submitted = self.side.submit(request.arrived_us, |area| {
                written = request.write(area);
                written.unwrap_or(0)
            });
            match (submitted, written) {
                (Some(submitted), Some(_)) => {
                    ticket.stage.set(Stage::Submitted(submitted));
                    self.slots[submitted.slot as usize] = Some(ticket);
                    self.submitted += 1;
                }
                (Some(submitted), None) => {
                    // The limits on heads and bodies add up to less than the area.
                    error!("a request does not fit the exchange: our fault");
                    self.withdraw_or_give_up(submitted.slot);
                    refuse(&ticket, Refusal::FieldTooLarge);
                }
                (None, _) => {
                    error!("the exchange took no request though it had a free slot: our fault");
                    refuse(&ticket, Refusal::NoAnswer);
                }
            }
        }
        self.announce_if_late(now_us);
    }

    fn announce_if_late(&mut self, now_us: u64) {
        match self.side.unannounced() {
            0 => self.unannounced_since_us = now_us,
            count if count >= UNANNOUNCED_MAX
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
        loop {
            self.sweep();
            self.side.announce();
            if self.side.try_sleep() {
                break;
            }
        }
    }

    /// The event loop is up again.
    pub(super) fn awake(&self) {
        self.side.awake();
    }

    fn sweep(&mut self) {
        let mut news = Vec::new();
        self.side.sweep(|slot| news.push(slot));
        if news.is_empty() {
            return;
        }
        for slot in news {
            self.look(slot);
        }
        self.fill(monotonic_us());
    }

    fn look(&mut self, slot: u32) {
        if self.side.settle_orphan(slot, false) {
            return;
        }
        let Some(ticket) = self.slots[slot as usize].clone() else { return };
        if let Err(corrupt) = self.advance(slot, &ticket) {
            self.poison(slot, &ticket, corrupt);
        }
    }

    /// Takes what the slot's seat has written since we last looked.
    fn advance(&mut self, slot: u32, ticket: &Ticket) -> Result<(), Corrupt> {
        let state = self.side.state(slot)?;
        let (tenant, taken_us) = match state {
            SlotState::Ready => return Ok(()),
            SlotState::Running { tenant, taken_us } | SlotState::Done { tenant, taken_us, .. } => {
                (tenant, taken_us)
            }
        };
        ticket.taken_us.set(taken_us);
        ticket.worker_pid.set(self.pid_of(tenant));
        let wanted = ticket.stage.get() != Stage::Over;
        if let SlotState::Done { ending, done_us, .. } = state {
            ticket.done_us.set(done_us);
            let ending = ending.ok_or(Corrupt("an answer ends in no known way"))?;
            if wanted {
                self.take_rest(slot, ticket, ending)?;
            }
            self.line.drained(monotonic_us());
            self.free(slot);
        } else if wanted {
            self.take_more(slot, ticket)?;
        }
        Ok(())
    }

    /// The answer is whole, or will never be.
    fn take_rest(&mut self, slot: u32, ticket: &Ticket, ending: Ending) -> Result<(), Corrupt> {
        let end = match ending {
            Ending::Complete => StreamEnd::Complete,
            Ending::Broken => StreamEnd::Broken,
        };
        if ticket.is_streaming() {
            let mut bytes = Vec::new();
            self.side.read(slot, usize::MAX, &mut bytes)?;
            ticket.push(Bytes::from(bytes));
            ticket.end(end);
        } else if self.side.readable(slot)? == 0 {
            refuse(ticket, Refusal::NoAnswer);
        } else {
            let (head, body, file) = self.read_head(slot)?;
            let body = match (file, end) {
                (Some(part), StreamEnd::Complete) => {
                    let file = self.fetch_file(slot).ok_or(Corrupt("a file was not sent"))?;
                    Start::File(std::fs::File::from(file), part)
                }
                (_, StreamEnd::Complete) => Start::Whole(body),
                (_, StreamEnd::Broken) => {
                    ticket.push(body);
                    Start::Streamed
                }
            };
            ticket.end(end);
            ticket.answer(Answer::App(Box::new(AppAnswer { head, body })));
        }
        ticket.stage.set(Stage::Over);
        Ok(())
    }

    /// There may be more of the answer later.
    fn take_more(&mut self, slot: u32, ticket: &Ticket) -> Result<(), Corrupt> {
        let readable = self.side.readable(slot)?;
        if readable == 0 {
            return Ok(());
        }
        if ticket.is_streaming() {
            let room = self.response_buffer.saturating_sub(ticket.buffered());
            if room > 0 {
                let mut bytes = Vec::new();
                self.side.read(slot, room, &mut bytes)?;
                ticket.push(Bytes::from(bytes));
            }
        } else {
            let (head, body, _) = self.read_head(slot)?;
            ticket.start_streaming();
            ticket.push(body);
            ticket.answer(Answer::App(Box::new(AppAnswer { head, body: Start::Streamed })));
        }
        Ok(())
    }

    /// A seat publishes the head in one piece, with the start of the body behind it.
    fn read_head(
        &mut self,
        slot: u32,
    ) -> Result<(http::response::Parts, Bytes, Option<FilePart>), Corrupt> {
        let mut bytes = Vec::new();
        self.side.read(slot, usize::MAX, &mut bytes)?;
        let (head, len) =
            read_answer_head(&bytes).map_err(|_| Corrupt("the head of an answer is cut"))?;
        let file = head.file;
        let head = app_head(&head).ok_or(Corrupt("the head of an answer is not HTTP"))?;
        Ok((head, Bytes::from(bytes).slice(len..), file))
    }

    fn fetch_file(&mut self, slot: u32) -> Option<OwnedFd> {
        let turn = self.side.submitted(slot).turn;
        loop {
            match self.files_channel.receive() {
                Ok(Received::Message(message, Some(fd))) => {
                    let Ok(key) = <[u8; 8]>::try_from(message.as_slice()) else { continue };
                    let [s0, s1, s2, s3, t0, t1, t2, t3] = key;
                    let key =
                        (u32::from_le_bytes([s0, s1, s2, s3]), u32::from_le_bytes([t0, t1, t2, t3]));
                    if self.files.len() >= FILES_MAX {
                        warn!("descriptors of {FILES_MAX} files were sent that no answer named");
                        self.files.clear();
                    }
                    self.files.insert(key, fd);
                }
                Ok(Received::Message(_, None)) => {}
                Ok(Received::Nothing | Received::Closed) => break,
                Err(error) => {
                    error!("a file's descriptor cannot be received: {error}");
                    break;
                }
            }
        }
        self.files.remove(&(slot, turn))
    }

    fn free(&mut self, slot: u32) {
        self.slots[slot as usize] = None;
        self.submitted -= 1;
        self.side.release(slot);
    }

    /// The connection has room again for a stream that filled its buffer.
    pub(super) fn refill(&mut self, ticket: &Ticket) {
        if let Stage::Submitted(submitted) = ticket.stage.get()
            && ticket.buffered() * 2 <= self.response_buffer
        {
            self.look(submitted.slot);
        }
    }

    /// Nobody waits for this request any more.
    pub(super) fn abandon(&mut self, ticket: &Ticket) {
        match ticket.stage.replace(Stage::Over) {
            Stage::Waiting(place) => {
                self.line.leave(place);
            }
            Stage::Submitted(submitted) => {
                self.withdraw_or_give_up(submitted.slot);
                self.fill(monotonic_us());
            }
            Stage::New | Stage::Over => {}
        }
    }

    fn withdraw_or_give_up(&mut self, slot: u32) {
        if self.side.withdraw(slot) {
            if self.slots[slot as usize].take().is_some() {
                self.submitted -= 1;
            }
        } else {
            self.side.give_up(slot);
        }
    }

    /// A worker has sat down.
    pub(super) fn worker_ready(&mut self, worker: u16, tenure: u16, pid: i32) {
        self.workers.insert(worker, Sitting { tenure, pid });
        self.fill(monotonic_us());
    }

    /// A worker is dead: what it had in hand is answered for it, and its slots are free.
    pub(super) fn worker_gone(&mut self, worker: u16, tenure: u16, gone: Gone) {
        let now_us = monotonic_us();
        let seats = worker * self.threads..(worker + 1) * self.threads;
        let theirs = |tenant: Tenant| seats.contains(&tenant.seat) && tenant.tenure == tenure;
        for slot in self.side.held_by(theirs) {
            if self.side.settle_orphan(slot, true) {
                continue;
            }
            let Some(ticket) = self.slots[slot as usize].clone() else { continue };
            // It may have finished this one, or written part of it, in its last moment.
            if let Err(corrupt) = self.advance(slot, &ticket) {
                self.poison(slot, &ticket, corrupt);
            }
            if self.slots[slot as usize].is_some() && !self.is_poisoned(slot) {
                let overdue = self.timeout_us > 0
                    && now_us.saturating_sub(ticket.taken_us.get()) >= self.timeout_us;
                let refusal = match gone {
                    Gone::TimedOut if overdue => Refusal::WorkerTimedOut,
                    Gone::TimedOut | Gone::Left(_) | Gone::Killed(_) => Refusal::WorkerDied,
                };
                self.bury(slot, &ticket, refusal);
            }
        }
        let poisoned = std::mem::take(&mut self.poisoned);
        for (slot, culprit) in poisoned {
            if culprit == worker {
                self.free(slot);
            } else {
                self.poisoned.push((slot, culprit));
            }
        }
        if self.workers.get(&worker).is_some_and(|sitting| sitting.tenure == tenure) {
            self.workers.remove(&worker);
        }
        self.fill(now_us);
        self.side.announce();
    }

    fn bury(&mut self, slot: u32, ticket: &Ticket, refusal: Refusal) {
        if ticket.stage.get() != Stage::Over {
            if ticket.is_streaming() {
                warn!(
                    "an answer is broken off: {} ({})",
                    refusal.reason(),
                    ticket.request.describe()
                );
                ticket.end(StreamEnd::Broken);
                ticket.stage.set(Stage::Over);
            } else {
                refuse(ticket, refusal);
            }
        }
        self.free(slot);
    }

    fn is_poisoned(&self, slot: u32) -> bool {
        self.poisoned.iter().any(|(poisoned, _)| *poisoned == slot)
    }

    /// A slot makes no sense: its client is told, and its worker must go before it is used again.
    fn poison(&mut self, slot: u32, ticket: &Ticket, corrupt: Corrupt) {
        if self.is_poisoned(slot) {
            return;
        }
        error!("{corrupt} (slot {slot}, {})", ticket.request.describe());
        if ticket.is_streaming() {
            ticket.end(StreamEnd::Broken);
            ticket.stage.set(Stage::Over);
        } else if ticket.stage.get() != Stage::Over {
            refuse(ticket, Refusal::NoAnswer);
        }
        let tenant = match self.side.state(slot) {
            Ok(SlotState::Running { tenant, .. } | SlotState::Done { tenant, .. }) => Some(tenant.seat),
            _ => self.exchange.busy_seat_of(slot),
        };
        let Some(worker) = tenant.map(|seat| seat / self.threads) else {
            error!("slot {slot} is lost: no seat says that it has it");
            return;
        };
        self.poisoned.push((slot, worker));
        if let Some(sitting) = self.workers.get(&worker) {
            let replace = ToMaster::Replace { worker, tenure: sitting.tenure };
            if let Err(error) = messages::send(self.reports, &replace) {
                error!("the master could not be told to replace worker {worker}: {error}");
            }
        }
    }

    fn pid_of(&self, tenant: Tenant) -> i32 {
        let sitting = self.workers.get(&(tenant.seat / self.threads));
        sitting.filter(|sitting| sitting.tenure == tenant.tenure).map_or(0, |sitting| sitting.pid)
    }

    /// Tells those who have waited too long.
    pub(super) fn expire(&mut self) {
        let now_us = monotonic_us();
        while let Some(Pulled { item, .. }) = self.line.expire(now_us) {
            let retry_after_s = self.line.retry_after_s(now_us);
            refuse(&item, Refusal::WaitedTooLong { retry_after_s });
        }
    }

    /// Tells everybody in the line, and those in the exchange whom no seat has taken, that the
    /// server is shutting down; with `running`, also those whose answers have not begun.
    pub(super) fn refuse_all(&mut self, running: bool) {
        let now_us = monotonic_us();
        let waiting: Vec<Rc<Ticket>> = self.line.drain(now_us).map(|pulled| pulled.item).collect();
        for ticket in waiting {
            refuse(&ticket, Refusal::ShuttingDown);
        }
        for slot in 0..self.slots.len() as u32 {
            let Some(ticket) = self.slots[slot as usize].clone() else { continue };
            if ticket.stage.get() == Stage::Over || ticket.is_streaming() {
                continue;
            }
            if self.side.withdraw(slot) {
                self.slots[slot as usize] = None;
                self.submitted -= 1;
                refuse(&ticket, Refusal::ShuttingDown);
            } else if running {
                self.side.give_up(slot);
                refuse(&ticket, Refusal::ShuttingDown);
            }
        }
    }
}

fn refuse(ticket: &Ticket, refusal: Refusal) {
    ticket.stage.set(Stage::Over);
    ticket.answer(Answer::Refused(refusal));
}
