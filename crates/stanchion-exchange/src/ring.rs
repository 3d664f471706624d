//! How the acceptor hands a request to a seat. Loom explores this code, as it does [`crate::protocol`], and it leaves
//! nothing locked.
//!
//! Workers can write to the memory in which a ring lies, and a faulty worker may write anything. So the producer keeps
//! its own record of what it has filled in ([`Published`]) and goes by that. It only compares the memory with it, and
//! fills the ring again when it finds an impossible value.
//!
//! Taking a request is one compare-and-swap on the slot's word, Ready → Taken. After that any seat may move the ring's
//! head on. A worker that is killed in between leaves an entry whose slot is no longer Ready; the next seat skips it.
//! The turn in word and entry prevents an old entry from claiming a later request.
//!
//! Each worker has a ring of its own too, for requests that come by its port (`--worker-port-base`). A seat takes from
//! the two rings in turns, so neither starves.
//!
//! - It is a ring and not one entry for each seat, so that two seats of a worker can each have a request without the
//!   acceptor hearing in between that the first was taken.
//! - It belongs to the worker's seats, not to its process: the successor of a dead worker finds there the requests that
//!   were not taken. If the port passes to a worker with other seats, the acceptor withdraws the requests and puts them
//!   into that worker's ring.
//! - While no such request exists, looking costs two loads of a cache line that never changes.
//! - The bell cannot choose which seat it wakes, so for these requests it wakes all of them.

use crate::corrupt::Corrupt;
use crate::sync::{AtomicU64, Ordering};
use crate::word::{SlotPhase, Tenant, Word};

/// The slots that are ready, in the order in which they became so. It has one producer, the acceptor, and any number of
/// consumers.
#[derive(Clone, Copy, Debug)]
pub struct ReadyRing<'m> {
    /// Position of the next entry to take; never wraps.
    pub head: &'m AtomicU64,
    /// Position of the next entry to fill; only the acceptor writes it.
    pub tail: &'m AtomicU64,
    /// `turn:32 | slot:32` each; their number is a power of two.
    pub entries: &'m [AtomicU64],
}

/// The producer's own record of its ring, which no worker can change.
#[derive(Clone, Debug)]
pub struct Published {
    tail: u64,
    entries: Vec<u64>,
}

/// A request that the acceptor has handed over, and whose slot has not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingEntry {
    /// Its slot.
    pub slot: u32,
    /// The slot's turn.
    pub turn: u32,
    /// Its position in the ring.
    pub position: u64,
}

impl RingEntry {
    fn bits(self) -> u64 {
        u64::from(self.turn) << 32 | u64::from(self.slot)
    }

    /// Whether no seat has taken it.
    fn is_ready(self, words: &[AtomicU64]) -> bool {
        is_ready(self.bits(), words)
    }
}

fn is_ready(entry: u64, words: &[AtomicU64]) -> bool {
    let ready = Word::unowned(SlotPhase::Ready, (entry >> 32) as u32).pack();
    words
        .get(entry as u32 as usize)
        .is_some_and(|word| word.load(Ordering::Acquire) == ready)
}

impl ReadyRing<'_> {
    /// Whether the ring has room for another entry; the answer stays true until the next entry is published. False if
    /// the ring is full of entries that no seat has taken.
    ///
    /// # Errors
    /// The head is out of range: see [`ReadyRing::renew`].
    pub fn has_room(&self, mine: &Published, words: &[AtomicU64]) -> Result<bool, Corrupt> {
        let head = self.possible_head(mine)?;
        let unread = mine.tail - head;
        Ok(unread < self.entries.len() as u64 || self.skip_stale(mine, words))
    }

    fn possible_head(&self, mine: &Published) -> Result<u64, Corrupt> {
        let head = self.head.load(Ordering::Acquire);
        let unread = mine.tail.checked_sub(head);
        unread
            .filter(|&unread| unread <= self.entries.len() as u64)
            .map(|_| head)
            .ok_or(Corrupt("the head of a ring is out of range"))
    }

    /// Hands over a slot that is Filling: it becomes Ready, then visible. The caller has seen that the ring has room.
    /// Returns its position.
    pub fn publish(&self, mine: &mut Published, words: &[AtomicU64], slot: u32, turn: u32) -> u64 {
        words[slot as usize].store(
            Word::unowned(SlotPhase::Ready, turn).pack(),
            Ordering::Release,
        );
        self.append(mine, slot, turn)
    }

    fn append(&self, mine: &mut Published, slot: u32, turn: u32) -> u64 {
        let position = mine.tail;
        let at = mine.index(position);
        let bits = RingEntry {
            slot,
            turn,
            position,
        }
        .bits();
        mine.entries[at] = bits;
        mine.tail += 1;
        self.entries[at].store(bits, Ordering::Release);
        self.tail.store(mine.tail, Ordering::Release);
        position
    }

    /// Takes the ring over from an earlier producer, and forgets that producer's entries. Starts from position 0 if the
    /// positions are impossible, as a worker that writes anywhere may leave them.
    pub fn take_over(&self) -> Published {
        /// Positions count up one by one, and never reach this.
        const POSITIONS_MAX: u64 = 1 << 63;

        let tail = self.tail.load(Ordering::Relaxed);
        let unread = tail.checked_sub(self.head.load(Ordering::Acquire));
        let possible = unread.is_some_and(|unread| unread <= self.entries.len() as u64);
        let tail = if possible && tail < POSITIONS_MAX {
            tail
        } else {
            0
        };
        let mine = Published {
            tail,
            entries: vec![0; self.entries.len()],
        };
        self.empty(&mine);
        mine
    }

    fn empty(&self, mine: &Published) {
        // The tail first: a seat that sees the new tail and the old head takes the ring for empty, and never takes the
        // memory beyond its end for entries.
        self.tail.store(mine.tail, Ordering::Release);
        self.head.store(mine.tail, Ordering::Release);
    }

    /// Compares the ring with the producer's record; `handed_over` is every request that has not come back.
    ///
    /// # Errors
    /// A field was overwritten, or a request was passed over: see [`ReadyRing::renew`].
    pub fn check(
        &self,
        mine: &Published,
        words: &[AtomicU64],
        handed_over: &[RingEntry],
    ) -> Result<(), Corrupt> {
        if self.tail.load(Ordering::Acquire) != mine.tail {
            return Err(Corrupt("the tail of a ring was overwritten"));
        }
        let head = self.possible_head(mine)?;
        let spoilt = (head..mine.tail)
            .map(|position| mine.index(position))
            .any(|at| self.entries[at].load(Ordering::Acquire) != mine.entries[at]);
        if spoilt {
            return Err(Corrupt("an entry of a ring was overwritten"));
        }
        // A seat moves the head past an entry only once the entry's slot is no longer Ready, and we loaded the head
        // first.
        let lost = |entry: &RingEntry| entry.position < head && entry.is_ready(words);
        if handed_over.iter().any(lost) {
            return Err(Corrupt("the head of a ring has passed a ready request"));
        }
        Ok(())
    }

    /// Empties the ring, and appends those of `handed_over` that no seat has taken, in their order; gives each its new
    /// position.
    ///
    /// Seats may be taking from the ring meanwhile. A seat that claims a slot keeps it, whatever becomes of the entry.
    /// A seat that was delayed with a position that a faulty worker had made possible may still step over an entry
    /// here; then the next [`ReadyRing::check`] finds it.
    pub fn renew(&self, mine: &mut Published, words: &[AtomicU64], handed_over: &mut [RingEntry]) {
        self.empty(mine);
        handed_over.sort_unstable_by_key(|entry| entry.position);
        for entry in handed_over {
            if entry.is_ready(words) {
                entry.position = self.append(mine, entry.slot, entry.turn);
            }
        }
    }

    /// Takes the oldest ready slot for `tenant`; returns the slot and its turn.
    ///
    /// The claim is the compare-and-swap on the slot's word. Only then does a seat move the head on, this one or
    /// another: a worker killed between the two leaves an entry whose slot is no longer Ready, and the next seat steps
    /// over it.
    pub fn take(&self, words: &[AtomicU64], tenant: Tenant) -> Option<(u32, u32)> {
        // There are no more entries than this, unless a faulty worker has overwritten the tail.
        let mut stale_left = self.entries.len();
        loop {
            let head = self.head.load(Ordering::Acquire);
            if head >= self.tail.load(Ordering::Acquire) {
                return None;
            }
            let entry =
                self.entries[(head % self.entries.len() as u64) as usize].load(Ordering::Acquire);
            // The producer overwrites an entry only once the head has passed it. If the head has moved, the entry that
            // we read may belong to a later position, and taking it would jump the queue.
            if self.head.load(Ordering::Acquire) != head {
                continue;
            }
            let (slot, turn) = (entry as u32, (entry >> 32) as u32);
            let claimed = words.get(slot as usize).is_some_and(|word| {
                let ready = Word::unowned(SlotPhase::Ready, turn).pack();
                let taken = Word {
                    phase: SlotPhase::Taken,
                    tenant,
                    turn,
                }
                .pack();
                word.compare_exchange(ready, taken, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            });
            self.pass(head);
            if claimed {
                return Some((slot, turn));
            }
            stale_left = stale_left.checked_sub(1)?;
        }
    }

    /// How many entries are in the ring. The answer may be out of date at once.
    pub fn len(&self) -> usize {
        let (head, tail) = (
            self.head.load(Ordering::Acquire),
            self.tail.load(Ordering::Acquire),
        );
        (tail.saturating_sub(head) as usize).min(self.entries.len())
    }

    /// The position of the oldest entry in the ring. The answer may be out of date at once.
    pub fn oldest(&self) -> Option<u64> {
        let head = self.head.load(Ordering::Acquire);
        (head < self.tail.load(Ordering::Acquire)).then_some(head)
    }

    /// Whether the ring is empty. The answer may be out of date at once.
    pub fn is_empty(&self) -> bool {
        self.oldest().is_none()
    }

    fn pass(&self, head: u64) {
        // If this fails, another seat has moved the head on already.
        let _ = self.head.compare_exchange(
            head,
            head.wrapping_add(1),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    /// Steps over stale entries at the head: their requests were withdrawn, or the seat that took them died before it
    /// moved the head on. True if that made room.
    fn skip_stale(&self, mine: &Published, words: &[AtomicU64]) -> bool {
        let before = self.head.load(Ordering::Acquire);
        let mut head = before;
        // One round of the ring at most: a faulty worker may move the head anywhere meanwhile.
        for _ in self.entries {
            if head >= mine.tail || is_ready(mine.entries[mine.index(head)], words) {
                break;
            }
            self.pass(head);
            head = self.head.load(Ordering::Acquire);
        }
        head > before
    }
}

impl Published {
    fn index(&self, position: u64) -> usize {
        (position % self.entries.len() as u64) as usize
    }
}

/// The rings in which a seat looks for work: its worker's own ring, for requests that this worker alone may answer, and
/// the shared ring.
#[derive(Clone, Copy, Debug)]
pub struct SeatRings<'m> {
    /// The worker's own ring.
    pub own: ReadyRing<'m>,
    /// The shared ring.
    pub shared: ReadyRing<'m>,
}

impl SeatRings<'_> {
    /// Takes the oldest ready slot of one ring, or of the other if the first is empty. Returns the slot, its turn, and
    /// whether it came from the worker's own ring.
    ///
    /// A process that rings the bell for a request that one worker alone may take must wake every sleeper. The bell
    /// cannot choose, and a seat that was woken for a shared request may take one from its own ring instead.
    pub fn take(
        &self,
        words: &[AtomicU64],
        tenant: Tenant,
        own_first: bool,
    ) -> Option<(u32, u32, bool)> {
        let own = || {
            let (slot, turn) = self.own.take(words, tenant)?;
            Some((slot, turn, true))
        };
        let shared = || {
            let (slot, turn) = self.shared.take(words, tenant)?;
            Some((slot, turn, false))
        };
        if own_first {
            own().or_else(shared)
        } else {
            shared().or_else(own)
        }
    }
}
