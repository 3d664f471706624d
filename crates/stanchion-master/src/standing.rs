//! The present purpose of a generation.

/// The present purpose of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GenerationPhase {
    /// It is made ready.
    Building,
    /// It has the door.
    Serving,
    /// It serves the clients that are here; past the deadline its acceptor is killed.
    Retiring { deadline_ms: u64 },
    /// All are to go, and are killed past the deadline.
    Dismissed { deadline_ms: u64 },
}

impl GenerationPhase {
    /// Whether all are to go.
    pub(crate) fn is_dismissed(self) -> bool {
        matches!(self, Self::Dismissed { .. })
    }

    /// As it is once all are to go by the deadline, or by an earlier one that was set before.
    pub(crate) fn dismissed_by(self, deadline_ms: u64) -> Self {
        let deadline_ms = match self {
            Self::Dismissed {
                deadline_ms: earlier_ms,
            } => deadline_ms.min(earlier_ms),
            Self::Building | Self::Serving | Self::Retiring { .. } => deadline_ms,
        };
        Self::Dismissed { deadline_ms }
    }
}
