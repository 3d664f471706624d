//! Verdicts on clients that dawdle.

use std::time::Duration;

use super::pace::{Pace, Slowness, end_of};
use stanchion_dispatch::refusal::Refusal;
use stanchion_generation::tally::Event;

/// The verdict on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// All is well until this time, if nothing changes.
    Well {
        until_us: u64,
    },
    /// The client may have taken, or sent, more than the acceptor knows: it looks at the socket.
    Doubt,
    /// Finish the present answer, then close.
    Close,
    /// The head took too long.
    HeadTimedOut,
    /// The disk has not found, or read, a file in time.
    FileTimedOut,
    /// The body comes too slowly.
    CallOff(Refusal),
    /// Close without an answer: the client never asked.
    Drop,
    CutOff(CutOff),
}

/// Why the server cuts a client off from the rest of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutOff {
    /// The client took nothing for `write_timeout`.
    TookNothing,
    /// The client took its answer more slowly than `min_response_rate`.
    TookTooSlowly,
    /// The client took its answer hardly faster than that, and others wait for a place.
    MadeRoom,
    /// All clients together have more memory than they may, and this client has most.
    Memory,
}

impl CutOff {
    /// The event that the server counts.
    pub(crate) fn event(self) -> Event {
        match self {
            Self::TookNothing => Event::CutOff,
            Self::TookTooSlowly => Event::TooSlow,
            Self::MadeRoom => Event::Shed,
            Self::Memory => Event::CutForMemory,
        }
    }

    /// The reason in the log.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::TookNothing => "it took nothing of its answer in time",
            Self::TookTooSlowly => "it took its answer too slowly",
            Self::MadeRoom => "it hardly took any of its answer, and others waited for a place",
            Self::Memory => {
                "clients have more memory than max_client_memory, and it was the slowest connection of the client that has most"
            }
        }
    }
}

/// The possessions of a client that others wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedResources {
    /// A place among the connections.
    pub(crate) place: bool,
    /// The seat of a running request.
    pub(crate) seat: bool,
}

impl Judgement {
    /// Nothing is due.
    pub(crate) const WELL: Self = Self::Well { until_us: u64::MAX };

    /// All is well until `limit` is over; then the verdict is `otherwise`.
    pub(crate) fn within(
        since_us: u64,
        limit: Option<Duration>,
        otherwise: Self,
        now_us: u64,
    ) -> Self {
        let until_us = end_of(since_us, limit);
        if now_us < until_us {
            Self::Well { until_us }
        } else {
            otherwise
        }
    }

    /// If all is well, the verdict is no later than `until_us`.
    pub(crate) fn at_most(self, most_us: u64) -> Self {
        match self {
            Self::Well { until_us } => Self::Well {
                until_us: until_us.min(most_us),
            },
            other => other,
        }
    }

    /// If all is well until then, there is doubt from `at_us` on.
    pub(crate) fn doubted_at(self, at_us: u64, now_us: u64) -> Self {
        match self {
            Self::Well { .. } if at_us <= now_us => Self::Doubt,
            other => other.at_most(at_us),
        }
    }

    /// The verdict on a client whose body comes at this pace.
    pub(crate) fn of_body(pace: &Pace, others_wait: bool, now_us: u64) -> Self {
        match pace.too_slow(now_us) {
            None if others_wait && pace.drips(now_us) => Self::CallOff(Refusal::BodyTooSlow),
            None => Self::Well { until_us: now_us },
            Some(Slowness::Pause) => Self::CallOff(Refusal::BodyTimeout),
            Some(Slowness::Rate) => Self::CallOff(Refusal::BodyTooSlow),
        }
    }
}
