//! How far an acceptor is in its life, and how it treats connections.

use stanchion_dispatch::refusal::Refusal;

/// How the acceptor treats connected clients, and those that connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lifecycle {
    /// The acceptor accepts no connection yet.
    Starting,
    /// The acceptor accepts operators; clients wait in the kernel's queue.
    Announced,
    /// The acceptor serves.
    Open,
    /// The acceptor serves and accepts, and the server is about to leave: operators and balancers are to send clients elsewhere.
    LameDuck,
    /// Another acceptor has the listeners: connections may stay for one more request.
    Retiring,
    /// The listeners are closed, and no connection outlives its present request.
    Draining,
    /// Besides, the acceptor refuses every request that no worker has yet, because the server leaves.
    Refusing,
    /// The same, but because the application has failed to start.
    TurningAway,
}

impl Lifecycle {
    /// Whether the acceptor accepts clients.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::LameDuck)
    }

    /// Whether answers say that their connections end.
    pub fn ends_connections(self) -> bool {
        self >= Self::LameDuck
    }

    /// Whether sessions end, and connections with their present request or the next one.
    pub fn is_leaving(self) -> bool {
        self >= Self::Retiring
    }

    /// Whether idle connections close, because no acceptor will be there for their next request.
    pub fn is_closing(self) -> bool {
        self >= Self::Draining
    }

    /// Whether requests that no worker has are refused.
    pub fn is_refusing(self) -> bool {
        self.refusal().is_some()
    }

    /// The refusal of all requests that no worker has, if the server serves them no more.
    pub fn refusal(self) -> Option<Refusal> {
        match self {
            Self::Refusing => Some(Refusal::ShuttingDown),
            Self::TurningAway => Some(Refusal::AppNotStarted),
            _ => None,
        }
    }
}

/// How the acceptor treats connections now.
#[derive(Clone, Copy, Debug)]
pub struct Serving {
    /// How far the acceptor is in its life.
    pub lifecycle: Lifecycle,
    /// A new client waits for a place: answers then say that the connection closes, so that clients who never idle for long share the places with
    /// clients that have none.
    pub is_pressed: bool,
    /// How many requests had arrived when the server was ordered to leave, while it accepts on nevertheless.
    pub arrived_in_time: Option<u64>,
}

impl Serving {
    /// Whether connections end with their present requests.
    pub fn ends_connections(self) -> bool {
        self.lifecycle.ends_connections() || self.is_pressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_asks_more_of_connections_than_the_one_before() {
        for (lifecycle, ends, leaving, closing, refusing) in [
            (Lifecycle::Starting, false, false, false, false),
            (Lifecycle::Announced, false, false, false, false),
            (Lifecycle::Open, false, false, false, false),
            (Lifecycle::LameDuck, true, false, false, false),
            (Lifecycle::Retiring, true, true, false, false),
            (Lifecycle::Draining, true, true, true, false),
            (Lifecycle::Refusing, true, true, true, true),
            (Lifecycle::TurningAway, true, true, true, true),
        ] {
            let is = (
                lifecycle.ends_connections(),
                lifecycle.is_leaving(),
                lifecycle.is_closing(),
                lifecycle.is_refusing(),
            );
            assert_eq!(is, (ends, leaving, closing, refusing), "{lifecycle:?}");
        }
    }
}
