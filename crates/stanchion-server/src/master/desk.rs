//! The control socket's place in the loop.

use std::os::fd::BorrowedFd;

use stanchion_master::ClientId;
use stanchion_settings::Settings;
use tracing::warn;

use crate::control::{Control, CtlReply, CtlRequest, WorkerStacks};

/// Where commands come from beside signals, if the settings name a control socket.
pub(super) struct CommandDesk(Option<Control>);

impl CommandDesk {
    pub(super) fn at(control: Option<Control>) -> Self {
        Self(control)
    }

    /// The descriptors to wait for.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().flat_map(Control::fds)
    }

    /// When [`Self::gather`] has something to do, whatever clients do.
    pub(super) fn due_ms(&self) -> Option<u64> {
        self.0.as_ref().and_then(Control::next_deadline_ms)
    }

    /// The new requests of clients.
    pub(super) fn gather(&mut self, now_ms: u64) -> Vec<(ClientId, CtlRequest)> {
        let control = self.0.as_mut();
        control.map_or_else(Vec::new, |control| control.gather(now_ms))
    }

    pub(super) fn reply(&mut self, client: ClientId, reply: &CtlReply) {
        if let Some(control) = &mut self.0 {
            control.reply(client, reply);
        }
    }

    /// Keeps the stacks of a worker, which go with the reply to come.
    pub(super) fn keep_stacks(&mut self, client: ClientId, stacks: WorkerStacks) {
        if let Some(control) = &mut self.0 {
            control.add_stacks(client, stacks);
        }
    }

    /// The door is ours now, and so is the control socket of the master before us.
    pub(super) fn take_over(&mut self, settings: &Settings) {
        let Some(control) = settings
            .process
            .control
            .as_ref()
            .filter(|_| self.0.is_none())
        else {
            return;
        };
        match Control::take_over(control.path()) {
            Ok(control) => self.0 = Some(control),
            Err(error) => warn!(
                "the control socket {} could not be taken over, commands are taken by signals only: {error}",
                control.path().display()
            ),
        }
    }
}
