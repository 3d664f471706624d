//! The workers whose end the acceptor must hear of.
//!
//! The epoch in a slot's word tells a dead worker from its successor, not the pid. The master reports deaths in their
//! order, so the acceptor can clean up after a worker while its successor already takes requests.

use std::collections::VecDeque;

use stanchion_generation::messages::{ToAcceptor, WorkerRef};

/// Ends of workers to keep, for each worker there is room for.
const PER_WORKER: usize = 4;

/// The last workers that have ended. An acceptor frees what a worker had in hand when it hears of
/// its end; if it dies first, its successor finds the slots taken and must hear of it instead. To
/// hear of an end twice does no harm: an epoch ends once.
#[derive(Debug)]
pub(crate) struct Departed {
    workers: VecDeque<WorkerRef>,
    most: usize,
}

impl Departed {
    pub(crate) fn new(workers_max: u16) -> Self {
        Self {
            workers: VecDeque::new(),
            most: usize::from(workers_max) * PER_WORKER,
        }
    }

    /// Notes the end of a worker, and gives the message to the acceptor about it.
    pub(crate) fn add(&mut self, worker: WorkerRef) -> ToAcceptor {
        if self.workers.len() == self.most {
            self.workers.pop_front();
        }
        self.workers.push_back(worker);
        ToAcceptor::WorkerGone(worker)
    }

    /// All messages for a new acceptor, oldest first.
    pub(crate) fn messages(&self) -> impl Iterator<Item = ToAcceptor> {
        self.workers.iter().copied().map(ToAcceptor::WorkerGone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_departed_are_remembered_up_to_a_bound() {
        let mut departed = Departed::new(1);
        for epoch in 1..=PER_WORKER as u16 + 1 {
            let worker = WorkerRef { index: 0, epoch };
            assert_eq!(departed.add(worker), ToAcceptor::WorkerGone(worker));
        }
        // The oldest made room.
        let epochs = departed.messages().map(|message| match message {
            ToAcceptor::WorkerGone(worker) => worker.epoch,
            other => panic!("{other:?}"),
        });
        assert!(epochs.eq(2..=PER_WORKER as u16 + 1));
    }
}
