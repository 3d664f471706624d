//! The inflow from the acceptor's side: bytes that the acceptor hands to a seat behind the head of a request, while the
//! seat answers it.

use std::sync::atomic::Ordering;

use super::AcceptorSide;
use crate::corrupt::Corrupt;
use crate::inflow::Inflow;
use crate::part::MaskedBytes;

/// The acceptor's own record of an inflow, which no worker can change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Poured {
    bytes: u64,
    /// The value of `bytes` when the ring was last empty.
    base: u64,
    end: Inflow,
}

impl AcceptorSide<'_> {
    fn has_inflows(&self) -> bool {
        self.exchange.geometry().inflow_bytes > 0
    }

    /// Prepares the inflow for the next request; only while the slot is Filling.
    pub(super) fn reset_inflow(&mut self, slot: u32) {
        if self.has_inflows() {
            self.slots[slot].poured = Poured::default();
            self.exchange.inflow(slot).reset();
        }
    }

    /// How many bytes the acceptor has poured in since the slot was handed over.
    pub(super) fn poured_bytes(&self, slot: u32) -> u64 {
        self.slots[slot].poured.bytes
    }

    /// Adopts the record of the bytes that an earlier acceptor has poured in.
    pub(super) fn take_over_inflow(&mut self, slot: u32) {
        if self.has_inflows() {
            let flow = self.exchange.inflow(slot);
            let poured = &mut self.slots[slot].poured;
            poured.bytes = flow.produced.load(Ordering::Relaxed);
            poured.base = flow.base.load(Ordering::Relaxed);
            poured.end = Inflow::from_bits(flow.gone.load(Ordering::Relaxed));
        }
    }

    /// Hands the slot's seat as much of `parts`, one after the other, as there is room for, and returns how many bytes
    /// that was. If some are left, the seat posts a notice when there is room again. The seat is woken once for all
    /// parts.
    ///
    /// # Errors
    /// The worker's count of bytes read is impossible.
    pub fn pour(&mut self, slot: u32, parts: &[MaskedBytes<'_>]) -> Result<usize, Corrupt> {
        let mut done = 0;
        for part in parts {
            let put = self.put_some(slot, *part)?;
            done += put;
            if put < part.len() {
                break;
            }
        }
        self.post(slot);
        Ok(done)
    }

    fn put_some(&mut self, slot: u32, part: MaskedBytes<'_>) -> Result<usize, Corrupt> {
        let mut left = part;
        loop {
            let room = self.inflow_room(slot)?;
            let (next, rest) = left.split_at(room.min(left.len()));
            self.put(slot, next);
            left = rest;
            if left.is_empty() {
                return Ok(part.len());
            }
            // Look once more: the seat may have read everything before it could see that we wait, and then it posts no
            // notice.
            self.exchange.inflow(slot).room.prepare();
            if self.inflow_room(slot)? == 0 {
                return Ok(part.len() - left.len());
            }
        }
    }

    /// Like [`Self::pour`] with the last bytes. If there is room for all of them it also marks the end, so that the
    /// seat finds both together.
    ///
    /// # Errors
    /// The worker's count of bytes read is impossible.
    pub fn pour_last(&mut self, slot: u32, bytes: &[u8]) -> Result<usize, Corrupt> {
        let len = self.inflow_room(slot)?.min(bytes.len());
        self.put(slot, MaskedBytes::from(&bytes[..len]));
        if len == bytes.len() {
            self.end_inflow(slot, Inflow::Complete);
        }
        Ok(len)
    }

    /// Marks the inflow as ended: nothing more comes.
    pub fn end_inflow(&mut self, slot: u32, end: Inflow) {
        if !self.has_inflows() {
            return;
        }
        self.slots[slot].poured.end = end;
        let flow = self.exchange.inflow(slot);
        flow.gone.store(end as u32, Ordering::Release);
        self.post(slot);
    }

    /// How many bytes the inflow has room for.
    ///
    /// # Errors
    /// The worker's count of bytes read is impossible.
    fn inflow_room(&self, slot: u32) -> Result<usize, Corrupt> {
        let capacity = self.exchange.geometry().inflow_bytes as u64;
        if !self.has_inflows() {
            return Ok(0);
        }
        let flow = self.exchange.inflow(slot);
        let consumed = flow.consumed.load(Ordering::Acquire);
        let unread = self.poured_bytes(slot).checked_sub(consumed);
        let room = unread.and_then(|unread| capacity.checked_sub(unread));
        room.map(|room| room as usize).ok_or(Corrupt(
            "a seat has read more of an inflow than was poured in",
        ))
    }

    /// Like [`Self::inflow_room`], if at least half of the ring is free. Otherwise `None`, and the seat posts a notice
    /// once half is free.
    pub fn await_inflow_room(&mut self, slot: u32) -> Option<usize> {
        let capacity = self.exchange.geometry().inflow_bytes as u64;
        if !self.has_inflows() {
            return None;
        }
        let flow = self.exchange.inflow(slot);
        let room = flow.look_for_room(self.poured_bytes(slot), capacity);
        room.map(|room| room as usize)
    }

    /// Appends bytes to the ring; the caller has checked that there is room for them.
    fn put(&mut self, slot: u32, mut left: MaskedBytes<'_>) {
        if left.is_empty() {
            return;
        }
        let capacity = self.exchange.geometry().inflow_bytes;
        let flow = self.exchange.inflow(slot);
        let poured = &mut self.slots[slot].poured;
        if flow.consumed.load(Ordering::Acquire) == poured.bytes {
            poured.base = poured.bytes;
            flow.base.store(poured.base, Ordering::Relaxed);
        }
        while !left.is_empty() {
            let at = ((poured.bytes - poured.base) % capacity as u64) as usize;
            let (part, rest) = left.split_at(left.len().min(capacity - at));
            // SAFETY: `at + part.len()` is within the slot's inflow ring, which stays mapped and to which no references
            // are made; the caller has seen that the seat has read the bytes that were there.
            unsafe {
                let area = self.exchange.inflow_area(slot).add(at);
                part.copy_to(area);
            }
            poured.bytes += part.len() as u64;
            left = rest;
        }
        flow.produced.store(poured.bytes, Ordering::Release);
    }

    pub(super) fn mend_inflows(&mut self) {
        if !self.has_inflows() {
            return;
        }
        let wrong: Vec<_> = self
            .slots
            .used()
            .filter(|&slot| {
                let flow = self.exchange.inflow(slot);
                let Poured { bytes, base, end } = self.slots[slot].poured;
                let stands = (
                    flow.produced.load(Ordering::Relaxed),
                    flow.base.load(Ordering::Relaxed),
                    flow.gone.load(Ordering::Relaxed),
                );
                stands != (bytes, base, end as u32)
            })
            .collect();
        for slot in wrong {
            let flow = self.exchange.inflow(slot);
            let Poured { bytes, base, end } = self.slots[slot].poured;
            flow.base.store(base, Ordering::Relaxed);
            flow.produced.store(bytes, Ordering::Release);
            flow.gone.store(end as u32, Ordering::Release);
            self.post(slot);
            self.mended
                .get_or_insert(Corrupt("the counters of an inflow were overwritten"));
        }
    }
}
