//! A request in the hands of a seat, which reads it and answers it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use stanchion_sys::clock::monotonic_us;
use stanchion_sys::signal::asked;

use crate::inflow::Inflow;
use crate::meter::{Metering, RunTimes};
use crate::protocol::Unwanted;
use crate::shared::Exchange;
use crate::word::{SlotPhase, Tenant, Word};

/// The longest time that a worker sleeps before it checks again whether it should leave or its acceptor was replaced.
/// Both are announced; this only bounds the cost of a lost announcement.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AnswerEnd {
    /// Whole.
    Complete = 1,
    /// The app failed after part of it was out, or its worker died: the client must see that it is not whole.
    Broken = 2,
}

/// The answer is not wanted any more: the client left, the acceptor was replaced, or the acceptor has taken the slot
/// back.
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
/// The acceptor sees written bytes only after [`Taken::publish`] or [`Taken::finish`]. A request that is dropped
/// unfinished ends as [`AnswerEnd::Broken`].
#[derive(Debug)]
pub struct Taken<'x> {
    exchange: &'x Exchange,
    tenant: Tenant,
    slot: u32,
    turn: u32,
    acceptor: u64,
    taken_us: u64,
    /// `None` if its seat has no meter.
    metering: Option<Metering>,
    written: u64,
    published: u64,
    /// The value of `written` when the ring was last restarted.
    base: u64,
    /// Bytes of the inflow that the seat has read.
    received: u64,
    /// Bytes known to be free in the ring.
    room: u64,
    finished: bool,
}

impl<'x> Taken<'x> {
    /// The request that `tenant` has just taken: its slot, and the slot's turn. It was taken then, and is on this meter.
    pub(crate) fn new(
        exchange: &'x Exchange,
        tenant: Tenant,
        (slot, turn): (u32, u32),
        (taken_us, metering): (u64, Option<Metering>),
    ) -> Self {
        Self {
            exchange,
            tenant,
            slot,
            turn,
            acceptor: exchange.header().acceptor.load(Ordering::Relaxed),
            taken_us,
            metering,
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

    /// Copies the request record from `at` on into `into`, up to the end of either. Returns the number of bytes: 0 if
    /// the acceptor has taken the slot back. It copies, because other processes may write to the record.
    pub fn read_request(&self, at: usize, into: &mut [u8]) -> usize {
        let len = self.request_len().saturating_sub(at).min(into.len());
        if len > 0 {
            if !self.is_ours() {
                return 0;
            }
            // SAFETY: `at + len` is within the request area, whose bytes stay mapped and to which no references exist;
            // `into` is our own memory and has room.
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

    /// Names this use of the slot, for messages that travel beside the exchange.
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

    /// Whether the answer is not wanted any more: see [`Gone`].
    pub fn client_gone(&self) -> bool {
        self.exchange.flow(self.slot).is_gone() || self.is_orphaned() || !self.is_ours()
    }

    /// Whether the slot still belongs to this request. The acceptor takes slots back from a worker that it considers
    /// dead. If that worker was only stopped or stuck, it must not write into a slot that has a new owner.
    fn is_ours(&self) -> bool {
        if self.exchange.is_forsaken() {
            return false;
        }
        let bits = self.exchange.words()[self.slot as usize].load(Ordering::Acquire);
        bits == self.word().pack()
    }

    /// The slot's word as we last wrote it.
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

    /// Moves the slot on to `phase`, unless the acceptor has taken it back this very moment.
    fn move_on(&self, phase: SlotPhase) {
        let from = self.word();
        let to = Word { phase, ..from };
        // If the slot has a new owner, our change must not reach it, so failing is right.
        let _ = self.exchange.words()[self.slot as usize].compare_exchange(
            from.pack(),
            to.pack(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    /// Whether the acceptor gave the answer up because it ran past its deadline.
    pub fn is_overdue(&self) -> bool {
        self.exchange.flow(self.slot).unwanted() == Some(Unwanted::Overdue)
    }

    /// Moves this request's deadline to at least `by` from now, never to an earlier time. Without a timeout there is no
    /// deadline to move.
    ///
    /// Only the holder of an unfinished request may call this: afterwards the seat may be on its next request.
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

    /// Whether `len` more bytes fit without waiting, as far as the seat knows.
    pub fn has_room(&self, len: usize) -> bool {
        len as u64 <= self.room
    }

    /// Like [`Self::has_room`], but first restarts the ring if the acceptor has read all of it.
    pub fn makes_room(&mut self, len: usize) -> bool {
        if self.is_ours() {
            self.begin_ring_anew();
        }
        self.has_room(len)
    }

    /// The request's slot, by which the worker's inbox names it.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Moves bytes of the inflow to `into`, without waiting; returns how many. If there were more than it holds, or
    /// none, the inbox names the slot when more are there.
    pub fn receive(&mut self, into: &mut [u8]) -> usize {
        let capacity = self.exchange.geometry().inflow_bytes;
        let flow = self.exchange.inflow(self.slot);
        let (unread, _) = self.inflow();
        let len = unread.min(into.len());
        let base = flow.base.load(Ordering::Relaxed);
        let at = (self.received.wrapping_sub(base) % capacity.max(1) as u64) as usize;
        let first = len.min(capacity - at.min(capacity));
        let area = self.exchange.inflow_area(self.slot);
        // SAFETY: both stretches are within the slot's inflow ring, which stays mapped and to which no references are
        // made; `into` is our own memory and has room for both.
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

    /// How many bytes of the inflow are unread, and whether more may come.
    pub fn inflow(&self) -> (usize, Inflow) {
        if !self.is_ours() {
            return (0, Inflow::Broken);
        }
        let flow = self.exchange.inflow(self.slot);
        // In this order: nothing is produced after the end.
        let end = Inflow::from_bits(flow.gone.load(Ordering::Acquire));
        let produced = flow.produced.load(Ordering::Acquire);
        let unread = produced.saturating_sub(self.received) as usize;
        (unread.min(self.exchange.geometry().inflow_bytes), end)
    }

    /// Appends as many bytes to the answer as there is room for, without waiting; returns how many. If some are left,
    /// the inbox names the slot when there is room again.
    pub fn write_some(&mut self, bytes: &[u8]) -> Result<usize, Gone> {
        let capacity = self.exchange.geometry().response_bytes as u64;
        let mut done = 0;
        while done < bytes.len() {
            if self.client_gone() {
                return Err(Gone);
            }
            if self.room == 0 {
                self.publish();
                let flow = self.exchange.flow(self.slot);
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
                let flow = self.exchange.flow(self.slot);
                self.room = flow
                    .wait_for_room(self.written, capacity, LOOK_AGAIN, || {
                        // A worker that must leave at once does not wait for a client.
                        self.is_orphaned() || !self.is_ours() || asked::is_quick()
                    })
                    .ok_or(Gone)?;
            }
            let at = ((self.written - self.base) % capacity) as usize;
            let len = bytes
                .len()
                .min(self.room as usize)
                .min(capacity as usize - at);
            // SAFETY: the slot is ours and `at + len` is within the ring; the acceptor reads only below `produced`, and
            // `room` keeps us off bytes that it has not yet read.
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

    /// If the acceptor has read every written byte, goes on at the ring's start: that memory is likely to be in the
    /// cache, and a stream of short pieces then uses little memory.
    fn begin_ring_anew(&mut self) {
        let flow = self.exchange.flow(self.slot);
        if self.written != self.base && flow.consumed.load(Ordering::Acquire) == self.written {
            self.base = self.written;
            flow.base.store(self.base, Ordering::Relaxed);
            self.room = self.exchange.geometry().response_bytes as u64;
        }
    }

    /// How many bytes of the answer the seat has written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Gives back the memory of the request, which cannot be read again, and of the answer, if the acceptor has read
    /// all of it: for a request that is idle. False if bytes of the answer are unread, or the slot has a new owner.
    pub fn give_back(&mut self) -> bool {
        let flow = self.exchange.flow(self.slot);
        if self.client_gone() {
            return false;
        }
        if self.published != self.written || flow.consumed.load(Ordering::Acquire) != self.written {
            return false;
        }
        self.begin_ring_anew();
        self.exchange.give_back(self.slot)
    }

    /// Lets the acceptor see the bytes written so far.
    pub fn publish(&mut self) {
        if self.published == self.written || !self.is_ours() {
            return;
        }
        let flow = self.exchange.flow(self.slot);
        flow.produced.store(self.written, Ordering::Release);
        if self.published == 0 {
            self.move_on(SlotPhase::Answering);
        }
        self.published = self.written;
        self.notify();
    }

    /// Ends the answer and gives the slot back.
    pub fn finish(mut self, ending: AnswerEnd) {
        self.end(ending);
    }

    fn end(&mut self, ending: AnswerEnd) {
        self.finished = true;
        if !self.is_ours() {
            return;
        }
        let now_us = monotonic_us();
        let metering = self.metering.as_ref();
        let times = metering.map_or_else(RunTimes::default, |metering| {
            metering.end(self.taken_us, now_us)
        });
        let head = self.exchange.head(self.slot);
        head.done_us.store(now_us, Ordering::Relaxed);
        for (word, told) in head.run_times.iter().zip(times.words()) {
            word.store(told, Ordering::Relaxed);
        }
        head.ending.store(ending as u32, Ordering::Relaxed);
        // Store the last bytes before the state: an acceptor that sees Done must see them.
        let flow = self.exchange.flow(self.slot);
        flow.produced.store(self.written, Ordering::Release);
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
            self.end(AnswerEnd::Broken);
        }
    }
}
