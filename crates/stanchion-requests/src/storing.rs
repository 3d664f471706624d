//! Helper threads work for requests: the acceptor takes their results, and logs and counts when a body or an answer
//! goes to a file.

use std::rc::Rc;

use tracing::error;

use super::Requests;
use super::body::{Means, Noted, Sink, SinkState};
use super::spooler::{Spooler, Turn};
use stanchion_dispatch::outflow::Outflow;
use stanchion_dispatch::ticket::Ticket;
use stanchion_generation::tally::Event;

impl Requests {
    /// Leaves a note for each connection for which a helper thread has something. To be called once per turn of the loop.
    pub fn hear_threads(&self) {
        self.disk.done(&self.woken);
        if let Some(tls) = &self.tls {
            tls.done();
        }
        if let Some(compressor) = &self.compressor {
            compressor.done(&self.woken);
        }
    }

    /// Goes on with a body that is being kept.
    pub fn advance(&mut self, sink: &mut Sink) -> SinkState {
        let means = Means {
            disk: &self.disk,
            spool: &self.spool,
            own_bytes_max: self.common.settings.body_memory,
        };
        let (state, noted) = sink.advance(&means);
        match noted {
            Noted::Nothing => {}
            Noted::Spooled => self.common.tally.happened(Event::BodySpooled),
            Noted::Failed(error) => self.cannot_spool(&error),
        }
        state
    }

    /// Sends answers to slow clients to files, if workers wait for these clients.
    pub fn spool_for_slow_clients(&mut self) {
        for ticket in self.dispatch.slow_clients(self.now_us) {
            ticket.pour(Outflow::spool);
        }
    }

    /// Goes on with an answer that goes to a file; true if something came of it for the client.
    pub fn spool(&mut self, spooler: &mut Spooler, ticket: &Ticket) -> bool {
        let believed = &*Rc::clone(&self.believed);
        let request = &ticket.request;
        let owner = || request.peer.client(&request.head, believed);
        let (mut changed, mut looked) = (false, false);
        loop {
            let advance =
                |outflow: &mut _| spooler.advance(outflow, &self.spool, &self.disk, owner);
            match ticket.outflow(advance).unwrap_or(Turn::Over) {
                Turn::Busy => return changed,
                Turn::Idle if looked => return changed,
                Turn::Idle => {
                    self.dispatch.look_for(ticket, self.now_us);
                    looked = true;
                }
                Turn::Written { is_first } => {
                    if is_first {
                        self.common.tally.happened(Event::AnswerSpooled);
                    }
                    self.dispatch.refill(ticket, self.now_us);
                    changed = true;
                }
                Turn::Read => changed = true,
                Turn::Full | Turn::Over => {
                    self.dispatch.look_for(ticket, self.now_us);
                    return true;
                }
                Turn::DiskFailed(error) => {
                    self.cannot_spool(&error);
                    changed = true;
                }
                Turn::Lost(error) => {
                    error!("an answer cannot be read back from the spool: {error}");
                    self.dispatch.abandon(ticket, self.now_us);
                    changed = true;
                }
            }
        }
    }
}
