//! Letting clients in, and seeing them out.

use std::time::Duration;

use tracing::error;

use super::Shared;
use super::connection::{Order, Phase};
use super::listen::Closing;
use super::orders::Farewell;

impl Shared {
    /// Lets clients in.
    pub(super) fn open_door(&self) {
        self.open.set(true);
        self.door.notify_waiters();
    }

    /// Whether connections that idle are to go: nobody will be there for their next request.
    pub(super) fn is_closing(&self) -> bool {
        self.draining.get() && !self.retiring.get()
    }

    /// Lets nobody else in and has every connection end with its present request, or, where it
    /// retires, with the next one: an idle connection that is closed may just have been sent a
    /// request, and who sent it would have to guess whether it was run. Gives how long that may
    /// take.
    pub(super) fn drain(&self, farewell: Farewell) -> Duration {
        let timeout = match farewell {
            Farewell::Drain(timeout) => {
                // Whoever is told to close the door has it, also if nothing was said of it before.
                self.open_door();
                timeout
            }
            Farewell::Retire(timeout) => {
                self.retiring.set(true);
                self.draining.set(true);
                self.door.notify_waiters();
                return timeout;
            }
            Farewell::Quit | Farewell::Orphaned => {
                self.orphaned();
                // Without the master we cannot know what became of another that had the doors too.
                if self.is_shared.get() {
                    self.open.set(false);
                }
                self.common.settings.graceful_timeout.duration()
            }
        };
        self.draining.set(true);
        self.door.notify_waiters();
        // A request that has begun to arrive, or may be about to, is still served; its answer
        // says that the connection closes.
        self.order_all(Order::Close, |phase| {
            matches!(phase, Phase::Idle { .. } | Phase::Busy)
        });
        timeout
    }

    /// The master is gone: nobody replaces workers, so those who are with none need not wait.
    pub(super) fn orphaned(&self) {
        error!("the master is gone: finishing what workers have in hand, then leaving");
        self.refusing.set(true);
        self.retiring.set(false);
        self.dispatch.borrow_mut().refuse_all(false);
    }

    /// Tells everybody who is not being answered yet that we are leaving.
    pub(super) fn refuse_everybody(&self) {
        self.refusing.set(true);
        self.draining.set(true);
        self.retiring.set(false);
        self.door.notify_waiters();
        self.dispatch.borrow_mut().refuse_all(true);
        self.order_all(Order::Close, |_| true);
    }

    /// Closes a door that nobody else has any more, and lets in who is in its queue.
    pub(super) fn let_in_last_ones(&self, address: &str) {
        for door in self.doors.borrow().iter() {
            if door.listener.address().to_string() == address {
                door.close(Closing::AfterTheLast);
            }
        }
        self.door.notify_waiters();
    }

    fn order_all(&self, order: Order, is_meant: impl Fn(Phase) -> bool) {
        for connection in self.connections.borrow().iter() {
            if is_meant(connection.phase()) {
                connection.order(order);
            }
        }
    }

    /// Waits until no connection is left.
    pub(super) async fn all_gone(&self) {
        loop {
            let ended = self.room.notified();
            if self.connections.borrow().len() == 0 {
                return;
            }
            ended.await;
        }
    }
}
