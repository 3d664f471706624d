//! The queue discipline: the order in which a lane is served, and which long-waiting entries it sheds.

/// The discipline of a lane, as queueing theory calls the order of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// First in, first out.
    #[default]
    Fifo,
    /// First in, first out, until the lane is *over its target*: its oldest entry has waited for `target_us`. From then
    /// on newest first, since the clients at the front are the likeliest to have given up; and the lane sheds its
    /// oldest entries, at first one per `target_us` and then ever faster. It is first in, first out again as soon as no
    /// entry has waited that long. A target of 0 is never reached.
    Adaptive {
        /// How long the oldest entry may wait, in microseconds, before the lane is over its target.
        target_us: u64,
    },
}

/// The state of a lane over its target: when it sheds the next entry.
///
/// The control law of `CoDel` (RFC 8289 section 3.3): it sheds the first entry after one interval over the target, and
/// then, as long as the lane is over the target, the n-th an interval divided by √n after the one before. Its interval
/// is our target: both mean "longer than any good reason to wait".
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shedding {
    interval_us: u64,
    shed: u64,
    next_us: u64,
}

impl Discipline {
    /// The time after which a lane is over its target; `None` if it never is.
    pub(crate) fn target_us(self) -> Option<u64> {
        match self {
            Self::Adaptive { target_us } if target_us > 0 => Some(target_us),
            Self::Adaptive { .. } | Self::Fifo => None,
        }
    }
}

impl Shedding {
    /// The lane has been over its target since `since_us`.
    pub(crate) fn begin(since_us: u64, target_us: u64) -> Self {
        Self {
            interval_us: target_us,
            shed: 0,
            next_us: since_us.saturating_add(target_us),
        }
    }

    /// The time from which the lane should shed its oldest entry.
    pub(crate) fn next_us(&self) -> u64 {
        self.next_us
    }

    /// Notes that an entry was shed.
    pub(crate) fn shed(&mut self) {
        self.shed += 1;
        // interval / √shed, in whole numbers: √(interval² / shed).
        let square = u128::from(self.interval_us).pow(2) / u128::from(self.shed);
        self.next_us = self.next_us.saturating_add(square.isqrt() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_law_of_rfc_8289() {
        let mut shedding = Shedding::begin(5_000, 1_000);
        let mut at_us = Vec::new();
        for _ in 0..6 {
            at_us.push(shedding.next_us());
            shedding.shed();
        }
        // 1000 / √1, √2, √3, √4, √5 apart.
        assert_eq!(at_us, [6_000, 7_000, 7_707, 8_284, 8_784, 9_231]);
    }

    #[test]
    fn no_target_is_never_reached() {
        assert_eq!(Discipline::Fifo.target_us(), None);
        assert_eq!(Discipline::Adaptive { target_us: 0 }.target_us(), None);
        assert_eq!(Discipline::Adaptive { target_us: 7 }.target_us(), Some(7));
    }

    #[test]
    fn the_longest_interval_overflows_nothing() {
        let mut shedding = Shedding::begin(u64::MAX - 1, u64::MAX);
        shedding.shed();
        assert_eq!(shedding.next_us(), u64::MAX);
    }
}
