//! Whether a template stays beside a single worker.

use super::Settings;

/// The process that stays beside a single worker. A template shares with that worker only pages to which neither has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BesideOneWorker {
    /// A template, always.
    Template,
    /// A template, once a worker has died that served.
    TemplateAfterLoss,
    /// No process: each worker imports the app for itself.
    Nothing,
}

impl Settings {
    /// The process that stays beside a single worker. A template stays at once if it looks for changed files, if the operator has asked
    /// for preloading, if limits have it fork again and again, or if more workers are to come when they are needed.
    pub fn beside_one_worker(&self) -> BesideOneWorker {
        let has_limits = self.workers.max_requests > 0
            || self.workers.max_memory > 0
            || !self.workers.max_lifetime.duration().is_zero();
        let is_elastic = self.workers.workers.is_elastic();
        if self.app.reload {
            return BesideOneWorker::Template;
        }
        match self.may_preload() {
            true if self.facts.is_preload_asked_for || has_limits || is_elastic => {
                BesideOneWorker::Template
            }
            true => BesideOneWorker::TemplateAfterLoss,
            false => BesideOneWorker::Nothing,
        }
    }
}
