//! Who has gone: children that ended before anybody had reported them, and the workers whose end
//! the acceptor must hear of.

use std::collections::VecDeque;

use stanchion_sys::process::Exit;

use crate::messages::{Gone, ToAcceptor};

/// Strays kept; as every orphan of the app becomes the master's child, most were never ours.
const STRAYS_MAX: usize = 64;
/// How long the report of a child that was reaped may take to be read, if it was sent: ample, since
/// the master's next look finds it. Not kept for ever, since the kernel gives pids anew.
const STRAY_MS: u64 = 1_000;
/// Ends of workers to keep, for each worker there is room for.
const PER_WORKER: usize = 4;

/// Children that were reaped before anybody reported them: most recent last.
#[derive(Debug, Default)]
pub(super) struct Strays(VecDeque<Stray>);

#[derive(Debug)]
struct Stray {
    pid: i32,
    exit: Exit,
    reaped_ms: u64,
}

impl Strays {
    pub(super) fn add(&mut self, now_ms: u64, pid: i32, exit: Exit) {
        if self.0.len() == STRAYS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Stray {
            pid,
            exit,
            reaped_ms: now_ms,
        });
    }

    /// How the child ended, if it is one of them.
    pub(super) fn take(&mut self, pid: i32) -> Option<Exit> {
        let index = self.0.iter().rposition(|stray| stray.pid == pid)?;
        self.0.remove(index).map(|stray| stray.exit)
    }

    pub(super) fn forget_old(&mut self, now_ms: u64) {
        self.0
            .retain(|stray| now_ms.saturating_sub(stray.reaped_ms) < STRAY_MS);
    }
}

/// The last workers that have ended. An acceptor frees what a worker had in hand when it hears of
/// its end; if it dies first, its successor finds the slots taken and must hear of it instead. To
/// hear of an end twice does no harm: a tenure ends once.
#[derive(Debug)]
pub(super) struct Departed {
    workers: VecDeque<(u16, u16, Gone)>,
    most: usize,
}

impl Departed {
    pub(super) fn new(workers_max: u16) -> Self {
        Self {
            workers: VecDeque::new(),
            most: usize::from(workers_max) * PER_WORKER,
        }
    }

    /// Notes it, and gives what the acceptor is to be told.
    pub(super) fn add(&mut self, worker: u16, tenure: u16, gone: Gone) -> ToAcceptor {
        if self.workers.len() == self.most {
            self.workers.pop_front();
        }
        self.workers.push_back((worker, tenure, gone));
        ToAcceptor::WorkerGone {
            worker,
            tenure,
            gone,
        }
    }

    /// Whether it is known to have ended.
    pub(super) fn has(&self, worker: u16, tenure: u16) -> bool {
        self.workers
            .iter()
            .any(|&(index, ended, _)| (index, ended) == (worker, tenure))
    }

    /// All that a new acceptor is to be told, oldest first.
    pub(super) fn messages(&self) -> impl Iterator<Item = ToAcceptor> {
        self.workers
            .iter()
            .map(|&(worker, tenure, gone)| ToAcceptor::WorkerGone {
                worker,
                tenure,
                gone,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stray_is_taken_once_and_the_latest_of_its_pid_counts() {
        let mut strays = Strays::default();
        strays.add(0, 7, Exit::Code(1));
        strays.add(0, 8, Exit::Code(2));
        strays.add(0, 7, Exit::Code(3));
        assert_eq!(strays.take(7), Some(Exit::Code(3)));
        assert_eq!(strays.take(9), None);
        assert_eq!(
            (strays.take(8), strays.take(8)),
            (Some(Exit::Code(2)), None)
        );
    }

    #[test]
    fn strays_are_bounded_in_number_and_in_time() {
        let mut strays = Strays::default();
        let pids = (0..).take(STRAYS_MAX + 1);
        pids.for_each(|pid| strays.add(0, pid, Exit::Code(0)));
        assert_eq!(strays.take(0), None, "the oldest made room");
        strays.add(1, 1_000, Exit::Code(0));
        strays.forget_old(STRAY_MS);
        assert_eq!(strays.take(1), None);
        assert_eq!(strays.take(1_000), Some(Exit::Code(0)));
    }

    #[test]
    fn the_departed_are_remembered_up_to_a_bound() {
        let mut departed = Departed::new(1);
        for tenure in 1..=PER_WORKER as u16 + 1 {
            let gone = Gone::Left(0);
            let told = ToAcceptor::WorkerGone {
                worker: 0,
                tenure,
                gone,
            };
            assert_eq!(departed.add(0, tenure, gone), told);
            assert!(departed.has(0, tenure));
        }
        assert!(!departed.has(0, 1), "the oldest made room");
        let tenures = departed.messages().map(|message| match message {
            ToAcceptor::WorkerGone { tenure, .. } => tenure,
            other => panic!("{other:?}"),
        });
        assert!(tenures.eq(2..=PER_WORKER as u16 + 1));
    }
}
