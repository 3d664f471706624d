//! Those who accept, at every door. They are polled by the root of the event loop, which has its turn before
//! the tasks: a connection that waits in the kernel's queue may cost the next one its place there, and
//! nothing that a task does is worth that.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use tokio::sync::Notify;

/// Accepts at one door until it is closed.
pub(super) type Accepting = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Default)]
pub(super) struct AtTheDoors {
    /// Not polled yet.
    added: RefCell<Vec<Accepting>>,
    keeper: RefCell<Option<Waker>>,
    accepting: Cell<usize>,
    /// Notified when a door has been closed, and everybody was let in.
    closed: Notify,
}

impl AtTheDoors {
    pub(super) fn add(&self, accepting: Accepting) {
        self.added.borrow_mut().push(accepting);
        self.accepting.set(self.accepting.get() + 1);
        if let Some(keeper) = self.keeper.take() {
            keeper.wake();
        }
    }

    /// Accepts for as long as `rest` takes. How many come in before the tasks have a turn again is bounded by
    /// tokio's budget for one poll, some forty; then `rest` must not be left without any.
    pub(super) async fn accept_during<T>(&self, rest: impl Future<Output = T>) -> T {
        let mut doors = Vec::new();
        let mut rest = pin!(rest);
        poll_fn(|context| {
            let rest = rest.as_mut().poll(context);
            if rest.is_pending() {
                self.accept(&mut doors, context);
            }
            rest
        })
        .await
    }

    fn accept(&self, doors: &mut Vec<Accepting>, context: &mut Context<'_>) {
        doors.append(&mut self.added.borrow_mut());
        let before = doors.len();
        doors.retain_mut(|accepting| accepting.as_mut().poll(context).is_pending());
        let ended = before - doors.len();
        if ended > 0 {
            self.accepting.set(self.accepting.get() - ended);
            self.closed.notify_waiters();
        }
        self.keeper.replace(Some(context.waker().clone()));
    }

    /// Waits until nobody accepts any more.
    pub(super) async fn all_closed(&self) {
        loop {
            let closed = self.closed.notified();
            if self.accepting.get() == 0 {
                return;
            }
            closed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::task::Poll;
    use std::time::Duration;

    use tokio::runtime::{Builder, LocalOptions};

    use super::*;

    const WORKING: usize = 1_000;

    /// A task that always has something to do.
    async fn work(polls: Rc<Cell<usize>>) {
        poll_fn(|context| {
            polls.set(polls.get() + 1);
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        })
        .await;
    }

    #[test]
    fn who_accepts_does_not_wait_for_who_works() {
        let runtime = Builder::new_current_thread()
            .build_local(LocalOptions::default())
            .unwrap();
        let (doors, knock) = (AtTheDoors::default(), Rc::new(Notify::new()));
        let (polls, heard_after) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let accepting = {
            let (knock, polls) = (Rc::clone(&knock), Rc::clone(&polls));
            let heard_after = Rc::clone(&heard_after);
            async move {
                knock.notified().await;
                heard_after.set(polls.get());
            }
        };
        doors.add(Box::pin(accepting));
        runtime.block_on(doors.accept_during(async {
            for _ in 0..WORKING {
                tokio::task::spawn_local(work(Rc::clone(&polls)));
            }
            tokio::task::spawn_local(async move { knock.notify_one() });
            doors.all_closed().await;
        }));
        let waited_for = heard_after.get() - WORKING;
        assert!(waited_for < WORKING / 10, "{waited_for} polls");
    }

    #[test]
    fn a_door_may_be_added_at_any_time() {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .build_local(LocalOptions::default())
            .unwrap();
        let (doors, opened) = (Rc::new(AtTheDoors::default()), Rc::new(Notify::new()));
        let (adding, accepted) = (Rc::clone(&doors), Rc::clone(&opened));
        let waited = runtime.block_on(doors.accept_during(async {
            // By a task, whose end the root of the event loop does not wait for.
            tokio::task::spawn_local(async move {
                adding.add(Box::pin(async move { accepted.notify_one() }));
            });
            tokio::time::timeout(Duration::from_secs(1), opened.notified()).await
        }));
        assert!(waited.is_ok(), "nobody accepts at the new door");
    }
}
