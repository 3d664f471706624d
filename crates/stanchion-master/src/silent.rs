//! Workers that say nothing any more: no process has their end of the channel to the master.

use stanchion_sys::signal::SIGKILL;

use crate::decision::Decision;
use crate::event::Action;
use crate::stage::ChildStage;
use crate::worker::{BootFailure, WorkerState};
use crate::workers::Workers;
use stanchion_generation::figures::Cause;
use stanchion_generation::messages::WorkerRef;

/// How long a worker may go on after its channel has ended: a worker that exits closes its channel just before.
const SILENT_MS: u64 = 1_000;

impl Workers {
    /// No process has a worker's end of its channel any more. `is_asked`: there is a template that may be forking it.
    pub(crate) fn on_silent(&mut self, now_ms: u64, worker: WorkerRef, is_asked: bool) {
        let WorkerRef { index, .. } = worker;
        let Some(seated) = self.entry(worker) else {
            return;
        };
        if seated.stage == ChildStage::Asked && !is_asked {
            self.seated.remove(&index);
        } else {
            seated.silent_since_ms.get_or_insert(now_ms);
        }
    }

    /// Deals with workers whose channel has ended though their processes, as far as is known, have not.
    pub(crate) fn end_silences(
        &mut self,
        heard_ms: u64,
        decision: &mut Decision,
    ) -> Result<(), BootFailure> {
        let is_silent = |worker: &WorkerState| worker.is_silent_for(SILENT_MS, heard_ms);
        let asked = self.seated.iter();
        let asked =
            asked.filter(|(_, worker)| worker.stage == ChildStage::Asked && is_silent(worker));
        let given_up: Vec<u16> = asked.map(|(&index, _)| index).collect();
        let mut booted = if given_up.is_empty() {
            Ok(())
        } else {
            Err(BootFailure::Passing)
        };
        for index in given_up {
            let number = self
                .seated
                .remove(&index)
                .map_or(index, |worker| worker.number);
            self.backoff.failed(heard_ms);
            let wait_ms = self.backoff.wait_ms(heard_ms);
            decision.error(format!(
                "worker {number} ended before it said anything; next try in {wait_ms} ms"
            ));
            // If it runs after all, it finds its channel closed when it reports, and leaves.
            decision.push(Action::Vacate {
                generation_number: self.generation_number,
                worker: index,
            });
        }
        for worker in self.seated.values_mut() {
            if !is_silent(worker) {
                continue;
            }
            worker.silent_since_ms = None;
            let why = "it has closed the descriptors that it was given";
            match worker.stage {
                ChildStage::Booting { pid } => {
                    self.backoff.failed(heard_ms);
                    worker.stage.kill();
                    worker.cause = Some(Cause::Boot);
                    decision.error(format!("{} is killed: {why}", worker.called()));
                    decision.kill(pid, SIGKILL);
                    booted = Err(BootFailure::Passing);
                }
                ChildStage::Ready { .. } => worker.is_due(Cause::Descriptors, || why.to_owned()),
                ChildStage::Wanted
                | ChildStage::Asked
                | ChildStage::Becoming { .. }
                | ChildStage::Leaving { .. }
                | ChildStage::Killed { .. } => {}
            }
        }
        booted
    }

    /// When [`Self::end_silences`] has something to do.
    pub(crate) fn silence_due_ms(&self) -> Option<u64> {
        let silent = self.seated.values();
        let since = silent.filter_map(|worker| worker.silent_since_ms).min()?;
        Some(since + SILENT_MS)
    }
}
