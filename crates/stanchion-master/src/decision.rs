//! The decision on one event: the actions that follow from it.

use crate::event::{Action, ClientId};

/// The actions that follow from an event, in their order. Functions that react to the event add theirs.
#[derive(Debug)]
pub(crate) struct Decision {
    /// The present time.
    pub(crate) now_ms: u64,
    pub(crate) actions: Vec<Action>,
}

impl Decision {
    /// Nothing follows yet.
    pub(crate) fn at(now_ms: u64) -> Self {
        Self {
            now_ms,
            actions: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(crate) fn extend(&mut self, actions: impl IntoIterator<Item = Action>) {
        self.actions.extend(actions);
    }

    /// Sends the process a signal.
    pub(crate) fn kill(&mut self, pid: i32, signal: i32) {
        self.push(Action::Kill(pid, signal));
    }

    /// Logs a line of the normal life of the tree.
    pub(crate) fn info(&mut self, message: impl Into<String>) {
        self.push(Action::info(message));
    }

    /// Logs a line that the operator should know.
    pub(crate) fn warning(&mut self, message: impl Into<String>) {
        self.push(Action::warning(message));
    }

    /// Logs a line on a process or a request that was lost.
    pub(crate) fn error(&mut self, message: impl Into<String>) {
        self.push(Action::error(message));
    }

    /// Sends all clients that waited the outcome.
    pub(crate) fn answer(
        &mut self,
        clients: impl IntoIterator<Item = ClientId>,
        outcome: &Result<String, String>,
    ) {
        for client in clients {
            let outcome = outcome.clone();
            self.push(Action::Reply { client, outcome });
        }
    }
}
