//! The load of a server: requests with all that the simulation needs to know of each.

/// A request, and where its time at a seat goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offered {
    /// When it arrives, in microseconds from the beginning.
    pub(crate) at_us: u64,
    /// On a core.
    pub(crate) cpu_us: u32,
    /// Waiting for a core, where it was measured.
    pub(crate) core_us: u32,
    /// Waiting for the interpreter's lock, where it was measured.
    pub(crate) gil_us: u32,
    /// Elsewhere, because others were there too: more than it would take alone.
    pub(crate) crowd_us: u32,
    /// The rest of its time at a seat.
    pub(crate) elsewhere_us: u32,
    /// Its client leaves the line after so long; 0 if it waits for as long as it must.
    pub(crate) patience_us: u32,
    /// The client; 0 is unknown.
    pub(crate) client: u32,
    /// The lane.
    pub(crate) lane: u16,
}

/// How late seats begin, in microseconds: samples of what was measured. None is no time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delays {
    /// A seat that was idle begins so long after its request has come.
    pub(crate) idle_us: Vec<u32>,
    /// A seat that was busy begins so long after its last request is done.
    pub(crate) busy_us: Vec<u32>,
}

/// How much of the measured waiting was not caused by requests for each other, in parts of [`Outside::WHOLE`]. That part stays whatever the scenario is; the
/// rest is simulated instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outside {
    /// Of the waiting for a core.
    pub(crate) core: u32,
    /// Of the waiting for the lock.
    pub(crate) gil: u32,
    /// Of the waiting elsewhere.
    pub(crate) crowd: u32,
}

impl Outside {
    /// All of the waiting.
    pub(crate) const WHOLE: u32 = 1 << 16;
    /// The simulation explains nothing of what was measured.
    pub(crate) const ALL: Self = Self {
        core: Self::WHOLE,
        gil: Self::WHOLE,
        crowd: Self::WHOLE,
    };
    /// The simulation explains all of it.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self {
        core: 0,
        gil: 0,
        crowd: 0,
    };

    /// A share from 0 to 1.
    pub(crate) fn part(share: f64) -> u32 {
        (share * f64::from(Self::WHOLE)).round() as u32
    }
}

impl Offered {
    /// Its time at a seat as it was measured.
    #[cfg(test)]
    pub(crate) fn service_us(&self) -> u64 {
        let parts = [
            self.cpu_us,
            self.core_us,
            self.gil_us,
            self.crowd_us,
            self.elsewhere_us,
        ];
        parts.into_iter().map(u64::from).sum()
    }

    /// The measured waiting that stays: for a core, for the lock, and elsewhere.
    pub(crate) fn waits_us(&self, outside: Outside) -> [u64; 3] {
        let parts = [
            (self.core_us, outside.core),
            (self.gil_us, outside.gil),
            (self.crowd_us, outside.crowd),
        ];
        parts.map(|(us, share)| {
            let share = u64::from(us) * u64::from(share);
            (share + u64::from(Outside::WHOLE / 2)) / u64::from(Outside::WHOLE)
        })
    }

    /// Its time at a seat that does not depend on the scenario and is not on a core.
    pub(crate) fn fixed_us(&self, outside: Outside) -> u64 {
        u64::from(self.elsewhere_us) + self.waits_us(outside).iter().sum::<u64>()
    }
}
