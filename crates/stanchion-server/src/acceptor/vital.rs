//! Tasks without which the acceptor is of no use. tokio keeps a task's panic to itself: who looks after
//! deadlines would be gone, and nobody any the wiser. So the acceptor ends with the task, and the master
//! starts another one.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::panics;

#[derive(Default)]
pub(super) struct Vital {
    lost: Cell<Option<&'static str>>,
    changed: Notify,
}

impl Vital {
    /// Starts a task that does `what`.
    pub(super) fn spawn(
        self: &Rc<Self>,
        what: &'static str,
        task: impl Future<Output = ()> + 'static,
    ) -> JoinHandle<()> {
        let this = Rc::clone(self);
        let mut task = Box::pin(task);
        tokio::task::spawn_local(poll_fn(move |context| {
            panics::caught(|| task.as_mut().poll(context)).unwrap_or_else(|| {
                this.lost.set(Some(what));
                this.changed.notify_one();
                Poll::Ready(())
            })
        }))
    }

    /// Waits until one of them has panicked; gives what it did.
    pub(super) async fn lost(&self) -> &'static str {
        loop {
            if let Some(what) = self.lost.get() {
                return what;
            }
            self.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::runtime::{Builder, LocalOptions};

    use super::*;

    #[test]
    fn a_panic_in_a_task_is_heard_of_and_its_end_is_none() {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .build_local(LocalOptions::default())
            .expect("a runtime");
        let vital = Rc::new(Vital::default());
        let lost = runtime.block_on(async {
            vital.spawn("ends", async {}).await.expect("it ends");
            assert_eq!(vital.lost.get(), None);
            vital.spawn("goes on", std::future::pending());
            vital.spawn("panics later", async {
                tokio::task::yield_now().await;
                panic!("as it should");
            });
            tokio::time::timeout(Duration::from_secs(10), vital.lost()).await
        });
        assert_eq!(lost, Ok("panics later"));
    }
}
