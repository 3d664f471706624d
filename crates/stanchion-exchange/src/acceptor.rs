//! The acceptor's side: submit requests, sweep up answers, clear up after the dead.

mod inflow;
mod look;
mod mend;
mod remains;
mod slots;
mod wiping;

pub use look::SlotState;

use std::cell::Cell;
use std::sync::atomic::{Ordering, fence};

use crate::area::Area;
use crate::corrupt::Corrupt;
use crate::inbox::Inbox;
use crate::protocol::{LoopLoad, Unwanted};
use crate::ring::{Published, ReadyRing};
use crate::shared::Exchange;
use crate::word::{SlotPhase, Tenant, Word};
use remains::Remains;
use slots::{RingPlace, Slots};

/// The acceptor's own record of the exchange: the free slots, and the requests for which it must still wake
/// sleepers. A process makes one, and only one process has one at a time.
#[derive(Debug)]
pub struct AcceptorSide<'x> {
    exchange: &'x Exchange,
    slots: Slots,
    /// The acceptor's own record of the entries it has put into the shared ring, and into each worker's own ring.
    shared: Published,
    own: Vec<Published>,
    /// The first fault found and put right since the last [`Self::mend`].
    mended: Option<Corrupt>,
    /// [`Self::drain`] was called.
    is_draining: bool,
    /// Requests submitted since the last wake.
    unannounced: u32,
    /// At least one of these requests may be taken by one worker only.
    unannounced_own: bool,
    /// By worker: its inbox has got notices since its event loop was last called. `has_noted` says that some inbox has.
    noted: Vec<Cell<bool>>,
    has_noted: Cell<bool>,
    /// The worker whose event loop was woken last.
    called_last: Cell<usize>,
    /// Slots that seats still hold for an earlier acceptor.
    orphans: Vec<u32>,
}

/// A request in the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Its slot.
    pub slot: u32,
    /// Which use of that slot this is. The turn distinguishes this request from earlier ones in the same slot.
    pub turn: u32,
}

impl<'x> AcceptorSide<'x> {
    /// Takes the exchange over from an earlier acceptor. Requests that are still ready are withdrawn, because their
    /// clients lost their connections with that acceptor. Requests that seats are still answering stay with those seats
    /// until they finish or die; then their slots are freed like any other.
    pub fn take_over(exchange: &'x Exchange) -> Self {
        // The counter tells seats that no client waits any more for the requests they took earlier.
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
            // Until the loop below has withdrawn them, seats may still take requests of the earlier acceptor. A request
            // that a seat takes in that time becomes an orphan.
            shared: exchange.ready().take_over(),
            own: workers
                .clone()
                .map(|worker| exchange.own_ring(worker).take_over())
                .collect(),
            mended: None,
            is_draining: false,
            unannounced: 0,
            unannounced_own: false,
            noted: workers.clone().map(|_| Cell::default()).collect(),
            has_noted: Cell::new(false),
            // So that the first worker's turn comes first.
            called_last: Cell::new(exchange.geometry().workers() - 1),
            orphans: Vec::new(),
        };
        side.show_draining();
        for slot in side.slots.known().rev() {
            let bits = words[slot as usize].load(Ordering::Acquire);
            side.slots[slot].turn = (bits >> 32) as u32;
            if bits == 0 {
                // The slot was never used. Its head and its areas take no memory as long as no process touches them.
                side.slots.free(slot);
                continue;
            }
            match Word::unpack(bits).map(|word| word.phase) {
                Some(SlotPhase::Taken | SlotPhase::Answering) => side.orphan(slot),
                Some(SlotPhase::Ready) if !side.withdraw_word(slot) => side.orphan(slot),
                Some(_) | None => {
                    // It is unknown how far the earlier acceptor had filled the slot, and what it had left in it.
                    exchange.wipe_all(slot);
                    side.release(slot);
                }
            }
        }
        // The earlier acceptor may have been killed between clearing the bell's bit and waking the sleepers.
        exchange.rouse_all();
        side
    }

    fn orphan(&mut self, slot: u32) {
        // The answer counts as read as far as the earlier acceptor had read it.
        let consumed = &self.exchange.flow(slot).consumed;
        self.slots[slot].consumed = consumed.load(Ordering::Relaxed);
        // It is unknown how far into the ring the answer has reached, so assume the whole ring.
        self.slots[slot].reached = self.exchange.geometry().response_bytes;
        self.take_over_inflow(slot);
        self.give_up(slot, Unwanted::ClientGone);
        self.orphans.push(slot);
    }

    /// Frees `slot` if a seat held it for an earlier acceptor, and that seat has given it back or is `dead`. True if
    /// the slot was such an orphan.
    pub fn settle_orphan(&mut self, slot: u32, dead: bool) -> bool {
        let Some(index) = self.orphans.iter().position(|&orphan| orphan == slot) else {
            return false;
        };
        if dead || matches!(self.state(slot), Ok(SlotState::Done { .. })) {
            self.orphans.swap_remove(index);
            self.release(slot);
        }
        true
    }

    /// Whether a seat still holds this slot for an earlier acceptor.
    pub fn is_orphan(&self, slot: u32) -> bool {
        self.orphans.contains(&slot)
    }

    /// How many slots seats still hold for an earlier acceptor.
    pub fn orphans(&self) -> usize {
        self.orphans.len()
    }

    /// How many slots could take a request now.
    pub fn free_slots(&self) -> usize {
        self.slots.free_count()
    }

    /// Whether a slot is free, and the ring of `worker` has room for it; without one, the shared ring.
    ///
    /// # Panics
    /// If there can be no such worker.
    pub fn can_submit(&mut self, worker: Option<u16>) -> bool {
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

    /// The ring of one worker, or the shared ring, with our own record of its entries.
    fn ring(&mut self, worker: Option<u16>) -> (ReadyRing<'x>, &mut Published) {
        match worker {
            None => (self.exchange.ready(), &mut self.shared),
            Some(worker) => (
                self.exchange.own_ring(worker),
                &mut self.own[usize::from(worker)],
            ),
        }
    }

    /// Submits a request, which only `worker` may take, or any. `fill` writes the request's record into the area that it
    /// is given and returns the record's length, or `None` if the record does not fit; then nothing is submitted, and
    /// this returns `None`. If [`Self::can_submit`] is false, this returns `None` without calling `fill`.
    ///
    /// Seats that are awake can take the request at once. [`Self::announce`] wakes the sleepers. The first seat of
    /// `worker` to look takes the request, before or after requests from the shared ring. If the worker dies first, the
    /// request stays in that worker's ring, and its successor finds it there.
    ///
    /// # Panics
    /// If there can be no such worker.
    pub fn submit(
        &mut self,
        worker: Option<u16>,
        arrived_us: u64,
        fill: impl FnOnce(Area<'_>) -> Option<usize>,
    ) -> Option<Submitted> {
        if !self.can_submit(worker) {
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
        // SAFETY: the request area has this size and stays mapped for as long as the exchange lives; all code reads and
        // writes it by copy only.
        let area = unsafe { Area::new(self.exchange.request_area(slot), bytes) };
        let head = self.exchange.head(slot);
        let Some(len) = fill(area).filter(|len| *len <= bytes) else {
            // `fill` may have written up to the whole area: it must all be wiped.
            head.request_len.store(bytes as u32, Ordering::Relaxed);
            self.release(slot);
            return None;
        };
        self.wipe_request_behind(slot, len);
        head.request_len.store(len as u32, Ordering::Relaxed);
        head.arrived_us.store(arrived_us, Ordering::Relaxed);
        head.taken_us.store(0, Ordering::Relaxed);
        self.exchange.flow(slot).reset();
        self.reset_inflow(slot);
        let words = self.exchange.words();
        let (ring, mine) = self.ring(worker);
        let position = ring.publish(mine, words, slot, turn);
        self.slots[slot].handed_over = RingPlace { worker, position };
        self.unannounced += 1;
        self.unannounced_own |= worker.is_some();
        Some(Submitted { slot, turn })
    }

    /// Whether seats or event loops must still be woken for something new: see [`Self::announce`].
    pub fn is_unannounced(&self) -> bool {
        self.unannounced > 0 || self.has_noted.get()
    }

    /// Wakes as many sleeping seats as there are new requests, with one system call for all of them, and none if no
    /// seat sleeps. If one of the requests is for one worker alone, it wakes all sleepers, because the bell cannot
    /// choose which one it wakes. With event loops, it wakes those that run the fewest requests, and those whose slots
    /// have news.
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

    /// The event loops that sleep and have room, each with its worker's number.
    fn sleepers(&self) -> impl Iterator<Item = (usize, Inbox<'x>)> {
        LoopLoad::settle();
        let room = self.exchange.geometry().seats_per_worker as u32;
        let inboxes = self.exchange.inboxes().enumerate();
        inboxes.filter(move |(_, inbox)| inbox.is_asleep() && inbox.load() < room)
    }

    /// Wakes up to `count` event loops that sleep and have room: first those that run the fewest requests, then those
    /// with the fewest sessions, and in turn among equals.
    fn call_loops(&self, count: u32) {
        let loops = self.exchange.geometry().workers();
        // At most one call per loop, whatever a worker writes to its inbox meanwhile.
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

    /// Wakes every event loop that sleeps and has room, if an untaken request is ready: the loops that were woken for
    /// it may be stuck or dead.
    pub fn call_all(&self) {
        if !self.exchange.ready().is_empty() {
            self.call_loops(u32::MAX);
        }
    }

    /// The position of the oldest ready request, if an event loop with room sleeps although this request is untaken.
    /// The position differs once that request has been taken.
    pub fn untaken(&self) -> Option<u64> {
        if !self.exchange.geometry().event_loops {
            return None;
        }
        let head = self.exchange.ready().oldest()?;
        self.sleepers().next().map(|_| head)
    }

    /// Takes the notices that seats have left: calls `look` with each slot that has news.
    pub fn sweep(&self, mut look: impl FnMut(u32)) {
        let known = self.slots.known();
        self.exchange.notices().sweep(|slot| {
            // The other slots were never used, or do not exist: only a worker that writes anywhere can have set their
            // bits.
            if known.contains(&slot) {
                look(slot);
            }
        });
    }

    /// Wakes each event loop whose slots have news, once for all of that news.
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

    /// Announces that the acceptor's event loop is about to sleep, after waking every event loop that has unannounced
    /// news. False if a notice has arrived, so the acceptor must look first.
    pub fn try_sleep(&self) -> bool {
        self.call_noted();
        self.exchange.notices().try_sleep()
    }

    /// The acceptor's event loop is awake again.
    pub fn awake(&self) {
        self.exchange.notices().awake();
    }

    /// Shows workers that this generation serves the clients that are here and then leaves. Every event loop looks at
    /// once, whether or not it shows that it sleeps: before its sleep it looks again for slots and requests alone.
    pub fn drain(&mut self) {
        self.is_draining = true;
        self.show_draining();
        for inbox in self.exchange.inboxes() {
            inbox.rouse();
        }
    }

    /// Shows whether the acceptor drains. Returns what was shown before.
    fn show_draining(&self) -> bool {
        let shown = &self.exchange.header().draining;
        shown.swap(u32::from(self.is_draining), Ordering::AcqRel) != 0
    }

    /// The acceptor gives up the answer of a running request, and informs the seat of it.
    pub fn give_up(&mut self, slot: u32, why: Unwanted) {
        self.slots[slot].unwanted = Some(why);
        self.exchange.flow(slot).give_up(why);
        self.post(slot);
    }

    /// Puts a notice for the slot into the inbox of the event loop that holds it, if an event loop does.
    /// [`Self::announce`] wakes the loop later: woken at once for the first of several notices, it would take our core,
    /// and sleep again before the next.
    fn post(&self, slot: u32) {
        if !self.exchange.geometry().event_loops {
            return;
        }
        // Pairs with the fence of the seat that takes the slot: either the seat sees the news, or we see that the seat
        // holds the slot.
        fence(Ordering::SeqCst);
        // If a worker has written a wrong seat there, the wrong loop gets a notice, which does no harm.
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

    /// Takes back a request that is still ready, and frees its slot. True if no seat had taken the request.
    pub fn withdraw(&mut self, slot: u32) -> bool {
        let withdrawn = self.withdraw_word(slot);
        if withdrawn {
            self.release(slot);
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

    /// Frees a slot whose seat is done with it or dead, and wipes it.
    pub fn release(&mut self, slot: u32) {
        let reached = match self.exchange.word(slot).map(|word| word.phase) {
            Some(SlotPhase::Free | SlotPhase::Filling | SlotPhase::Ready) => Some(0),
            Some(SlotPhase::Done) => {
                let reached = self.reached(slot);
                Some(self.slots[slot].remains.leave(reached))
            }
            // The seat is dead, and may have written bytes that it had not published.
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

    /// The slots that a dead worker held: the caller clears them up. Slots in an impossible state are among them, since
    /// no owner can be found for them at any later time.
    ///
    /// Wakes sleepers if a request is ready: the dead worker may have been woken for that request and died before it
    /// took it.
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
