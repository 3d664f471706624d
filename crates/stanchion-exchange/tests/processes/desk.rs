//! An acceptor that counts: every request ends as exactly one of answered, broken off because its client had left,
//! withdrawn, or lost with the worker that had it.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use stanchion_exchange::{
    AcceptorSide, AnswerEnd, Area, Exchange, SlotState, Submitted, Tenant, Unwanted,
};
use stanchion_sys::channel::poll_readable;
use stanchion_sys::clock::monotonic_us;
use stanchion_sys::eventfd::EventFd;

use crate::request::{Fatal, Random, Request};

/// Less than the time after which a sleeper looks again by itself, if no process wakes it.
pub(crate) const STALL_US: u64 = 900_000;

struct InFlight {
    submitted: Submitted,
    since_us: u64,
    request: Request,
    /// The only worker that may take it.
    only: Option<u16>,
    received: usize,
    gone: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Accounts {
    pub(crate) submitted: u64,
    pub(crate) answered: u64,
    pub(crate) broken_off: u64,
    pub(crate) withdrawn: u64,
    pub(crate) lost: u64,
    pub(crate) longest_us: u64,
}

pub(crate) struct Desk {
    side: AcceptorSide<'static>,
    /// Workers with one seat each.
    workers: u64,
    doorbell: &'static EventFd,
    in_flight: BTreeMap<u32, InFlight>,
    pub(crate) accounts: Accounts,
}

impl Desk {
    pub(crate) fn open(exchange: &'static Exchange) -> Self {
        Self {
            side: AcceptorSide::take_over(exchange),
            workers: exchange.geometry().workers() as u64,
            doorbell: exchange.doorbell(),
            in_flight: BTreeMap::new(),
            accounts: Accounts::default(),
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub(crate) fn free_slots(&self) -> usize {
        self.side.free_slots()
    }

    /// Submits a request to one worker alone, or to the shared ring.
    pub(crate) fn submit(&mut self, only: Option<u16>, answer_len: u32, fatal: Fatal) {
        let since_us = monotonic_us();
        let id = (since_us << 8) | (self.accounts.submitted % 256);
        let request = Request {
            id,
            answer_len,
            fatal,
        };
        let fill = |area: Area<'_>| Some(request.encode(area));
        let Some(submitted) = self.side.submit(only, since_us, fill) else {
            return;
        };
        self.accounts.submitted += 1;
        let entry = InFlight {
            submitted,
            since_us,
            request,
            only,
            received: 0,
            gone: false,
        };
        assert!(self.in_flight.insert(submitted.slot, entry).is_none());
    }

    /// Submits until `most` requests are in flight, a quarter of them to one worker alone; one in sixteen clients
    /// leaves again.
    pub(crate) fn submit_up_to(&mut self, most: usize, random: &mut Random) {
        while self.in_flight.len() < most && self.side.free_slots() > 0 {
            let before = self.accounts.submitted;
            let only = (random.below(4) == 0).then(|| random.below(self.workers) as u16);
            self.submit(only, random.below(1500) as u32, Fatal::No);
            if self.accounts.submitted == before {
                break;
            }
            if random.below(16) == 0 {
                self.go_away(random.below(most as u64) as u32);
            }
        }
        self.side.announce();
    }

    fn go_away(&mut self, slot: u32) {
        if let Some(entry) = self.in_flight.get_mut(&slot) {
            if self.side.withdraw(slot) {
                self.in_flight.remove(&slot);
                self.accounts.withdrawn += 1;
            } else {
                self.side.give_up(slot, Unwanted::ClientGone);
                entry.gone = true;
            }
        }
    }

    /// One turn of the loop: handles the notices, or sleeps until there are some, until one of `others` is readable, or
    /// for `most_ms`.
    pub(crate) fn turn(&mut self, others: &[BorrowedFd<'_>], most_ms: u64) {
        let mut news = Vec::new();
        self.side.sweep(|slot| news.push(slot));
        if news.is_empty() {
            self.sleep(others, most_ms);
        }
        for slot in news {
            if self.in_flight.contains_key(&slot) {
                self.look(slot);
            } else {
                self.side.settle_orphan(slot, false);
            }
        }
        let now_us = monotonic_us();
        for entry in self.in_flight.values() {
            let waits_us = now_us.saturating_sub(entry.since_us);
            assert!(
                waits_us < STALL_US,
                "{:?} is stranded: {:?}",
                entry.submitted,
                self.accounts
            );
        }
    }

    fn sleep(&mut self, others: &[BorrowedFd<'_>], most_ms: u64) {
        if self.side.try_sleep() {
            let doorbell = [self.doorbell.as_fd()];
            poll_readable(
                &[&doorbell, others].concat(),
                Duration::from_millis(most_ms),
            )
            .unwrap();
            self.side.awake();
            // No seat rings the doorbell while the acceptor is awake, so there may be nothing to read.
            self.doorbell.silence();
        }
    }

    /// Reads the published part of an answer, and frees the slot if the answer has ended.
    fn look(&mut self, slot: u32) {
        let state = self.side.state(slot).unwrap();
        if let SlotState::Running { tenant, .. } | SlotState::Done { tenant, .. } = state {
            let only = self.in_flight[&slot].only;
            assert!(
                only.is_none_or(|only| only == tenant.seat),
                "worker {} took what was another's: {only:?}",
                tenant.seat
            );
        }
        self.read(slot);
        if let SlotState::Done { ending, .. } = state {
            self.side.release(slot);
            self.settle(slot, ending);
        }
    }

    fn read(&mut self, slot: u32) {
        let entry = self.in_flight.get_mut(&slot).unwrap();
        let mut bytes = Vec::new();
        while self.side.read(slot, 100, &mut bytes).unwrap() > 0 {}
        let received = entry.received + bytes.len();
        assert_eq!(
            bytes,
            entry.request.answer(entry.received, received),
            "a wrong answer"
        );
        entry.received = received;
    }

    fn settle(&mut self, slot: u32, ending: Option<AnswerEnd>) {
        let entry = self.in_flight.remove(&slot).unwrap();
        let waited_us = monotonic_us() - entry.since_us;
        self.accounts.longest_us = self.accounts.longest_us.max(waited_us);
        if ending == Some(AnswerEnd::Complete) {
            assert_eq!(
                entry.received, entry.request.answer_len as usize,
                "not whole"
            );
            self.accounts.answered += 1;
        } else {
            assert!(
                ending == Some(AnswerEnd::Broken) && entry.gone,
                "broken off for no reason"
            );
            self.accounts.broken_off += 1;
        }
    }

    /// Clears up after a worker that died.
    pub(crate) fn clear_up_after(&mut self, dead: Tenant) {
        let mut lost = 0;
        for slot in self.side.held_by(|tenant| tenant == dead) {
            if matches!(self.side.state(slot), Ok(SlotState::Done { .. })) {
                self.look(slot);
            } else {
                self.read(slot);
                self.side.release(slot);
                self.in_flight.remove(&slot);
                lost += 1;
            }
        }
        assert!(lost <= 1, "a seat has one request at a time");
        self.accounts.lost += lost;
    }

    /// The caller has nothing in flight.
    pub(crate) fn close(self, exchange: &Exchange) -> Accounts {
        let Accounts {
            submitted,
            answered,
            broken_off,
            withdrawn,
            lost,
            ..
        } = self.accounts;
        assert_eq!(answered + broken_off + withdrawn + lost, submitted);
        assert_eq!(self.side.free_slots(), exchange.geometry().slots());
        self.accounts
    }
}
