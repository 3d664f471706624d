//! What the master says to the acceptor, and what comes of it.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use stanchion_sys::channel::Channel;
use tokio::io::unix::AsyncFd;
use tracing::error;

use super::Shared;
use super::access_log::AccessLog;
use crate::log;
use crate::messages::{self, Incoming, ToAcceptor};

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
pub(super) struct Orders(AsyncFd<Channel>);

impl Orders {
    pub(super) fn new(channel: AsyncFd<Channel>) -> Self {
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
            let farewell = match messages::receive_with(self.0.get_ref()) {
                Ok(Incoming::Message((
                    ToAcceptor::WorkerReady {
                        worker,
                        tenure,
                        pid,
                    },
                    _,
                ))) => {
                    shared
                        .dispatch
                        .borrow_mut()
                        .worker_ready(worker, tenure, pid);
                    continue;
                }
                Ok(Incoming::Message((ToAcceptor::WorkerGone { worker, tenure, .. }, _))) => {
                    shared.dispatch.borrow_mut().worker_gone(worker, tenure);
                    continue;
                }
                Ok(Incoming::Message((
                    ToAcceptor::Overdue {
                        seat,
                        tenure,
                        ran_ms,
                    },
                    _,
                ))) => {
                    shared.dispatch.borrow_mut().overdue(seat, tenure, ran_ms);
                    continue;
                }
                Ok(Incoming::Message((
                    ToAcceptor::Listen {
                        door,
                        worker,
                        tenure,
                        bind,
                    },
                    fd,
                ))) => {
                    shared.lend(door, (worker, tenure), &bind, fd);
                    continue;
                }
                Ok(Incoming::Message((ToAcceptor::LastOnes { address }, _))) => {
                    shared.let_in_last_ones(&address);
                    continue;
                }
                Ok(Incoming::Message((ToAcceptor::Shared(is_shared), _))) => {
                    shared.is_shared.set(is_shared);
                    continue;
                }
                Ok(Incoming::Message((ToAcceptor::CloseDoor { door, is_shared }, _))) => {
                    shared.take_back(door, is_shared);
                    continue;
                }
                Ok(Incoming::Message((ToAcceptor::Accept, _))) => {
                    shared.open_door();
                    continue;
                }
                Ok(Incoming::Message((ToAcceptor::Reopen, _))) => {
                    log::reopen();
                    shared.access_log.iter().for_each(AccessLog::reopen);
                    continue;
                }
                Ok(Incoming::Nothing) => {
                    ready.clear_ready();
                    continue;
                }
                Ok(Incoming::Message((ToAcceptor::Drain { timeout_ms }, _))) => {
                    Farewell::Drain(Duration::from_millis(timeout_ms))
                }
                Ok(Incoming::Message((ToAcceptor::Retire { timeout_ms }, _))) => {
                    Farewell::Retire(Duration::from_millis(timeout_ms))
                }
                Ok(Incoming::Message((ToAcceptor::Quit, _))) => Farewell::Quit,
                Ok(Incoming::Closed) => Farewell::Orphaned,
                Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
                Err(error) => {
                    error!("an order that makes no sense was dropped: {error}");
                    continue;
                }
            };
            if farewell == Farewell::Orphaned || is_it(farewell) {
                return Ok(farewell);
            }
        }
    }
}
