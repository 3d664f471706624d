//! The lock-free part: how an answer is announced, and how either side sleeps. [`crate::ring`] has the part that hands
//! requests to seats. The code works on borrowed words, so that loom (tests/loom) explores the very code that runs on
//! the shared memory.
//!
//! A process may be killed between any two instructions here. It leaves nothing locked: there are no locks, and each
//! step has either happened or can be finished by another process.
//!
//! Idle seats sleep on one word, the *bell*. futex(2) wakes them in the order in which they went to sleep, so idle
//! workers take turns. The acceptor rings it once per turn of its loop for all requests of that turn (in a long turn
//! after 100 µs), and not at all if no seat sleeps. On one core each ring costs two switches between the processes. A
//! worker that leaves *rouses* the others instead: the bell's bit is right for one ringer only.
//!
//! To wake the acceptor, a seat sets the notice bit of its slot, and writes to an eventfd only if the acceptor said
//! that it sleeps. The eventfd is watched edge-triggered and never read. Each turn of the loop ends with reading the
//! bits, filling free slots and ringing the bell. Before the loop waits in epoll(7), it announces its sleep; if a bit
//! was set in between, it makes another turn without waiting. Such a turn asks epoll(7) only now and then, since its
//! work is a worker's answer.

use std::time::Duration;

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, futex};

/// A word to sleep on: the number of rings, times two, plus one bit that says that a process sleeps there or is about
/// to.
///
/// Without sleepers a ring costs one atomic addition and no system call. A sleeper that is killed leaves the bit set,
/// which costs one needless system call and nothing else.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Bell(AtomicU32);

/// The bell's word, read before the sleeper checked its condition for the last time.
#[derive(Clone, Copy, Debug)]
pub struct BellWord(u32);

const SLEEPERS: u32 = 1;
const ONE_RING: u32 = 2;

impl Bell {
    /// Announces a sleeper. The caller looks at its condition once more and then calls
    /// [`Bell::sleep`], which returns at once if the bell was rung in between.
    pub fn prepare(&self) -> BellWord {
        BellWord(self.0.fetch_or(SLEEPERS, Ordering::AcqRel) | SLEEPERS)
    }

    /// Sleeps until the bell is rung, a signal handler ran, or the time is up.
    pub fn sleep(&self, seen: BellWord, timeout: Duration) {
        futex::wait(&self.0, seen.0, timeout);
    }

    /// Wakes up to `count` sleepers, the longest sleepers first. Only one process may ring a bell, the acceptor: a
    /// second ringer would see the cleared bit and conclude that no process sleeps. `u32::MAX` wakes all, and so leaves
    /// no bit behind.
    pub fn ring(&self, count: u32) {
        if self.0.fetch_add(ONE_RING, Ordering::AcqRel) & SLEEPERS == 0 {
            return;
        }
        // Clear the bit before the wake: a sleeper that sets it again from here on has also seen the ring.
        self.0.fetch_and(!SLEEPERS, Ordering::AcqRel);
        if futex::wake(&self.0, count) == count {
            // There may be more sleepers than we woke.
            self.0.fetch_or(SLEEPERS, Ordering::AcqRel);
        }
    }

    /// Rings without a wake. True if a process sleeps there or is about to: the caller wakes it by other means.
    pub fn ring_silently(&self) -> bool {
        if self.0.fetch_add(ONE_RING, Ordering::AcqRel) & SLEEPERS == 0 {
            return false;
        }
        self.0.fetch_and(!SLEEPERS, Ordering::AcqRel);
        true
    }

    /// Wakes up to `count` sleepers whatever the bit says, at the price of a system call. For every process but the one
    /// ringer; also for the successor of a ringer that may have been killed between clearing the bit and the wake.
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

/// The slots that have news for one reader, one bit each, and whether the reader sleeps. The reader is the acceptor, or
/// a worker's event loop.
#[derive(Clone, Copy, Debug)]
pub struct Notices<'m> {
    /// One bit per slot.
    pub bits: &'m [AtomicU64],
    /// 1 while the reader sleeps or is about to.
    pub asleep: &'m AtomicU32,
}

impl Notices<'_> {
    /// Notes that `slot` has news. The caller wakes the reader later, by [`Notices::call`].
    pub fn note(&self, slot: u32) {
        self.bits[slot as usize / 64].fetch_or(1 << (slot % 64), Ordering::Release);
    }

    /// Notes that `slot` has news. True if the caller must wake the reader, as for [`Notices::call`].
    pub fn post(&self, slot: u32) -> bool {
        self.note(slot);
        self.call()
    }

    /// Announces that news is there, written before this call. True if the reader sleeps and the caller must wake it;
    /// of several callers only one gets true.
    pub fn call(&self) -> bool {
        // Pairs with the fence in `try_sleep`: either we see `asleep`, or the reader sees the news.
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) != 0 && self.asleep.swap(0, Ordering::AcqRel) != 0
    }

    /// Whether the reader sleeps, or is about to.
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

    /// For the reader: announces that it is about to sleep. False if there is a notice, and the reader must not sleep.
    /// A reader that also looks elsewhere does so after this call, before it sleeps.
    pub fn try_sleep(&self) -> bool {
        // Not a plain store: loom does not see that a store comes after a poster's swap that read the old value. A swap
        // costs nothing beside going to sleep.
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

    /// For the reader: it is awake again.
    pub fn awake(&self) {
        self.asleep.store(0, Ordering::Relaxed);
    }
}

/// How many requests an event loop runs, according to the loop. A process that wakes loops for requests skips those
/// that have no room.
#[derive(Clone, Copy, Debug)]
pub struct LoopLoad<'m>(pub &'m AtomicU32);

impl LoopLoad<'_> {
    /// Shows the loop's load. After this call a loop that has room looks at the ready ring.
    pub fn show(&self, requests: u32) {
        self.0.store(requests, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// A fence for the process that makes a request ready and then looks at loads. A loop that has just got room either
    /// sees the request, or this process sees its new load.
    pub fn settle() {
        fence(Ordering::SeqCst);
    }

    /// The load that the loop shows.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a slot's ring: bytes in, bytes out, and the bell on which the producer sleeps while the ring is
/// full. The seat produces the answer in the response ring; the acceptor produces the inflow.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Flow {
    /// Bytes written since the slot was taken; only the producer writes it.
    pub produced: AtomicU64,
    /// Bytes read; only the consumer writes it.
    pub consumed: AtomicU64,
    /// The value of `produced` when the ring was last empty and the producer restarted it from the ring's start. A ring
    /// that is read quickly so touches little memory. Only the producer writes it, while no byte is unread.
    pub base: AtomicU64,
    /// The bell that rings when there is room again, or when the client has gone.
    pub room: Bell,
    /// Why the acceptor gave up the answer: an [`Unwanted`], or 0.
    pub gone: AtomicU32,
}

/// Why the acceptor gave up an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Unwanted {
    /// The client has gone.
    ClientGone = 1,
    /// The request ran past its deadline, and the acceptor has informed the client.
    Overdue = 2,
}

impl Flow {
    /// Prepares the counters for the next request; only while the slot is Filling.
    pub fn reset(&self) {
        self.produced.store(0, Ordering::Relaxed);
        self.consumed.store(0, Ordering::Relaxed);
        self.base.store(0, Ordering::Relaxed);
        self.gone.store(0, Ordering::Relaxed);
    }

    /// For the acceptor: it has read up to `consumed`, of a ring of `capacity` bytes. Wakes the seat if it may go on.
    pub fn consume(&self, consumed: u64, capacity: u64) {
        if self.advance(consumed, capacity) {
            // Only the seat that writes the answer can sleep there.
            self.room.ring(u32::MAX);
        }
    }

    /// For the consumer: it has read all up to `consumed`. True if a waiting producer may go on; then the caller rings
    /// for it.
    pub fn advance(&self, consumed: u64, capacity: u64) -> bool {
        self.consumed.store(consumed, Ordering::Release);
        // If the producer sleeps, we see at most the bytes it had written before it slept. So whenever it may go on, we
        // ring.
        let produced = self.produced.load(Ordering::Relaxed);
        produced.saturating_sub(consumed) <= low_water(capacity)
    }

    /// For the acceptor: it reads the answer no more, for this reason.
    pub fn give_up(&self, why: Unwanted) {
        self.set_unwanted(Some(why));
        // An earlier acceptor may have been killed in the middle of a ring.
        self.room.rouse(1);
    }

    pub(crate) fn set_unwanted(&self, why: Option<Unwanted>) {
        let bits = why.map_or(0, |why| why as u32);
        self.gone.store(bits, Ordering::Release);
    }

    /// The reason that [`Flow::give_up`] was called with, if it was called.
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

    /// The free bytes of the ring, if the unread part of the `produced` bytes takes no more than half of its
    /// `capacity`. Otherwise `None`, and the bell's bit shows the consumer that the producer waits for room.
    pub fn look_for_room(&self, produced: u64, capacity: u64) -> Option<u64> {
        self.room_for_more(produced, capacity).or_else(|| {
            self.room.prepare();
            self.room_for_more(produced, capacity)
        })
    }

    fn room_for_more(&self, produced: u64, capacity: u64) -> Option<u64> {
        let unread = produced.saturating_sub(self.consumed.load(Ordering::Acquire));
        (unread <= low_water(capacity)).then(|| capacity - unread)
    }

    /// Waits, in steps of `step`, until the unread part of the `produced` bytes takes no more than half of the ring's
    /// `capacity`. Returns the free bytes, or `None` once the client is gone or `orphaned` says that no acceptor will
    /// ever read them.
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
            if let Some(room) = self.room_for_more(produced, capacity) {
                return Some(room);
            }
            self.room.sleep(seen, step);
        }
    }
}

/// The most that may be unread in a ring when a producer that waits for room goes on. It does not go on for any free
/// byte: a switch between two processes costs as much as copying some 64 KiB, and an answer read a few bytes at a time
/// would cost a switch each time.
pub(crate) fn low_water(capacity: u64) -> u64 {
    capacity / 2
}
