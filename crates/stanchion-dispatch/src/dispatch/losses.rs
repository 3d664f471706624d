//! The dispatch ends or repeats requests whose worker is dead, or will be killed.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use stanchion_exchange::{SlotState, Tenant, Unwanted};
use tracing::warn;

use super::Dispatch;
use crate::refusal::Refusal;
use crate::ticket::Ticket;
use stanchion_generation::messages::WorkerRef;
use stanchion_generation::tally::Event;

impl Dispatch {
    /// Clears up after a dead worker: answers the requests that it had in hand, or gives them to another worker, and
    /// frees its slots.
    pub fn worker_gone(&mut self, worker: WorkerRef, now_us: u64) {
        for slot in self.held_by(worker) {
            if self.slots.side.settle_orphan(slot, true) || self.slots.is_poisoned(slot) {
                continue;
            }
            let Some(ticket) = self.slots.ticket(slot).cloned() else {
                continue;
            };
            // The worker may have finished this answer, or written part of it, in its last moment.
            self.advance(slot, &ticket, now_us, false);
            if self.slots.ticket(slot).is_some() && !self.slots.is_poisoned(slot) {
                self.bury(slot, &ticket, now_us);
            }
        }
        self.slots.free_poisoned_of(worker);
        self.slots.workers.get_up(worker);
        self.lines.ports.forget(worker);
        self.pass_ports_on(now_us);
        self.fill(now_us);
        self.wakeups.announce(&mut self.slots.side);
    }

    /// The slots that a worker has taken.
    fn held_by(&self, worker: WorkerRef) -> Vec<u32> {
        let workers = &self.slots.workers;
        self.slots
            .side
            .held_by(|tenant| workers.is_of(tenant, worker))
    }

    /// Answers the client of a request that has run past its deadline. The master will kill the worker, and the client
    /// need not wait for that. The seat keeps the slot until then.
    pub fn overdue(&mut self, seat: u16, epoch: u16, ran_ms: u64, now_us: u64) {
        let its = |tenant: Tenant| (tenant.seat, tenant.epoch) == (seat, epoch);
        for slot in self.slots.side.held_by(its) {
            self.end_overdue(slot, ran_ms, now_us);
        }
    }

    /// Does the same for all requests of a worker whose event loop has not turned for so long that the master will kill
    /// the worker.
    pub fn loop_is_stuck(&mut self, worker: WorkerRef, now_us: u64) {
        for slot in self.held_by(worker) {
            self.end_overdue(slot, 0, now_us);
        }
    }

    /// Answers the clients of requests that have run past their deadlines in event loops; called now and then. Their
    /// workers go on, since they run other requests too. An answer that has begun may take as long as it likes: some
    /// have no end.
    pub fn end_those_overdue(&mut self, now_us: u64) {
        let slots = &self.slots;
        if !slots.exchange.geometry().event_loops {
            return;
        }
        let timeout_us = self.timeout_us;
        let running = slots.tickets().filter_map(|(slot, ticket)| {
            let is_meant = ticket.submitted().is_some()
                && !ticket.is_streaming()
                // The time counts from when the worker had all that the client had sent.
                && now_us.saturating_sub(ticket.client_until_us()) >= timeout_us;
            // No other slot's head is read: a slot that no request has used takes no memory until it is touched.
            match is_meant.then(|| slots.side.state(slot)) {
                Some(Ok(SlotState::Running { tenant, .. })) => Some((slot, tenant.seat)),
                _ => None,
            }
        });
        let overdue: Vec<_> = running
            .filter_map(|(slot, seat)| {
                // The seat may not exist, or be at another request by now.
                let board = slots.exchange.seats().get(usize::from(seat))?;
                let is_its = board.slot.load(Relaxed) == slot;
                let ran_us = is_its.then(|| slots.exchange.overdue_us(seat, now_us))??;
                Some((slot, ran_us / 1_000))
            })
            .collect();
        for (slot, ran_ms) in overdue {
            self.end_overdue(slot, ran_ms, now_us);
        }
    }

    /// Answers the client of a request that has run too long, if it has run for `ran_ms`. The seat keeps the slot.
    fn end_overdue(&mut self, slot: u32, ran_ms: u64, now_us: u64) {
        // The worker may have finished the request in this moment, and gone on to another one.
        self.look(slot, now_us);
        let Some(ticket) = self.slots.ticket(slot).cloned() else {
            return;
        };
        let taken_us = ticket.taken_us();
        let ran_us = now_us.saturating_sub(taken_us);
        // `taken_us` is 0 if a seat took the request just now, and has not written when.
        let is_it = taken_us != 0 && ran_us >= ran_ms * 1_000 && ticket.submitted().is_some();
        if is_it && !ticket.is_streaming() && !self.slots.is_poisoned(slot) {
            self.slots.side.give_up(slot, Unwanted::Overdue);
            let ran_ms = ran_us / 1_000;
            ticket.refuse(Refusal::WorkerTimedOut { ran_ms });
        }
    }

    /// Ends a request whose worker has died over it, or gives it to another worker.
    fn bury(&mut self, slot: u32, ticket: &Rc<Ticket>, now_us: u64) {
        self.slots.free(slot);
        let died = Refusal::WorkerDied;
        if ticket.is_over() {
            return;
        }
        if ticket.is_streaming() {
            warn!(
                "an answer breaks off: {} ({}){}",
                died.reason(),
                ticket.request.describe(),
                ticket.shown_worker()
            );
            ticket.break_off();
        } else if !self.retry(ticket, now_us) {
            ticket.refuse(died);
        }
    }

    /// Puts a request whose worker died before it had answered back into the line, for another worker, if that is
    /// allowed. Gives whether it did.
    fn retry(&mut self, ticket: &Rc<Ticket>, now_us: u64) -> bool {
        if !self.retries
            || !ticket.is_repeatable()
            || self.lines.is_overdue(ticket.request.arrived_us, now_us)
        {
            return false;
        }
        let Some(place) = self.lines.put_back(ticket, now_us) else {
            return false;
        };
        let worker = ticket.shown_worker();
        ticket.retries(place);
        self.tally.happened(Event::Retried);
        warn!(
            "{}: the worker died before it had answered, another one gets the request{worker}",
            ticket.request.describe()
        );
        true
    }

    /// How many slots are in use, orphans included.
    #[cfg(debug_assertions)]
    pub fn used_slots(&self) -> usize {
        self.slots.count() as usize - self.slots.side.free_slots()
    }

    /// Loses the notices that seats have posted, as happens when an app writes over them.
    #[cfg(debug_assertions)]
    pub fn lose_notices(&mut self) {
        self.slots.side.sweep(|_| ());
    }
}
