//! The lock-free part: how an answer is announced, and how either side sleeps; how a request is handed to
//! a seat is in [`crate::ring`]. It is written over borrowed words so that loom (tests/loom) explores the very
//! code that runs on the shared memory.
//!
//! A process may be killed between any two instructions here. Nothing is ever left locked: there
//! are no locks, and each step either has happened or can be finished by somebody else.

use std::time::Duration;

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, futex};

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

    /// Wakes up to `count` sleepers, those who have slept longest first. For one ringer only, the acceptor: another
    /// would take the cleared bit for nobody asleep. `u32::MAX` wakes all, and so leaves no bit behind.
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

    /// Rings, and gives whether somebody sleeps there or is about to, whom the caller wakes by other means.
    pub fn ring_silently(&self) -> bool {
        if self.0.fetch_add(ONE_RING, Ordering::AcqRel) & SLEEPERS == 0 {
            return false;
        }
        self.0.fetch_and(!SLEEPERS, Ordering::AcqRel);
        true
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

/// The slots at which somebody should look, one bit each, and whether he sleeps: the acceptor, or a worker's event
/// loop.
#[derive(Clone, Copy, Debug)]
pub struct Notices<'m> {
    /// A bit per slot.
    pub bits: &'m [AtomicU64],
    /// 1 while he sleeps or is about to.
    pub asleep: &'m AtomicU32,
}

impl Notices<'_> {
    /// Notes that `slot` has news, and leaves it to [`Notices::call`] to see who sleeps.
    pub fn note(&self, slot: u32) {
        self.bits[slot as usize / 64].fetch_or(1 << (slot % 64), Ordering::Release);
    }

    /// Notes that `slot` has news. True if it falls to the caller to wake who sleeps, as for [`Notices::call`].
    pub fn post(&self, slot: u32) -> bool {
        self.note(slot);
        self.call()
    }

    /// There is news elsewhere, which was written before. True if who should look sleeps and it falls to the caller
    /// to wake him; of several callers only one is told so.
    pub fn call(&self) -> bool {
        // With the fence in `try_sleep`: either we see `asleep`, or he sees what is new.
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) != 0 && self.asleep.swap(0, Ordering::AcqRel) != 0
    }

    /// Whether who should look sleeps, or is about to.
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed) != 0
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

    /// Announces that one will sleep; false, and one must not, if there is a notice. Who looks elsewhere as well does so
    /// after this, before he sleeps.
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

    /// Who slept is up again.
    pub fn awake(&self) {
        self.asleep.store(0, Ordering::Relaxed);
    }
}

/// How many requests an event loop runs, as it says: who hands out requests calls none that has no room.
#[derive(Clone, Copy, Debug)]
pub struct Load<'m>(pub &'m AtomicU32);

impl Load<'_> {
    /// The loop looks for what is ready after this, if it has room.
    pub fn show(&self, requests: u32) {
        self.0.store(requests, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Between making a request ready and looking at loads: of a loop that has room again, either its load is seen, or it
    /// sees the request.
    pub fn settle() {
        fence(Ordering::SeqCst);
    }

    /// What the loop says.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a slot's ring: bytes in, bytes out, and the bell on which the producer sleeps while it is full. For
/// the response ring the producer is the seat, for the ring of what comes in behind the head it is the acceptor.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Flow {
    /// Bytes written since the slot was taken; only the producer writes it.
    pub produced: AtomicU64,
    /// Bytes read; only the consumer writes it.
    pub consumed: AtomicU64,
    /// How many bytes had been written when the ring was empty last, and was begun anew from its start: so what is
    /// read soon touches little memory. Only the producer writes it, while nothing is unread.
    pub base: AtomicU64,
    /// Rung when there is room again, or when the client has gone.
    pub room: Bell,
    /// Why nobody wants the answer any more: an [`Unwanted`], or 0.
    pub gone: AtomicU32,
}

/// Why nobody wants an answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Unwanted {
    /// The client has gone.
    ClientGone = 1,
    /// It ran past its deadline, and the client has been told so.
    Overdue = 2,
}

impl Flow {
    /// For the next request; only while the slot is Filling.
    pub fn reset(&self) {
        self.produced.store(0, Ordering::Relaxed);
        self.consumed.store(0, Ordering::Relaxed);
        self.base.store(0, Ordering::Relaxed);
        self.gone.store(0, Ordering::Relaxed);
    }

    /// The acceptor has read up to `consumed`, of a ring of `capacity` bytes.
    pub fn consume(&self, consumed: u64, capacity: u64) {
        if self.advance(consumed, capacity) {
            // Whoever writes the answer: nobody else can sleep there.
            self.room.ring(u32::MAX);
        }
    }

    /// All up to `consumed` is read. True if a producer that waits may go on: the caller rings for it.
    pub fn advance(&self, consumed: u64, capacity: u64) -> bool {
        self.consumed.store(consumed, Ordering::Release);
        // Of a producer that sleeps we see at most as much as it had written by then. So whenever it may go on, we ring.
        let produced = self.produced.load(Ordering::Relaxed);
        produced.saturating_sub(consumed) <= low_water(capacity)
    }

    /// Nobody reads the answer any more.
    pub fn give_up(&self, why: Unwanted) {
        self.set_unwanted(Some(why));
        // An acceptor before us may have been killed in the middle of a ring.
        self.room.rouse(1);
    }

    pub(crate) fn set_unwanted(&self, why: Option<Unwanted>) {
        let bits = why.map_or(0, |why| why as u32);
        self.gone.store(bits, Ordering::Release);
    }

    /// With what [`Flow::give_up`] was called, if it was.
    pub fn unwanted(&self) -> Option<Unwanted> {
        match self.gone.load(Ordering::Acquire) {
            0 => None,
            2 => Some(Unwanted::Overdue),
            _ => Some(Unwanted::ClientGone),
        }
    }

    /// Whether [`Flow::give_up`] was called.
    pub fn is_gone(&self) -> bool {
        self.unwanted().is_some()
    }

    /// The free bytes of the ring if no more than half of its `capacity` is taken by what is unread of the `produced`
    /// bytes. `None` if there are fewer: the consumer is told that somebody waits for them.
    pub fn look_for_room(&self, produced: u64, capacity: u64) -> Option<u64> {
        let look = || {
            let unread = produced - self.consumed.load(Ordering::Acquire).min(produced);
            (unread <= low_water(capacity)).then(|| capacity - unread)
        };
        look().or_else(|| {
            self.room.prepare();
            look()
        })
    }

    /// Waits, in steps of `step`, until no more than half of the ring's `capacity` is taken by what is unread of the
    /// `produced` bytes; gives the free bytes, or `None` when the client is gone or `orphaned` says that nobody will
    /// ever read.
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
            if unread <= low_water(capacity) {
                return Some(capacity - unread);
            }
            self.room.sleep(seen, step);
        }
    }
}

/// How much of a ring may be unread when whoever waits for room goes on. Not as soon as there is any: a switch between
/// two processes costs as much as some 64 KiB, and an answer that is read in turns of a few bytes would cost one each
/// time.
pub(crate) fn low_water(capacity: u64) -> u64 {
    capacity / 2
}
