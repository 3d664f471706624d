//! The exchange is in memory that every worker can write to: what becomes of it when one of them has written where it
//! should not. The acceptor goes by what it knows itself, puts right what only it writes, and goes on.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use stanchion_exchange::{Corrupt, SeatState, SlotState};
use stanchion_sys::charge;
use tracing::{error, warn};

use super::{Dispatch, Sitting, refuse};
use crate::acceptor::dispatch::outflow::StreamEnd;
use crate::acceptor::dispatch::refusal::Refusal;
use crate::acceptor::dispatch::ticket::{Stage, Ticket};
use crate::messages::{self, FromAcceptor, WorkerRef};

/// How often the exchange is held to what we know. It bounds how long a request can stand in a ring in which no seat
/// sees it, and an answer be there without a notice.
const MEND_US: u64 = 1_000_000;
/// A slot that makes no sense, and that nobody says is in his hands, is used again after so many looks: a seat says
/// so a moment after it has taken a request.
const LOOKS: u32 = 2;
/// A slot whose owner sits nowhere, or has emptied his seat, after so many: that he came or went is told by the master,
/// and may be on its way.
const LOOKS_UNTOLD: u32 = 5;
/// A slot whose owner says that he has it, and of whom we were not told, after so many: a hook may hold up the
/// master, and a worker that is ready does not wait for it.
const LOOKS_UNANNOUNCED: u32 = 120;
/// A slot of a session that its worker is to give back, after so many: its loop may be blocked.
const LOOKS_OF_SESSION: u32 = 120;

/// Why the owner that a slot names may not have it.
enum Doubt {
    /// He is at his seat, and has nothing in hand, or something else.
    Elsewhere,
    /// Likewise, but it may be a session of his, which nobody wants any more.
    PerhapsSession,
    /// We were not told of him, or were told that he is dead, and he does not say that he has it.
    Untold,
    /// We were told of nobody at that seat, and he says that he has it.
    Unannounced,
    /// His seat is empty, as if he were dead.
    Left(WorkerRef),
}

impl Doubt {
    /// After so many looks it is none any more.
    fn looks(&self) -> u32 {
        match self {
            Self::Elsewhere => LOOKS,
            Self::PerhapsSession => LOOKS_OF_SESSION,
            Self::Untold | Self::Left(..) => LOOKS_UNTOLD,
            Self::Unannounced => LOOKS_UNANNOUNCED,
        }
    }
}

/// A slot that makes no sense, and that is not used until nobody can write to it any more.
pub(super) struct Poisoned {
    slot: u32,
    owner: Owner,
}

/// Who may still write to a slot.
enum Owner {
    /// The one that had it. It is replaced.
    Known(WorkerRef),
    /// Nobody says so: one of these. Looked for so many times.
    Unknown(Vec<WorkerRef>, u32),
}

impl Owner {
    /// A worker is dead; true if it is the last of them.
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

impl Dispatch {
    /// Now and then: holds the exchange to what we know of it.
    pub(crate) fn mend(&mut self, now_us: u64) {
        self.side.wipe_remains();
        if now_us.saturating_sub(self.mended_us) < MEND_US {
            return;
        }
        self.mended_us = now_us;
        if let Err(corrupt) = self.side.mend() {
            error!("{corrupt}; it has been repaired. It cannot be known which worker wrote there");
        }
        // Notices may be lost too.
        for slot in 0..self.slots.len() as u32 {
            self.look(slot, now_us);
        }
        self.look_for_strays();
        self.look_for_owners();
        self.take_files();
        self.log_cut_files();
        self.fill(now_us);
        self.announce();
    }

    /// Requests that were taken, as their slots say, and that no seat has in hand, also those of an acceptor before
    /// us.
    fn look_for_strays(&mut self) {
        let before = std::mem::take(&mut self.strays);
        for slot in 0..self.slots.len() as u32 {
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

    /// Why the owner that a slot names may not have it.
    fn doubt(&self, slot: u32) -> Option<Doubt> {
        let is_used = self.slots[slot as usize].is_some() || self.side.is_orphan(slot);
        if !is_used || self.is_poisoned(slot) {
            return None;
        }
        let Ok(SlotState::Running { tenant, .. }) = self.side.state(slot) else {
            return None;
        };
        // The seat of a session has gone on to other requests.
        let ticket = self.slots[slot as usize].as_ref();
        let is_session = ticket.is_some_and(|ticket| ticket.is_session.get());
        if !is_session && self.side.is_stray(slot) {
            // The acceptor before us may have known it as one, or its client has gone before we saw it become one.
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
        let sitter = self.workers.get(&index).map(|sitting| sitting.tenure);
        match (sitter, self.exchange.seat_state(tenant.seat)) {
            // The master tells of an end before it has anybody else sit down there.
            (None, SeatState::Busy) => Some(Doubt::Unannounced),
            (Some(tenure), state) if tenure == tenant.tenure => {
                (state == SeatState::Empty).then_some(Doubt::Left(WorkerRef { index, tenure }))
            }
            (_, _) => Some(Doubt::Untold),
        }
    }

    fn end_stray(&mut self, slot: u32, doubt: &Doubt) {
        let corrupt = Corrupt("a request was taken, and nobody has it");
        match (self.slots[slot as usize].clone(), doubt) {
            (Some(ticket), Doubt::Left(..)) => self.poison(slot, &ticket, corrupt),
            (Some(ticket), _) => self.poison_without_owner(slot, &ticket, corrupt),
            (None, Doubt::Left(worker)) => self.replace(*worker),
            (None, _) => {
                error!("{corrupt} (slot {slot}, of the acceptor before this one)");
                self.side.settle_orphan(slot, true);
            }
        }
    }

    /// Whose the slots are of which it was not known.
    fn look_for_owners(&mut self) {
        let (mut free, mut found) = (Vec::new(), Vec::new());
        let mut poisoned = std::mem::take(&mut self.poisoned);
        poisoned.retain_mut(|Poisoned { slot, owner }| {
            let Owner::Unknown(_, looks) = owner else {
                return true;
            };
            let seat = self.exchange.busy_seat_of(*slot);
            if let Some(worker) = seat.and_then(|seat| self.sitter_at(seat)) {
                *owner = Owner::Known(worker);
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

    /// A worker is dead: slots that only it may still have written to are used again.
    pub(super) fn free_poisoned_of(&mut self, worker: WorkerRef) {
        let (freed, kept) = std::mem::take(&mut self.poisoned)
            .into_iter()
            .map(|mut poisoned| (poisoned.owner.forget(worker), poisoned))
            .partition::<Vec<_>, _>(|(is_free, _)| *is_free);
        self.poisoned = kept.into_iter().map(|(_, poisoned)| poisoned).collect();
        for (_, Poisoned { slot, .. }) in freed {
            self.free(slot);
        }
    }

    pub(super) fn is_poisoned(&self, slot: u32) -> bool {
        self.poisoned.iter().any(|poisoned| poisoned.slot == slot)
    }

    /// A slot makes no sense: its client is told, and its worker must go before it is used again.
    pub(super) fn poison(&mut self, slot: u32, ticket: &Ticket, corrupt: Corrupt) {
        if self.is_poisoned(slot) {
            return;
        }
        // No client pays for the table of such slots, nor for what the master is to hear.
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
        let Some(worker) = seat.and_then(|seat| self.sitter_at(seat)) else {
            return self.poison_without_owner(slot, ticket, corrupt);
        };
        tell_client(slot, ticket, corrupt);
        let owner = Owner::Known(worker);
        self.poisoned.push(Poisoned { slot, owner });
        self.replace(worker);
    }

    fn poison_without_owner(&mut self, slot: u32, ticket: &Ticket, corrupt: Corrupt) {
        tell_client(slot, ticket, corrupt);
        let owners = self.possible_owners();
        let called = owners.iter().filter_map(|owner| {
            let Sitting { number, pid, .. } = self.workers.get(&owner.index)?;
            Some(format!("worker {number} ({pid})"))
        });
        let called: Vec<_> = called.collect();
        warn!(
            "slot {slot} is not used until it is sure that none of these writes to it: {}",
            called.join(", ")
        );
        let owner = Owner::Unknown(owners, 0);
        self.poisoned.push(Poisoned { slot, owner });
    }

    /// The worker that has a seat.
    fn sitter_at(&self, seat: u16) -> Option<WorkerRef> {
        let index = self.exchange.geometry().worker_of(seat);
        let &Sitting { tenure, .. } = self.workers.get(&index)?;
        Some(WorkerRef { index, tenure })
    }

    /// Who may have a slot when nobody says so: those that are dead, as far as
    /// we have not been told yet, since the master empties their seats first; else anybody.
    fn possible_owners(&self) -> Vec<WorkerRef> {
        let first_of = |worker: u16| self.exchange.geometry().seats_of(worker).start;
        let pid_of = |worker: u16| self.exchange.seat(first_of(worker)).pid.load(Relaxed);
        let all = self.workers.iter();
        let all = all.map(|(&worker, sitting)| (worker, *sitting));
        let (sitting, dead): (Vec<_>, Vec<_>) =
            all.partition(|(worker, sitting)| pid_of(*worker) == sitting.pid.cast_unsigned());
        let some = if dead.is_empty() { sitting } else { dead };
        let tenures = some.into_iter();
        tenures
            .map(|(index, Sitting { tenure, .. })| WorkerRef { index, tenure })
            .collect()
    }

    fn replace(&mut self, worker: WorkerRef) {
        self.unreported.insert(worker);
        self.report_culprits();
    }

    /// Has the master replace workers that must not go on. Those that it cannot be told of are kept
    /// for the next look: as long as such a worker lives, its slot is out of use.
    pub(crate) fn report_culprits(&mut self) {
        let master = &self.master;
        self.unreported.retain(|&worker| {
            let replace = FromAcceptor::Replace(worker);
            match messages::send(master, &replace) {
                Ok(()) => false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
                Err(error) => {
                    let pid = self.workers.get(&worker.index).map_or(0, |one| one.pid);
                    error!("the acceptor cannot send the master that process {pid} is to be replaced: {error}");
                    false
                }
            }
        });
    }
}

fn tell_client(slot: u32, ticket: &Ticket, corrupt: Corrupt) {
    error!("{corrupt} (slot {slot}, {})", ticket.request.describe());
    if ticket.is_streaming() {
        ticket.pour(|outflow| outflow.end(StreamEnd::Broken));
        ticket.stage.set(Stage::Over);
    } else if ticket.stage.get() != Stage::Over {
        refuse(ticket, Refusal::NoAnswer);
    }
}
