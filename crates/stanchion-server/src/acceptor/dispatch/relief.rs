//! Workers that wait for a client: which of them are to be relieved, since it is a slow one.

use std::rc::Rc;

use stanchion_sys::clock::monotonic_us;
use tracing::info;

use super::Dispatch;
use crate::acceptor::outflow::Patience;
use crate::acceptor::ticket::Ticket;
use crate::tally::Event;

impl Dispatch {
    /// The worker in `slot` has to wait for room for its answer, or has room again.
    pub(super) fn hold(&mut self, slot: u32, ticket: &Ticket, held: bool) {
        let now_us = monotonic_us();
        let waits = ticket.outflow(|outflow| {
            outflow.hold(held, now_us);
            held && !outflow.is_spooling()
        });
        let submitted = self.side.submitted(slot);
        if waits == Some(true) && !self.held.contains(&submitted) {
            self.held.push(submitted);
            self.relief.notify_one();
        }
        if held && ticket.outflow(|outflow| outflow.gets_stuck(now_us)) == Some(true) {
            self.tally.happened(Event::WorkerHeld);
            let (request, worker) = (ticket.request.describe(), ticket.worker_pid.get());
            info!(
                "a worker waits for a slow client: its answer may not be spooled ({request}) worker={worker}"
            );
        }
    }

    /// Answers to slow clients, whose workers wait: their bytes should go to a file.
    pub(in crate::acceptor) fn slow_clients(&mut self) -> Vec<Rc<Ticket>> {
        for submitted in std::mem::take(&mut self.held) {
            // Others may have left memory meanwhile. If not, it is held again.
            if submitted == self.side.submitted(submitted.slot) {
                self.look(submitted.slot);
            }
        }
        let now_us = monotonic_us();
        let mut slow = Vec::new();
        self.held.retain(|submitted| {
            let ticket = self.slots[submitted.slot as usize].as_ref();
            let patience =
                ticket.and_then(|ticket| ticket.outflow(|outflow| outflow.patience(now_us)));
            if let (Some(ticket), Some(Patience::Over)) = (ticket, patience) {
                slow.push(Rc::clone(ticket));
            }
            matches!(patience, Some(Patience::Left | Patience::Forced))
        });
        if !self.held.is_empty() {
            self.relief.notify_one();
        }
        slow
    }
}
