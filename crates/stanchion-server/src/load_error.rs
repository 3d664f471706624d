//! The mistakes for which an app is not hosted.

use stanchion_generation::messages::REASON_CHARS_MAX;
use tracing::error;

/// A mistake of the app's, or of the operator's, own code.
#[derive(Debug)]
pub struct LoadError {
    /// For the log: a traceback, and a line that says what to do.
    pub report: String,
}

impl LoadError {
    /// Its last line, which says what is wrong and what to do.
    pub(crate) fn line(&self) -> String {
        let line = self.report.lines().next_back().unwrap_or_default();
        let line = line.strip_prefix("cannot load the app: ").unwrap_or(line);
        line.chars().take(REASON_CHARS_MAX).collect()
    }
}

/// Why an app is not hosted.
#[derive(Debug)]
pub enum NotLoaded {
    /// It cannot be loaded.
    Broken(LoadError),
    /// The app decides by which interface it is called ([`Interface::Auto`](stanchion_settings::Interface)), and these settings take it for the other
    /// one ([`stanchion_settings::Settings::is_asgi`]).
    OtherInterface,
}

impl NotLoaded {
    /// Logs what is wrong with the app. Gives the report to the master: what `cannot_load` makes of the reason, or `other_interface`.
    pub(crate) fn report<T>(self, cannot_load: impl FnOnce(String) -> T, other_interface: T) -> T {
        match self {
            Self::Broken(error) => {
                error!("{}", error.report);
                cannot_load(error.line())
            }
            Self::OtherInterface => other_interface,
        }
    }
}

#[cfg(test)]
mod tests {
    use stanchion_sys::channel::MESSAGE_BYTES_MAX;

    use super::*;
    use stanchion_generation::messages::{self, FromTemplate};

    #[test]
    fn whatever_the_reason_is_it_fits_a_message() {
        for worst in ["\u{1}", "\u{1f600}", "\\", "e\u{301}"] {
            let report = worst.repeat(5_000);
            let reason = LoadError { report }.line();
            assert!(!reason.is_empty());
            let message = messages::prepare(&FromTemplate::CannotLoad { reason }).unwrap();
            assert!(message.len() <= MESSAGE_BYTES_MAX, "{worst:?}");
        }
    }
}
