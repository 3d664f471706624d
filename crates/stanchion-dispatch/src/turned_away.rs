//! The dispatch refuses requests that have waited too long, and all requests when the server leaves.

use std::rc::Rc;

use stanchion_exchange::Unwanted;
use stanchion_line::{Expiry, Pulled};

use super::{Dispatch, refuse};
use crate::refusal::Refusal;
use crate::ticket::{Stage, Ticket};

impl Dispatch {
    /// Refuses the requests that have waited too long.
    pub fn expire(&mut self, now_us: u64) {
        self.expire_waiting(now_us);
        // Requests that the dispatch handed out ahead are refused too, if no seat has come to take them.
        for slot in 0..self.slots.len() as u32 {
            let Some(ticket) = &self.slots[slot as usize] else {
                continue;
            };
            if self.line.is_overdue(ticket.request.arrived_us, now_us)
                && let Some(ticket) = self.withdraw(slot)
            {
                self.refuse_expired(&ticket, Expiry::TimedOut, now_us);
            }
        }
        self.fill(now_us);
    }

    /// Refuses the requests in the line that have waited too long. The dispatch calls this before each turn of the line
    /// too, so that as many are shed as are due.
    pub(super) fn expire_waiting(&mut self, now_us: u64) {
        while let Some((expiry, Pulled { item: ticket, .. })) = self.take_expired(now_us) {
            self.refuse_expired(&ticket, expiry, now_us);
        }
    }

    fn take_expired(&mut self, now_us: u64) -> Option<(Expiry, Pulled<Rc<Ticket>>)> {
        let mut lines = self.ports.lines().chain([&mut self.line]);
        lines.find_map(|line| line.expire(now_us))
    }

    fn refuse_expired(&mut self, ticket: &Ticket, expiry: Expiry, now_us: u64) {
        let absent = self.is_workers_absent(ticket);
        let retry_after_s = self.retry_after_s(ticket, now_us);
        let refusal = match expiry {
            Expiry::Shed => Refusal::Shed { retry_after_s },
            Expiry::TimedOut if absent => Refusal::WorkerAbsent { retry_after_s },
            Expiry::TimedOut => Refusal::WaitedTooLong { retry_after_s },
        };
        refuse(ticket, refusal);
    }

    /// Refuses all requests in the line, and those in the exchange that no seat has taken; with `running`, also those whose
    /// answers have not begun.
    pub fn refuse_all(&mut self, why: Refusal, running: bool, now_us: u64) {
        // There may be no other worker any more that could repeat a request.
        self.retries = false;
        for line in self.ports.lines().chain([&mut self.line]) {
            for Pulled { item: ticket, .. } in line.drain(now_us) {
                refuse(&ticket, why);
            }
        }
        for slot in 0..self.slots.len() as u32 {
            let Some(ticket) = self.slots[slot as usize].clone() else {
                continue;
            };
            if running {
                // The worker may be done by now. If it is not, the log is to name the worker.
                self.look(slot, now_us);
            }
            if ticket.stage.get() == Stage::Over || ticket.is_streaming() {
                continue;
            }
            if self.withdraw(slot).is_some() {
                refuse(&ticket, why);
            } else if running {
                self.side.give_up(slot, Unwanted::ClientGone);
                refuse(&ticket, why);
            }
        }
    }
}
