//! Loom explores every interleaving of the lock-free protocol, and every value that the memory model lets a load
//! return. A lost wake-up shows as a deadlock.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p stanchion-exchange --release --test loom
//! ```
//!
//! Loom searches most models completely; models that call `explore_bounded`, up to that many preemptions.
//! `LOOM_MAX_PREEMPTIONS` sets the bound for all.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
#![cfg(loom)]

mod bell;
mod flow;
mod loops;
mod notices;
mod ring;
mod sources;

use std::time::Duration;

use loom::thread;
use stanchion_exchange::Bell;

/// Loom has no time, so a timeout never ends.
const FOR_EVER: Duration = Duration::MAX;

fn explore(model: impl Fn() + Send + Sync + 'static) {
    loom::model(model);
}

/// Explores up to `preemptions` in an execution. Most bugs show with two, and the search grows about tenfold with each.
fn explore_bounded(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(model);
}

fn join_all<T>(threads: impl IntoIterator<Item = thread::JoinHandle<T>>) -> Vec<T> {
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect()
}

/// Sleeps on `bell` until `look` finds something.
fn wait_for<T>(bell: &Bell, look: impl Fn() -> Option<T>) -> T {
    loop {
        let seen = bell.prepare();
        if let Some(found) = look() {
            return found;
        }
        bell.sleep(seen, FOR_EVER);
    }
}
