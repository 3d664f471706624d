//! Putting right what a worker has written over. The acceptor knows by itself what it has put where; what
//! the memory says besides is the seats' to say, and only theirs.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::slots::HandedOver;
use super::{AcceptorSide, SlotState};
use crate::corrupt::Corrupt;
use crate::layout::SeatState;
use crate::ring::Entry;
use crate::word::Tenant;

impl AcceptorSide<'_> {
    /// Compares all that only the acceptor writes with what it has written, and puts it right; to be called now and
    /// then, since nothing else may happen as long as it is wrong: requests stand in a ring in which no seat
    /// sees them, a seat waits for room that it has.
    ///
    /// # Errors
    /// Something was wrong, now or since the last time. Who did it cannot be known: every worker can write everywhere.
    pub fn mend(&mut self) -> Result<(), Corrupt> {
        let mut handed_over: BTreeMap<Option<u16>, Vec<Entry>> = BTreeMap::new();
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
                .get_or_insert(Corrupt("it says that everybody is to leave"));
        }
        self.mended.take().map_or(Ok(()), Err)
    }

    fn mend_ring(&mut self, worker: Option<u16>, entries: &[Entry]) {
        let words = self.exchange.words();
        let (ring, mine) = self.ring(worker);
        if let Err(corrupt) = ring.check(mine, words, entries) {
            self.renew(worker, corrupt);
        }
    }

    /// Lays a ring out anew, and wakes whoever may have found it empty.
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

    /// What was handed over and has not come back, and in whose ring.
    fn entries(&self) -> impl Iterator<Item = (Option<u16>, Entry)> {
        self.slots.used().map(|slot| {
            let known = &self.slots[slot];
            let HandedOver { worker, position } = known.handed_over;
            let entry = Entry {
                slot,
                turn: known.turn,
                position,
            };
            (worker, entry)
        })
    }

    fn mend_flows(&mut self) {
        for slot in self.slots.used() {
            let flow = &self.exchange.head(slot).flow.0;
            let known = &self.slots[slot];
            if flow.consumed.load(Ordering::Relaxed) != known.consumed {
                self.tell_consumed(slot);
                self.mended
                    .get_or_insert(Corrupt("an answer was read up to elsewhere"));
            }
            if flow.unwanted() != known.unwanted {
                flow.set_unwanted(known.unwanted);
                flow.room.rouse(1);
                self.post(slot);
                self.mended
                    .get_or_insert(Corrupt("whether an answer is wanted is another"));
            }
        }
    }

    /// Whether a request that was taken is in nobody's hands, as far as the scoreboard goes: the seat that
    /// should have it is at its place and has none, or another. A seat says what it has a moment after it has taken
    /// it, so this means something only if it stays so.
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
            // Its worker is dead, and the acceptor will be told; or it never was one, which only he knows to whom
            // the master has said who sits.
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
        let gone = &exchange.head(slot).flow.0.gone;
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
