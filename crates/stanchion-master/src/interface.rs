//! The app decides by which interface it is called (`interface` auto), and a generation is made for one or the other before any process has imported the
//! app. If its template, or a worker, then finds the other, that generation goes without having served, and another one is made with the same settings:
//! beside it, as at a reload.
//!
//! The interface decides how the exchange is laid out. So with `--interface auto` the master builds a generation for WSGI,
//! or for the interface of the generation that serves, also of the old master's at an upgrade. It makes another generation once
//! for each start or reload. The first generation has let no client in: as long as its interface is a guess and no other
//! generation serves, its acceptor answers operators only, and clients wait in the kernel's queue.

use crate::acceptor::AcceptsFrom;
use crate::decision::Decision;
use crate::generation::Generation;
use crate::standing::GenerationPhase;
use stanchion_generation::messages::WorkerRef;

impl Generation {
    /// A worker may have become ready: then this generation is the one for the app.
    pub(crate) fn accept_clients_once_served(&mut self, decision: &mut Decision) {
        if self.only && self.standing == GenerationPhase::Building && self.workers.have_served() {
            self.acceptor.open(AcceptsFrom::Clients, decision);
        }
    }

    /// Whether this worker, or else the template, has yet to load the app: one that is ready has.
    pub(crate) fn is_loading(&self, worker: Option<WorkerRef>) -> bool {
        match worker {
            Some(worker) => self.workers.is_booting(worker),
            None => !self.template.is_ready(),
        }
    }
}
