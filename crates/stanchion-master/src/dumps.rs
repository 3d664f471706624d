//! Workers whose stacks are wanted: one after the other, since they write to one place.

use std::collections::VecDeque;

use crate::decision::Decision;
use crate::event::{Action, ClientId};
use crate::recycling::DUMP_MS;
use crate::worker::PresentWorker;
use stanchion_generation::messages::WorkerRef;

/// Stacks that may be waited for; more are not asked for.
const JOBS_MAX: usize = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DumpJob {
    pub(crate) generation_number: u32,
    pub(crate) whose: PresentWorker,
    /// The client that asked for it; `None` if the worker is condemned.
    pub(crate) client: Option<ClientId>,
}

#[derive(Debug, Default)]
pub(crate) struct Dumps {
    waiting: VecDeque<DumpJob>,
    current: Option<(DumpJob, u64)>,
    /// Clients that wait for all that they asked for.
    pub(crate) clients: Vec<ClientId>,
}

impl Dumps {
    pub(crate) fn add(&mut self, job: DumpJob) {
        if self.waiting.len() == JOBS_MAX {
            return;
        }
        match job.client {
            // The worker is about to be killed; a client that only wants to look can wait.
            None => {
                let condemned = self.waiting.iter().take_while(|job| job.client.is_none());
                self.waiting.insert(condemned.count(), job);
            }
            Some(_) => self.waiting.push_back(job),
        }
    }

    /// A worker says that it has written its stacks down.
    pub(crate) fn on_dumped(
        &mut self,
        generation_number: u32,
        worker: WorkerRef,
        decision: &mut Decision,
    ) -> Option<DumpJob> {
        let is_it = |job: &DumpJob| {
            (job.generation_number, job.whose.worker) == (generation_number, worker)
        };
        self.current
            .take_if(|(job, _)| is_it(job))
            .map(|(job, _)| show(job, decision))
    }

    /// A worker has ended, perhaps while it was at it.
    pub(crate) fn on_reaped(&mut self, pid: i32, decision: &mut Decision) {
        self.waiting.retain(|job| job.whose.pid != pid);
        if let Some((job, _)) = self.current.take_if(|(job, _)| job.whose.pid == pid) {
            show(job, decision);
        }
    }

    /// Goes on to the next one; gives a job that took too long: its worker may be stuck in the kernel.
    pub(crate) fn advance(&mut self, decision: &mut Decision) -> Option<DumpJob> {
        let given_up = self
            .current
            .take_if(|(_, deadline_ms)| decision.now_ms >= *deadline_ms);
        let given_up = given_up.map(|(job, _)| show(job, decision));
        if self.current.is_none()
            && let Some(job) = self.waiting.pop_front()
        {
            decision.push(Action::Dump {
                generation_number: job.generation_number,
                pid: job.whose.pid,
            });
            self.current = Some((job, decision.now_ms + DUMP_MS));
        }
        given_up
    }

    /// When [`Self::advance`] has something to do.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.current.map(|(_, deadline_ms)| deadline_ms)
    }

    /// The clients that have all that they asked for, and wait no longer.
    pub(crate) fn done(&mut self) -> Vec<ClientId> {
        let jobs = self.waiting.iter();
        let jobs = jobs.chain(self.current.iter().map(|(job, _)| job));
        let asked: Vec<_> = jobs.filter_map(|job| job.client).collect();
        let done = self
            .clients
            .extract_if(.., |client| !asked.contains(client));
        done.collect()
    }
}

fn show(job: DumpJob, decision: &mut Decision) -> DumpJob {
    decision.push(Action::ShowDump {
        generation_number: job.generation_number,
        number: job.whose.number,
        pid: job.whose.pid,
        client: job.client,
    });
    job
}
