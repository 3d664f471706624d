//! The acceptor's side: submit requests, sweep up answers, clear up after the dead.

mod inflow;
mod look;
mod mend;
mod remains;

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
use inflow::Poured;
use remains::Remains;

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
    /// How far into its ring each slot's answer has reached, as far as we have read it, likewise.
    reached: Vec<usize>,
    /// What answers before have left there.
    remains: Vec<Remains>,
    /// How many bytes a long request has left in each slot that is free.
    requests_left: Vec<usize>,
    /// Why nobody wants each slot's answer any more, likewise.
    unwanted: Vec<Option<Unwanted>>,
    /// What we have put into everybody's ring, and into that of each worker.
    shared: Published,
    own: Vec<Published>,
    /// Where each slot that is used was handed over.
    handed_over: Vec<HandedOver>,
    /// Found and put right since the last [`Self::mend`].
    mended: Option<Corrupt>,
    /// What was poured into the inflow of each slot, likewise; none without inflows.
    poured: Vec<Poured>,
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

/// In whose ring a request was put, and where.
#[derive(Clone, Copy, Debug, Default)]
struct HandedOver {
    /// One worker's, or everybody's.
    worker: Option<u16>,
    position: u64,
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
        let slots = exchange.geometry().slots();
        let workers = 0..exchange.geometry().workers() as u16;
        let mut side = Self {
            exchange,
            free: Vec::with_capacity(slots),
            used: vec![true; slots],
            turns: vec![0; slots],
            consumed: vec![0; slots],
            reached: vec![0; slots],
            remains: vec![Remains::default(); slots],
            requests_left: vec![0; slots],
            unwanted: vec![None; slots],
            // Seats may still take what was ready before; it is withdrawn below, or an orphan.
            shared: exchange.ready().take_over(),
            own: workers
                .clone()
                .map(|worker| exchange.own_ring(worker).take_over())
                .collect(),
            handed_over: vec![HandedOver::default(); slots],
            poured: match exchange.geometry().inflow_bytes {
                0 => Vec::new(),
                _ => vec![Poured::default(); slots],
            },
            mended: None,
            unannounced: 0,
            unannounced_own: false,
            noted: workers.clone().map(|_| Cell::default()).collect(),
            has_noted: Cell::new(false),
            // The first one's turn comes first.
            called_last: Cell::new(exchange.geometry().workers() - 1),
            orphans: Vec::new(),
        };
        for slot in (0..slots as u32).rev() {
            let bits = exchange.words()[slot as usize].load(Ordering::Acquire);
            side.turns[slot as usize] = (bits >> 32) as u32;
            if bits == 0 {
                // Never used: its head, and its areas, take no memory as long as nobody looks there.
                side.used[slot as usize] = false;
                side.free.push(slot);
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
        self.consumed[slot as usize] = consumed.load(Ordering::Relaxed);
        // How far its answer has reached is not known.
        self.reached[slot as usize] = self.exchange.geometry().response_bytes;
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
        self.free.len()
    }

    /// Whether there is a free slot, and room for it in the ready ring.
    pub fn can_submit(&mut self) -> bool {
        self.has_room(None)
    }

    fn has_room(&mut self, worker: Option<u16>) -> bool {
        if self.free.is_empty() {
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
        let slot = self.free.pop()?;
        self.used[slot as usize] = true;
        let turn = self.turns[slot as usize].wrapping_add(1);
        self.turns[slot as usize] = turn;
        self.consumed[slot as usize] = 0;
        self.reached[slot as usize] = 0;
        self.unwanted[slot as usize] = None;
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
        self.handed_over[slot as usize] = HandedOver { worker, position };
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
        let slots = self.turns.len() as u32;
        self.exchange.notices().sweep(|slot| {
            // Bits past the last slot are nobody's; a worker gone mad may have set them.
            if slot < slots {
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
        self.unwanted[slot as usize] = Some(why);
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
        let turn = self.turns[slot as usize];
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
        debug_assert!(self.used[slot as usize], "slot {slot} was freed twice");
        let reached = match self.exchange.word(slot).map(|word| word.phase) {
            Some(SlotPhase::Free | SlotPhase::Filling | SlotPhase::Ready) => Some(0),
            Some(SlotPhase::Done) => {
                let reached = self.reached(slot);
                Some(self.remains[slot as usize].leave(reached))
            }
            // Its seat is dead, and may have written what it had not yet published.
            Some(SlotPhase::Taken | SlotPhase::Answering) | None => {
                self.remains[slot as usize] = Remains::default();
                None
            }
        };
        let (request, poured) = (self.leave_request(slot), self.poured_bytes(slot));
        let others = self.exchange.request_len(slot).max(poured as usize);
        self.remains[slot as usize].leave_others(others);
        self.exchange.wipe(slot, request, poured, reached);
        self.used[slot as usize] = false;
        let turn = self.turns[slot as usize];
        self.exchange
            .set_word(slot, SlotPhase::Free, Tenant::default(), turn);
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
            self.call_all();
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

#[cfg(test)]
pub(crate) mod rig;
