//! Mending: the acceptor puts right what a worker has overwritten. The acceptor keeps its own record of everything that
//! it writes. Fields that seats write cannot be checked like this.
//!
//! The private record has the ends of the rings and their contents, turns, how much of each answer was read, and
//! whether the client has left. The acceptor compares when it hands out a request, and once a second everything. A ring
//! that differs is written again, with the requests that no seat has taken, in their order. Mending, copying and wiping
//! together cost nothing that could be measured.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::slots::RingPlace;
use super::{AcceptorSide, SlotState};
use crate::corrupt::Corrupt;
use crate::layout::SeatState;
use crate::ring::RingEntry;
use crate::word::Tenant;

impl AcceptorSide<'_> {
    /// Compares every field that only the acceptor writes with the acceptor's own record, and puts the field right. The
    /// caller does this from time to time, because a wrong field may stop all work: requests stand in a ring in which
    /// no seat sees them, or a seat waits for room that it has.
    ///
    /// # Errors
    /// A field was wrong, now or since the last call. The culprit cannot be found: every worker can write everywhere.
    pub fn mend(&mut self) -> Result<(), Corrupt> {
        let mut handed_over: BTreeMap<Option<u16>, Vec<RingEntry>> = BTreeMap::new();
        for (worker, entry) in self.entries() {
            handed_over.entry(worker).or_default().push(entry);
        }
        let workers = (0..self.own.len() as u16).map(Some);
        for worker in workers.chain([None]) {
            self.mend_ring(worker, handed_over.get(&worker).map_or(&[], Vec::as_slice));
        }
        self.mend_flows();
        self.mend_inflows();
        if self.exchange.reopen() {
            self.mended
                .get_or_insert(Corrupt("the exchange was marked as closed"));
        }
        if self.show_draining() != self.is_draining {
            self.mended.get_or_insert(Corrupt(
                "the mark of an acceptor that drains was overwritten",
            ));
        }
        self.mended.take().map_or(Ok(()), Err)
    }

    fn mend_ring(&mut self, worker: Option<u16>, entries: &[RingEntry]) {
        let words = self.exchange.words();
        let (ring, mine) = self.ring(worker);
        if let Err(corrupt) = ring.check(mine, words, entries) {
            self.renew(worker, corrupt);
        }
    }

    /// Fills a ring again from the acceptor's record, and wakes every seat, since any seat may have found the ring
    /// empty.
    pub(super) fn renew(&mut self, worker: Option<u16>, corrupt: Corrupt) {
        let theirs = self.entries().filter(|(whose, _)| *whose == worker);
        let mut entries: Vec<_> = theirs.map(|(_, entry)| entry).collect();
        let words = self.exchange.words();
        let (ring, mine) = self.ring(worker);
        ring.renew(mine, words, &mut entries);
        for entry in entries {
            self.slots[entry.slot].handed_over.position = entry.position;
        }
        self.mended.get_or_insert(corrupt);
        self.exchange.rouse_all();
    }

    /// The requests that were handed over and have not come back, each with its worker's number, or `None` for the
    /// shared ring.
    fn entries(&self) -> impl Iterator<Item = (Option<u16>, RingEntry)> {
        self.slots.used().map(|slot| {
            let known = &self.slots[slot];
            let RingPlace { worker, position } = known.handed_over;
            let entry = RingEntry {
                slot,
                turn: known.turn,
                position,
            };
            (worker, entry)
        })
    }

    fn mend_flows(&mut self) {
        for slot in self.slots.used() {
            let flow = self.exchange.flow(slot);
            let known = &self.slots[slot];
            if flow.consumed.load(Ordering::Relaxed) != known.consumed {
                self.tell_consumed(slot);
                self.mended.get_or_insert(Corrupt(
                    "the count of bytes read of an answer was overwritten",
                ));
            }
            if flow.unwanted() != known.unwanted {
                flow.set_unwanted(known.unwanted);
                flow.room.rouse(1);
                self.post(slot);
                self.mended
                    .get_or_insert(Corrupt("the mark of an unwanted answer was overwritten"));
            }
        }
    }

    /// Whether a taken request seems lost: according to the scoreboard the seat that should hold it is idle or busy
    /// with another. A seat updates the scoreboard a moment after it has taken a request, so this means something only
    /// if it stays true.
    pub fn is_stray(&self, slot: u32) -> bool {
        let Ok(SlotState::Running { tenant, .. }) = self.state(slot) else {
            return false;
        };
        !self.may_be_with(slot, tenant)
    }

    fn may_be_with(&self, slot: u32, tenant: Tenant) -> bool {
        let Some(seat) = self.exchange.seats().get(usize::from(tenant.seat)) else {
            return false;
        };
        match self.exchange.seat_state(tenant.seat) {
            // Either the worker is dead, and the master will inform the acceptor. Or this tenant never existed: only
            // the code that hears from the master which worker sits where can know that.
            SeatState::Empty => true,
            SeatState::Idle => false,
            SeatState::Busy => seat.slot.load(Ordering::Relaxed) == slot,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acceptor::rig::{GEOMETRY, taken};
    use crate::protocol::Unwanted;
    use crate::shared::Exchange;

    #[test]
    fn whether_the_client_has_gone_is_put_right() {
        let exchange = Exchange::create(GEOMETRY).expect("an exchange");
        let mut side = AcceptorSide::take_over(&exchange);
        let (slot, taken) = taken(&exchange, &mut side);
        let gone = &exchange.flow(slot).gone;
        gone.store(1, Ordering::Relaxed);
        assert!(side.mend().is_err());
        assert!(!taken.client_gone());
        side.give_up(slot, Unwanted::Overdue);
        assert_eq!(side.mend(), Ok(()));
        gone.store(0, Ordering::Relaxed);
        assert!(side.mend().is_err());
        assert!(taken.client_gone() && taken.is_overdue());
        gone.store(Unwanted::ClientGone as u32, Ordering::Relaxed);
        assert!(side.mend().is_err());
        assert!(taken.is_overdue());
        assert_eq!(side.mend(), Ok(()));
    }

    #[test]
    fn an_answer_that_another_acceptor_has_begun_to_read_is_as_it_should_be() {
        let exchange = Exchange::create(GEOMETRY).expect("an exchange");
        let mut before = AcceptorSide::take_over(&exchange);
        let (slot, mut taken) = taken(&exchange, &mut before);
        taken.write(b"begun").expect("there is room");
        taken.publish();
        let mut out = Vec::new();
        assert_eq!(before.read(slot, usize::MAX, &mut out), Ok(5));
        drop(before);
        let mut side = AcceptorSide::take_over(&exchange);
        assert_eq!(side.orphans(), 1);
        assert_eq!(side.mend(), Ok(()));
    }
}
