//! The dispatch watches workers that wait for a client, to find out which of the clients are slow.

use std::rc::Rc;

use stanchion_sys::charge;
use tracing::info;

use super::Dispatch;
use crate::outflow::{PATIENCE_US, Patience};
use crate::ticket::Ticket;
use stanchion_generation::tally::Event;

impl Dispatch {
    /// Notes whether the worker in `slot` has to wait for room for its answer. The worker of an event loop does not
    /// count: its loop runs other requests meanwhile, so a file would free nothing, and have the app go on for a client
    /// that is far behind.
    pub(super) fn hold(&mut self, slot: u32, ticket: &Ticket, held: bool, now_us: u64) {
        let held = held && !self.exchange.geometry().event_loops;
        let waits = ticket.outflow(|outflow| {
            outflow.hold(held, now_us);
            held && !outflow.is_spooling()
        });
        let submitted = self.side.submitted(slot);
        if waits == Some(true) && !self.held.contains(&submitted) {
            // The table is for all clients, so no single one pays for it.
            let _charged = charge::to_nobody();
            self.held.push(submitted);
            self.held_since_us.get_or_insert(now_us);
        }
        if held && ticket.outflow(|outflow| outflow.gets_stuck(now_us)) == Some(true) {
            self.tally.happened(Event::WorkerHeld);
            let (request, worker) = (ticket.request.describe(), ticket.shown_worker());
            info!(
                "a worker waits for a slow client: its answer may not be spooled ({request}){worker}"
            );
        }
    }

    /// When the dispatch is to look at workers that wait for clients, if there are any.
    pub fn held_due_us(&self) -> Option<u64> {
        self.held_since_us.map(|since_us| since_us + PATIENCE_US)
    }

    /// Gives the answers to slow clients whose workers wait: their bytes should go to a file.
    pub fn slow_clients(&mut self, now_us: u64) -> Vec<Rc<Ticket>> {
        self.held_since_us = None;
        for submitted in std::mem::take(&mut self.held) {
            // Other answers may have freed memory meanwhile. If not, this look finds that the worker waits again.
            if submitted == self.side.submitted(submitted.slot) {
                self.look(submitted.slot, now_us);
            }
        }
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
            self.held_since_us.get_or_insert(now_us);
        }
        slow
    }
}
