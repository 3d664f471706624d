//! The seats that requests in the exchange have, or are about to have.

use std::collections::BTreeMap;

use stanchion_line::{LaneId, Reserve};

use crate::request::PortNumber;

/// Counts the requests in the exchange by the workers that may take them. A session is not among them: it has given its seat
/// back.
pub(crate) struct SeatsTaken {
    /// The requests that any worker may take.
    by_any: usize,
    /// The same by lane, if the operator keeps seats for some, or gives some only so many.
    reserve: Reserve,
    /// The requests of each port. A port without a request in the exchange has no entry.
    by_port: BTreeMap<PortNumber, usize>,
}

impl SeatsTaken {
    /// Counts from zero.
    pub(crate) fn new(reserve: Reserve) -> Self {
        Self {
            by_any: 0,
            reserve,
            by_port: BTreeMap::new(),
        }
    }

    /// Counts a request that has got into the exchange.
    pub(crate) fn entered(&mut self, lane: LaneId, port: Option<PortNumber>) {
        match port {
            None => {
                self.by_any += 1;
                self.reserve.entered(lane);
            }
            Some(port) => *self.by_port.entry(port).or_default() += 1,
        }
    }

    /// Counts a request that has given its seat back, or will not need one.
    pub(crate) fn left(&mut self, lane: LaneId, port: Option<PortNumber>) {
        match port {
            None => {
                self.by_any -= 1;
                self.reserve.left(lane);
            }
            Some(port) => {
                if let Some(count) = self.by_port.get_mut(&port) {
                    *count -= 1;
                    if *count == 0 {
                        self.by_port.remove(&port);
                    }
                }
            }
        }
    }

    /// How many requests are in the exchange that any worker may take.
    pub(crate) fn by_any(&self) -> usize {
        self.by_any
    }

    /// How many requests are in the exchange.
    pub(crate) fn all(&self) -> usize {
        self.by_any + self.by_port.values().sum::<usize>()
    }

    /// How many requests of these ports are in the exchange.
    pub(crate) fn by_ports(&self, ports: impl Iterator<Item = PortNumber>) -> usize {
        ports.filter_map(|port| self.by_port.get(&port)).sum()
    }

    /// Whether the operator keeps seats for lanes.
    pub(crate) fn are_reserved(&self) -> bool {
        self.reserve.keeps_seats()
    }

    /// Whether one more request of this lane may have one of so many seats.
    pub(crate) fn may_enter(&self, lane: LaneId, seats: usize) -> bool {
        self.reserve.may_enter(lane, seats)
    }

    /// Whether this lane has as many seats as it may.
    pub(crate) fn is_at_max(&self, lane: LaneId) -> bool {
        self.reserve.is_at_max(lane)
    }
}

#[cfg(test)]
mod tests {
    use stanchion_line::LaneSeats;

    use super::*;

    #[test]
    fn requests_of_ports_count_by_themselves() {
        let lane = LaneId::DEFAULT;
        let lane_seats = LaneSeats {
            kept: 0,
            max: Some(2),
        };
        let mut taken = SeatsTaken::new(Reserve::new(vec![lane_seats]));
        for port in [None, Some(1), None, Some(1), Some(2)] {
            taken.entered(lane, port);
        }
        assert_eq!((taken.by_any(), taken.all()), (2, 5));
        assert_eq!(taken.by_ports([1, 2, 3].into_iter()), 3);
        assert!(taken.is_at_max(lane) && !taken.are_reserved());
        taken.left(lane, Some(1));
        taken.left(lane, None);
        assert_eq!((taken.by_any(), taken.by_ports([1].into_iter())), (1, 1));
        assert!(!taken.is_at_max(lane) && taken.may_enter(lane, 2));
        taken.left(lane, Some(1));
        taken.left(lane, Some(2));
        assert!(taken.by_port.is_empty());
    }
}
