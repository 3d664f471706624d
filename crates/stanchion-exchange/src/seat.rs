//! The worker's side: a seat takes one request after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use stanchion_sys::clock::monotonic_us;

use crate::layout::{SeatState, add};
use crate::meter::SeatMeter;
use crate::ring::SeatRings;
use crate::shared::Exchange;
use crate::taken::{LOOK_AGAIN, Taken};
use crate::word::Tenant;

impl Exchange {
    /// Marks this process as a child that a worker's app has forked. The worker's requests and seats stay the worker's,
    /// so from now on this process takes no request, gives no slot back and answers nothing.
    pub fn forsake(&self) {
        self.forsaken.store(true, Ordering::Relaxed);
    }

    /// Whether [`Exchange::forsake`] was called in this process.
    pub fn is_forsaken(&self) -> bool {
        self.forsaken.load(Ordering::Relaxed)
    }
}

/// One seat in the hands of one worker.
#[derive(Debug)]
pub struct SeatSide<'x> {
    exchange: &'x Exchange,
    tenant: Tenant,
    sources: SeatRings<'x>,
    timeout_us: u64,
    /// `None` if the seat measures nothing: seats of an event loop share one thread.
    meter: Option<Arc<SeatMeter>>,
    /// The last request came from the worker's own ring.
    took_own: AtomicBool,
    /// The time spent on the last request is not in `busy_us` yet.
    unsettled: AtomicBool,
}

impl<'x> SeatSide<'x> {
    /// Sits down at the seat. `timeout` is how long one request may take before the master considers its worker stuck;
    /// `None` = no limit.
    pub fn new(
        exchange: &'x Exchange,
        tenant: Tenant,
        pid: u32,
        timeout: Option<Duration>,
    ) -> Self {
        let board = exchange.seat(tenant.seat);
        board.pid.store(pid, Ordering::Relaxed);
        board.served.store(0, Ordering::Relaxed);
        board.busy_us.store(0, Ordering::Relaxed);
        board.deadline_us.store(0, Ordering::Relaxed);
        board.state.store(SeatState::Idle as u32, Ordering::Release);
        let worker = exchange.geometry().worker_of(tenant.seat);
        let timeout_us = timeout.map_or(0, |timeout| timeout.as_micros() as u64);
        Self {
            exchange,
            tenant,
            sources: SeatRings {
                own: exchange.own_ring(worker),
                shared: exchange.ready(),
            },
            timeout_us,
            meter: None,
            took_own: AtomicBool::new(false),
            unsettled: AtomicBool::new(false),
        }
    }

    /// The number of the seat.
    pub fn number(&self) -> u16 {
        self.tenant.seat
    }

    /// The same seat, whose requests this meter measures.
    #[must_use]
    pub fn with_meter(mut self, meter: Arc<SeatMeter>) -> Self {
        self.meter = Some(meter);
        self
    }

    /// Takes the oldest request that is ready, without waiting. The worker's own ring and the shared ring take turns,
    /// so that neither shuts out the other.
    pub fn take(&self) -> Option<Taken<'x>> {
        if self.exchange.is_forsaken() {
            return None;
        }
        let own_first = !self.took_own.load(Ordering::Relaxed);
        let (slot, turn, own) = self
            .sources
            .take(self.exchange.words(), self.tenant, own_first)?;
        self.took_own.store(own, Ordering::Relaxed);
        if self.exchange.geometry().event_loops {
            // Pairs with the fence of the acceptor when it posts a notice for the slot: either the acceptor sees that
            // the slot is ours, or we see the news.
            fence(Ordering::SeqCst);
        }
        let now_us = monotonic_us();
        self.settle(now_us);
        self.exchange
            .head(slot)
            .taken_us
            .store(now_us, Ordering::Relaxed);
        let board = self.exchange.seat(self.tenant.seat);
        board.slot.store(slot, Ordering::Relaxed);
        board.started_us.store(now_us, Ordering::Relaxed);
        let deadline_us = if self.timeout_us == 0 {
            0
        } else {
            now_us + self.timeout_us
        };
        board.deadline_us.store(deadline_us, Ordering::Release);
        board.state.store(SeatState::Busy as u32, Ordering::Release);
        let metering = self.meter.as_ref().and_then(|meter| meter.begin(now_us));
        let taken = (now_us, metering);
        Some(Taken::new(self.exchange, self.tenant, (slot, turn), taken))
    }

    /// Notes that the seat is done with its last request. Its answer may have been given back a while ago, because apps
    /// clean up after their answers. The time that this took is counted when the seat next reads the clock anyway: when
    /// it takes the next request, or before it sleeps.
    pub fn rest(&self) {
        if self.exchange.is_forsaken() {
            return;
        }
        let board = self.exchange.seat(self.tenant.seat);
        board.deadline_us.store(0, Ordering::Relaxed);
        board.state.store(SeatState::Idle as u32, Ordering::Release);
        add(&board.served, 1);
        self.unsettled.store(true, Ordering::Relaxed);
    }

    /// Counts the time spent on the last request.
    fn settle(&self, now_us: u64) {
        if self.unsettled.load(Ordering::Relaxed) {
            self.unsettled.store(false, Ordering::Relaxed);
            let board = self.exchange.seat(self.tenant.seat);
            let started_us = board.started_us.load(Ordering::Relaxed);
            add(&board.busy_us, now_us.saturating_sub(started_us));
        }
    }

    /// Whether a request seems ready that this seat may take.
    pub fn sees_request(&self) -> bool {
        !self.sources.own.is_empty() || !self.sources.shared.is_empty()
    }

    /// Waits for a request, until `leave` is true. A signal handler that makes it true must also
    /// change the word of [`Exchange::ready_bell`].
    pub fn wait(&self, leave: impl Fn() -> bool) -> Option<Taken<'x>> {
        let bell = self.exchange.ready_bell();
        loop {
            let seen = bell.prepare();
            if leave() {
                // This seat may be the one that was woken for the ready request, so wake another.
                if !self.exchange.ready().is_empty() {
                    bell.rouse(1);
                }
                return None;
            }
            if let Some(taken) = self.take() {
                return Some(taken);
            }
            self.settle(monotonic_us());
            bell.sleep(seen, LOOK_AGAIN);
        }
    }
}

impl Drop for SeatSide<'_> {
    fn drop(&mut self) {
        if self.exchange.is_forsaken() {
            return;
        }
        self.exchange
            .seat(self.tenant.seat)
            .state
            .store(SeatState::Empty as u32, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acceptor::rig::{GEOMETRY, taken};
    use crate::acceptor::{AcceptorSide, SlotState};
    use crate::meter::RunTimes;
    use crate::taken::{AnswerEnd, Gone};

    #[test]
    fn the_acceptor_gets_what_the_meter_of_a_seat_has_measured() {
        let exchange = Exchange::create(GEOMETRY).expect("memory");
        let mut side = AcceptorSide::take_over(&exchange);
        let tenant = Tenant { seat: 0, epoch: 1 };
        let seat = SeatSide::new(&exchange, tenant, 1, None);
        let meter = SeatMeter::of_this_thread(false).expect("a clock");
        let mut times_of = |seat: &SeatSide<'_>| {
            let submitted = side.submit(None, 0, |_| Some(0)).expect("a free slot");
            let taken = seat.take().expect("it is ready");
            taken.finish(AnswerEnd::Complete);
            let state = side.state(submitted.slot);
            side.release(submitted.slot);
            match state {
                Ok(SlotState::Done { times, .. }) => times,
                state => panic!("it is done: {state:?}"),
            }
        };
        assert_eq!(times_of(&seat), RunTimes::default());
        let seat = seat.with_meter(meter);
        assert!(times_of(&seat).cpu_us.is_some());
    }

    #[test]
    fn what_a_child_of_a_worker_does_changes_nothing() {
        let exchange = Exchange::create(GEOMETRY).expect("memory");
        let mut side = AcceptorSide::take_over(&exchange);
        let (slot, mut taken) = taken(&exchange, &mut side);
        let tenant = Tenant { seat: 0, epoch: 1 };
        let seat = SeatSide::new(&exchange, tenant, 1, None);
        let (state, word) = (exchange.seat_state(0), exchange.word(slot));
        exchange.forsake();
        assert_eq!(taken.write_some(b"x"), Err(Gone));
        taken.publish();
        taken.finish(AnswerEnd::Complete);
        seat.rest();
        drop(seat);
        assert_eq!((exchange.seat_state(0), exchange.word(slot)), (state, word));
        let submitted = side.submit(None, 0, |_| Some(0));
        assert!(submitted.is_none(), "there is one slot");
    }
}
