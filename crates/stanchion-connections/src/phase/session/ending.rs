//! How a WebSocket ends, and how the server counts that.

use stanchion_generation::tally::{Event, Outcome};

/// How a session ends. Only the first end counts, whatever happens afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    ByApp,
    ByClient,
    /// The client has broken the protocol, is too slow, or answers no pings.
    ForClient,
    /// The worker has died, or has written nonsense.
    ForWorker,
    /// The server has no memory left for clients' messages.
    ForMemory,
    /// The server leaves.
    Restart,
    /// The connection has ended without a close frame.
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
