//! Panics, which are mistakes of ours: logged, and never the silent end of something that others rely on.

use std::panic;

use stanchion_sys::process;
use tracing::error;

use crate::caught::caught;
use crate::{THREAD_NAME, exit_code, finish};

/// Has every panic of this process and its later children written to the error log. Rust's own report goes to stderr, which perhaps no process reads.
pub fn tell() {
    let by_rust = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        let thread = std::thread::current();
        // The log's own thread cannot go on, so it would never write this line.
        if thread.name() == Some(THREAD_NAME) {
            by_rust(panicked);
            return;
        }
        let payload = panicked.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let what = text.unwrap_or("it cannot be said why");
        let place = panicked.location().map(ToString::to_string);
        error!(
            "our fault: thread {:?} panicked at {}: {what}",
            thread.name().unwrap_or("without a name"),
            place.as_deref().unwrap_or("an unknown place")
        );
    }));
}

/// Runs the work of a thread without which its process is of no use: if it panics, the process ends.
pub fn vital(work: impl FnOnce()) {
    if caught(work).is_none() {
        finish();
        process::exit_now(exit_code::INTERNAL);
    }
}
