//! The dispatch lets requests into the line, each into its lane, or refuses them.
//!
//! The ticket of a request keeps its lane.

use std::rc::Rc;

use stanchion_line::{Discipline, Full, LaneId, LaneLimits, Line, LineLimits, Place, Reserve};
use stanchion_sys::charge;

use super::Dispatch;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::storage::clients::{Client, Share, Shares, TooMuch};
use crate::ticket::Ticket;
use stanchion_settings::{Believed, Lane, QueueOrder, Seconds, Settings};

/// Turns the settings of the line into its limits.
pub(super) fn line_limits(settings: &Settings) -> LineLimits {
    let us = |seconds: Seconds| {
        seconds
            .as_duration()
            .map_or(0, |duration| duration.as_micros() as u64)
    };
    LineLimits {
        waiting_max: settings.max_waiting as usize,
        queue_timeout_us: us(settings.queue_timeout),
        discipline: match settings.queue_order {
            QueueOrder::Fifo => Discipline::Fifo,
            QueueOrder::Adaptive => Discipline::Adaptive {
                target_us: us(settings.queue_target),
            },
        },
    }
}

/// All lanes. The first one is the default lane, for requests that match no other; mostly it is the only one.
pub struct Lanes {
    lanes: Vec<Lane>,
    waiting_max: usize,
}

impl Lanes {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            lanes: settings.lanes(),
            waiting_max: settings.max_waiting as usize,
        }
    }

    /// All lanes, the default lane first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter()
    }

    /// How many requests may wait, those in lanes with a limit of their own not counted.
    pub(super) fn waiting_max(&self) -> usize {
        self.waiting_max
    }

    pub(super) fn line<T>(&self, limits: LineLimits) -> Line<T> {
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

    pub(super) fn reserve(&self) -> Reserve {
        Reserve::new(self.lanes.iter().map(|lane| lane.seats).collect())
    }

    /// The lane in which a request is to wait. The line at the port of a single worker has only the default lane.
    fn lane_of(&self, request: &Request) -> LaneId {
        if self.lanes.len() == 1 || request.peer.only_worker.is_some() {
            return LaneId::DEFAULT;
        }
        let mut others = (1..).zip(&self.lanes[1..]);
        others
            .find(|(_, lane)| lane.takes(&request.head))
            .map_or(LaneId::DEFAULT, |(index, _)| LaneId::new(index))
    }

    fn has_room_of_its_own(&self, lane: LaneId) -> bool {
        self.lanes[lane.index()].waiting.is_some()
    }

    /// The operator's name for a lane; `None` if there is only the default lane.
    pub fn name(&self, lane: LaneId) -> Option<&str> {
        (self.lanes.len() > 1).then(|| self.lanes[lane.index()].name.as_str())
    }
}

/// The limit on how many requests of one client wait (`max_waiting_per_client`).
pub(super) struct ClientLimit {
    each_max: u64,
    shares: Rc<Shares>,
    believed: Believed,
}

impl ClientLimit {
    pub(super) fn new(settings: &Settings) -> Option<Self> {
        let each_max = u64::from(settings.max_waiting_per_client);
        (each_max > 0).then(|| Self {
            each_max,
            shares: Rc::default(),
            believed: settings.believed(),
        })
    }

    /// Takes a share for one more waiting request of its client; `Err` if the client has as many as it may. A request
    /// of an unknown client needs no share.
    fn share(&self, request: &Request) -> Result<Option<Share>, TooMuch> {
        let client = Client::of_request(
            request.peer.ip,
            request.peer.said(&request.head),
            &self.believed,
        );
        let share = client.map(|client| self.shares.take(client, 1, self.each_max));
        share.transpose()
    }
}

impl Dispatch {
    /// Lets a request into its lane, or says why not.
    pub(super) fn admit(&mut self, ticket: &Rc<Ticket>, now_us: u64) -> Result<Place, Refusal> {
        let lane = self.lanes.lane_of(&ticket.request);
        ticket.lane.set(lane);
        // A lane with a limit of its own is bounded already. And all health checks that come through one proxy look
        // like one client to us.
        let limit = self.client_limit.as_ref();
        let limit = limit.filter(|_| !self.lanes.has_room_of_its_own(lane));
        let Ok(share) = limit.map_or(Ok(None), |limit| limit.share(&ticket.request)) else {
            let retry_after_s = self.retry_after_s(ticket, now_us);
            return Err(Refusal::TooManyOfClient { retry_after_s });
        };
        // Requests that wait at ports count against the same limit.
        let port = ticket.request.peer.only_worker;
        let full = !self.line.has_room(lane, self.ports.waiting())
            || port.is_some_and(|port| self.ports.is_full(port));
        let Some(line) = self.line_of(ticket) else {
            let retry_after_s = self.retry_after_s(ticket, now_us);
            return Err(Refusal::WorkerAbsent { retry_after_s });
        };
        if full {
            let retry_after_s = line.retry_after_s(now_us, lane);
            return Err(Refusal::LineFull { retry_after_s });
        }
        if ticket.request.websocket.is_some() {
            let client = self.sessions.client_of(&ticket.request);
            let permit = self.sessions.permit(client).ok_or(Refusal::SessionsFull)?;
            ticket.permit.set(Some(permit));
        }
        let Some(line) = self.line_of(ticket) else {
            let retry_after_s = self.retry_after_s(ticket, now_us);
            return Err(Refusal::WorkerAbsent { retry_after_s });
        };
        // A lane is for all clients, so no single one pays for its memory.
        let charged = charge::to_nobody();
        let joined = line.join(now_us, lane, Rc::clone(ticket));
        drop(charged);
        let place =
            joined.map_err(|(_, Full { retry_after_s })| Refusal::LineFull { retry_after_s })?;
        ticket.client_share.set(share);
        Ok(place)
    }

    /// When the client of a refused request should try again, in seconds: at the pace of the lane that the request is
    /// in or was to join.
    pub(super) fn retry_after_s(&mut self, ticket: &Ticket, now_us: u64) -> u64 {
        let lane = ticket.lane.get();
        if let Some(line) = self.line_of(ticket) {
            return line.retry_after_s(now_us, lane);
        }
        self.line.retry_after_s(now_us, lane)
    }
}
