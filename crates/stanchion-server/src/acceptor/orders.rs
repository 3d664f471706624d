//! What the master says to the acceptor, and what comes of it.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use stanchion_sys::channel::Channel;
use tokio::io::unix::AsyncFd;
use tracing::error;

use super::Shared;
use super::access_log::AccessLog;
use crate::log;
use crate::messages::{self, Incoming, Said, ToAcceptor};

/// How it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Farewell {
    /// Close the door and serve who is here for at most this long.
    Drain(Duration),
    /// Leave the door to another acceptor and serve who is here for at most this long.
    Retire(Duration),
    /// Leave now.
    Quit,
    /// The master is dead: finish what workers have in hand, since nobody replaces them.
    Orphaned,
}

/// The master's word.
pub(super) struct Orders(AsyncFd<Rc<Channel>>);

impl Orders {
    pub(super) fn new(channel: AsyncFd<Rc<Channel>>) -> Self {
        Self(channel)
    }

    /// Does what the master says until it says a farewell that `is_it`, or is dead: that is always
    /// one, since it has said its last.
    pub(super) async fn obey(
        &self,
        shared: &Rc<Shared>,
        is_it: impl Fn(Farewell) -> bool,
    ) -> io::Result<Farewell> {
        loop {
            let mut ready = self.0.readable().await?;
            let farewell = match messages::receive_from(self.0.get_ref()) {
                Ok(Incoming::Message(Said { message, fd, .. })) => done(shared, message, fd),
                Ok(Incoming::Nothing) => {
                    ready.clear_ready();
                    None
                }
                Ok(Incoming::Closed) => Some(Farewell::Orphaned),
                Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
                Err(error) => {
                    error!("an order that makes no sense was dropped: {error}");
                    None
                }
            };
            if let Some(farewell) = farewell
                && (farewell == Farewell::Orphaned || is_it(farewell))
            {
                return Ok(farewell);
            }
        }
    }
}

/// Does it, unless it is a farewell: those are given back.
fn done(shared: &Rc<Shared>, message: ToAcceptor, fd: Option<OwnedFd>) -> Option<Farewell> {
    let dispatch = &shared.dispatch;
    match message {
        ToAcceptor::WorkerReady {
            worker,
            tenure,
            pid,
        } => dispatch.borrow_mut().worker_ready(worker, tenure, pid),
        ToAcceptor::WorkerGone { worker, tenure, .. } => {
            dispatch.borrow_mut().worker_gone(worker, tenure);
        }
        ToAcceptor::Overdue {
            seat,
            tenure,
            ran_ms,
        } => dispatch.borrow_mut().overdue(seat, tenure, ran_ms),
        ToAcceptor::Listen {
            door,
            worker,
            tenure,
            bind,
        } => shared.lend(door, (worker, tenure), &bind, fd),
        ToAcceptor::LastOnes { address } => shared.let_in_last_ones(&address),
        ToAcceptor::Shared(is_shared) => shared.is_shared.set(is_shared),
        ToAcceptor::CloseDoor { door, is_shared } => shared.take_back(door, is_shared),
        ToAcceptor::Accept => shared.open_door(),
        ToAcceptor::Reopen => {
            log::reopen();
            shared.access_log.iter().for_each(AccessLog::reopen);
        }
        ToAcceptor::Drain { timeout_ms } => {
            return Some(Farewell::Drain(Duration::from_millis(timeout_ms)));
        }
        ToAcceptor::Retire { timeout_ms } => {
            return Some(Farewell::Retire(Duration::from_millis(timeout_ms)));
        }
        ToAcceptor::Quit => return Some(Farewell::Quit),
    }
    None
}
