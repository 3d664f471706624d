//! Panics that a caller survives.

use std::panic::{self, AssertUnwindSafe};

/// Runs `work`; `None` if it has panicked, which is in the log by then.
pub fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    // State that it leaves halfway is not used again: each caller gives up the process, or the object of the work.
    panic::catch_unwind(AssertUnwindSafe(work)).ok()
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
