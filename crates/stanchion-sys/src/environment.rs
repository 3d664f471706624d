//! Variables of the environment by which one process passes something to the next.

use std::str::FromStr;

/// The number that a variable holds. The error names the variable.
pub(crate) fn number<N: FromStr>(name: &str, text: &str) -> Result<N, String> {
    let no_number = |_| format!("{name} is '{}', which is no number", text.escape_debug());
    text.parse().map_err(no_number)
}

/// Takes the value of a variable and removes the variable: it is meant for this process, and not for the processes that it
/// starts. `None` also if the value is not UTF-8.
///
/// For the start of a process only, before it has a second thread.
pub fn take(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    // SAFETY: as documented, the process has one thread, so no other reads the environment meanwhile (setenv(3) is not
    // thread-safe).
    unsafe { std::env::remove_var(name) };
    value
}
