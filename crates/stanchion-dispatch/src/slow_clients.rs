//! Workers that wait for clients, to find out which of the clients are slow.

use std::rc::Rc;

use stanchion_exchange::Submitted;
use stanchion_generation::tally::{Event, Tally};
use stanchion_sys::charge;
use tracing::info;

use crate::outflow::{PATIENCE_US, Patience};
use crate::ticket::Ticket;

/// The slots whose seats wait for a client.
pub(crate) struct SlowClients {
    /// Each with its turn.
    held: Vec<Submitted>,
    /// Since when `held` has had entries that were not looked at.
    since_us: Option<u64>,
    tally: &'static Tally,
}

impl SlowClients {
    /// No worker waits.
    pub(crate) fn new(tally: &'static Tally) -> Self {
        Self {
            held: Vec::new(),
            since_us: None,
            tally,
        }
    }

    /// Notes whether the worker in a slot has to wait for room for its answer.
    pub(crate) fn hold(&mut self, submitted: Submitted, ticket: &Ticket, held: bool, now_us: u64) {
        let waits = ticket.outflow(|outflow| {
            outflow.hold(held, now_us);
            held && !outflow.is_spooling()
        });
        if waits == Some(true) && !self.held.contains(&submitted) {
            // The table is for all clients, so no single one pays for it.
            let _charged = charge::to_nobody();
            self.held.push(submitted);
            self.since_us.get_or_insert(now_us);
        }
        if held && ticket.outflow(|outflow| outflow.gets_stuck(now_us)) == Some(true) {
            self.tally.happened(Event::WorkerHeld);
            let (request, worker) = (ticket.request.describe(), ticket.shown_worker());
            info!(
                "a worker waits for a slow client: its answer may not be spooled ({request}){worker}"
            );
        }
    }

    /// When to look at workers that wait for clients, if there are any.
    pub(crate) fn due_us(&self) -> Option<u64> {
        self.since_us.map(|since_us| since_us + PATIENCE_US)
    }

    /// Gives the slots to look at. Those whose workers still wait come back by [`SlowClients::hold`].
    pub(crate) fn take(&mut self) -> Vec<Submitted> {
        self.since_us = None;
        std::mem::take(&mut self.held)
    }

    /// Gives the requests of slow clients: their answers should go to a file. The other slots are kept, if their workers
    /// wait. `ticket_in` gives the request in a slot.
    pub(crate) fn slow<'t>(
        &mut self,
        ticket_in: impl Fn(u32) -> Option<&'t Rc<Ticket>>,
        now_us: u64,
    ) -> Vec<Rc<Ticket>> {
        let mut slow = Vec::new();
        self.held.retain(|submitted| {
            let ticket = ticket_in(submitted.slot);
            let patience =
                ticket.and_then(|ticket| ticket.outflow(|outflow| outflow.patience(now_us)));
            if let (Some(ticket), Some(Patience::Over)) = (ticket, patience) {
                slow.push(Rc::clone(ticket));
            }
            matches!(patience, Some(Patience::Left | Patience::Forced))
        });
        if !self.held.is_empty() {
            self.since_us.get_or_insert(now_us);
        }
        slow
    }
}
