//! What seats bring back: where a request stands, and the bytes of its answer.

use std::sync::atomic::Ordering;

use super::{AcceptorSide, Submitted};
use crate::corrupt::Corrupt;
use crate::seat::Ending;
use crate::word::{SlotPhase, Tenant};

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

impl AcceptorSide<'_> {
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
            SlotPhase::Ready if word.tenant == Tenant::default() => Ok(SlotState::Ready),
            SlotPhase::Ready => Err(Corrupt("a slot that is ready has an owner")),
            SlotPhase::Taken | SlotPhase::Answering => Ok(SlotState::Running {
                tenant: word.tenant,
                taken_us,
            }),
            SlotPhase::Done => Ok(SlotState::Done {
                tenant: word.tenant,
                ending: match head.ending.load(Ordering::Relaxed) {
                    1 => Some(Ending::Complete),
                    2 => Some(Ending::Broken),
                    _ => None,
                },
                taken_us,
                done_us: head.done_us.load(Ordering::Relaxed),
            }),
            SlotPhase::Free | SlotPhase::Filling => Err(Corrupt("a slot in use calls itself free")),
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
}
