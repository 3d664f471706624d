//! The dispatch counts requests that starve, and refuses those that have waited too long, those of a port that no worker has any
//! more, and all requests when the server leaves.

use std::rc::Rc;

use stanchion_exchange::Unwanted;
use stanchion_line::{Expiry, LaneId};

use super::Dispatch;
use crate::refusal::Refusal;
use crate::request::PortNumber;
use crate::ticket::Ticket;
use crate::wakeups::Untaken;

/// A request of an event loop that has waited for so long waits because other clients have the seats.
const STARVING_US: u64 = 1_000_000;

impl Dispatch {
    /// Shows workers that this generation serves the clients that are here and then leaves. They go on meanwhile.
    pub fn begin_drain(&mut self) {
        self.slots.side.drain();
    }

    /// How many requests wait for a seat of an event loop while others have all of them, at least; to be called now and then.
    pub fn starving(&mut self, now_us: u64) -> usize {
        let Self { lines, slots, .. } = self;
        // If a seat is free, the request waits for a loop that is stuck: no client has a part in that.
        let are_taken = slots.taken.by_any() >= slots.workers.len() * slots.workers.seats_each();
        if !slots.exchange.geometry().event_loops || !are_taken {
            self.oldest_ready = None;
            return 0;
        }
        let oldest = slots.exchange.oldest_ready();
        self.oldest_ready = Untaken::seen(self.oldest_ready, oldest, now_us);
        let is_over = |since_us: u64| now_us.saturating_sub(since_us) >= STARVING_US;
        let in_exchange = self.oldest_ready.is_some_and(|one| is_over(one.since_us));
        // A request whose lane has as many seats as it may gets none that another request gives back.
        let may = |lane| !slots.taken.is_at_max(lane);
        let (waiting, oldest_us) = lines.waiting_of(may, now_us);
        let in_line = oldest_us >= STARVING_US;
        usize::from(in_exchange) + if in_line { waiting } else { 0 }
    }

    /// Refuses the requests that have waited too long.
    pub fn expire(&mut self, now_us: u64) {
        self.expire_waiting(now_us);
        // Requests that the dispatch handed out ahead are refused too, if no seat has come to take them.
        for slot in 0..self.slots.count() {
            let Some(ticket) = self.slots.ticket(slot) else {
                continue;
            };
            if self.lines.is_overdue(ticket.request.arrived_us, now_us)
                && let Some(ticket) = self.slots.withdraw(slot)
            {
                self.refuse_expired(&ticket, Expiry::TimedOut, now_us);
            }
        }
        self.fill(now_us);
    }

    /// Refuses the requests in the line that have waited too long. The dispatch calls this before each turn of the line
    /// too, so that as many are shed as are due.
    pub(super) fn expire_waiting(&mut self, now_us: u64) {
        while let Some((expiry, ticket)) = self.lines.expire(now_us) {
            self.refuse_expired(&ticket, expiry, now_us);
        }
    }

    fn refuse_expired(&mut self, ticket: &Ticket, expiry: Expiry, now_us: u64) {
        let absent = self.is_workers_absent(ticket);
        let retry_after_s = self.lines.retry_after_s(ticket, now_us);
        let refusal = match expiry {
            Expiry::Shed => Refusal::Shed { retry_after_s },
            Expiry::TimedOut if absent => Refusal::WorkerAbsent { retry_after_s },
            Expiry::TimedOut => Refusal::WaitedTooLong { retry_after_s },
        };
        ticket.refuse(refusal);
    }

    /// Refuses a request that only a worker could take that is not there.
    pub(super) fn refuse_without_worker(&mut self, ticket: &Ticket, now_us: u64) {
        let retry_after_s = self.lines.retry_after_s(ticket, now_us);
        ticket.refuse(Refusal::WorkerAbsent { retry_after_s });
    }

    /// Whether a request came by the port of a worker that is not there.
    fn is_workers_absent(&self, ticket: &Ticket) -> bool {
        let port = ticket.request.peer.only_worker;
        port.is_some_and(|port| {
            let worker = self.lines.ports.worker(port);
            worker.is_none_or(|worker| self.slots.workers.get(worker).is_none())
        })
    }

    /// Removes a port that no worker has any more, and refuses the requests that wait there.
    pub fn give_up_port(&mut self, port: PortNumber, now_us: u64) {
        let mut waiting = self.withdraw_all_of(port);
        let Some(mut line) = self.lines.ports.remove(port) else {
            return;
        };
        let retry_after_s = line.retry_after_s(now_us, LaneId::DEFAULT);
        waiting.extend(line.drain(now_us).map(|pulled| pulled.item));
        for ticket in waiting {
            ticket.refuse(Refusal::WorkerAbsent { retry_after_s });
        }
    }

    /// Takes back the requests of a port that no seat has taken.
    pub(super) fn withdraw_all_of(&mut self, port: PortNumber) -> Vec<Rc<Ticket>> {
        let is_its = |ticket: &Rc<Ticket>| ticket.request.peer.only_worker == Some(port);
        let tickets = self.slots.tickets();
        let theirs = tickets.filter_map(|(slot, ticket)| is_its(ticket).then_some(slot));
        let theirs: Vec<_> = theirs.collect();
        let withdrawn = theirs.into_iter();
        withdrawn
            .filter_map(|slot| self.slots.withdraw(slot))
            .collect()
    }

    /// Refuses all requests in the line, and those in the exchange that no seat has taken; with `running`, also those whose
    /// answers have not begun.
    pub fn refuse_all(&mut self, why: Refusal, running: bool, now_us: u64) {
        // There may be no other worker any more that could repeat a request.
        self.retries = false;
        for ticket in self.lines.drain(now_us) {
            ticket.refuse(why);
        }
        for slot in 0..self.slots.count() {
            let Some(ticket) = self.slots.ticket(slot).cloned() else {
                continue;
            };
            if running {
                // The worker may be done by now. If it is not, the log is to name the worker.
                self.look(slot, now_us);
            }
            if ticket.is_over() || ticket.is_streaming() {
                continue;
            }
            if self.slots.withdraw(slot).is_some() {
                ticket.refuse(why);
            } else if running {
                self.slots.side.give_up(slot, Unwanted::ClientGone);
                if !ticket.has_run() {
                    // A seat has taken it, and has not written when.
                    ticket.runs(0, None);
                }
                ticket.refuse(why);
            }
        }
    }
}
