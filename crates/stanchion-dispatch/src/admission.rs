//! The dispatch lets requests into the line, each into its lane, or refuses them.
//!
//! The ticket of a request keeps its lane. Each client has a limit in the line.

use std::rc::Rc;

use stanchion_line::{Discipline, LaneId, LaneLimits, LaneSeats, Line, LineLimits, Reserve};

use crate::request::Request;
use crate::storage::clients::{Client, Share, Shares, TooMuch};
use stanchion_settings::{Believed, Lane, QueueOrder, Seconds, Settings};

/// Turns the settings of the line into its limits.
pub(crate) fn line_limits(settings: &Settings) -> LineLimits {
    let us = |seconds: Seconds| {
        seconds
            .as_duration()
            .map_or(0, |duration| duration.as_micros() as u64)
    };
    LineLimits {
        waiting_max: settings.line.max_waiting as usize,
        queue_timeout_us: us(settings.line.queue_timeout),
        discipline: match settings.line.queue_order {
            QueueOrder::Fifo => Discipline::Fifo,
            QueueOrder::Adaptive => Discipline::Adaptive {
                target_us: us(settings.line.queue_target),
            },
        },
    }
}

/// All lanes. The first one is the default lane, for requests that match no other; mostly it is the only one.
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    /// By lane: whether one client may have all of its room.
    are_for_all: Vec<bool>,
    waiting_max: usize,
}

impl Lanes {
    pub(crate) fn new(settings: &Settings) -> Self {
        let lanes = settings.lanes();
        let is_for_all = lanes.iter().map(|lane| settings.is_for_all(lane));
        Self {
            are_for_all: is_for_all.collect(),
            lanes,
            waiting_max: settings.line.max_waiting as usize,
        }
    }

    /// All lanes, the default lane first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter()
    }

    /// The names of all lanes for the line, in the same order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = LaneId> + use<> {
        (0..self.lanes.len()).map(LaneId::new)
    }

    /// How many requests may wait, those in lanes with a limit of their own not counted.
    pub(crate) fn waiting_max(&self) -> usize {
        self.waiting_max
    }

    /// A line of these lanes.
    pub(crate) fn line<T>(&self, limits: LineLimits) -> Line<T> {
        let lanes: Vec<_> = self
            .lanes
            .iter()
            .map(|lane| LaneLimits {
                priority: lane.priority,
                waiting_max: lane.waiting,
            })
            .collect();
        Line::with_lanes(limits, &lanes)
    }

    /// The seats of each lane.
    pub(crate) fn reserve(&self) -> Reserve {
        let lanes = self.lanes.iter().map(|lane| LaneSeats {
            kept: lane.seats,
            max: lane.seats_max,
        });
        Reserve::new(lanes.collect())
    }

    /// The lane in which a request is to wait. The line at the port of a single worker has only the default lane.
    pub(crate) fn lane_of(&self, request: &Request) -> LaneId {
        if self.lanes.len() == 1 || request.peer.only_worker.is_some() {
            return LaneId::DEFAULT;
        }
        let mut others = (1..).zip(&self.lanes[1..]);
        others
            .find(|(_, lane)| lane.takes(&request.head))
            .map_or(LaneId::DEFAULT, |(index, _)| LaneId::new(index))
    }

    /// Whether the operator has given a lane a limit of its own.
    pub(crate) fn has_room_of_its_own(&self, lane: LaneId) -> bool {
        self.lanes[lane.index()].waiting.is_some()
    }

    /// Whether one client may have all room of a lane, whatever the limit for clients is.
    pub(crate) fn is_for_all(&self, lane: LaneId) -> bool {
        self.are_for_all[lane.index()]
    }

    /// The operator's name for a lane; `None` if there is only the default lane.
    pub(crate) fn name(&self, lane: LaneId) -> Option<&str> {
        (self.lanes.len() > 1).then(|| self.lanes[lane.index()].name.as_str())
    }
}

/// The limit on how many requests of one client wait (`max_waiting_per_client`).
pub(crate) struct ClientLimit {
    each_max: u64,
    shares: Rc<Shares>,
    believed: Believed,
}

impl ClientLimit {
    pub(crate) fn new(settings: &Settings) -> Option<Self> {
        let each_max = u64::from(settings.line.max_waiting_per_client);
        (each_max > 0).then(|| Self {
            each_max,
            shares: Rc::default(),
            believed: settings.believed(),
        })
    }

    /// Takes a share for one more waiting request of its client; `Err` if the client has as many as it may. A request
    /// of an unknown client needs no share.
    pub(crate) fn share(&self, request: &Request) -> Result<Option<Share>, TooMuch> {
        let peer = &request.peer;
        let client = self.believed.client(peer.ip, peer.said(&request.head));
        let share = client.map(|ip| self.shares.take(Client::at(ip), 1, self.each_max));
        share.transpose()
    }
}
