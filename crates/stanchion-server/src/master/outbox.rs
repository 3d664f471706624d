//! Messages from the master to a child that is behind with its reading.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use serde::Serialize;
use stanchion_sys::channel::Channel;
use tracing::{error, warn};

use stanchion_generation::messages;

/// Messages to keep for a child that does not read. A new acceptor gets one for each worker that serves and for a few that have gone for each (see
/// `departed`); more than that wait only for a child that is stuck.
const UNSENT_MAX: usize = 32_768;

/// A channel to a child, and what did not fit into it: a socket holds a few hundred messages
/// (`net.core.wmem_default` in socket(7)), which is fewer than there may be workers.
#[derive(Debug)]
pub(super) struct Outbox<T> {
    channel: Channel,
    unsent: VecDeque<(T, Option<OwnedFd>)>,
}

impl<T: Serialize + std::fmt::Debug> Outbox<T> {
    pub(super) fn new(channel: Channel) -> Self {
        Self {
            channel,
            unsent: VecDeque::new(),
        }
    }

    /// The channel that messages are sent by.
    pub(super) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Sends `message` after all that was sent before; what does not fit is kept.
    pub(super) fn send(&mut self, message: T) {
        self.send_with(message, None);
    }

    /// The same, with a descriptor beside it.
    pub(super) fn send_with(&mut self, message: T, fd: Option<OwnedFd>) {
        if self.unsent.len() == UNSENT_MAX {
            error!("a child has not read {UNSENT_MAX} messages, and will not get {message:?}");
            return;
        }
        self.unsent.push_back((message, fd));
        self.send_again();
    }

    /// Sends what did not fit before, as far as it fits now.
    pub(super) fn send_again(&mut self) {
        while let Some((message, fd)) = self.unsent.front() {
            let fd = fd.as_ref().map(AsFd::as_fd);
            match messages::send_with(&self.channel, message, fd) {
                Ok(()) => {
                    self.unsent.pop_front();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // The child has died, which is reported on its own; its successor gets all that matters, or is asked for it.
                    warn!("a child did not get {message:?}: {error}");
                    self.unsent.clear();
                }
            }
        }
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stanchion_generation::messages::{Incoming, ToTemplate, WorkerRef};

    fn fork(index: u16) -> ToTemplate {
        ToTemplate::Fork {
            worker: WorkerRef { index, epoch: 1 },
            number: index,
            is_canary: false,
        }
    }

    #[test]
    fn what_does_not_fit_is_sent_later_in_order() {
        let (ours, theirs) = Channel::pair().expect("a pair");
        let mut outbox = Outbox::new(ours);
        (0..2_000).for_each(|worker| outbox.send(fork(worker)));
        assert!(
            outbox.has_unsent(),
            "the socket took all, so nothing was tested"
        );
        for worker in 0..2_000 {
            let mut next = messages::receive(&theirs).expect("read");
            if next == Incoming::Nothing {
                outbox.send_again();
                next = messages::receive(&theirs).expect("read");
            }
            assert_eq!(next, Incoming::Message(fork(worker)));
        }
        assert!(!outbox.has_unsent());
    }

    #[test]
    fn nothing_is_kept_for_the_dead() {
        let (ours, theirs) = Channel::pair().expect("a pair");
        let mut outbox = Outbox::new(ours);
        (0..2_000).for_each(|worker| outbox.send(fork(worker)));
        drop(theirs);
        outbox.send_again();
        assert!(!outbox.has_unsent());
    }

    #[test]
    fn it_is_bounded() {
        let (ours, _theirs) = Channel::pair().expect("a pair");
        let mut outbox = Outbox::new(ours);
        (0..UNSENT_MAX + 2_000).for_each(|_| outbox.send(ToTemplate::Reopen));
        assert_eq!(outbox.unsent.len(), UNSENT_MAX);
    }
}
