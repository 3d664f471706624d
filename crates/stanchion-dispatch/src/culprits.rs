//! Workers that must not go on, since they have written nonsense: the acceptor asks the master to replace them.

use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;

use stanchion_generation::messages::{self, FromAcceptor, WorkerRef};
use stanchion_sys::channel::Channel;
use tracing::error;

use crate::workers::SeatedWorkers;

/// The workers that the acceptor could not yet ask the master to replace.
pub(crate) struct Culprits {
    master: Rc<Channel>,
    unreported: BTreeSet<WorkerRef>,
}

impl Culprits {
    /// Reports to the master on this channel.
    pub(crate) fn new(master: &Rc<Channel>) -> Self {
        Self {
            master: Rc::clone(master),
            unreported: BTreeSet::new(),
        }
    }

    /// Adds a worker.
    pub(crate) fn add(&mut self, worker: WorkerRef) {
        self.unreported.insert(worker);
    }

    /// Asks the master to replace them. A worker for which there is no room in the channel is kept for the next call: as
    /// long as such a worker lives, its slot is out of use.
    pub(crate) fn report(&mut self, workers: &SeatedWorkers) {
        let master = &self.master;
        self.unreported.retain(|&worker| {
            let replace = FromAcceptor::Replace(worker);
            match messages::send(master, &replace) {
                Ok(()) => false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
                Err(error) => {
                    let pid = workers.get(worker.index).map_or(0, |one| one.pid);
                    error!("the acceptor cannot ask the master to replace process {pid}: {error}");
                    false
                }
            }
        });
    }
}
