//! The stages of a request, from its arrival to its end.

use stanchion_exchange::{RunTimes, Submitted};
use stanchion_line::Place;

use crate::storage::clients::Share;

/// Where a request is.
pub(crate) enum RequestStage {
    /// Not yet in the line.
    New,
    /// In the line.
    Waiting {
        /// Its place there.
        place: Place,
        /// Its share of `max_waiting_per_client`, if that is limited: to be given back when the request waits no longer.
        _share: Option<Share>,
    },
    /// In the exchange, for a seat to take it.
    Handed(Submitted),
    /// With a worker, which runs it or writes its answer.
    Running(Submitted, SeatRun),
    /// In none of these: answered, refused, or no longer wanted by a client; with the worker that had it, if one had.
    Over(Option<SeatRun>),
}

/// A worker's run of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct SeatRun {
    /// When a seat took the request; 0 if it has not written that yet.
    pub taken_us: u64,
    /// When the seat gave the request back; 0 = not yet.
    pub done_us: u64,
    /// The times that the seat had measured by then.
    pub times: RunTimes,
    /// The number of the worker and its process, if the master has announced the worker.
    pub worker: Option<(u16, i32)>,
}

impl RequestStage {
    /// Its place in the exchange, while it is there.
    pub(crate) fn submitted(&self) -> Option<Submitted> {
        match *self {
            Self::Handed(submitted) | Self::Running(submitted, _) => Some(submitted),
            Self::New | Self::Waiting { .. } | Self::Over(_) => None,
        }
    }

    /// The run at the worker that has it, or had it last.
    pub(crate) fn run(&self) -> Option<SeatRun> {
        match *self {
            Self::Running(_, run) => Some(run),
            Self::Over(run) => run,
            Self::New | Self::Waiting { .. } | Self::Handed(_) => None,
        }
    }

    /// Notes which worker has it, or had it last, and since when.
    pub(crate) fn runs(&mut self, taken_us: u64, worker: Option<(u16, i32)>) {
        let update = |run: SeatRun| SeatRun {
            taken_us,
            worker,
            ..run
        };
        match self {
            Self::Handed(submitted) => {
                *self = Self::Running(*submitted, update(SeatRun::default()));
            }
            Self::Running(_, run) => *run = update(*run),
            Self::Over(run) => *run = Some(update(run.unwrap_or_default())),
            Self::New | Self::Waiting { .. } => {}
        }
    }

    /// Notes that its worker is done with it, unless it is over already: then it keeps its times until they are in the logs.
    pub(crate) fn finishes(&mut self, done_us: u64, times: RunTimes) {
        if let Self::Running(_, run) = self {
            (run.done_us, run.times) = (done_us, times);
        }
    }

    /// Ends it, and gives where it was.
    pub(crate) fn ends(&mut self) -> Self {
        let over = Self::Over(self.run());
        std::mem::replace(self, over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBMITTED: Submitted = Submitted { slot: 3, turn: 1 };

    #[test]
    fn a_request_keeps_the_times_of_its_run_when_it_is_over() {
        let mut stage = RequestStage::Handed(SUBMITTED);
        stage.finishes(9, RunTimes::default());
        assert!(stage.run().is_none(), "no seat has taken it");
        stage.runs(5, None);
        stage.runs(5, Some((0, 77)));
        stage.finishes(9, RunTimes::default());
        assert!(matches!(stage.ends(), RequestStage::Running(SUBMITTED, _)));
        // The seat gives back a request for which no client waits any more.
        stage.finishes(12, RunTimes::default());
        let run = stage.run().expect("a seat took it");
        assert_eq!((run.taken_us, run.done_us), (5, 9));
        assert_eq!(run.worker, Some((0, 77)));
        assert_eq!(stage.submitted(), None);
    }

    #[test]
    fn the_log_of_an_abandoned_request_names_the_worker_that_was_seen_last() {
        let mut stage = RequestStage::Handed(SUBMITTED);
        assert_eq!(stage.ends().submitted(), Some(SUBMITTED));
        assert!(stage.run().is_none());
        stage.runs(5, Some((1, 78)));
        assert_eq!(stage.run().and_then(|run| run.worker), Some((1, 78)));
    }

    #[test]
    fn a_request_that_no_worker_has_has_no_run() {
        let mut stage = RequestStage::New;
        stage.runs(5, None);
        stage.finishes(9, RunTimes::default());
        assert!(stage.run().is_none() && stage.submitted().is_none());
        stage.ends();
        assert!(stage.run().is_none());
    }
}
