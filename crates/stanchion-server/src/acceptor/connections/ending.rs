//! How a WebSocket ends, and as what it is counted.

use crate::tally::{Event, Outcome};

/// How a session ends. Each does in one way, whatever happens afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    ByApp,
    ByClient,
    /// The client has broken the protocol, or answers no pings.
    ForClient,
    /// The worker has died, or is out of its mind.
    ForWorker,
    /// There is no memory left for what clients send.
    ForMemory,
    /// The server leaves.
    Restart,
    /// Without a word.
    Cut,
}

impl End {
    pub(super) fn event(self) -> Event {
        match self {
            Self::ByApp => Event::SessionClosedByApp,
            Self::ByClient => Event::SessionClosedByClient,
            Self::ForClient | Self::ForWorker | Self::ForMemory | Self::Restart => {
                Event::SessionClosedByServer
            }
            Self::Cut => Event::SessionCut,
        }
    }

    pub(super) fn outcome(self) -> Outcome {
        match self {
            Self::ByApp | Self::ByClient => Outcome::Answered,
            Self::ForWorker | Self::ForMemory => Outcome::BrokenOff,
            Self::Restart => Outcome::CutAtShutdown,
            Self::ForClient | Self::Cut => Outcome::AbandonedAnswering,
        }
    }
}
