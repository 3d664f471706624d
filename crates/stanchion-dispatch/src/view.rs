//! The state of the line and of the seats, for `/status`.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use stanchion_exchange::{BEAT_US, LoopLag, SeatState, SlotState};
use stanchion_line::LaneId;

use super::Dispatch;
use super::sitting::Sitting;
use crate::status::{LaneStatus, LineStatus, LoopStatus, SeatDoes, SeatStatus};
use crate::ticket::Ticket;

/// `/status` shows so many bytes of a path at most: a path may be as long as `limit_request_line`.
const PATH_BYTES_MAX: usize = 200;
/// `/status` shows so many busy seats of event loops one by one, at most.
const BUSY_SEATS_MAX: usize = 200;

/// The state of an event loop at this moment.
#[derive(Debug)]
pub struct LoopNow {
    /// How many sessions it has, as it says itself; `None` under gevent, where there are none.
    pub sessions: Option<u32>,
    /// How late it is, or was the last time.
    pub lag_us: u64,
    lag: LoopLag,
}

impl Dispatch {
    /// How many requests wait in the line.
    pub fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Whether there is no request at all.
    pub fn is_empty(&self) -> bool {
        self.line.len() == 0 && self.ports.waiting() == 0 && self.slots.iter().all(Option::is_none)
    }

    /// How long the oldest request in the line has waited; 0 if none waits.
    pub fn oldest_wait_us(&self, now_us: u64) -> u64 {
        self.line.oldest_wait_us(now_us)
    }

    /// Whether a worker is at its seats.
    pub fn has_workers(&self) -> bool {
        !self.workers.is_empty()
    }

    /// The state of the line.
    pub fn line_status(&self, now_us: u64) -> LineStatus {
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

    /// Every seat that a worker has, and those that one of the first `workers` should have, by number. Event loops have
    /// so many seats that only the busy ones are shown, the longest first.
    pub fn seat_statuses(&self, workers: usize, now_us: u64) -> Vec<SeatStatus> {
        let status = |seat| self.seat_status(seat, now_us);
        if !self.exchange.geometry().event_loops {
            let mut seats: Vec<_> = self.seats().filter_map(status).collect();
            let there = seats.iter().map(|seat| (seat.worker, seat.seat));
            let there: BTreeSet<_> = there.collect();
            let of = |number| (0..self.seats_per_worker as u16).map(move |seat| (number, seat));
            let wanted = (0..workers as u16).flat_map(of);
            let missing = wanted.filter(|one| !there.contains(one));
            seats.extend(missing.map(SeatStatus::empty));
            seats.sort_by_key(|seat| (seat.worker, seat.seat));
            return seats;
        }
        let started_us = |seat: &u16| self.exchange.seat(*seat).started_us.load(Ordering::Relaxed);
        let busy = self
            .seats()
            .filter(|seat| self.does(*seat) == SeatDoes::Busy);
        let mut busy: Vec<_> = busy.map(|seat| (started_us(&seat), seat)).collect();
        busy.sort_unstable();
        let shown = busy.into_iter().take(BUSY_SEATS_MAX);
        shown.filter_map(|(_, seat)| status(seat)).collect()
    }

    /// How many seats the first `workers` lack. A worker that leaves keeps the seats that it still works at beside
    /// those of its successor: then their number lacks none.
    pub(super) fn empty_seats(&self, workers: usize) -> usize {
        let mut taken = vec![0; workers];
        for seat in self.seats() {
            let number = self.sitting_on(seat).map(|sitting| sitting.number);
            if let Some(of) = number.and_then(|number| taken.get_mut(usize::from(number))) {
                *of += 1;
            }
        }
        let lacks = |taken: usize| self.seats_per_worker.saturating_sub(taken);
        taken.into_iter().map(lacks).sum()
    }

    /// How many seats the worker of this index has, and how many of them are busy.
    pub fn seats_of(&self, worker: u16) -> (usize, usize) {
        let seats = self.exchange.geometry().seats_of(worker);
        let busy = seats
            .clone()
            .filter(|seat| self.does(*seat) == SeatDoes::Busy);
        (seats.len(), busy.count())
    }

    /// The state of the event loop of the worker with this index; `None` if it has none.
    pub fn loop_status(&self, worker: u16, now_us: u64) -> Option<LoopStatus> {
        let now = self.loop_now(worker, now_us)?;
        Some(LoopStatus {
            sessions: now.sessions,
            lag_us: now.lag_us,
            lag_max_us: now.lag.max_us.max(now.lag_us),
            lags: self.lags(worker, &now.lag),
        })
    }

    /// The same, without the times that the loop was late before.
    pub fn loop_now(&self, worker: u16, now_us: u64) -> Option<LoopNow> {
        let inbox = self.exchange.inbox(worker)?;
        let lag = inbox.lag();
        // The loop says how late it is when it turns, which may be a while ago.
        let silent_us = match inbox.beat_us() {
            0 => 0,
            beat_us => now_us.saturating_sub(beat_us),
        };
        Some(LoopNow {
            sessions: self.sessions.are_possible().then(|| inbox.sessions()),
            lag_us: lag.last_us.max(silent_us.saturating_sub(BEAT_US)),
            lag,
        })
    }

    /// The seats that workers have.
    pub(super) fn seats(&self) -> impl Iterator<Item = u16> {
        let seats = 0..self.exchange.geometry().seats as u16;
        seats.filter(|seat| self.does(*seat) != SeatDoes::Empty)
    }

    pub(super) fn does(&self, seat: u16) -> SeatDoes {
        match self.exchange.seat_state(seat) {
            SeatState::Empty => SeatDoes::Empty,
            SeatState::Idle => SeatDoes::Idle,
            SeatState::Busy => SeatDoes::Busy,
        }
    }

    /// `None` in the moment between a worker's taking of its seats and the message in which the master says which
    /// worker it is.
    fn seat_status(&self, place: u16, now_us: u64) -> Option<SeatStatus> {
        let (geometry, seat) = (self.exchange.geometry(), self.exchange.seat(place));
        let state = self.does(place);
        let busy = state == SeatDoes::Busy;
        let ticket = busy.then(|| self.ticket_at(place, seat.slot.load(Ordering::Relaxed)));
        let ticket = ticket.flatten();
        let started_us = seat.started_us.load(Ordering::Relaxed);
        let &Sitting { number, nth, .. } = self.sitting_on(place)?;
        Some(SeatStatus {
            worker: number,
            seat: geometry.thread_of(place),
            pid: seat.pid.load(Ordering::Relaxed).cast_signed(),
            nth,
            state,
            running_us: busy.then(|| now_us.saturating_sub(started_us)),
            method: ticket.map(|ticket| ticket.request.head.method().to_owned()),
            path: ticket.map(shown_path),
            served: seat.served.load(Ordering::Relaxed),
            busy_us: seat.busy_us.load(Ordering::Relaxed),
        })
    }

    /// The request that a seat works on. The seat names its slot in memory that its worker writes, so the acceptor
    /// believes it only if the slot names the seat.
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
