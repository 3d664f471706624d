//! How the line and the seats are, for `/status`.

use std::sync::atomic::Ordering;

use stanchion_exchange::{BEAT_US, LAG_BOUNDS_US, SeatState, SlotState};
use stanchion_line::LaneId;

use super::Dispatch;
use crate::acceptor::dispatch::status::{
    Lags, LaneStatus, LineStatus, LoopStatus, SeatDoes, SeatStatus,
};
use crate::acceptor::dispatch::ticket::Ticket;

/// Most of a path that is shown, in bytes: it may be as long as `limit_request_line`.
const PATH_BYTES_MAX: usize = 200;
/// Most busy seats of event loops that are shown one by one.
const BUSY_SEATS_MAX: usize = 200;

impl Dispatch {
    /// How many wait in the line.
    pub(crate) fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Whether there is no request at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.line.len() == 0 && self.ports.waiting() == 0 && self.slots.iter().all(Option::is_none)
    }

    /// How long one has waited in it at most; 0 if nobody does.
    pub(crate) fn oldest_wait_us(&self, now_us: u64) -> u64 {
        self.line.oldest_wait_us(now_us)
    }

    pub(crate) fn has_workers(&self) -> bool {
        !self.workers.is_empty()
    }

    /// Index and process of every worker that sits.
    pub(crate) fn sitting(&self) -> impl Iterator<Item = (u16, i32)> {
        self.workers
            .iter()
            .map(|(&worker, sitting)| (worker, sitting.pid))
    }

    pub(crate) fn line_status(&self, now_us: u64) -> LineStatus {
        let lanes = (0..).zip(self.lanes.iter()).map(|(index, lane)| {
            let id = LaneId::new(index);
            let view = self.line.view(now_us, id);
            let handed_out = self.slots.iter().flatten();
            let theirs = handed_out.filter(|ticket| {
                ticket.lane.get() == id && ticket.request.peer.only_worker.is_none()
            });
            LaneStatus {
                name: lane.name.clone(),
                priority: lane.priority,
                waiting: view.waiting,
                waiting_max: lane.waiting,
                oldest_wait_us: view.oldest_wait_us,
                in_exchange: theirs.count(),
                seats_reserved: lane.seats,
                drain_per_s: view.drain_per_s,
                standing: view.stands,
            }
        });
        let lanes: Vec<_> = lanes.collect();
        LineStatus {
            waiting: self.line.len(),
            waiting_max: self.lanes.waiting_max(),
            waiting_at_ports: self.ports.waiting(),
            oldest_wait_us: self.line.oldest_wait_us(now_us),
            drain_per_s: lanes.iter().map(|lane| lane.drain_per_s).sum(),
            standing: lanes.iter().any(|lane| lane.standing),
            lanes,
        }
    }

    /// Every seat that somebody has, or that should be had by one of the first `workers`; of event loops, which have so
    /// many, those that are busy, the longest first.
    pub(crate) fn seat_statuses(&self, workers: usize, now_us: u64) -> Vec<SeatStatus> {
        if !self.exchange.geometry().event_loops {
            let seats = self.seats(workers);
            return seats.map(|seat| self.seat_status(seat, now_us)).collect();
        }
        let started_us = |seat: &u16| self.exchange.seat(*seat).started_us.load(Ordering::Relaxed);
        let busy = self
            .seats(workers)
            .filter(|seat| self.does(*seat) == SeatDoes::Busy);
        let mut busy: Vec<_> = busy.map(|seat| (started_us(&seat), seat)).collect();
        busy.sort_unstable();
        let shown = busy.into_iter().take(BUSY_SEATS_MAX);
        shown
            .map(|(_, seat)| self.seat_status(seat, now_us))
            .collect()
    }

    /// How many seats a worker has, and how many of them are busy.
    pub(crate) fn seats_of(&self, worker: u16) -> (usize, usize) {
        let seats = self.exchange.geometry().seats_of(worker);
        let busy = seats
            .clone()
            .filter(|seat| self.does(*seat) == SeatDoes::Busy);
        (seats.len(), busy.count())
    }

    /// How the event loop of a worker is; `None` if it has none.
    pub(crate) fn loop_status(&self, worker: u16, now_us: u64) -> Option<LoopStatus> {
        let inbox = self.exchange.inbox(worker)?;
        let lag = inbox.lag();
        // It says so when it turns, which may be a while ago.
        let silent_us = match inbox.beat_us() {
            0 => 0,
            beat_us => now_us.saturating_sub(beat_us),
        };
        let mut count = 0_u64;
        let buckets = LAG_BOUNDS_US.iter().zip(lag.counts).map(|(&bound_us, of)| {
            count = count.saturating_add(of);
            (bound_us, count)
        });
        let buckets = buckets.collect();
        let over = lag.counts.last().copied().unwrap_or_default();
        let lag_us = lag.last_us.max(silent_us.saturating_sub(BEAT_US));
        Some(LoopStatus {
            sessions: self.sessions.are_possible().then(|| inbox.sessions()),
            lag_us,
            lag_max_us: lag.max_us.max(lag_us),
            lags: Lags {
                count: count.saturating_add(over),
                sum_us: lag.sum_us,
                buckets,
            },
        })
    }

    pub(super) fn seats(&self, workers: usize) -> impl Iterator<Item = u16> {
        let geometry = self.exchange.geometry();
        let seats = 0..geometry.seats as u16;
        seats.filter(move |seat| {
            usize::from(geometry.worker_of(*seat)) < workers || self.does(*seat) != SeatDoes::Empty
        })
    }

    pub(super) fn does(&self, seat: u16) -> SeatDoes {
        match self.exchange.seat_state(seat) {
            SeatState::Empty => SeatDoes::Empty,
            SeatState::Idle => SeatDoes::Idle,
            SeatState::Busy => SeatDoes::Busy,
        }
    }

    fn seat_status(&self, number: u16, now_us: u64) -> SeatStatus {
        let (geometry, seat) = (self.exchange.geometry(), self.exchange.seat(number));
        let state = self.does(number);
        let busy = state == SeatDoes::Busy;
        let ticket = busy.then(|| self.ticket_at(number, seat.slot.load(Ordering::Relaxed)));
        let ticket = ticket.flatten();
        let started_us = seat.started_us.load(Ordering::Relaxed);
        SeatStatus {
            worker: geometry.worker_of(number),
            seat: geometry.thread_of(number),
            pid: seat.pid.load(Ordering::Relaxed).cast_signed(),
            tenure: seat.tenure.load(Ordering::Relaxed),
            state,
            running_us: busy.then(|| now_us.saturating_sub(started_us)),
            method: ticket.map(|ticket| ticket.request.head.method().to_owned()),
            path: ticket.map(shown_path),
            served: seat.served.load(Ordering::Relaxed),
            busy_us: seat.busy_us.load(Ordering::Relaxed),
        }
    }

    /// What a seat works on. It says which slot that is in memory that it writes, so this is believed
    /// only if the slot says the same.
    fn ticket_at(&self, seat: u16, slot: u32) -> Option<&Ticket> {
        let ticket = self.slots.get(slot as usize)?.as_deref()?;
        match self.side.state(slot) {
            Ok(SlotState::Running { tenant, .. }) if tenant.seat == seat => Some(ticket),
            _ => None,
        }
    }
}

fn shown_path(ticket: &Ticket) -> String {
    let path = ticket.request.head.path();
    let shown = String::from_utf8_lossy(&path[..path.len().min(PATH_BYTES_MAX)]).into_owned();
    if path.len() > PATH_BYTES_MAX {
        shown + "…"
    } else {
        shown
    }
}
