//! Every worker can write to all memory of the exchange. When a worker has written where it should not, the acceptor
//! goes by what it knows itself, repairs what only the acceptor writes, and goes on.
//!
//! Once a second the acceptor compares everything, and checks each request in the exchange, since notices may be lost:
//!
//! - A request whose slot is Taken, but which no seat claims at two checks, gets 502. If the slot's owner is no worker
//!   that the master has announced, the request gets 502 after five checks, since news of a worker may be on its way.
//!   The same holds for slots that a dead acceptor had handed out.
//! - A slot with an unknown owner is used again when all workers that may have it are dead, or when no seat claims it
//!   at two checks. The acceptor cannot know which worker wrote there, as all can write everywhere. The error log says
//!   that it happened, and only a worker with a damaged slot is replaced.
//! - One gap remains: a worker that is stopped for two seconds or more (a debugger, SIGSTOP) between taking a request
//!   and saying so counts as having nothing. Its client gets 502 and its slot is used again. When the worker goes on,
//!   it finds another turn or another owner in the slot's word and leaves the slot alone. Only a worker that is stopped
//!   a second time, between that look and its next act, may still damage the next request there.
//! - The acceptor does not compare what seats only read: the length and arrival time of a request, and which acceptor
//!   is at work. Writing there damages requests in flight.

use stanchion_exchange::{Corrupt, SeatState, SlotState};
use stanchion_sys::charge;
use tracing::{error, warn};

use super::SlotTable;
use crate::refusal::Refusal;
use crate::ticket::Ticket;
use crate::workers::Sitting;
use stanchion_generation::messages::WorkerRef;

/// After so many looks the acceptor uses a slot again that makes no sense and that no seat says it has: a seat says so
/// a moment after it has taken a request.
const LOOKS: u32 = 2;
/// After so many looks the acceptor gives up a slot whose owner is at no seat, or has emptied its seat: the master
/// announces workers that come and go, and its message may be on its way.
const LOOKS_UNTOLD: u32 = 5;
/// After so many looks the acceptor gives up a slot whose owner says that it has it though the master has not announced
/// the owner: a hook may hold up the master, and a worker that is ready does not wait for the master.
const LOOKS_UNANNOUNCED: u32 = 120;
/// After so many looks the acceptor gives up a slot of a session that its worker is to give back: the worker's loop may
/// be blocked.
const LOOKS_OF_SESSION: u32 = 120;

/// A reason to doubt that the owner that a slot names has the slot.
enum Doubt {
    /// The owner is at its seat, but idle or at another request.
    Elsewhere,
    /// The same, but the slot may be a session of the owner's, whose client has gone.
    PerhapsSession,
    /// The master has not announced the owner, or has announced its death, and the owner does not say that it has the
    /// slot.
    Untold,
    /// The master has announced no worker at that seat, and a worker there says that it has the slot.
    Unannounced,
    /// The owner's seat is empty, as if the owner were dead.
    Left(WorkerRef),
}

impl Doubt {
    /// After so many looks the doubt counts as certain.
    fn looks(&self) -> u32 {
        match self {
            Self::Elsewhere => LOOKS,
            Self::PerhapsSession => LOOKS_OF_SESSION,
            Self::Untold | Self::Left(..) => LOOKS_UNTOLD,
            Self::Unannounced => LOOKS_UNANNOUNCED,
        }
    }
}

/// A slot that makes no sense. The acceptor does not use it until no worker can write to it any more.
pub(super) struct Poisoned {
    slot: u32,
    owner: SlotOwner,
}

/// The workers that may still write to a slot.
enum SlotOwner {
    /// The worker that had the slot. The master replaces it.
    Known(WorkerRef),
    /// These workers may have had the slot; no seat says which of them did. With the number of looks for the owner so
    /// far.
    Unknown(Vec<WorkerRef>, u32),
}

impl SlotOwner {
    /// Removes a dead worker; true if no other one may write to the slot.
    fn forget(&mut self, dead: WorkerRef) -> bool {
        match self {
            Self::Known(worker) => *worker == dead,
            Self::Unknown(some, _) => {
                some.retain(|&owner| owner != dead);
                some.is_empty()
            }
        }
    }
}

impl SlotTable {
    /// Repairs what only the acceptor writes.
    pub(crate) fn mend(&mut self) {
        if let Err(corrupt) = self.side.mend() {
            error!(
                "{corrupt}; the acceptor has repaired it, and cannot know which worker wrote there"
            );
        }
    }

    /// Looks for slots without an owner, and receives files: else a worker that sends files which no answer names would
    /// leave no room in the channel for those of others.
    pub(crate) fn look_around(&mut self) {
        self.look_for_strays();
        self.look_for_owners();
        self.receive_files();
        self.files.log_cut();
    }

    /// Looks for requests that a seat has taken, as their slots say, but that no seat has in hand. Some may be from an
    /// acceptor before this one.
    fn look_for_strays(&mut self) {
        let before = std::mem::take(&mut self.strays);
        for slot in 0..self.count() {
            let Some(doubt) = self.doubt(slot) else {
                continue;
            };
            let stray = self.side.submitted(slot);
            let seen = before.iter().find(|(other, _)| *other == stray);
            let looks = 1 + seen.map_or(0, |(_, looks)| *looks);
            if looks < doubt.looks() {
                self.strays.push((stray, looks));
            } else {
                self.end_stray(slot, &doubt);
            }
        }
    }

    /// A reason to doubt that the owner that a slot names has the slot.
    fn doubt(&self, slot: u32) -> Option<Doubt> {
        let ticket = self.ticket(slot);
        let is_used = ticket.is_some() || self.side.is_orphan(slot);
        if !is_used || self.is_poisoned(slot) {
            return None;
        }
        let Ok(SlotState::Running { tenant, .. }) = self.side.state(slot) else {
            return None;
        };
        // The seat of a session has gone on to other requests.
        if !self.is_session(slot) && self.side.is_stray(slot) {
            // The acceptor before this one may have known it as a session, or its client has gone before this acceptor
            // saw it become one.
            let is_perhaps = match ticket {
                Some(ticket) => ticket.request.websocket.is_some(),
                None => self.exchange.geometry().event_loops,
            };
            return Some(if is_perhaps {
                Doubt::PerhapsSession
            } else {
                Doubt::Elsewhere
            });
        }
        let index = self.exchange.geometry().worker_of(tenant.seat);
        let sitter = self.workers.get(index).map(|sitting| sitting.epoch);
        match (sitter, self.exchange.seat_state(tenant.seat)) {
            // The master announces the end of a worker before it lets another one have the same seats.
            (None, SeatState::Busy) => Some(Doubt::Unannounced),
            (Some(epoch), state) if epoch == tenant.epoch => {
                (state == SeatState::Empty).then_some(Doubt::Left(WorkerRef { index, epoch }))
            }
            (_, _) => Some(Doubt::Untold),
        }
    }

    fn end_stray(&mut self, slot: u32, doubt: &Doubt) {
        let corrupt = Corrupt("a request was taken, but no worker has it");
        match (self.ticket(slot).cloned(), doubt) {
            (Some(ticket), Doubt::Left(..)) => self.poison(slot, &ticket, corrupt),
            (Some(ticket), _) => self.poison_without_owner(slot, &ticket, corrupt),
            (None, Doubt::Left(worker)) => self.replace(*worker),
            (None, _) => {
                error!("{corrupt} (slot {slot}, of the acceptor before this one)");
                self.side.settle_orphan(slot, true);
            }
        }
    }

    /// Looks again for the owners of poisoned slots whose owners are unknown.
    fn look_for_owners(&mut self) {
        let (mut free, mut found) = (Vec::new(), Vec::new());
        let mut poisoned = std::mem::take(&mut self.poisoned);
        poisoned.retain_mut(|Poisoned { slot, owner }| {
            let SlotOwner::Unknown(_, looks) = owner else {
                return true;
            };
            let seat = self.exchange.busy_seat_of(*slot);
            if let Some(worker) = seat.and_then(|seat| self.workers.named_on(seat)) {
                *owner = SlotOwner::Known(worker);
                found.push(worker);
                return true;
            }
            *looks += 1;
            if *looks >= LOOKS {
                free.push(*slot);
            }
            *looks < LOOKS
        });
        self.poisoned = poisoned;
        for slot in free {
            self.free(slot);
        }
        for worker in found {
            self.replace(worker);
        }
    }

    /// Frees the poisoned slots to which only this worker, which is dead, could still have written.
    pub(crate) fn free_poisoned_of(&mut self, worker: WorkerRef) {
        let freed = self
            .poisoned
            .extract_if(.., |poisoned| poisoned.owner.forget(worker));
        let freed: Vec<_> = freed.map(|poisoned| poisoned.slot).collect();
        for slot in freed {
            self.free(slot);
        }
    }

    pub(crate) fn is_poisoned(&self, slot: u32) -> bool {
        self.poisoned.iter().any(|poisoned| poisoned.slot == slot)
    }

    /// Takes a slot that makes no sense out of use: refuses its request, or breaks the answer off, and has the master
    /// replace its worker. The slot is used again when that worker is dead.
    pub(crate) fn poison(&mut self, slot: u32, ticket: &Ticket, corrupt: Corrupt) {
        if self.is_poisoned(slot) {
            return;
        }
        // No client pays for the table of poisoned slots, nor for the message to the master.
        let _charged = charge::to_nobody();
        let seat = match self.side.state(slot) {
            Ok(SlotState::Running { tenant, .. } | SlotState::Done { tenant, .. }) => {
                Some(tenant.seat)
            }
            _ => {
                let busy = self.exchange.busy_seat_of(slot);
                busy.or_else(|| self.exchange.last_seat_of(slot))
            }
        };
        let Some(worker) = seat.and_then(|seat| self.workers.named_on(seat)) else {
            return self.poison_without_owner(slot, ticket, corrupt);
        };
        tell_client(slot, ticket, corrupt);
        let owner = SlotOwner::Known(worker);
        self.poisoned.push(Poisoned { slot, owner });
        self.replace(worker);
    }

    fn poison_without_owner(&mut self, slot: u32, ticket: &Ticket, corrupt: Corrupt) {
        tell_client(slot, ticket, corrupt);
        let owners = self.workers.possible_owners();
        let called = owners.iter().filter_map(|owner| {
            let Sitting { number, pid, .. } = self.workers.get(owner.index)?;
            Some(format!("worker {number} ({pid})"))
        });
        let called: Vec<_> = called.collect();
        warn!(
            "slot {slot} stays out of use until none of these workers can write to it: {}",
            called.join(", ")
        );
        let owner = SlotOwner::Unknown(owners, 0);
        self.poisoned.push(Poisoned { slot, owner });
    }

    fn replace(&mut self, worker: WorkerRef) {
        self.culprits.add(worker);
        self.report_culprits();
    }

    /// Asks the master to replace workers that must not go on.
    pub fn report_culprits(&mut self) {
        self.culprits.report(&self.workers);
    }
}

fn tell_client(slot: u32, ticket: &Ticket, corrupt: Corrupt) {
    error!("{corrupt} (slot {slot}, {})", ticket.request.describe());
    if ticket.is_streaming() {
        ticket.break_off();
    } else if !ticket.is_over() {
        ticket.refuse(Refusal::NoAnswer);
    }
}
