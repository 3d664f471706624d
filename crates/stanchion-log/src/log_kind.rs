//! The logs of requests and of everything else, and the recording of arrivals.

use std::time::Duration;

/// Which log a queue belongs to, and how it is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Written at once: people wait for it.
    ErrorLog,
    /// Gathered for a moment, so that many requests make one write(2) and one switch of threads.
    AccessLog,
    /// Written at once: its records were gathered before they came here.
    Recording,
}

impl Of {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ErrorLog => "the error log",
            Self::AccessLog => "the access log",
            Self::Recording => "the recording of arrivals",
        }
    }

    pub(super) fn gathering(self) -> Duration {
        match self {
            Self::ErrorLog | Self::Recording => Duration::ZERO,
            Self::AccessLog => Duration::from_millis(20),
        }
    }
}
