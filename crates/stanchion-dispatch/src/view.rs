//! The state of the line and of the seats, for `/status`.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use stanchion_generation::seat_status::{BUSY_SEATS_MAX, SeatSnapshot};

use crate::lines::Lines;
use crate::slots::SlotTable;
use crate::status::{LineStatus, SeatDoes, SeatStatus};
use crate::ticket::Ticket;
use crate::workers::{SeatedWorkers, Sitting};

/// `/status` shows so many bytes of a path at most: a path may be as long as `limit_request_line`.
const PATH_BYTES_MAX: usize = 200;

/// The line and the seats at one moment.
pub struct LineView<'d> {
    lines: &'d Lines,
    slots: &'d SlotTable,
}

impl<'d> LineView<'d> {
    /// Looks at these.
    pub(crate) fn new(lines: &'d Lines, slots: &'d SlotTable) -> Self {
        Self { lines, slots }
    }

    /// The workers at their seats.
    pub fn workers(&self) -> &'d SeatedWorkers {
        &self.slots.workers
    }

    /// The state of the line.
    pub fn line_status(&self, now_us: u64) -> LineStatus {
        self.lines.status(|lane| self.slots.of_lane(lane), now_us)
    }

    /// The names of all lanes, in the order of their numbers.
    pub(crate) fn lane_names(&self) -> impl Iterator<Item = &'d str> {
        self.lines.lane_names()
    }

    /// How many requests wait in the line.
    pub(crate) fn waiting(&self) -> usize {
        self.lines.waiting()
    }

    /// How many requests wait, or are at seats, or handed out ahead of them.
    pub fn in_flight(&self) -> usize {
        self.waiting() + self.in_exchange()
    }

    /// How many requests are at seats, or handed out ahead of them.
    pub(crate) fn in_exchange(&self) -> usize {
        self.slots.taken.all()
    }

    /// How many requests wait at the ports of single workers.
    pub(crate) fn waiting_at_ports(&self) -> usize {
        self.lines.ports.waiting()
    }

    /// How many seats workers have.
    pub fn seats(&self) -> usize {
        self.workers().len() * self.workers().seats_each()
    }

    /// How many seats an event loop has; `None` if workers run threads.
    pub(crate) fn seats_per_loop(&self) -> Option<u64> {
        let has_loops = self.slots.exchange.geometry().event_loops;
        has_loops.then(|| self.workers().seats_each() as u64)
    }

    /// Whether as many requests wait in the line as may.
    pub(crate) fn is_full(&self) -> bool {
        self.lines.is_full()
    }

    /// How many requests no seat has taken, in the line and in the exchange.
    pub fn untaken(&self) -> usize {
        self.lines.waiting() + self.slots.untaken().count()
    }

    /// The lanes that have as many seats as they may, with that number, if only their requests have none.
    pub(crate) fn all_at_max(&self, now_us: u64) -> Vec<(&'d str, usize)> {
        if self.slots.untaken().next().is_some() {
            return Vec::new();
        }
        let taken = &self.slots.taken;
        self.lines.all_at_max(|lane| taken.is_at_max(lane), now_us)
    }

    /// How long the oldest of these requests has waited.
    pub fn oldest_untaken_us(&self, now_us: u64) -> u64 {
        let waited = |arrived_us: u64| now_us.saturating_sub(arrived_us);
        let handed_out = self.slots.untaken().map(waited).max();
        handed_out
            .unwrap_or(0)
            .max(self.lines.oldest_wait_us(now_us))
    }

    /// The same, of those that were handed out to any worker.
    pub(crate) fn oldest_for_any_us(&self, now_us: u64) -> u64 {
        let tickets = self.slots.untaken_tickets();
        let for_any = tickets.filter(|ticket| ticket.request.peer.only_worker.is_none());
        let waited = for_any.map(|ticket| now_us.saturating_sub(ticket.request.arrived_us));
        waited.max().unwrap_or(0)
    }

    /// How many requests that any worker may take are in the exchange.
    pub(crate) fn in_exchange_for_any(&self) -> usize {
        self.slots.taken.by_any()
    }

    /// How many requests in the line would have a seat if there were more of them, and how long the oldest of those has waited. A lane
    /// that has as many seats as it may would not.
    pub fn waiting_for_seats(&self, now_us: u64) -> (usize, u64) {
        let taken = &self.slots.taken;
        self.lines.waiting_of(|lane| !taken.is_at_max(lane), now_us)
    }

    /// Every seat that a worker has, and those that one of the first `workers` should have, by number. Event loops have
    /// so many seats that only the busy ones are shown, the longest first.
    pub fn seat_statuses(&self, workers: usize, now_us: u64) -> Vec<SeatStatus> {
        let status = |seat| self.seat_status(seat, now_us);
        let (seated, exchange) = (&self.slots.workers, self.slots.exchange);
        if !exchange.geometry().event_loops {
            let mut seats: Vec<_> = seated.seats().filter_map(status).collect();
            let there = seats.iter().map(|seat| (seat.worker, seat.seat));
            let there: BTreeSet<_> = there.collect();
            let of = |number| (0..seated.seats_each() as u16).map(move |seat| (number, seat));
            let wanted = (0..workers as u16).flat_map(of);
            let missing = wanted.filter(|one| !there.contains(one));
            seats.extend(missing.map(SeatStatus::empty));
            seats.sort_by_key(|seat| (seat.worker, seat.seat));
            return seats;
        }
        let started_us = |seat: &u16| exchange.seat(*seat).started_us.load(Ordering::Relaxed);
        let busy = seated
            .seats()
            .filter(|seat| seated.does(*seat) == SeatDoes::Busy);
        let mut busy: Vec<_> = busy.map(|seat| (started_us(&seat), seat)).collect();
        busy.sort_unstable();
        let shown = busy.into_iter().take(BUSY_SEATS_MAX);
        shown.filter_map(|(_, seat)| status(seat)).collect()
    }

    /// `None` in the moment between a worker's taking of its seats and the message in which the master says which
    /// worker it is.
    fn seat_status(&self, place: u16, now_us: u64) -> Option<SeatStatus> {
        let (seated, exchange) = (&self.slots.workers, self.slots.exchange);
        let seat = exchange.seat(place);
        let figures = SeatSnapshot::of(exchange, place, now_us);
        let busy = figures.state == SeatDoes::Busy;
        let ticket = busy.then(|| {
            self.slots
                .ticket_at(place, seat.slot.load(Ordering::Relaxed))
        });
        let ticket = ticket.flatten();
        let &Sitting { number, nth, .. } = seated.on(place)?;
        Some(SeatStatus {
            worker: number,
            seat: exchange.geometry().thread_of(place),
            pid: seat.pid.load(Ordering::Relaxed).cast_signed(),
            nth,
            state: figures.state,
            running_us: figures.running_us,
            method: ticket.map(|ticket| ticket.request.head.method().to_owned()),
            path: ticket.map(shown_path),
            served: figures.served,
            busy_us: figures.busy_us,
        })
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
