//! The counts of a tally by their names, as `/status` and `ctl` show them.

use serde::{Serialize, Serializer};

use crate::tally::{Counts, Event, Outcome};

/// The name of the count of requests that have not ended.
pub const IN_FLIGHT: &str = "in_flight";

/// The counts of requests among [`Counts`]: an object with a key for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCounts(pub Counts);

impl RequestCounts {
    /// Each count with its name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let Self(counts) = self;
        let sums = [
            ("arrived", counts.arrived()),
            (IN_FLIGHT, counts.in_flight()),
        ];
        let ends = Outcome::ALL
            .iter()
            .map(|outcome| (outcome.name(), counts.ended(*outcome)));
        sums.into_iter().chain(ends)
    }
}

impl Serialize for RequestCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.named())
    }
}

/// The counts of events among [`Counts`]: an object with a key for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCounts(pub Counts);

impl EventCounts {
    /// Each count with its name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let events = Event::ALL.iter();
        events.map(|event| (event.name(), self.0.happened(*event)))
    }
}

impl Serialize for EventCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.named())
    }
}
