//! The lock-free part: how a request is handed to a seat, how an answer is announced, how either
//! side sleeps. It is written over borrowed words so that loom (tests/loom.rs) explores the very
//! code that runs on the shared memory.
//!
//! A process may be killed between any two instructions here. Nothing is ever left locked: there
//! are no locks, and each step either has happened or can be finished by somebody else.

use std::time::Duration;

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, futex};
use crate::word::{Phase, Tenant, Word};

/// A word to sleep on: a count of the times it was rung, times two, and one bit that says that
/// somebody sleeps or is about to.
///
/// Without sleepers a ring costs one atomic addition and no system call. A sleeper that is
/// killed leaves the bit set, which costs one needless system call and harms nobody.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Bell(AtomicU32);

/// What the bell showed before the sleeper looked at its condition for the last time.
#[derive(Clone, Copy, Debug)]
pub struct Seen(u32);

const SLEEPERS: u32 = 1;
const ONE_RING: u32 = 2;

impl Bell {
    /// Announces a sleeper. The caller looks at its condition once more and then calls
    /// [`Bell::sleep`], which returns at once if the bell was rung in between.
    pub fn prepare(&self) -> Seen {
        Seen(self.0.fetch_or(SLEEPERS, Ordering::AcqRel) | SLEEPERS)
    }

    /// Sleeps until the bell is rung, a signal handler ran, or the time is up.
    pub fn sleep(&self, seen: Seen, timeout: Duration) {
        futex::wait(&self.0, seen.0, timeout);
    }

    /// Wakes up to `count` sleepers, those who have slept longest first. For one ringer only, the
    /// acceptor: another would take the cleared bit for nobody asleep.
    pub fn ring(&self, count: u32) {
        if self.0.fetch_add(ONE_RING, Ordering::AcqRel) & SLEEPERS == 0 {
            return;
        }
        // Cleared before the wake: whoever sets it anew from here on also sees the ring.
        self.0.fetch_and(!SLEEPERS, Ordering::AcqRel);
        if futex::wake(&self.0, count) == count {
            // There may be more of them than we woke.
            self.0.fetch_or(SLEEPERS, Ordering::AcqRel);
        }
    }

    /// Wakes up to `count` sleepers whatever the bit says, at the price of a system call. For
    /// everybody but the one ringer, and for whoever comes after a ringer that was killed
    /// between clearing the bit and the wake.
    pub fn rouse(&self, count: u32) {
        self.0.fetch_add(ONE_RING, Ordering::AcqRel);
        futex::wake(&self.0, count);
    }

    /// The word itself, for a signal handler that must make a sleeper look.
    #[cfg(not(loom))]
    pub fn word(&self) -> &AtomicU32 {
        &self.0
    }
}

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

impl ReadyRing<'_> {
    /// Whether an entry can be published; it stays so until one is. False if the ring is full of
    /// entries that nobody came to take.
    pub fn has_room(&self, words: &[AtomicU64]) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        let unread = tail.wrapping_sub(self.head.load(Ordering::Acquire));
        unread < self.entries.len() as u64 || self.skip_stale(words)
    }

    /// Hands over a slot that is Filling: it becomes Ready, then visible. Only while there is
    /// room.
    pub fn publish(&self, words: &[AtomicU64], slot: u32, turn: u32) {
        let tail = self.tail.load(Ordering::Relaxed);
        let capacity = self.entries.len() as u64;
        words[slot as usize].store(Word::unowned(Phase::Ready, turn).pack(), Ordering::Release);
        let entry = u64::from(turn) << 32 | u64::from(slot);
        self.entries[(tail % capacity) as usize].store(entry, Ordering::Release);
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
    }

    /// Forgets every entry; for a new acceptor, while no slot is Ready. Starts over if the
    /// positions are impossible, as a worker gone mad may leave them.
    pub fn clear(&self) {
        /// Counted up one by one, never reached.
        const POSITIONS_MAX: u64 = 1 << 63;

        let tail = self.tail.load(Ordering::Relaxed);
        let unread = tail.checked_sub(self.head.load(Ordering::Acquire));
        let possible = unread.is_some_and(|unread| unread <= self.entries.len() as u64);
        if possible && tail < POSITIONS_MAX {
            self.head.store(tail, Ordering::Release);
        } else {
            self.tail.store(0, Ordering::Release);
            self.head.store(0, Ordering::Release);
        }
    }

    /// Takes the oldest ready slot for `tenant`, giving the slot and its turn.
    ///
    /// The claim is the compare-and-swap on the slot's word. Only then is the head helped on, by
    /// whoever gets there first: a worker killed between the two leaves an entry whose slot is no
    /// longer Ready, and the next comer steps over it.
    pub fn take(&self, words: &[AtomicU64], tenant: Tenant) -> Option<(u32, u32)> {
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
                let ready = Word::unowned(Phase::Ready, turn).pack();
                let taken = Word {
                    phase: Phase::Taken,
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
        }
    }

    /// Whether nothing is there to take. May be out of date as soon as it is known.
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire) >= self.tail.load(Ordering::Acquire)
    }

    fn pass(&self, head: u64) {
        // Failing means that somebody else has helped already.
        let _ = self
            .head
            .compare_exchange(head, head + 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Steps over entries at the head that were withdrawn or whose taker died before it could;
    /// true if that made room.
    fn skip_stale(&self, words: &[AtomicU64]) -> bool {
        let before = self.head.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Relaxed);
        let mut head = before;
        // A loop around the ring at most: a worker gone mad may have put the tail anywhere.
        for _ in self.entries {
            if head >= tail {
                break;
            }
            let entry =
                self.entries[(head % self.entries.len() as u64) as usize].load(Ordering::Acquire);
            let ready = Word::unowned(Phase::Ready, (entry >> 32) as u32).pack();
            let still_ready = words
                .get(entry as u32 as usize)
                .is_some_and(|word| word.load(Ordering::Acquire) == ready);
            if still_ready {
                break;
            }
            self.pass(head);
            head = self.head.load(Ordering::Acquire);
        }
        head > before
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

/// The slots at which the acceptor should look, one bit each, and whether it sleeps.
#[derive(Clone, Copy, Debug)]
pub struct Notices<'m> {
    /// A bit per slot.
    pub bits: &'m [AtomicU64],
    /// 1 while the acceptor sleeps or is about to.
    pub asleep: &'m AtomicU32,
}

impl Notices<'_> {
    /// Notes that `slot` has news. True if the acceptor sleeps and it falls to the caller to wake
    /// it; of several callers only one is told so.
    pub fn post(&self, slot: u32) -> bool {
        self.bits[slot as usize / 64].fetch_or(1 << (slot % 64), Ordering::Release);
        // With the fence in `try_sleep`: either we see `asleep`, or it sees our bit.
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) != 0 && self.asleep.swap(0, Ordering::AcqRel) != 0
    }

    /// Takes every notice, calling `look` with each slot.
    pub fn sweep(&self, mut look: impl FnMut(u32)) {
        for (index, bits) in self.bits.iter().enumerate() {
            if bits.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut taken = bits.swap(0, Ordering::Acquire);
            while taken != 0 {
                look(index as u32 * 64 + taken.trailing_zeros());
                taken &= taken - 1;
            }
        }
    }

    /// Announces that the acceptor will sleep; false, and it must not, if there is a notice.
    pub fn try_sleep(&self) -> bool {
        // Not a plain store: loom does not see that it comes after a poster's swap which read what
        // was there before, and it costs nothing beside going to sleep.
        self.asleep.swap(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self
            .bits
            .iter()
            .all(|bits| bits.load(Ordering::Relaxed) == 0)
        {
            return true;
        }
        self.awake();
        false
    }

    /// The acceptor is up again.
    pub fn awake(&self) {
        self.asleep.store(0, Ordering::Relaxed);
    }
}

/// The counters of a slot's response ring: bytes in, bytes out, and the bell on which a worker
/// sleeps while it is full.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Flow {
    /// Bytes of the answer written since the slot was taken; only the seat writes it.
    pub produced: AtomicU64,
    /// Bytes of the answer read; only the acceptor writes it.
    pub consumed: AtomicU64,
    /// Rung when there is room again, or when the client has gone.
    pub room: Bell,
    /// 1 once nobody wants the answer any more.
    pub gone: AtomicU32,
}

impl Flow {
    /// For the next request; only while the slot is Filling.
    pub fn reset(&self) {
        self.produced.store(0, Ordering::Relaxed);
        self.consumed.store(0, Ordering::Relaxed);
        self.gone.store(0, Ordering::Relaxed);
    }

    /// The acceptor has read up to `consumed`.
    pub fn consume(&self, consumed: u64) {
        self.consumed.store(consumed, Ordering::Release);
        self.room.ring(1);
    }

    /// Nobody reads the answer any more.
    pub fn give_up(&self) {
        self.gone.store(1, Ordering::Release);
        // An acceptor before us may have been killed in the middle of a ring.
        self.room.rouse(1);
    }

    /// Whether [`Flow::give_up`] was called.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire) != 0
    }

    /// Waits, in steps of `step`, until fewer than `capacity` of the `produced` bytes are unread;
    /// gives the free bytes, or `None` when the client is gone or `orphaned` says that nobody
    /// will ever read.
    pub fn wait_for_room(
        &self,
        produced: u64,
        capacity: u64,
        step: Duration,
        orphaned: impl Fn() -> bool,
    ) -> Option<u64> {
        loop {
            let seen = self.room.prepare();
            if self.is_gone() || orphaned() {
                return None;
            }
            let unread = produced - self.consumed.load(Ordering::Acquire).min(produced);
            if unread < capacity {
                return Some(capacity - unread);
            }
            self.room.sleep(seen, step);
        }
    }
}
