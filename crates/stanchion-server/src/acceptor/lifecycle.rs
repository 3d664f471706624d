//! How far an acceptor is in its life.

/// What it does with clients, and with those who come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lifecycle {
    /// Nobody is let in yet.
    Starting,
    /// Operators are, and clients wait outside.
    Announced,
    /// It serves.
    Open,
    /// Another acceptor has the doors: connections may stay for one more request.
    Retiring,
    /// The doors are closed, and no connection outlives its present request.
    Draining,
    /// Besides, every request that is not with a worker yet is told that we are leaving.
    Refusing,
    /// So too, but the application has never been there: it does not start.
    TurningAway,
}

impl Lifecycle {
    /// No connection is to outlive its present request, or the next one.
    pub(crate) fn is_leaving(self) -> bool {
        self >= Self::Retiring
    }

    /// Connections that idle are to go: nobody will be there for their next request.
    pub(crate) fn is_closing(self) -> bool {
        self >= Self::Draining
    }

    pub(crate) fn is_refusing(self) -> bool {
        matches!(self, Self::Refusing | Self::TurningAway)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_asks_more_of_connections_than_the_one_before() {
        for (lifecycle, leaving, closing, refusing) in [
            (Lifecycle::Starting, false, false, false),
            (Lifecycle::Announced, false, false, false),
            (Lifecycle::Open, false, false, false),
            (Lifecycle::Retiring, true, false, false),
            (Lifecycle::Draining, true, true, false),
            (Lifecycle::Refusing, true, true, true),
            (Lifecycle::TurningAway, true, true, true),
        ] {
            let is = (
                lifecycle.is_leaving(),
                lifecycle.is_closing(),
                lifecycle.is_refusing(),
            );
            assert_eq!(is, (leaving, closing, refusing), "{lifecycle:?}");
        }
    }
}
