//! The dispatch ends or repeats requests whose worker is dead, or will be killed.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use stanchion_exchange::{SlotState, Tenant, Unwanted};
use tracing::warn;

use super::{Dispatch, refuse};
use crate::hints::Hints;
use crate::outflow::StreamEnd;
use crate::refusal::Refusal;
use crate::ticket::{Stage, Ticket};
use stanchion_generation::messages::WorkerRef;
use stanchion_generation::tally::Event;

impl Dispatch {
    /// Clears up after a dead worker: answers the requests that it had in hand, or gives them to another worker, and
    /// frees its slots.
    pub fn worker_gone(&mut self, worker: WorkerRef, now_us: u64) {
        let WorkerRef { index, epoch } = worker;
        let seats = self.exchange.geometry().seats_of(index);
        let theirs = |tenant: Tenant| seats.contains(&tenant.seat) && tenant.epoch == epoch;
        for slot in self.side.held_by(theirs) {
            if self.side.settle_orphan(slot, true) {
                continue;
            }
            let Some(ticket) = self.slots[slot as usize].clone() else {
                continue;
            };
            if self.is_poisoned(slot) {
                continue;
            }
            // The worker may have finished this answer, or written part of it, in its last moment.
            if let Err(corrupt) = self.advance(slot, &ticket, now_us, false) {
                self.poison(slot, &ticket, corrupt);
            }
            if self.slots[slot as usize].is_some() && !self.is_poisoned(slot) {
                self.bury(slot, &ticket, now_us);
            }
        }
        self.free_poisoned_of(worker);
        self.gets_up(worker);
        self.ports.forget(worker);
        self.pass_ports_on(now_us);
        self.fill(now_us);
        self.announce();
    }

    /// Answers the client of a request that has run past its deadline. The master will kill the worker, and the client
    /// need not wait for that. The seat keeps the slot until then.
    pub fn overdue(&mut self, seat: u16, epoch: u16, ran_ms: u64, now_us: u64) {
        let its = |tenant: Tenant| (tenant.seat, tenant.epoch) == (seat, epoch);
        for slot in self.side.held_by(its) {
            self.end_overdue(slot, ran_ms, now_us);
        }
    }

    /// Does the same for all requests of a worker whose event loop has not turned for so long that the master will kill
    /// the worker.
    pub fn loop_is_stuck(&mut self, worker: WorkerRef, now_us: u64) {
        let WorkerRef { index, epoch } = worker;
        let seats = self.exchange.geometry().seats_of(index);
        let theirs = |tenant: Tenant| seats.contains(&tenant.seat) && tenant.epoch == epoch;
        for slot in self.side.held_by(theirs) {
            self.end_overdue(slot, 0, now_us);
        }
    }

    /// Answers the clients of requests that have run past their deadlines in event loops; called now and then. Their
    /// workers go on, since they run other requests too. An answer that has begun may take as long as it likes: some
    /// have no end.
    pub fn end_those_overdue(&mut self, now_us: u64) {
        if !self.exchange.geometry().event_loops {
            return;
        }
        let tickets = (0..).zip(&self.slots);
        let timeout_us = self.timeout_us;
        let running = tickets.filter_map(|(slot, ticket)| {
            let is_meant = ticket.as_ref().is_some_and(|ticket| {
                matches!(ticket.stage.get(), Stage::Submitted(_))
                    && !ticket.is_streaming()
                    // The time counts from when the worker had all that the client had sent.
                    && now_us.saturating_sub(ticket.client_until_us.get()) >= timeout_us
            });
            // No other slot's head is read: a slot that no request has used takes no memory until it is touched.
            match is_meant.then(|| self.side.state(slot)) {
                Some(Ok(SlotState::Running { tenant, .. })) => Some((slot, tenant.seat)),
                _ => None,
            }
        });
        let overdue: Vec<_> = running
            .filter_map(|(slot, seat)| {
                // The seat may not exist, or be at another request by now.
                let board = self.exchange.seats().get(usize::from(seat))?;
                let is_its = board.slot.load(Relaxed) == slot;
                let ran_us = is_its.then(|| self.exchange.overdue_us(seat, now_us))??;
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
        let Some(ticket) = self.slots[slot as usize].clone() else {
            return;
        };
        let taken_us = ticket.taken_us.get();
        let ran_us = now_us.saturating_sub(taken_us);
        // `taken_us` is 0 if a seat took the request just now, and has not written when.
        let is_it = taken_us != 0
            && ran_us >= ran_ms * 1_000
            && matches!(ticket.stage.get(), Stage::Submitted(_));
        if is_it && !ticket.is_streaming() && !self.is_poisoned(slot) {
            self.side.give_up(slot, Unwanted::Overdue);
            let ran_ms = ran_us / 1_000;
            refuse(&ticket, Refusal::WorkerTimedOut { ran_ms });
        }
    }

    /// Ends a request whose worker has died over it, or gives it to another worker.
    fn bury(&mut self, slot: u32, ticket: &Rc<Ticket>, now_us: u64) {
        self.free(slot);
        let died = Refusal::WorkerDied;
        if ticket.stage.get() == Stage::Over {
            return;
        }
        if ticket.is_streaming() {
            warn!(
                "an answer is broken off: {} ({})",
                died.reason(),
                ticket.request.describe()
            );
            ticket.pour(|outflow| outflow.end(StreamEnd::Broken));
            ticket.stage.set(Stage::Over);
        } else if !self.retry(ticket, now_us) {
            refuse(ticket, died);
        }
    }

    /// Puts a request whose worker died before it had answered back into the line, for another worker, if that is
    /// allowed. Gives whether it did.
    fn retry(&mut self, ticket: &Rc<Ticket>, now_us: u64) -> bool {
        let arrived_us = ticket.request.arrived_us;
        if !self.retries
            || ticket.is_retried.get()
            || !ticket.request.is_repeatable()
            || self.line.is_overdue(arrived_us, now_us)
        {
            return false;
        }
        let Some(line) = self.line_of(ticket) else {
            return false;
        };
        let place = line.put_back(now_us, ticket.lane.get(), arrived_us, Rc::clone(ticket));
        ticket.stage.set(Stage::Waiting(place));
        let worker = ticket.shown_worker();
        ticket.worker_pid.set(0);
        ticket.worker.set(None);
        ticket.taken_us.set(0);
        ticket.hints(Hints::begin_anew);
        ticket.is_retried.set(true);
        self.tally.happened(Event::Retried);
        warn!(
            "{}: the worker died before it had answered, another one gets the request{worker}",
            ticket.request.describe()
        );
        true
    }
}
