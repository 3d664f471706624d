//! The acceptor's side: submit requests, sweep up answers, clear up after the dead.

mod inflow;
mod look;
mod mend;
mod remains;
mod slots;

pub use look::SlotState;

use std::cell::Cell;
use std::sync::atomic::{Ordering, fence};

use crate::area::Area;
use crate::corrupt::Corrupt;
use crate::inbox::Inbox;
use crate::protocol::{Load, Unwanted};
use crate::ring::{Published, ReadyRing};
use crate::shared::Exchange;
use crate::word::{SlotPhase, Tenant, Word};
use remains::Remains;
use slots::{HandedOver, Slots};

/// What the acceptor keeps of the exchange: which slots are free, and how many sleepers are owed
/// a wake. One per process, and one process at a time.
#[derive(Debug)]
pub struct AcceptorSide<'x> {
    exchange: &'x Exchange,
    slots: Slots,
    /// What we have put into everybody's ring, and into that of each worker.
    shared: Published,
    own: Vec<Published>,
    /// Found and put right since the last [`Self::mend`].
    mended: Option<Corrupt>,
    /// Submitted since the last wake.
    unannounced: u32,
    /// One worker alone may take some of them.
    unannounced_own: bool,
    /// Whose inbox has got notices since its event loop was called last, and whether there are such.
    noted: Vec<Cell<bool>>,
    has_noted: Cell<bool>,
    /// Whose event loop was woken last.
    called_last: Cell<usize>,
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

impl<'x> AcceptorSide<'x> {
    /// Takes the exchange over. What an earlier acceptor had ready is withdrawn (its clients are
    /// gone with it); what seats are still answering stays theirs until they are done or dead,
    /// and is then swept up as any other.
    pub fn take_over(exchange: &'x Exchange) -> Self {
        // From here on seats know that nobody waits for what they took before.
        exchange.header().acceptor.fetch_add(1, Ordering::AcqRel);
        exchange.notices().awake();
        exchange.reopen();
        let words = exchange.words();
        let last_used = words
            .iter()
            .rposition(|word| word.load(Ordering::Acquire) != 0);
        let workers = 0..exchange.geometry().workers() as u16;
        let mut side = Self {
            exchange,
            slots: Slots::new(words.len(), last_used.map_or(0, |last| last + 1)),
            // Seats may still take what was ready before; it is withdrawn below, or an orphan.
            shared: exchange.ready().take_over(),
            own: workers
                .clone()
                .map(|worker| exchange.own_ring(worker).take_over())
                .collect(),
            mended: None,
            unannounced: 0,
            unannounced_own: false,
            noted: workers.clone().map(|_| Cell::default()).collect(),
            has_noted: Cell::new(false),
            // The first one's turn comes first.
            called_last: Cell::new(exchange.geometry().workers() - 1),
            orphans: Vec::new(),
        };
        for slot in side.slots.known().rev() {
            let bits = words[slot as usize].load(Ordering::Acquire);
            side.slots[slot].turn = (bits >> 32) as u32;
            if bits == 0 {
                // Never used: its head, and its areas, take no memory as long as nobody looks there.
                side.slots.free(slot);
                continue;
            }
            match Word::unpack(bits).map(|word| word.phase) {
                Some(SlotPhase::Taken | SlotPhase::Answering) => side.orphan(slot),
                Some(SlotPhase::Ready) if !side.withdraw_word(slot) => side.orphan(slot),
                Some(_) | None => {
                    // How far the one before us had filled it, and what it had left there, is not known.
                    exchange.wipe_all(slot);
                    side.free_slot(slot);
                }
            }
        }
        // The one before us may have been killed in the middle of a ring.
        exchange.rouse_all();
        side
    }

    fn orphan(&mut self, slot: u32) {
        // As far as the one before us has read it.
        let consumed = &self.exchange.head(slot).flow.0.consumed;
        self.slots[slot].consumed = consumed.load(Ordering::Relaxed);
        // How far its answer has reached is not known.
        self.slots[slot].reached = self.exchange.geometry().response_bytes;
        self.take_over_inflow(slot);
        self.give_up(slot, Unwanted::ClientGone);
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

    /// Whether a seat still holds this slot for an acceptor before us.
    pub fn is_orphan(&self, slot: u32) -> bool {
        self.orphans.contains(&slot)
    }

    /// Slots that seats still hold for an acceptor before us.
    pub fn orphans(&self) -> usize {
        self.orphans.len()
    }

    /// Slots that could take a request now.
    pub fn free_slots(&self) -> usize {
        self.slots.free_count()
    }

    /// Whether there is a free slot, and room for it in the ready ring.
    pub fn can_submit(&mut self) -> bool {
        self.has_room(None)
    }

    fn has_room(&mut self, worker: Option<u16>) -> bool {
        if self.slots.free_count() == 0 {
            return false;
        }
        let words = self.exchange.words();
        let (ring, mine) = self.ring(worker);
        match ring.has_room(mine, words) {
            Ok(has_room) => has_room,
            Err(corrupt) => {
                self.renew(worker, corrupt);
                let (ring, mine) = self.ring(worker);
                ring.has_room(mine, words).unwrap_or(false)
            }
        }
    }

    /// One worker's, or everybody's, with what we know of it.
    fn ring(&mut self, worker: Option<u16>) -> (ReadyRing<'x>, &mut Published) {
        match worker {
            None => (self.exchange.ready(), &mut self.shared),
            Some(worker) => (
                self.exchange.own_ring(worker),
                &mut self.own[usize::from(worker)],
            ),
        }
    }

    /// Submits a request: `fill` writes its record into the area it is given and tells its
    /// length, or that it does not fit. `None`, and nothing was submitted, then, or, without
    /// `fill` being called, unless [`Self::can_submit`].
    ///
    /// Seats that are awake can take it at once; sleepers are woken by [`Self::announce`].
    pub fn submit(
        &mut self,
        arrived_us: u64,
        fill: impl FnOnce(Area<'_>) -> Option<usize>,
    ) -> Option<Submitted> {
        self.submit_in(None, arrived_us, fill)
    }

    /// As [`Self::can_submit`], for a request that only `worker` may take.
    ///
    /// # Panics
    /// If there can be no such worker.
    pub fn can_submit_to(&mut self, worker: u16) -> bool {
        self.has_room(Some(worker))
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
        fill: impl FnOnce(Area<'_>) -> Option<usize>,
    ) -> Option<Submitted> {
        let submitted = self.submit_in(Some(worker), arrived_us, fill);
        self.unannounced_own |= submitted.is_some();
        submitted
    }

    fn submit_in(
        &mut self,
        worker: Option<u16>,
        arrived_us: u64,
        fill: impl FnOnce(Area<'_>) -> Option<usize>,
    ) -> Option<Submitted> {
        if !self.has_room(worker) {
            return None;
        }
        let slot = self.slots.take()?;
        let known = &mut self.slots[slot];
        let turn = known.turn.wrapping_add(1);
        known.turn = turn;
        (known.consumed, known.reached, known.unwanted) = (0, 0, None);
        self.exchange
            .set_word(slot, SlotPhase::Filling, Tenant::default(), turn);
        let bytes = self.exchange.geometry().request_bytes;
        // SAFETY: the request area is of this size and mapped for as long as the exchange; only copies are
        // made of it anywhere.
        let area = unsafe { Area::new(self.exchange.request_area(slot), bytes) };
        let head = self.exchange.head(slot);
        let Some(len) = fill(area).filter(|len| *len <= bytes) else {
            // What there was room for is in there.
            head.request_len.store(bytes as u32, Ordering::Relaxed);
            self.free_slot(slot);
            return None;
        };
        self.wipe_request_behind(slot, len);
        head.request_len.store(len as u32, Ordering::Relaxed);
        head.arrived_us.store(arrived_us, Ordering::Relaxed);
        head.taken_us.store(0, Ordering::Relaxed);
        head.flow.0.reset();
        self.reset_inflow(slot);
        let words = self.exchange.words();
        let (ring, mine) = self.ring(worker);
        let position = ring.publish(mine, words, slot, turn);
        self.slots[slot].handed_over = HandedOver { worker, position };
        self.unannounced += 1;
        Some(Submitted { slot, turn })
    }

    /// Whether seats have not been woken for something yet: see [`Self::announce`].
    pub fn is_unannounced(&self) -> bool {
        self.unannounced > 0 || self.has_noted.get()
    }

    /// Wakes as many sleeping seats as there are new requests: one system call for all of them,
    /// and none if nobody sleeps. All of them if a request is for one worker alone: the bell cannot
    /// choose whom it wakes. Of event loops those that run the fewest requests, and those of whose slots there is news.
    pub fn announce(&mut self) {
        self.call_noted();
        let own = std::mem::take(&mut self.unannounced_own);
        match std::mem::take(&mut self.unannounced) {
            0 => {}
            count if self.exchange.geometry().event_loops => {
                self.call_loops(if own { u32::MAX } else { count });
            }
            _ if own => self.exchange.ready_bell().ring(u32::MAX),
            count => self.exchange.ready_bell().ring(count),
        }
    }

    /// Event loops that sleep and have room, and whose they are.
    fn sleepers(&self) -> impl Iterator<Item = (usize, Inbox<'x>)> {
        Load::settle();
        let room = self.exchange.geometry().seats_per_worker as u32;
        let inboxes = self.exchange.inboxes().enumerate();
        inboxes.filter(move |(_, inbox)| inbox.is_asleep() && inbox.load() < room)
    }

    /// Wakes up to `count` event loops that sleep and have room, those with the fewest requests first, of these those
    /// with the fewest sessions, and in turns if these are as many.
    fn call_loops(&self, count: u32) {
        let loops = self.exchange.geometry().workers();
        // Each once at most, whatever a worker writes meanwhile.
        for _ in 0..count.min(loops as u32) {
            let last = self.called_last.get();
            let after = |worker: usize| (worker + loops - last - 1) % loops;
            let next = self.sleepers();
            let Some((worker, inbox)) =
                next.min_by_key(|(worker, inbox)| (inbox.load(), inbox.sessions(), after(*worker)))
            else {
                break;
            };
            self.called_last.set(worker);
            inbox.call();
        }
    }

    /// Wakes every event loop that sleeps and has room if a request is there that nobody has taken: those that were
    /// woken for it may be stuck, or dead.
    pub fn call_all(&self) {
        if !self.exchange.ready().is_empty() {
            self.call_loops(u32::MAX);
        }
    }

    /// If a request is ready that nobody has taken, though an event loop with room sleeps: its position, which is
    /// another one once it is taken.
    pub fn untaken(&self) -> Option<u64> {
        if !self.exchange.geometry().event_loops {
            return None;
        }
        let head = self.exchange.ready().oldest()?;
        self.sleepers().next().map(|_| head)
    }

    /// Takes the notices of seats: calls `look` with each slot that has news.
    pub fn sweep(&self, mut look: impl FnMut(u32)) {
        let known = self.slots.known();
        self.exchange.notices().sweep(|slot| {
            // Others were never used, or do not exist; a worker gone mad may have set their bits.
            if known.contains(&slot) {
                look(slot);
            }
        });
    }

    /// Wakes event loops of whose slots there is news, each once for all of it.
    fn call_noted(&self) {
        if !self.has_noted.take() {
            return;
        }
        for (noted, inbox) in self.noted.iter().zip(self.exchange.inboxes()) {
            if noted.take() {
                inbox.call();
            }
        }
    }

    /// Announces that the event loop is about to sleep, and leaves nobody asleep for whom there is news; false if there is
    /// news for it first.
    pub fn try_sleep(&self) -> bool {
        self.call_noted();
        self.exchange.notices().try_sleep()
    }

    /// The event loop is up again.
    pub fn awake(&self) {
        self.exchange.notices().awake();
    }

    /// Nobody wants the answer of a running request any more.
    pub fn give_up(&mut self, slot: u32, why: Unwanted) {
        self.slots[slot].unwanted = Some(why);
        self.exchange.head(slot).flow.0.give_up(why);
        self.post(slot);
    }

    /// Tells the event loop that has a slot that there is news, if it is one that has it. It is woken by
    /// [`Self::announce`]: woken for the first of several, it would take our core, and sleep again before the next.
    fn post(&self, slot: u32) {
        if !self.exchange.geometry().event_loops {
            return;
        }
        // With the fence of who takes it: either the seat sees what is new, or we see whose it is.
        fence(Ordering::SeqCst);
        // Nobody else minds if a worker has written another seat there.
        let owner = self.exchange.word(slot).map(|word| word.tenant.seat);
        let worker = owner.map(|seat| self.exchange.geometry().worker_of(seat));
        let inbox =
            worker.and_then(|worker| self.exchange.inbox(worker).map(|inbox| (worker, inbox)));
        if let Some((worker, inbox)) = inbox {
            inbox.note(slot);
            self.noted[usize::from(worker)].set(true);
            self.has_noted.set(true);
        }
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
        let turn = self.slots[slot].turn;
        let ready = Word::unowned(SlotPhase::Ready, turn).pack();
        let filling = Word::unowned(SlotPhase::Filling, turn).pack();
        self.exchange.words()[slot as usize]
            .compare_exchange(ready, filling, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Frees a slot whose seat is done with it or dead.
    pub fn release(&mut self, slot: u32) {
        self.free_slot(slot);
    }

    fn free_slot(&mut self, slot: u32) {
        let reached = match self.exchange.word(slot).map(|word| word.phase) {
            Some(SlotPhase::Free | SlotPhase::Filling | SlotPhase::Ready) => Some(0),
            Some(SlotPhase::Done) => {
                let reached = self.reached(slot);
                Some(self.slots[slot].remains.leave(reached))
            }
            // Its seat is dead, and may have written what it had not yet published.
            Some(SlotPhase::Taken | SlotPhase::Answering) | None => {
                self.slots[slot].remains = Remains::default();
                None
            }
        };
        let (request, poured) = (self.leave_request(slot), self.poured_bytes(slot));
        let others = self.exchange.request_len(slot).max(poured as usize);
        self.slots[slot].remains.leave_others(others);
        self.exchange.wipe(slot, request, poured, reached);
        let turn = self.slots[slot].turn;
        self.exchange
            .set_word(slot, SlotPhase::Free, Tenant::default(), turn);
        self.slots.free(slot);
    }

    /// The slots that a worker has in hand: to be cleared up when it has died. Also those of which
    /// the exchange makes no sense any more, since nobody else will ever be told to own them.
    ///
    /// Wakes a sleeper if there is work, since the dead one may have been woken for it and not
    /// come to take it.
    pub fn held_by(&self, is_theirs: impl Fn(Tenant) -> bool) -> Vec<u32> {
        if !self.exchange.ready().is_empty() {
            self.exchange.ready_bell().ring(u32::MAX);
            self.call_all();
        }
        self.slots
            .used()
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

#[cfg(test)]
pub(crate) mod rig;
