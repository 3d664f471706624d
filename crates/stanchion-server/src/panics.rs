//! Panics, which are mistakes of ours: logged, and never the silent end of something that others rely on.

use std::panic::{self, AssertUnwindSafe};

use stanchion_sys::process;
use tracing::error;

use crate::{exit_code, log};

/// Has every panic of this process and its later children written to the error log. Rust's own report goes to stderr, which perhaps no process reads.
pub(crate) fn tell() {
    let by_rust = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        let thread = std::thread::current();
        // The log's own thread cannot go on, so it would never write this line.
        if thread.name() == Some(log::THREAD_NAME) {
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

/// Runs `work`; `None` if it has panicked, which is in the log by then.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    // State that it leaves halfway is not used again: each caller gives up the process, or the object of the work.
    panic::catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Runs the work of a thread without which its process is of no use: if it panics, the process ends.
pub(crate) fn vital(work: impl FnOnce()) {
    if caught(work).is_none() {
        log::finish();
        process::exit_now(exit_code::INTERNAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_calls_hears_of_a_panic_and_of_an_end() {
        assert_eq!(caught(|| 7), Some(7));
        assert_eq!(caught(|| panic!("seen in a test")), None::<()>);
    }
}
