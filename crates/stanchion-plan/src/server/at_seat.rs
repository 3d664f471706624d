//! A request at a seat of the simulated server: from piece to piece until it is done.

use std::cmp::Reverse;

use stanchion_line::{LaneId, Measured};

use super::ServerModel;
use crate::seat::{PIECES, SeatModel, SeatStage, is_on_core};

impl ServerModel<'_> {
    fn worker_of(&self, seat: u16) -> usize {
        usize::from(seat) / self.rules.seats_each
    }

    /// A seat takes a request.
    pub(super) fn take(&mut self, seat: u16, request: u32) {
        let arrived_us = self.arrival_us(request as usize);
        let delays = self.load.delays;
        let samples = if arrived_us == self.now_us {
            &delays.idle_us
        } else {
            &delays.busy_us
        };
        let began_us = self.now_us + u64::from(self.chance.one_of(samples).unwrap_or(0));
        let worker = self.worker_of(seat);
        self.handed.waiting -= 1;
        self.handed.busy += 1;
        self.busy_of[worker] += 1;
        self.outcome.busy_max = self.outcome.busy_max.max(self.handed.busy);
        let offered = &self.load.requests[request as usize];
        let whole_us = (u64::from(offered.cpu_us) + offered.fixed_us(self.rules.outside)).max(1);
        let is_plain = self.rules.is_plain;
        self.seats[usize::from(seat)] = SeatModel {
            request,
            stage: if is_plain {
                SeatStage::Whole
            } else {
                SeatStage::Before
            },
            began_us,
            busy: self.handed.busy,
            nth: self.seats[usize::from(seat)].nth + 1,
            ..SeatModel::EMPTY
        };
        if is_plain {
            self.set_timer(seat, began_us + whole_us);
        } else if began_us > self.now_us {
            self.set_timer(seat, began_us);
        } else {
            self.next_piece(seat, 0);
        }
    }

    fn set_timer(&mut self, seat: u16, at_us: u64) {
        self.timers.push(Reverse((at_us << 16) | u64::from(seat)));
    }

    /// A seat's timer is over.
    pub(super) fn timer(&mut self) {
        let Some(Reverse(timer)) = self.timers.pop() else {
            return;
        };
        let seat = timer as u16;
        match self.seats[usize::from(seat)].stage {
            SeatStage::Before => self.next_piece(seat, 0),
            SeatStage::Whole => self.done(seat),
            SeatStage::Piece(piece) if is_on_core(piece) => self.work_over(seat),
            SeatStage::Piece(_) => self.piece_over(seat),
        }
    }

    /// A seat begins the next piece of its request that takes any time, or is done.
    fn next_piece(&mut self, seat: u16, first: u64) {
        let now_us = self.now_us;
        let request = self.seats[usize::from(seat)].request;
        let offered = &self.load.requests[request as usize];
        let pieces = first..PIECES;
        let mut pieces = pieces.map(|piece| (piece, offered.piece_us(piece, self.rules.outside)));
        let Some((piece, piece_us)) = pieces.find(|&(_, us)| us > 0) else {
            return self.done(seat);
        };
        let worker = self.worker_of(seat);
        let place = &mut self.seats[usize::from(seat)];
        place.stage = SeatStage::Piece(piece);
        place.since_us = now_us;
        if is_on_core(piece) {
            place.left_us = piece_us;
            let locks = self.needs.locks.as_mut();
            if locks.is_none_or(|locks| locks.take(worker, seat)) {
                self.has_lock(seat);
            }
        } else if let Some(pool) = &mut self.needs.elsewhere {
            pool.enter(now_us, seat, piece_us);
        } else {
            self.set_timer(seat, now_us + piece_us);
        }
    }

    /// A seat has the lock, and wants a core.
    fn has_lock(&mut self, seat: u16) {
        let now_us = self.now_us;
        let place = &mut self.seats[usize::from(seat)];
        place.gil_us += now_us - place.since_us;
        place.since_us = now_us;
        place.work_us = place.left_us.min(self.rules.turn_us);
        place.left_us -= place.work_us;
        let work_us = place.work_us;
        match &mut self.needs.cores {
            Some(cores) => cores.enter(now_us, seat, work_us),
            None => self.set_timer(seat, now_us + work_us),
        }
    }

    /// A seat's work on a core is over, or its turn with the lock.
    pub(super) fn work_over(&mut self, seat: u16) {
        let (now_us, worker) = (self.now_us, self.worker_of(seat));
        let place = &mut self.seats[usize::from(seat)];
        place.core_us += (now_us - place.since_us).saturating_sub(place.work_us);
        place.since_us = now_us;
        let is_over = place.left_us == 0;
        let Some(locks) = &mut self.needs.locks else {
            if is_over {
                self.piece_over(seat);
            } else {
                self.has_lock(seat);
            }
            return;
        };
        if !is_over && !locks.is_wanted(worker) {
            return self.has_lock(seat);
        }
        let next = locks.pass_on(worker);
        if !is_over {
            locks.take(worker, seat);
        }
        if let Some(next) = next {
            self.has_lock(next);
        }
        if is_over {
            self.piece_over(seat);
        }
    }

    pub(super) fn piece_over(&mut self, seat: u16) {
        if let SeatStage::Piece(piece) = self.seats[usize::from(seat)].stage {
            self.next_piece(seat, piece + 1);
        }
    }

    /// A seat is done with its request.
    fn done(&mut self, seat: u16) {
        let (now_us, worker) = (self.now_us, self.worker_of(seat));
        let SeatModel {
            request,
            began_us,
            busy,
            nth,
            core_us,
            gil_us,
            ..
        } = self.seats[usize::from(seat)];
        let (lane, service_us) = (self.lane_of(request), now_us - began_us);
        let offered = &self.load.requests[request as usize];
        let [core_fixed_us, gil_fixed_us, _] = offered.waits_us(self.rules.outside);
        let parts = Measured {
            cpu_us: Some(offered.cpu_us.into()),
            core_us: Some(core_us + core_fixed_us),
            gil_us: Some(gil_us + gil_fixed_us),
        };
        let wait_us = began_us - self.arrival_us(request as usize);
        self.outcome.served(lane, wait_us, service_us, parts);
        self.line.drained(now_us, LaneId::new(lane));
        self.handed.left(lane);
        self.handed.busy -= 1;
        self.handed.ahead.served(service_us, 0);
        self.busy_of[worker] -= 1;
        self.staff.served(now_us, busy, service_us, nth);
        if self.staff.is_leaving(worker as u16) {
            if self.busy_of[worker] == 0 {
                self.staff.gone(now_us, worker as u16);
            }
        } else if let Some(next) = self.handed.ring.pop_front() {
            self.take(seat, next);
        } else {
            self.idle.put(worker, seat);
        }
        self.fill();
    }
}
