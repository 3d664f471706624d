//! The requests that wait: in the line, each in its lane, and in the lines at the ports of single workers. A request is let
//! into one of them, or refused.

use std::rc::Rc;

use stanchion_line::{Expiry, Full, LaneId, Line, LineLimits, Place, Pulled, Reserve};
use stanchion_settings::Settings;
use stanchion_sys::charge;

use crate::admission::{ClientLimit, Lanes, line_limits};
use crate::ports::Ports;
use crate::refusal::Refusal;
use crate::sessions::Sessions;
use crate::status::{LaneStatus, LineStatus};
use crate::ticket::Ticket;

/// All requests that wait, and the limits on them.
pub(crate) struct Lines {
    line: Line<Rc<Ticket>>,
    lanes: Lanes,
    client_limit: Option<ClientLimit>,
    pub(crate) ports: Ports<Rc<Ticket>>,
    sessions: Sessions,
}

impl Lines {
    /// Empty lines, with the limits of the settings.
    pub(crate) fn new(settings: &Settings) -> Self {
        let limits = line_limits(settings);
        let lanes = Lanes::new(settings);
        // For the ports of `worker_port_base`, and for those that workers ask for.
        let share = LineLimits {
            waiting_max: (limits.waiting_max / (settings.workers.workers.max as usize).max(1))
                .max(1),
            ..limits
        };
        Self {
            line: lanes.line(limits),
            lanes,
            client_limit: ClientLimit::new(settings),
            ports: Ports::new(
                settings.listen.worker_port_base,
                settings.worker_ports(),
                share,
            ),
            sessions: Sessions::new(settings),
        }
    }

    /// The seats of each lane.
    pub(crate) fn reserve(&self) -> Reserve {
        self.lanes.reserve()
    }

    /// Whether the lane of a request has its own limit of requests that wait.
    pub(crate) fn has_room_of_its_own(&self, ticket: &Ticket) -> bool {
        self.lanes.has_room_of_its_own(ticket.lane.get())
    }

    /// The operator's name for a lane; `None` if there is only the default lane.
    pub(crate) fn lane_name(&self, lane: LaneId) -> Option<&str> {
        self.lanes.name(lane)
    }

    /// The names of all lanes, in the order of their numbers.
    pub(crate) fn lane_names(&self) -> impl Iterator<Item = &str> {
        self.lanes.iter().map(|lane| lane.name.as_str())
    }

    /// Lets a request into its lane, or says why not.
    pub(crate) fn admit(&mut self, ticket: &Rc<Ticket>, now_us: u64) -> Result<(), Refusal> {
        let lane = self.lanes.lane_of(&ticket.request);
        ticket.lane.set(lane);
        // A lane with a limit of its own is bounded already. And all health checks that come through one proxy look
        // like one client to us.
        let limit = self.client_limit.as_ref();
        let limit = limit.filter(|_| !self.lanes.is_for_all(lane));
        let Ok(share) = limit.map_or(Ok(None), |limit| limit.share(&ticket.request)) else {
            let retry_after_s = self.retry_after_s(ticket, now_us);
            return Err(Refusal::TooManyOfClient { retry_after_s });
        };
        // Requests that wait at ports count against the same limit.
        let port = ticket.request.peer.only_worker;
        let full = !self.line.has_room(lane, self.ports.waiting())
            || port.is_some_and(|port| self.ports.is_full(port));
        let Self {
            line,
            ports,
            sessions,
            ..
        } = self;
        let Some(line) = port.map_or(Some(line), |port| ports.line(port)) else {
            let retry_after_s = self.retry_after_s(ticket, now_us);
            return Err(Refusal::WorkerAbsent { retry_after_s });
        };
        if full {
            let retry_after_s = line.retry_after_s(now_us, lane);
            return Err(Refusal::LineFull { retry_after_s });
        }
        if ticket.request.websocket.is_some() {
            let client = sessions.client_of(&ticket.request);
            let permit = sessions.permit(client).ok_or(Refusal::SessionsFull)?;
            ticket.permit.set(Some(permit));
        }
        // A lane is for all clients, so no single one pays for its memory.
        let charged = charge::to_nobody();
        let joined = line.join(now_us, lane, Rc::clone(ticket));
        drop(charged);
        let place =
            joined.map_err(|(_, Full { retry_after_s })| Refusal::LineFull { retry_after_s })?;
        ticket.joins(place, share);
        Ok(())
    }

    /// The line that a request is in, or is to join; `None` if the port that it came by is gone.
    fn of(&mut self, ticket: &Ticket) -> Option<&mut Line<Rc<Ticket>>> {
        match ticket.request.peer.only_worker {
            None => Some(&mut self.line),
            Some(port) => self.ports.line(port),
        }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Line<Rc<Ticket>>> {
        self.ports.lines().chain([&mut self.line])
    }

    /// When the client of a refused request should try again, in seconds: at the pace of the lane that the request is
    /// in or was to join.
    pub(crate) fn retry_after_s(&mut self, ticket: &Ticket, now_us: u64) -> u64 {
        let lane = ticket.lane.get();
        if let Some(line) = self.of(ticket) {
            return line.retry_after_s(now_us, lane);
        }
        self.line.retry_after_s(now_us, lane)
    }

    /// Takes the next request that any worker may have, of the lanes that `may` have a seat.
    pub(crate) fn pull(&mut self, now_us: u64, may: impl Fn(LaneId) -> bool) -> Option<Rc<Ticket>> {
        let pulled = self.line.pull_if(now_us, may)?;
        Some(pulled.item)
    }

    /// Puts back a request that had left its line and must be served again, as the first of its lane. `None` if the port
    /// that it came by is gone.
    pub(crate) fn put_back(&mut self, ticket: &Rc<Ticket>, now_us: u64) -> Option<Place> {
        let (lane, arrived_us) = (ticket.lane.get(), ticket.request.arrived_us);
        let line = self.of(ticket)?;
        Some(line.put_back(now_us, lane, arrived_us, Rc::clone(ticket)))
    }

    /// Takes out a request whose client has gone.
    pub(crate) fn leave(&mut self, ticket: &Ticket, place: Place) {
        if let Some(line) = self.of(ticket) {
            line.leave(place);
        }
    }

    /// Counts a request that a worker is done with.
    pub(crate) fn drained(&mut self, ticket: &Ticket, now_us: u64) {
        if let Some(line) = self.of(ticket) {
            line.drained(now_us, ticket.lane.get());
        }
    }

    /// Takes out one request that may wait no longer.
    pub(crate) fn expire(&mut self, now_us: u64) -> Option<(Expiry, Rc<Ticket>)> {
        let mut expired = self.all().filter_map(|line| line.expire(now_us));
        let (expiry, Pulled { item: ticket, .. }) = expired.next()?;
        Some((expiry, ticket))
    }

    /// Whether a request that arrived then has waited too long.
    pub(crate) fn is_overdue(&self, arrived_us: u64, now_us: u64) -> bool {
        self.line.is_overdue(arrived_us, now_us)
    }

    /// Takes all requests out.
    pub(crate) fn drain(&mut self, now_us: u64) -> Vec<Rc<Ticket>> {
        let drained = self.all().flat_map(|line| line.drain(now_us));
        drained.map(|pulled| pulled.item).collect()
    }

    /// How many requests wait in the line, those at ports not counted.
    pub(crate) fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Whether no request waits anywhere.
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty() && self.ports.waiting() == 0
    }

    /// Whether as many requests wait in the line as may.
    pub(crate) fn is_full(&self) -> bool {
        !self.line.is_empty() && self.line.len() >= self.lanes.waiting_max()
    }

    /// How long the oldest request in the line has waited; 0 if none waits.
    pub(crate) fn oldest_wait_us(&self, now_us: u64) -> u64 {
        self.line.oldest_wait_us(now_us)
    }

    /// How many requests wait in lanes that `may` have a seat, and how long the oldest of them has waited.
    pub(crate) fn waiting_of(&self, may: impl Fn(LaneId) -> bool, now_us: u64) -> (usize, u64) {
        let lanes = self.lanes.ids().filter(|&lane| may(lane));
        let views = lanes.map(|lane| self.line.view(now_us, lane));
        views.fold((0, 0), |(waiting, oldest_us), view| {
            let longest_us = oldest_us.max(view.oldest_wait_us);
            (waiting + view.waiting, longest_us)
        })
    }

    /// The lanes that have as many seats as they may, with that number, if all requests that wait are theirs.
    pub(crate) fn all_at_max(
        &self,
        is_at_max: impl Fn(LaneId) -> bool,
        now_us: u64,
    ) -> Vec<(&str, usize)> {
        if self.waiting_of(|lane| !is_at_max(lane), now_us).0 > 0 {
            return Vec::new();
        }
        let lanes = self.lanes.ids().zip(self.lanes.iter());
        let lanes = lanes.filter(|&(id, _)| self.line.view(now_us, id).waiting > 0);
        lanes
            .filter_map(|(_, lane)| Some((lane.name.as_str(), lane.seats_max?)))
            .collect()
    }

    /// The state of the line. `in_exchange` counts the requests of a lane that have left it.
    pub(crate) fn status(&self, in_exchange: impl Fn(LaneId) -> usize, now_us: u64) -> LineStatus {
        let lanes = self.lanes.ids().zip(self.lanes.iter()).map(|(id, lane)| {
            let view = self.line.view(now_us, id);
            LaneStatus {
                name: lane.name.clone(),
                priority: lane.priority,
                waiting: view.waiting,
                waiting_max: lane.waiting,
                oldest_wait_us: view.oldest_wait_us,
                in_exchange: in_exchange(id),
                seats_reserved: lane.seats,
                seats_max: lane.seats_max,
                drain_per_s: view.drain_per_s,
                over_target: view.is_over_target,
            }
        });
        let lanes: Vec<_> = lanes.collect();
        LineStatus {
            waiting: self.line.len(),
            waiting_max: self.lanes.waiting_max(),
            waiting_at_ports: self.ports.waiting(),
            oldest_wait_us: self.line.oldest_wait_us(now_us),
            drain_per_s: lanes.iter().map(|lane| lane.drain_per_s).sum(),
            over_target: lanes.iter().any(|lane| lane.over_target),
            lanes,
        }
    }
}
