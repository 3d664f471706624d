//! The acceptor's side: submit requests, sweep up answers, clear up after the dead.

use std::sync::atomic::Ordering;

use crate::corrupt::Corrupt;
use crate::protocol::ReadyRing;
use crate::seat::Ending;
use crate::shared::Exchange;
use crate::word::{Phase, Tenant, Word};

/// What the acceptor keeps of the exchange: which slots are free, and how many sleepers are owed
/// a wake. One per process, and one process at a time.
#[derive(Debug)]
pub struct AcceptorSide<'x> {
    exchange: &'x Exchange,
    /// Free slots; the last used is used next, while it is warm in the cache.
    free: Vec<u32>,
    /// The others, likewise known to us whatever a worker writes.
    used: Vec<bool>,
    /// The turn each slot is in, as we know it: what a worker writes cannot change it.
    turns: Vec<u32>,
    /// Bytes of each slot's answer that we have read, likewise.
    consumed: Vec<u64>,
    /// Submitted since the last wake.
    unannounced: u32,
    /// One worker alone may take some of them.
    unannounced_own: bool,
    /// Slots that seats still hold for an acceptor before us.
    orphans: Vec<u32>,
}

/// A request in the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Its slot.
    pub slot: u32,
    /// Which use of that slot; with it, what belongs to an earlier one is told apart.
    pub turn: u32,
}

/// Where a submitted request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Nobody has taken it.
    Ready,
    /// A seat has it, since `taken_us`.
    Running {
        /// Whose it is.
        tenant: Tenant,
        /// When it was taken, in microseconds of the monotonic clock.
        taken_us: u64,
    },
    /// The seat has given it back.
    Done {
        /// Whose it was.
        tenant: Tenant,
        /// How it ended; `None` if what stands there is neither.
        ending: Option<Ending>,
        /// When it was taken.
        taken_us: u64,
        /// When it was given back.
        done_us: u64,
    },
}

impl<'x> AcceptorSide<'x> {
    /// Takes the exchange over. What an earlier acceptor had ready is withdrawn (its clients are
    /// gone with it); what seats are still answering stays theirs until they are done or dead,
    /// and is then swept up as any other.
    pub fn take_over(exchange: &'x Exchange) -> Self {
        // From here on seats know that nobody waits for what they took before.
        exchange.header().acceptor.fetch_add(1, Ordering::AcqRel);
        exchange.notices().awake();
        let slots = exchange.geometry().slots();
        let mut side = Self {
            exchange,
            free: Vec::with_capacity(slots),
            used: vec![true; slots],
            turns: vec![0; slots],
            consumed: vec![0; slots],
            unannounced: 0,
            unannounced_own: false,
            orphans: Vec::new(),
        };
        for slot in (0..slots as u32).rev() {
            let bits = exchange.words()[slot as usize].load(Ordering::Acquire);
            side.turns[slot as usize] = (bits >> 32) as u32;
            match Word::unpack(bits).map(|word| word.phase) {
                Some(Phase::Taken | Phase::Answering) => side.orphan(slot),
                Some(Phase::Ready) if !side.withdraw_word(slot) => side.orphan(slot),
                Some(Phase::Free | Phase::Filling | Phase::Ready | Phase::Done) | None => {
                    side.free_slot(slot);
                }
            }
        }
        exchange.ready().clear();
        for worker in 0..exchange.geometry().workers() {
            exchange.own_ring(worker as u16).clear();
        }
        // The one before us may have been killed in the middle of a ring.
        exchange.ready_bell().rouse(u32::MAX);
        side
    }

    fn orphan(&mut self, slot: u32) {
        self.exchange.head(slot).flow.0.give_up();
        self.orphans.push(slot);
    }

    /// If `slot` is one that a seat held for an earlier acceptor, and the seat has given it back
    /// or is `dead`: frees it. True if it was such a slot.
    pub fn settle_orphan(&mut self, slot: u32, dead: bool) -> bool {
        let Some(index) = self.orphans.iter().position(|&orphan| orphan == slot) else {
            return false;
        };
        if dead || matches!(self.state(slot), Ok(SlotState::Done { .. })) {
            self.orphans.swap_remove(index);
            self.free_slot(slot);
        }
        true
    }

    /// Slots that seats still hold for an acceptor before us.
    pub fn orphans(&self) -> usize {
        self.orphans.len()
    }

    /// Slots that could take a request now.
    pub fn free_slots(&self) -> usize {
        self.free.len()
    }

    /// Whether there is a free slot, and room for it in the ready ring.
    pub fn can_submit(&self) -> bool {
        self.has_room_in(self.exchange.ready())
    }

    fn has_room_in(&self, ring: ReadyRing<'_>) -> bool {
        !self.free.is_empty() && ring.has_room(self.exchange.words())
    }

    /// Submits a request: `fill` writes its record into the area it is given and tells its
    /// length, or that it does not fit. `None`, and nothing was submitted, then, or, without
    /// `fill` being called, unless [`Self::can_submit`].
    ///
    /// Seats that are awake can take it at once; sleepers are woken by [`Self::announce`].
    pub fn submit(
        &mut self,
        arrived_us: u64,
        fill: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Option<Submitted> {
        self.submit_in(self.exchange.ready(), arrived_us, fill)
    }

    /// As [`Self::can_submit`], for a request that only `worker` may take.
    pub fn can_submit_to(&self, worker: u16) -> bool {
        self.has_room_in(self.exchange.own_ring(worker))
    }

    /// As [`Self::submit`], for a request that only `worker` may take: whichever of its seats comes
    /// first, before or after what everybody may take. Until then it stays there for whoever has
    /// those seats, so if the worker dies its successor finds it.
    ///
    /// # Panics
    /// If there can be no such worker.
    pub fn submit_to(
        &mut self,
        worker: u16,
        arrived_us: u64,
        fill: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Option<Submitted> {
        let submitted = self.submit_in(self.exchange.own_ring(worker), arrived_us, fill);
        self.unannounced_own |= submitted.is_some();
        submitted
    }

    fn submit_in(
        &mut self,
        ring: ReadyRing<'_>,
        arrived_us: u64,
        fill: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Option<Submitted> {
        if !self.has_room_in(ring) {
            return None;
        }
        let slot = self.free.pop()?;
        self.used[slot as usize] = true;
        let turn = self.turns[slot as usize].wrapping_add(1);
        self.turns[slot as usize] = turn;
        self.consumed[slot as usize] = 0;
        self.exchange
            .set_word(slot, Phase::Filling, Tenant::default(), turn);
        let bytes = self.exchange.geometry().request_bytes;
        // SAFETY: the slot was Free and is Filling now, so no seat reads or writes its request
        // area, and we are the only acceptor; `bytes` is its size.
        let area =
            unsafe { std::slice::from_raw_parts_mut(self.exchange.request_area(slot), bytes) };
        let Some(len) = fill(area).filter(|len| *len <= bytes) else {
            self.free_slot(slot);
            return None;
        };
        let head = self.exchange.head(slot);
        head.request_len.store(len as u32, Ordering::Relaxed);
        head.arrived_us.store(arrived_us, Ordering::Relaxed);
        head.taken_us.store(0, Ordering::Relaxed);
        head.flow.0.reset();
        ring.publish(self.exchange.words(), slot, turn);
        self.unannounced += 1;
        Some(Submitted { slot, turn })
    }

    /// Requests submitted since sleepers were last woken.
    pub fn unannounced(&self) -> u32 {
        self.unannounced
    }

    /// Wakes as many sleeping seats as there are new requests: one system call for all of them,
    /// and none if nobody sleeps. All of them if a request is for one worker alone: the bell cannot
    /// choose whom it wakes.
    pub fn announce(&mut self) {
        let own = std::mem::take(&mut self.unannounced_own);
        match std::mem::take(&mut self.unannounced) {
            0 => {}
            _ if own => self.exchange.ready_bell().ring(u32::MAX),
            count => self.exchange.ready_bell().ring(count),
        }
    }

    /// Takes the notices of seats: calls `look` with each slot that has news.
    pub fn sweep(&self, mut look: impl FnMut(u32)) {
        let slots = self.turns.len() as u32;
        self.exchange.notices().sweep(|slot| {
            // Bits past the last slot are nobody's; a worker gone mad may have set them.
            if slot < slots {
                look(slot);
            }
        });
    }

    /// Announces that the event loop is about to sleep; false if there is news first.
    pub fn try_sleep(&self) -> bool {
        self.exchange.notices().try_sleep()
    }

    /// The event loop is up again.
    pub fn awake(&self) {
        self.exchange.notices().awake();
    }

    /// The present use of a slot.
    pub fn submitted(&self, slot: u32) -> Submitted {
        Submitted {
            slot,
            turn: self.turns[slot as usize],
        }
    }

    /// Where the present use of a slot stands.
    pub fn state(&self, slot: u32) -> Result<SlotState, Corrupt> {
        let word = self.exchange.word(slot).ok_or(Corrupt("no such phase"))?;
        if word.turn != self.turns[slot as usize] {
            return Err(Corrupt("the slot is in another turn"));
        }
        let head = self.exchange.head(slot);
        let taken_us = head.taken_us.load(Ordering::Relaxed);
        match word.phase {
            Phase::Ready if word.tenant == Tenant::default() => Ok(SlotState::Ready),
            Phase::Ready => Err(Corrupt("a slot that is ready has an owner")),
            Phase::Taken | Phase::Answering => Ok(SlotState::Running {
                tenant: word.tenant,
                taken_us,
            }),
            Phase::Done => Ok(SlotState::Done {
                tenant: word.tenant,
                ending: match head.ending.load(Ordering::Relaxed) {
                    1 => Some(Ending::Complete),
                    2 => Some(Ending::Broken),
                    _ => None,
                },
                taken_us,
                done_us: head.done_us.load(Ordering::Relaxed),
            }),
            Phase::Free | Phase::Filling => Err(Corrupt("a slot in use calls itself free")),
        }
    }

    /// Unread bytes of the answer.
    pub fn readable(&self, slot: u32) -> Result<usize, Corrupt> {
        let produced = self
            .exchange
            .head(slot)
            .flow
            .0
            .produced
            .load(Ordering::Acquire);
        let unread = produced.checked_sub(self.consumed[slot as usize]);
        match unread {
            Some(unread) if unread <= self.exchange.geometry().response_bytes as u64 => {
                Ok(unread as usize)
            }
            _ => Err(Corrupt("more answer than the ring can hold")),
        }
    }

    /// Appends up to `max` unread bytes of the answer to `out` and frees their room.
    pub fn read(&mut self, slot: u32, max: usize, out: &mut Vec<u8>) -> Result<usize, Corrupt> {
        let len = self.readable(slot)?.min(max);
        if len == 0 {
            return Ok(0);
        }
        let capacity = self.exchange.geometry().response_bytes;
        let at = (self.consumed[slot as usize] % capacity as u64) as usize;
        let first = len.min(capacity - at);
        out.reserve(len);
        let end = out.len();
        // SAFETY: both pieces lie within the slot's response ring, and `out` has room for `len`.
        // The seat published these bytes and writes them no more until they are consumed; one
        // that does all the same spoils its own answer, for the bytes are only copied, never
        // looked at in place.
        unsafe {
            let area = self.exchange.response_area(slot);
            let target = out.as_mut_ptr().add(end);
            std::ptr::copy_nonoverlapping(area.add(at), target, first);
            std::ptr::copy_nonoverlapping(area, target.add(first), len - first);
            out.set_len(end + len);
        }
        self.consumed[slot as usize] += len as u64;
        self.exchange
            .head(slot)
            .flow
            .0
            .consume(self.consumed[slot as usize]);
        Ok(len)
    }

    /// The client of a running request has gone.
    pub fn give_up(&self, slot: u32) {
        self.exchange.head(slot).flow.0.give_up();
    }

    /// Takes back a request that no seat has taken yet: true, and its slot is free again.
    pub fn withdraw(&mut self, slot: u32) -> bool {
        let withdrawn = self.withdraw_word(slot);
        if withdrawn {
            self.free_slot(slot);
        }
        withdrawn
    }

    fn withdraw_word(&self, slot: u32) -> bool {
        let turn = self.turns[slot as usize];
        let ready = Word::unowned(Phase::Ready, turn).pack();
        let filling = Word::unowned(Phase::Filling, turn).pack();
        self.exchange.words()[slot as usize]
            .compare_exchange(ready, filling, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Frees a slot whose seat is done with it or dead.
    pub fn release(&mut self, slot: u32) {
        self.free_slot(slot);
    }

    fn free_slot(&mut self, slot: u32) {
        debug_assert!(self.used[slot as usize], "slot {slot} was freed twice");
        self.used[slot as usize] = false;
        let turn = self.turns[slot as usize];
        self.exchange
            .set_word(slot, Phase::Free, Tenant::default(), turn);
        self.free.push(slot);
    }

    /// The slots that a worker has in hand: to be cleared up when it has died. Also those of which
    /// the exchange makes no sense any more, since nobody else will ever be told to own them.
    ///
    /// Wakes a sleeper if there is work, since the dead one may have been woken for it and not
    /// come to take it.
    pub fn held_by(&self, is_theirs: impl Fn(Tenant) -> bool) -> Vec<u32> {
        if !self.exchange.ready().is_empty() {
            self.exchange.ready_bell().ring(u32::MAX);
        }
        (0..self.turns.len() as u32)
            .filter(|&slot| self.used[slot as usize])
            .filter(|&slot| match self.state(slot) {
                Ok(SlotState::Running { tenant, .. } | SlotState::Done { tenant, .. }) => {
                    is_theirs(tenant)
                }
                Ok(SlotState::Ready) => false,
                Err(Corrupt(_)) => true,
            })
            .collect()
    }
}
