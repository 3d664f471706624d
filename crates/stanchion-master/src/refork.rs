//! Re-fork: a worker that has served becomes the template, so that workers share what requests have imported, compiled and cached.
//!
//! ```text
//!   Becoming ──▶ Proving ──▶ Replacing ──▶ the template before it ends
//!      └────────────┴────────────┴───────▶ given up: that one goes on
//! ```
//!
//! - **Becoming.** One worker ends its requests, leaves its seats, and looks at what it would hand on. It keeps its place, so
//!   no worker is forked for it.
//! - **Proving.** It is the template. Each worker that it forks now is a *canary*, in which the app has to answer a request before
//!   the worker takes any.
//! - **Replacing.** A canary serves, and the workers of the template before are replaced one at a time, as at a limit.
//!
//! The template before runs until the last of these has gone, and does nothing. If anything fails it is the template again, and forks
//! the workers that are missing. All of these processes are children of the master, so each ends with it, and the master sees the end of each.

use std::collections::BTreeSet;

use stanchion_sys::process::Exit;
use stanchion_sys::signal::{SIGKILL, SIGTERM};

use crate::decision::Decision;
use crate::event::{Action, ClientId, GenerationPlan, ReforkPlan};
use crate::template::TemplateState;
use crate::worker::{PresentWorker, called, counted};
use crate::workers::Workers;
use stanchion_generation::messages::{FromTemplate, REASON_CHARS_MAX, WorkerRef};

/// A worker that has ended its requests, for which it has `graceful_timeout`, gets so long to be ready to fork.
const PREPARE_MS: u64 = 60_000;
/// A canary gets so long from the order to fork it until it serves.
const CANARY_MS: u64 = 60_000;
/// A worker gets so long to be replaced by a fork of the new template, and `graceful_timeout` to end its requests.
const REPLACE_MS: u64 = 60_000;
/// How often the templates of a generation may follow each other so: each leaves a descriptor and some hundred bytes to all that follow.
pub(crate) const REFORKS_MAX: u16 = 100;

/// The re-forks of one generation.
#[derive(Debug, Default)]
pub(crate) struct Refork {
    under_way: Option<UnderWay>,
    /// A template that was killed, and has not been reaped.
    ending: Option<i32>,
    /// How many have ended well.
    count: u16,
    /// A worker has served so many requests that one was tried, and none follows by itself.
    was_tried: bool,
}

#[derive(Debug)]
struct UnderWay {
    stage: ReforkStage,
    /// When the stage counts as failed.
    until_ms: u64,
    graceful_ms: u64,
    /// The new template, as the log calls the worker that it was.
    who: String,
    /// A client waits for the outcome.
    client: Option<ClientId>,
}

#[derive(Debug)]
enum ReforkStage {
    Becoming { worker: WorkerRef, pid: i32 },
    Proving(Before),
    Replacing(Before),
}

/// The template before, and its workers that have not gone.
#[derive(Debug)]
struct Before {
    template: Option<i32>,
    workers: BTreeSet<WorkerRef>,
}

impl Refork {
    /// The other processes that are templates, or were.
    pub(crate) fn pids(&self) -> impl Iterator<Item = i32> {
        let before = self.before().and_then(|before| before.template);
        before.into_iter().chain(self.ending)
    }

    /// Whether no process is left of one.
    pub(crate) fn is_over(&self) -> bool {
        self.under_way.is_none() && self.ending.is_none()
    }

    /// Whether the template is a new one, which may have to give way to the one before.
    pub(crate) fn is_on_trial(&self) -> bool {
        self.before().is_some()
    }

    /// Whether workers that are forked now are canaries.
    pub(crate) fn is_proving(&self) -> bool {
        let stage = self.under_way.as_ref().map(|under_way| &under_way.stage);
        matches!(stage, Some(ReforkStage::Proving(_)))
    }

    /// Whether a worker is away for it, until a canary serves.
    pub(crate) fn lacks_a_worker(&self) -> bool {
        let stage = self.under_way.as_ref().map(|under_way| &under_way.stage);
        matches!(
            stage,
            Some(ReforkStage::Becoming { .. } | ReforkStage::Proving(_))
        )
    }

    /// When [`Self::settle`] has something to do.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.under_way.as_ref().map(|under_way| under_way.until_ms)
    }

    fn before(&self) -> Option<&Before> {
        match &self.under_way.as_ref()?.stage {
            ReforkStage::Becoming { .. } => None,
            ReforkStage::Proving(before) | ReforkStage::Replacing(before) => Some(before),
        }
    }

    // Events.

    /// Has this worker become the template. The error is a reason not to.
    pub(crate) fn begin(
        &mut self,
        (index, client): (Option<u16>, Option<ClientId>),
        (target, plan): (u16, &GenerationPlan),
        template: &TemplateState,
        workers: &mut Workers,
        decision: &mut Decision,
    ) -> Result<(), String> {
        if let ReforkPlan::Never(why) = plan.refork {
            return Err(why.to_owned());
        }
        if !template.may_preload() {
            return Err("the import of the app has left what does not survive a fork: an earlier warning names it".to_owned());
        }
        if target < 2 {
            return Err("a single worker shares its memory with no other one".to_owned());
        }
        if !self.is_over() {
            return Err("one is under way".to_owned());
        }
        if self.count == REFORKS_MAX {
            return Err(format!(
                "there were {REFORKS_MAX}, and no more follow before a reload"
            ));
        }
        if !template.is_ready() {
            return Err("no template is ready that could go on if it failed".to_owned());
        }
        let present = index.and_then(|index| workers.begin_to_become(index));
        // Without an index, or if that worker is about to leave, the one that has served for longest.
        let other = workers.oldest().filter(|_| present.is_none());
        let present = present.or_else(|| workers.begin_to_become(other?));
        let present = present.ok_or("no worker serves that could become the template")?;
        let who = called(present.number, Some(present.pid));
        decision.info(format!(
            "re-fork: {who} ends its requests, and becomes the template"
        ));
        let PresentWorker { worker, pid, .. } = present;
        decision.push(Action::OfferTemplate {
            generation_number: workers.generation_number,
            worker,
            pid,
        });
        decision.kill(pid, SIGTERM);
        self.under_way = Some(UnderWay {
            stage: ReforkStage::Becoming { worker, pid },
            until_ms: decision.now_ms + plan.graceful_ms + PREPARE_MS,
            graceful_ms: plan.graceful_ms,
            who,
            client,
        });
        Ok(())
    }

    /// A worker has answered `refork_after` requests. True if it is the first of its generation.
    pub(crate) fn on_warm(&mut self, plan: &GenerationPlan) -> bool {
        plan.refork == ReforkPlan::AfterRequests && !std::mem::replace(&mut self.was_tried, true)
    }

    /// A process reports by the channel of a template that was offered to it.
    pub(crate) fn on_said(
        &mut self,
        (sender, said): (i32, &FromTemplate),
        template: &mut TemplateState,
        workers: &mut Workers,
        decision: &mut Decision,
    ) {
        let Some(under_way) = &mut self.under_way else {
            return;
        };
        let ReforkStage::Becoming { worker, pid } = under_way.stage else {
            return;
        };
        match said {
            _ if sender != pid => {}
            FromTemplate::Unfit { reason } => {
                let reason: String = reason.chars().take(REASON_CHARS_MAX).collect();
                self.give_up(&format!("the worker {reason}"), template, workers, decision);
            }
            FromTemplate::Ready
                if template.is_ready() && workers.has_become_template(worker, decision) =>
            {
                under_way.stage = ReforkStage::Proving(Before {
                    template: template.pid(),
                    workers: workers.references(),
                });
                under_way.until_ms = decision.now_ms + CANARY_MS;
                template.is_from_now_on(Some(pid));
                decision.info(format!(
                    "re-fork: {} is the template, and a worker that it forks has to answer a request",
                    under_way.who
                ));
                decision.push(Action::SwapTemplates {
                    generation_number: workers.generation_number,
                });
            }
            _ => {}
        }
    }

    /// A worker serves that was awaited.
    pub(crate) fn on_worker_ready(
        &mut self,
        worker: WorkerRef,
        workers: &mut Workers,
        decision: &mut Decision,
    ) {
        let Some(under_way) = &mut self.under_way else {
            return;
        };
        if let ReforkStage::Proving(before) = &mut under_way.stage
            && !before.workers.contains(&worker)
        {
            let before = Before {
                template: before.template,
                workers: std::mem::take(&mut before.workers),
            };
            decision.info("re-fork: the app has answered in the first worker of the new template, and the other workers are replaced one at a time");
            workers.are_outdated(&before.workers);
            under_way.stage = ReforkStage::Replacing(before);
            under_way.until_ms = decision.now_ms + under_way.graceful_ms + REPLACE_MS;
        }
    }

    /// A process has ended. True if it was a template that another one has followed, or was to.
    pub(crate) fn on_reaped(
        &mut self,
        pid: i32,
        exit: Exit,
        workers: &Workers,
        decision: &mut Decision,
    ) -> bool {
        if self.ending == Some(pid) {
            self.ending = None;
            return true;
        }
        let stage = self
            .under_way
            .as_mut()
            .map(|under_way| &mut under_way.stage);
        let Some(ReforkStage::Proving(before) | ReforkStage::Replacing(before)) = stage else {
            return false;
        };
        if before.template != Some(pid) {
            return false;
        }
        before.template = None;
        decision.push(Action::DropOtherTemplate {
            generation_number: workers.generation_number,
        });
        decision.warning(format!(
            "the template before the re-fork {exit}: if the new one fails, the app is imported again"
        ));
        true
    }

    // Consequences.

    /// Derives what follows from the state of the generation, which has the door or not (`is_staying`).
    pub(crate) fn settle(
        &mut self,
        (target, is_staying): (u16, bool),
        template: &mut TemplateState,
        workers: &mut Workers,
        decision: &mut Decision,
    ) {
        let Some(under_way) = &mut self.under_way else {
            return;
        };
        let is_late = decision.now_ms >= under_way.until_ms;
        let why = match &mut under_way.stage {
            _ if !is_staying => "the generation leaves",
            _ if target < 2 => "fewer than two workers are wanted",
            &mut ReforkStage::Becoming { worker, .. } if !workers.is_becoming(worker) => {
                "the worker has ended, or is wanted no more"
            }
            ReforkStage::Becoming { .. } if !template.is_ready() => "the template has ended",
            ReforkStage::Becoming { .. } if is_late => {
                "the worker was not ready to fork 60 s after graceful_timeout: a request, the hook worker_exit or a destructor does not end"
            }
            ReforkStage::Proving(_) if is_late => {
                "no worker that it forked was ready within 60 s: a hook for workers does not end"
            }
            ReforkStage::Replacing(before) => {
                let present = before.workers.len();
                before.workers.retain(|&worker| workers.is_seated(worker));
                if before.workers.is_empty() {
                    return self.finish(target, workers, decision);
                }
                if before.workers.len() < present {
                    under_way.until_ms = decision.now_ms + under_way.graceful_ms + REPLACE_MS;
                    return;
                }
                if !is_late {
                    return;
                }
                "no worker was replaced within 60 s and graceful_timeout"
            }
            ReforkStage::Becoming { .. } | ReforkStage::Proving(_) => return,
        };
        self.give_up(why, template, workers, decision);
    }

    /// All workers are forks of the new template.
    fn finish(&mut self, target: u16, workers: &Workers, decision: &mut Decision) {
        let Some(UnderWay {
            stage: ReforkStage::Replacing(before),
            who,
            client,
            ..
        }) = self.under_way.take()
        else {
            return;
        };
        self.count += 1;
        self.end(before.template, decision);
        decision.push(Action::DropOtherTemplate {
            generation_number: workers.generation_number,
        });
        let workers = counted(target);
        decision.info(format!(
            "re-forked: {workers} from the template that was {who}"
        ));
        decision.answer(client, &Ok(format!("re-forked: {workers}")));
    }

    /// The template before goes on. If it has ended, another one imports the app.
    pub(crate) fn give_up(
        &mut self,
        why: &str,
        template: &mut TemplateState,
        workers: &mut Workers,
        decision: &mut Decision,
    ) {
        let Some(UnderWay {
            stage,
            graceful_ms,
            who,
            client,
            until_ms,
        }) = self.under_way.take()
        else {
            return;
        };
        let text = format!(
            "the re-fork from {who} is given up, and the template before it goes on: {why}"
        );
        decision.warning(&*text);
        decision.answer(client, &Err(text));
        let generation_number = workers.generation_number;
        match stage {
            ReforkStage::Becoming { worker, .. } => {
                let is_late = decision.now_ms >= until_ms;
                let grace_ms = if is_late { 0 } else { graceful_ms };
                workers.is_not_to_become(worker, decision.now_ms + grace_ms, decision);
            }
            ReforkStage::Proving(before) => {
                workers.kill_booting_but(&before.workers, decision);
                self.fall_back(before.template, template, workers, decision);
            }
            ReforkStage::Replacing(before) => {
                workers.are_up_to_date(&before.workers);
                self.fall_back(before.template, template, workers, decision);
            }
        }
        decision.push(Action::DropOtherTemplate { generation_number });
    }

    fn fall_back(
        &mut self,
        before: Option<i32>,
        template: &mut TemplateState,
        workers: &mut Workers,
        decision: &mut Decision,
    ) {
        template.kill(decision);
        self.ending = template.pid();
        template.is_from_now_on(before);
        workers.on_template_lost(decision.now_ms);
        decision.push(Action::SwapTemplates {
            generation_number: workers.generation_number,
        });
    }

    /// Kills a template that no worker is to come from.
    fn end(&mut self, template: Option<i32>, decision: &mut Decision) {
        if let Some(pid) = template {
            decision.kill(pid, SIGKILL);
            self.ending = Some(pid);
        }
    }
}
