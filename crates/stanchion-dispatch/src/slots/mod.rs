//! The slots of the exchange: the request in each, the workers at their seats, and what seats and acceptor hand each other.
//! `transfer.rs` moves bodies and messages, and `mending.rs` repairs what workers have spoilt.

mod mending;
mod transfer;

use std::os::fd::OwnedFd;
use std::rc::Rc;

use stanchion_exchange::{AcceptorSide, Exchange, SlotState, Submitted, Tenant};
use stanchion_generation::common::Common;
use stanchion_line::{LaneId, Reserve};
use stanchion_sys::channel::Channel;
use stanchion_sys::charge;

use crate::culprits::Culprits;
use crate::seats_taken::SeatsTaken;
use crate::ticket::Ticket;
use crate::worker_files::WorkerFiles;
use crate::workers::{SeatedWorkers, Sitting};
use mending::Poisoned;
pub use transfer::Room;
pub(crate) use transfer::is_whole;

/// The requests in the exchange.
pub struct SlotTable {
    pub(crate) exchange: &'static Exchange,
    pub(crate) side: AcceptorSide<'static>,
    /// The request in each slot.
    entries: Vec<Option<SlotEntry>>,
    pub(crate) taken: SeatsTaken,
    /// The workers at their seats.
    pub(crate) workers: SeatedWorkers,
    files: WorkerFiles,
    culprits: Culprits,
    poisoned: Vec<Poisoned>,
    /// Slots that a worker has taken but that no seat had in hand at the last looks, each with its turn, and the number
    /// of those looks.
    strays: Vec<(Submitted, u32)>,
}

/// A request in a slot.
struct SlotEntry {
    ticket: Rc<Ticket>,
    /// A seat has it, or will. A session keeps its slot, but gives its seat back, so that the seat runs another request
    /// meanwhile.
    has_seat: bool,
}

impl SlotTable {
    /// Takes the exchange over from an earlier acceptor. `reserve` has the seats of each lane.
    pub(crate) fn new(common: &'static Common, reserve: Reserve, master: &Rc<Channel>) -> Self {
        let exchange = &common.exchange;
        let slots = 0..exchange.geometry().slots();
        Self {
            exchange,
            side: AcceptorSide::take_over(exchange),
            entries: slots.map(|_| None).collect(),
            taken: SeatsTaken::new(reserve),
            workers: SeatedWorkers::new(exchange, &common.settings),
            files: WorkerFiles::new(common.files.take_acceptor_end()),
            culprits: Culprits::new(master),
            poisoned: Vec::new(),
            strays: Vec::new(),
        }
    }

    /// Writes a request into a slot, for this worker or for any. Gives whether it fits: the record can only be too large for
    /// a slot if the operator has raised the limits on fields far beyond their defaults.
    pub(crate) fn submit(&mut self, ticket: &Rc<Ticket>, worker: Option<u16>) -> bool {
        let request = &ticket.request;
        let side = &mut self.side;
        let submitted = side.submit(worker, request.arrived_us, |area| request.write(area));
        let Some(submitted) = submitted else {
            return false;
        };
        self.taken
            .entered(ticket.lane.get(), request.peer.only_worker);
        ticket.enters(submitted);
        let seats = self.workers.len() * self.workers.seats_each();
        // There are no more seats than 16 bits can name.
        ticket.busy.set(self.taken.all().min(seats) as u16);
        self.entries[submitted.slot as usize] = Some(SlotEntry {
            ticket: Rc::clone(ticket),
            has_seat: true,
        });
        true
    }

    /// How many slots there are.
    pub(crate) fn count(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Whether no slot has a request.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.iter().all(Option::is_none)
    }

    /// The request in a slot.
    pub(crate) fn ticket(&self, slot: u32) -> Option<&Rc<Ticket>> {
        let entry = self.entries.get(slot as usize)?;
        entry.as_ref().map(|entry| &entry.ticket)
    }

    /// The slots with a request.
    pub(crate) fn tickets(&self) -> impl Iterator<Item = (u32, &Rc<Ticket>)> {
        let slots = (0..).zip(&self.entries);
        slots.filter_map(|(slot, entry)| Some((slot, &entry.as_ref()?.ticket)))
    }

    /// How many requests of a lane have seats, or will have, those of ports not counted.
    pub(crate) fn of_lane(&self, lane: LaneId) -> usize {
        let theirs = self.entries.iter().flatten().filter(|entry| {
            let is_of_port = entry.ticket.request.peer.only_worker.is_some();
            entry.has_seat && entry.ticket.lane.get() == lane && !is_of_port
        });
        theirs.count()
    }

    /// The times of arrival of the requests that no seat has taken yet.
    pub(crate) fn untaken(&self) -> impl Iterator<Item = u64> {
        let tickets = self.untaken_tickets();
        tickets.map(|ticket| ticket.request.arrived_us)
    }

    /// These requests.
    pub(crate) fn untaken_tickets(&self) -> impl Iterator<Item = &Rc<Ticket>> {
        let is_there = self.exchange.oldest_ready().is_some();
        let slots = self.tickets().filter(move |_| is_there);
        slots.filter_map(|(slot, ticket)| {
            let is_ready = matches!(self.side.state(slot), Ok(SlotState::Ready));
            is_ready.then_some(ticket)
        })
    }

    /// The request that a seat works on. The seat names its slot in memory that its worker writes, so the acceptor
    /// believes it only if the slot names the seat.
    pub(crate) fn ticket_at(&self, seat: u16, slot: u32) -> Option<&Ticket> {
        let ticket = self.ticket(slot)?;
        match self.side.state(slot) {
            Ok(SlotState::Running { tenant, .. }) if tenant.seat == seat => Some(ticket),
            _ => None,
        }
    }

    /// Whether a slot has a session.
    pub(crate) fn is_session(&self, slot: u32) -> bool {
        let entry = self.entries[slot as usize].as_ref();
        entry.is_some_and(|entry| !entry.has_seat)
    }

    /// Gives back the seat of a request that has left the exchange, or whose WebSocket the app has accepted: as a session it
    /// needs none.
    pub(crate) fn give_seat_back(&mut self, slot: u32) {
        if let Some(entry) = &mut self.entries[slot as usize]
            && std::mem::take(&mut entry.has_seat)
        {
            let ticket = &entry.ticket;
            self.taken
                .left(ticket.lane.get(), ticket.request.peer.only_worker);
        }
    }

    /// Takes back a request that no seat has taken.
    pub(crate) fn withdraw(&mut self, slot: u32) -> Option<Rc<Ticket>> {
        // No client pays for the table of slots.
        let _charged = charge::to_nobody();
        if !self.side.withdraw(slot) {
            return None;
        }
        self.left(slot)
    }

    /// Frees a slot whose request is over, or whose worker is dead.
    pub(crate) fn free(&mut self, slot: u32) {
        // No client pays for the table of slots.
        let _charged = charge::to_nobody();
        self.left(slot);
        self.files.forget(slot);
        self.side.release(slot);
    }

    /// Takes a request that has left the exchange out of the table.
    fn left(&mut self, slot: u32) -> Option<Rc<Ticket>> {
        self.give_seat_back(slot);
        let entry = self.entries[slot as usize].take()?;
        Some(entry.ticket)
    }

    /// Notes which worker has a request, and since when.
    pub(crate) fn seen_with(&self, tenant: Tenant, taken_us: u64, ticket: &Ticket) {
        let sitting = self.workers.at(tenant);
        ticket.runs(taken_us, sitting.map(|one| (one.number, one.pid)));
    }

    /// Takes the file that the slot's seat sent before its answer. `None` if none has arrived: the kernel drops a
    /// descriptor for which the acceptor has none left.
    pub(crate) fn take_file(&mut self, slot: u32) -> Option<OwnedFd> {
        self.receive_files();
        self.files.take(self.side.submitted(slot))
    }

    /// Receives the files that have come.
    fn receive_files(&mut self) {
        let Self {
            exchange,
            side,
            entries,
            workers,
            files,
            ..
        } = self;
        files.receive(|sender, submitted| {
            let slot = submitted.slot;
            let is_there = entries.get(slot as usize).is_some_and(Option::is_some);
            if !is_there || side.submitted(slot) != submitted {
                return false;
            }
            let tenant = match side.state(slot) {
                Ok(SlotState::Running { tenant, .. } | SlotState::Done { tenant, .. }) => tenant,
                Ok(SlotState::Ready) | Err(_) => return false,
            };
            match workers.at(tenant) {
                // The worker took its first request before the master's message about the worker arrived.
                None => exchange.pid_at(tenant.seat) == Some(sender.cast_unsigned()),
                Some(&Sitting { pid, .. }) => pid == sender,
            }
        });
    }
}
