//! A seat and its request, and what the request needs there: the lock, a core, and something elsewhere.

use crate::lock::Locks;
use crate::offered::{Offered, Outside};
use crate::scenario::Scenario;
use crate::station::Station;

/// A request is on a core three times, and elsewhere twice in between.
pub(crate) const PIECES: u64 = 5;

/// The things that requests at seats need.
#[derive(Debug)]
pub(crate) struct SeatNeeds {
    /// `None`: there is one for each request that wants one.
    pub(crate) cores: Option<Station>,
    /// `None`: those elsewhere do not slow each other down.
    pub(crate) elsewhere: Option<Station>,
    /// `None`: no request ever waits for a lock.
    pub(crate) locks: Option<Locks>,
}

/// A seat and its request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeatModel {
    pub(crate) request: u32,
    pub(crate) stage: SeatStage,
    pub(crate) began_us: u64,
    /// Since when the request wants what it now has or waits for.
    pub(crate) since_us: u64,
    /// Work of this piece on a core: that which it has now, and the rest.
    pub(crate) work_us: u64,
    pub(crate) left_us: u64,
    pub(crate) core_us: u64,
    pub(crate) gil_us: u64,
    /// Seats that were busy when it took the request, itself included.
    pub(crate) busy: usize,
    /// Requests that it has had.
    pub(crate) nth: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeatStage {
    /// It will begin.
    Before,
    /// It has the request for its whole time.
    Whole,
    /// A piece of the request.
    Piece(u64),
}

impl SeatNeeds {
    pub(crate) fn new(scenario: &Scenario, pool: Option<f64>, workers: u16) -> Self {
        let seats_each = scenario.seats_each();
        let seats = usize::from(workers) * seats_each;
        let is_locked = seats_each > 1 && (scenario.gil || scenario.event_loop);
        let on_core_max = if is_locked {
            usize::from(workers)
        } else {
            seats
        };
        let cores = scenario.cores.filter(|&cores| cores < on_core_max as f64);
        let pool = pool.filter(|&pool| pool < seats as f64);
        Self {
            cores: cores.map(|cores| Station::new(cores, on_core_max)),
            elsewhere: pool.map(|pool| Station::new(pool, seats)),
            locks: is_locked.then(|| Locks::new(workers, seats_each)),
        }
    }

    /// Whether no request ever waits for any of them.
    pub(crate) fn are_none(&self) -> bool {
        self.cores.is_none() && self.elsewhere.is_none() && self.locks.is_none()
    }
}

impl SeatModel {
    pub(crate) const EMPTY: Self = Self {
        request: 0,
        stage: SeatStage::Before,
        began_us: 0,
        since_us: 0,
        work_us: 0,
        left_us: 0,
        core_us: 0,
        gil_us: 0,
        busy: 0,
        nth: 0,
    };
}

impl Offered {
    /// How long a piece of the request takes: those with even numbers on a core, the others elsewhere.
    pub(crate) fn piece_us(&self, piece: u64, outside: Outside) -> u64 {
        let (cpu_us, fixed_us) = (u64::from(self.cpu_us), self.fixed_us(outside));
        let (us, pieces) = if is_on_core(piece) {
            (cpu_us, PIECES.div_ceil(2))
        } else {
            (fixed_us.max(u64::from(cpu_us == 0)), PIECES / 2)
        };
        let index = piece / 2;
        us * (index + 1) / pieces - us * index / pieces
    }
}

pub(crate) fn is_on_core(piece: u64) -> bool {
    piece.is_multiple_of(2)
}
