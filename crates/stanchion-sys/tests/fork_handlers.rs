//! Handlers of libraries for forks. It has no harness, since a handler is for the whole process.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use stanchion_sys::fork_handlers;

static FORKS: AtomicU32 = AtomicU32::new(0);
static HANGS: AtomicBool = AtomicBool::new(false);

extern "C" fn before() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn in_child() {
    while HANGS.load(Ordering::Relaxed) {
        // SAFETY: pause(2) has no preconditions.
        unsafe { libc::pause() };
    }
}

fn main() {
    // SAFETY: the handlers are async-signal-safe, and stay for as long as the process.
    let error = unsafe { libc::pthread_atfork(Some(before), None, Some(in_child)) };
    assert_eq!(error, 0);
    fork_handlers::run(Duration::from_secs(60)).expect("the handlers end");
    assert_eq!(FORKS.load(Ordering::Relaxed), 1);
    HANGS.store(true, Ordering::Relaxed);
    let error = fork_handlers::run(Duration::from_millis(50)).expect_err("a handler hangs");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    // SAFETY: wait(2) writes nothing through a null pointer.
    let child = unsafe { libc::wait(std::ptr::null_mut()) };
    assert_eq!(child, -1, "the child is killed and collected");
}
