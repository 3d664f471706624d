//! The environment, as far as one process tells the next one something in it.

/// The value of a variable, which is gone then: what it says is for this process and not for those
/// it starts. `None` also if it is no UTF-8.
///
/// For the start of a process only, before it has a second thread.
pub fn take(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    // SAFETY: as documented, nobody reads the environment meanwhile (setenv(3) is not thread-safe).
    unsafe { std::env::remove_var(name) };
    value
}
