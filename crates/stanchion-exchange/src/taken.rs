//! A request in the hands of a seat: it is read, and answered.

use std::sync::atomic::Ordering;
use std::time::Duration;

use stanchion_sys::clock::monotonic_us;
use stanchion_sys::signal::asked;

use crate::inflow::Inflow;
use crate::protocol::Unwanted;
use crate::seat::LOOK_AGAIN;
use crate::shared::Exchange;
use crate::word::{SlotPhase, Tenant, Word};

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Ending {
    /// Whole.
    Complete = 1,
    /// The app failed after part of it was out; the client must see that it is not whole.
    Broken = 2,
}

/// Nobody wants the answer any more: the client left, the acceptor was replaced, or it has taken the slot back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client has gone")
    }
}

impl std::error::Error for Gone {}

/// A request in the hands of a seat, and the way its answer goes back.
///
/// Written bytes become visible to the acceptor with [`Taken::publish`] or [`Taken::finish`].
/// Dropped unfinished, it ends as [`Ending::Broken`].
#[derive(Debug)]
pub struct Taken<'x> {
    exchange: &'x Exchange,
    tenant: Tenant,
    slot: u32,
    turn: u32,
    acceptor: u64,
    taken_us: u64,
    written: u64,
    published: u64,
    /// Bytes that were written when the ring was last begun anew.
    base: u64,
    /// Bytes of the inflow that were read.
    received: u64,
    /// Bytes known to be free in the ring.
    room: u64,
    finished: bool,
}

impl<'x> Taken<'x> {
    /// What `tenant` has just taken: its slot, and the slot's turn.
    pub(crate) fn new(
        exchange: &'x Exchange,
        tenant: Tenant,
        (slot, turn): (u32, u32),
        taken_us: u64,
    ) -> Self {
        Self {
            exchange,
            tenant,
            slot,
            turn,
            acceptor: exchange.header().acceptor.load(Ordering::Relaxed),
            taken_us,
            written: 0,
            published: 0,
            base: 0,
            received: 0,
            room: exchange.geometry().response_bytes as u64,
            finished: false,
        }
    }
}

impl Taken<'_> {
    /// Bytes of the request record.
    pub fn request_len(&self) -> usize {
        self.exchange.request_len(self.slot)
    }

    /// Copies the request record from `at` on into `into`, as far as there is room or record; gives
    /// how many bytes that were: none, if the slot was taken back. A copy, since others may write where it lies.
    pub fn read_request(&self, at: usize, into: &mut [u8]) -> usize {
        let len = self.request_len().saturating_sub(at).min(into.len());
        if len > 0 {
            if !self.is_ours() {
                return 0;
            }
            // SAFETY: `at + len` is within the request area, whose bytes stay mapped and are nobody's
            // reference; `into` is memory of our own and has room.
            unsafe {
                let area = self.exchange.request_area(self.slot).add(at);
                std::ptr::copy_nonoverlapping(area, into.as_mut_ptr(), len);
            }
        }
        len
    }

    /// The whole request record.
    pub fn request(&self) -> Vec<u8> {
        let mut record = vec![0; self.request_len()];
        let len = self.read_request(0, &mut record);
        record.truncate(len);
        record
    }

    /// Names this use of the slot, for what travels beside the exchange.
    pub fn ticket(&self) -> (u32, u32) {
        (self.slot, self.turn)
    }

    /// How long the request waited from its whole arrival until it was taken, in microseconds.
    pub fn wait_us(&self) -> u64 {
        let arrived_us = self
            .exchange
            .head(self.slot)
            .arrived_us
            .load(Ordering::Relaxed);
        self.taken_us.saturating_sub(arrived_us)
    }

    /// Whether nobody wants the answer any more.
    pub fn client_gone(&self) -> bool {
        self.exchange.head(self.slot).flow.0.is_gone() || self.is_orphaned() || !self.is_ours()
    }

    /// Whether the slot is still this request's. The acceptor takes it back from whom it takes for dead: who was only
    /// stopped, or stuck, must not write to whose it is then.
    fn is_ours(&self) -> bool {
        if self.exchange.is_forsaken() {
            return false;
        }
        let bits = self.exchange.words()[self.slot as usize].load(Ordering::Acquire);
        bits == self.word().pack()
    }

    /// The slot's word as we left it.
    fn word(&self) -> Word {
        let phase = match self.published {
            0 => SlotPhase::Taken,
            _ => SlotPhase::Answering,
        };
        Word {
            phase,
            tenant: self.tenant,
            turn: self.turn,
        }
    }

    /// Moves the slot on to `phase`, unless it was taken back this very moment.
    fn move_on(&self, phase: SlotPhase) {
        let from = self.word();
        let to = Word { phase, ..from };
        // Who has the slot now has nothing of ours to hear.
        let _ = self.exchange.words()[self.slot as usize].compare_exchange(
            from.pack(),
            to.pack(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    /// Whether that is because it ran past its deadline.
    pub fn is_overdue(&self) -> bool {
        self.exchange.head(self.slot).flow.0.unwanted() == Some(Unwanted::Overdue)
    }

    /// Gives this request at least `by` from now until its deadline, which only ever moves later.
    /// Without a timeout there is none to move.
    ///
    /// Only for whoever holds the request: once it is finished, the seat may be on the next one.
    pub fn extend_deadline(&self, by: Duration) {
        if !self.is_ours() {
            return;
        }
        let by_us = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        let deadline_us = monotonic_us().saturating_add(by_us);
        let board = self.exchange.seat(self.tenant.seat);
        if board.deadline_us.load(Ordering::Relaxed) != 0 {
            // Only this worker writes it, so it cannot have become 0 since.
            board.deadline_us.fetch_max(deadline_us, Ordering::AcqRel);
        }
    }

    fn is_orphaned(&self) -> bool {
        self.exchange.header().acceptor.load(Ordering::Acquire) != self.acceptor
    }

    /// Whether `len` more bytes fit without waiting, as far as is known.
    pub fn has_room(&self, len: usize) -> bool {
        len as u64 <= self.room
    }

    /// As [`Self::has_room`], once the ring is begun anew if all in it was read.
    pub fn makes_room(&mut self, len: usize) -> bool {
        if self.is_ours() {
            self.begin_ring_anew();
        }
        self.has_room(len)
    }

    /// Which slot it is in, which the inbox of its worker names.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Reads what has come in behind the head into `into`, without waiting; gives how much that was. If there was more
    /// than it holds, or nothing, the inbox names the slot when there is more.
    pub fn receive(&mut self, into: &mut [u8]) -> usize {
        let capacity = self.exchange.geometry().inflow_bytes;
        let flow = &self.exchange.head(self.slot).inflow.0;
        let (unread, _) = self.inflow();
        let len = unread.min(into.len());
        let base = flow.base.load(Ordering::Relaxed);
        let at = (self.received.wrapping_sub(base) % capacity.max(1) as u64) as usize;
        let first = len.min(capacity - at.min(capacity));
        let area = self.exchange.inflow_area(self.slot);
        // SAFETY: both stretches are within the slot's inflow ring, which stays mapped and of which no references are
        // made; `into` is memory of our own and has room for both.
        unsafe {
            std::ptr::copy_nonoverlapping(area.add(at), into.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(area, into.as_mut_ptr().add(first), len - first);
        }
        self.received += len as u64;
        if len > 0 && flow.advance(self.received, capacity as u64) && flow.room.ring_silently() {
            self.notify();
        }
        len
    }

    /// Bytes that have come in behind the head and were not read, and whether more may come.
    pub fn inflow(&self) -> (usize, Inflow) {
        if !self.is_ours() {
            return (0, Inflow::Broken);
        }
        let flow = &self.exchange.head(self.slot).inflow.0;
        // In this order: behind an end nothing is produced.
        let end = Inflow::from_bits(flow.gone.load(Ordering::Acquire));
        let produced = flow.produced.load(Ordering::Acquire);
        let unread = produced.saturating_sub(self.received) as usize;
        (unread.min(self.exchange.geometry().inflow_bytes), end)
    }

    /// Appends as much to the answer as there is room for, without waiting, and gives how much that was. If it is not
    /// all, the inbox names the slot when there is room again.
    pub fn write_some(&mut self, bytes: &[u8]) -> Result<usize, Gone> {
        let capacity = self.exchange.geometry().response_bytes as u64;
        let mut done = 0;
        while done < bytes.len() {
            if self.client_gone() {
                return Err(Gone);
            }
            if self.room == 0 {
                self.publish();
                let flow = &self.exchange.head(self.slot).flow.0;
                match flow.look_for_room(self.written, capacity) {
                    Some(room) => self.room = room,
                    None => break,
                }
            }
            let len = (bytes.len() - done).min(self.room as usize);
            self.write(&bytes[done..done + len])?;
            done += len;
        }
        Ok(done)
    }

    /// Appends to the answer, waiting for room if the client is slow.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), Gone> {
        let capacity = self.exchange.geometry().response_bytes as u64;
        if !self.is_ours() {
            return Err(Gone);
        }
        if !bytes.is_empty() {
            self.begin_ring_anew();
        }
        while !bytes.is_empty() {
            if self.room == 0 {
                self.publish();
                let flow = &self.exchange.head(self.slot).flow.0;
                self.room = flow
                    .wait_for_room(self.written, capacity, LOOK_AGAIN, || {
                        // Who must leave at once does not wait for a client.
                        self.is_orphaned() || !self.is_ours() || asked::is_quick()
                    })
                    .ok_or(Gone)?;
            }
            let at = ((self.written - self.base) % capacity) as usize;
            let len = bytes
                .len()
                .min(self.room as usize)
                .min(capacity as usize - at);
            // SAFETY: the slot is ours and `at + len` is within the ring; the acceptor reads only
            // below `produced`, and `room` keeps us off what it has not yet read.
            unsafe {
                let area = self.exchange.response_area(self.slot).add(at);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), area, len);
            }
            self.written += len as u64;
            self.room -= len as u64;
            bytes = &bytes[len..];
        }
        Ok(())
    }

    /// If all that was written is read, goes on at the ring's start: it is likely to be in the cache, and a stream
    /// of short pieces uses little memory.
    fn begin_ring_anew(&mut self) {
        let flow = &self.exchange.head(self.slot).flow.0;
        if self.written != self.base && flow.consumed.load(Ordering::Acquire) == self.written {
            self.base = self.written;
            flow.base.store(self.base, Ordering::Relaxed);
            self.room = self.exchange.geometry().response_bytes as u64;
        }
    }

    /// How much was written of the answer.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Gives the memory back that the request takes, which cannot be read again, and that of the answer if all of it
    /// was read: for one on which nothing happens. False if something is on its way, or the slot is another's by now.
    pub fn give_back(&mut self) -> bool {
        let flow = &self.exchange.head(self.slot).flow.0;
        if self.client_gone() {
            return false;
        }
        if self.published != self.written || flow.consumed.load(Ordering::Acquire) != self.written {
            return false;
        }
        self.begin_ring_anew();
        self.exchange.give_back(self.slot)
    }

    /// Lets the acceptor see what was written so far.
    pub fn publish(&mut self) {
        if self.published == self.written || !self.is_ours() {
            return;
        }
        let flow = &self.exchange.head(self.slot).flow.0;
        flow.produced.store(self.written, Ordering::Release);
        if self.published == 0 {
            self.move_on(SlotPhase::Answering);
        }
        self.published = self.written;
        self.notify();
    }

    /// Gives the slot back.
    pub fn finish(mut self, ending: Ending) {
        self.end(ending);
    }

    fn end(&mut self, ending: Ending) {
        self.finished = true;
        if !self.is_ours() {
            return;
        }
        let now_us = monotonic_us();
        let head = self.exchange.head(self.slot);
        head.done_us.store(now_us, Ordering::Relaxed);
        head.ending.store(ending as u32, Ordering::Relaxed);
        // Who has seen the state before this one may see it: the last bytes come first.
        head.flow.0.produced.store(self.written, Ordering::Release);
        self.move_on(SlotPhase::Done);
        self.notify();
    }

    fn notify(&self) {
        if self.exchange.notices().post(self.slot) {
            self.exchange.doorbell().ring();
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.end(Ending::Broken);
        }
    }
}
