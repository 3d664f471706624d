//! How a request is handed to a seat. Like [`crate::protocol`] it is what loom explores, and leaves nothing locked.
//!
//! Workers write to the memory in which a ring lies, and one of them may write anything. So the producer keeps for
//! itself what it has filled in ([`Published`]) and goes by that; what stands in the memory it only compares, and
//! lays the ring out anew when it finds what cannot be.

use crate::corrupt::Corrupt;
use crate::sync::{AtomicU64, Ordering};
use crate::word::{SlotPhase, Tenant, Word};

/// The slots that are ready, in the order in which they became so. One producer, the acceptor;
/// any number of consumers.
#[derive(Clone, Copy, Debug)]
pub struct ReadyRing<'m> {
    /// Position of the next entry to take; never wraps.
    pub head: &'m AtomicU64,
    /// Position of the next entry to fill; only the acceptor writes it.
    pub tail: &'m AtomicU64,
    /// `turn:32 | slot:32`; a power of two of them.
    pub entries: &'m [AtomicU64],
}

/// What the producer knows of its ring, whatever stands there.
#[derive(Clone, Debug)]
pub struct Published {
    tail: u64,
    entries: Vec<u64>,
}

/// A request that was handed over, and has not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its slot.
    pub slot: u32,
    /// The slot's turn.
    pub turn: u32,
    /// Its position in the ring.
    pub position: u64,
}

impl Entry {
    fn bits(self) -> u64 {
        u64::from(self.turn) << 32 | u64::from(self.slot)
    }

    /// Whether nobody has taken it.
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
    /// Whether an entry can be published; it stays so until one is. False if the ring is full of
    /// entries that nobody came to take.
    ///
    /// # Errors
    /// The head is where it cannot be: see [`ReadyRing::renew`].
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
            .ok_or(Corrupt("the head of a ring is where it cannot be"))
    }

    /// Hands over a slot that is Filling: it becomes Ready, then visible. Only while there is
    /// room. Gives its position.
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
        let bits = Entry {
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

    /// Takes the ring over from a producer before us, whose entries are forgotten. Starts over if the
    /// positions are impossible, as a worker gone mad may leave them.
    pub fn take_over(&self) -> Published {
        /// Counted up one by one, never reached.
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
        // The tail first: seats that see both take the ring for empty, and not what lies beyond its end for
        // entries.
        self.tail.store(mine.tail, Ordering::Release);
        self.head.store(mine.tail, Ordering::Release);
    }

    /// Holds the ring to what was filled in: `handed_over` is all of it that has not come back.
    ///
    /// # Errors
    /// It is not as it was left: see [`ReadyRing::renew`].
    pub fn check(
        &self,
        mine: &Published,
        words: &[AtomicU64],
        handed_over: &[Entry],
    ) -> Result<(), Corrupt> {
        if self.tail.load(Ordering::Acquire) != mine.tail {
            return Err(Corrupt("the tail of a ring is where it cannot be"));
        }
        let head = self.possible_head(mine)?;
        let spoilt = (head..mine.tail)
            .map(|position| mine.index(position))
            .any(|at| self.entries[at].load(Ordering::Acquire) != mine.entries[at]);
        if spoilt {
            return Err(Corrupt("an entry of a ring is another"));
        }
        // Seats move the head past an entry once its slot is no longer Ready, and it was loaded before.
        let lost = |entry: &Entry| entry.position < head && entry.is_ready(words);
        if handed_over.iter().any(lost) {
            return Err(Corrupt("a request was passed over in its ring"));
        }
        Ok(())
    }

    /// Lays the ring out anew, with those of `handed_over` that nobody has taken, in their order; gives each its
    /// new position.
    ///
    /// Seats may be at it meanwhile. Whoever claims a slot has it, whatever becomes of its entry. One that was held
    /// up with a position that a mad worker had made possible may yet step over an entry here; then the next
    /// [`ReadyRing::check`] finds it.
    pub fn renew(&self, mine: &mut Published, words: &[AtomicU64], handed_over: &mut [Entry]) {
        self.empty(mine);
        handed_over.sort_unstable_by_key(|entry| entry.position);
        for entry in handed_over {
            if entry.is_ready(words) {
                entry.position = self.append(mine, entry.slot, entry.turn);
            }
        }
    }

    /// Takes the oldest ready slot for `tenant`, giving the slot and its turn.
    ///
    /// The claim is the compare-and-swap on the slot's word. Only then is the head helped on, by
    /// whoever gets there first: a worker killed between the two leaves an entry whose slot is no
    /// longer Ready, and the next comer steps over it.
    pub fn take(&self, words: &[AtomicU64], tenant: Tenant) -> Option<(u32, u32)> {
        // There are no more of them, unless a worker gone mad has put the tail anywhere.
        let mut stale_left = self.entries.len();
        loop {
            let head = self.head.load(Ordering::Acquire);
            if head >= self.tail.load(Ordering::Acquire) {
                return None;
            }
            let entry =
                self.entries[(head % self.entries.len() as u64) as usize].load(Ordering::Acquire);
            // The producer overwrites an entry only once the head has passed it; if it has, what
            // was read may belong to a later position, and taking it would jump the queue.
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

    /// How much is there to take. May be out of date as soon as it is known.
    pub fn len(&self) -> usize {
        let (head, tail) = (
            self.head.load(Ordering::Acquire),
            self.tail.load(Ordering::Acquire),
        );
        (tail.saturating_sub(head) as usize).min(self.entries.len())
    }

    /// The position of the oldest that is there to take. May be out of date as soon as it is known.
    pub fn oldest(&self) -> Option<u64> {
        let head = self.head.load(Ordering::Acquire);
        (head < self.tail.load(Ordering::Acquire)).then_some(head)
    }

    /// Whether nothing is there to take. May be out of date as soon as it is known.
    pub fn is_empty(&self) -> bool {
        self.oldest().is_none()
    }

    fn pass(&self, head: u64) {
        // Failing means that somebody else has helped already.
        let _ = self.head.compare_exchange(
            head,
            head.wrapping_add(1),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    /// Steps over entries at the head that were withdrawn or whose taker died before it could;
    /// true if that made room.
    fn skip_stale(&self, mine: &Published, words: &[AtomicU64]) -> bool {
        let before = self.head.load(Ordering::Acquire);
        let mut head = before;
        // A loop around the ring at most: a worker gone mad may put the head anywhere meanwhile.
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

/// Where a seat looks for work: in the ring of its worker, for what that worker alone may answer, and
/// in everybody's.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'m> {
    /// The worker's own ring.
    pub own: ReadyRing<'m>,
    /// Everybody's.
    pub shared: ReadyRing<'m>,
}

impl Sources<'_> {
    /// Takes the oldest ready slot of one ring, or of the other if there is none: the slot, its turn,
    /// and whether it came from the worker's own.
    ///
    /// Who rings for a request that one worker alone may take must wake every sleeper: the bell
    /// cannot choose, and one who was woken for everybody's may take its own instead.
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
