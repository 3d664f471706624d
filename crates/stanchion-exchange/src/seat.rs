//! The worker's side: take a request, read it, answer it.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use stanchion_sys::clock::monotonic_us;
use stanchion_sys::signal::asked;

use crate::inflow::Inflow;
use crate::layout::SeatState;
use crate::protocol::Unwanted;
use crate::ring::Sources;
use crate::shared::Exchange;
use crate::sync::AtomicU64;
use crate::word::{SlotPhase, Tenant};

/// How long a worker sleeps at most before it looks again whether it should leave or its
/// acceptor was replaced. Both are announced; this only bounds what a lost announcement costs.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// One seat in the hands of one worker.
#[derive(Debug)]
pub struct SeatSide<'x> {
    exchange: &'x Exchange,
    tenant: Tenant,
    sources: Sources<'x>,
    timeout_us: u64,
    /// The request taken last came from the worker's own ring.
    took_own: AtomicBool,
    /// The time spent on the request taken last is not in `busy_us` yet.
    unsettled: AtomicBool,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Ending {
    /// Whole.
    Complete = 1,
    /// The app failed after part of it was out; the client must see that it is not whole.
    Broken = 2,
}

/// Nobody wants the answer any more: the client left, or the acceptor was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client has gone")
    }
}

impl std::error::Error for Gone {}

impl<'x> SeatSide<'x> {
    /// Sits down. `timeout` is what one request may take before the master thinks its worker
    /// stuck; `None` = for ever.
    pub fn new(
        exchange: &'x Exchange,
        tenant: Tenant,
        pid: u32,
        timeout: Option<Duration>,
    ) -> Self {
        let board = exchange.seat(tenant.seat);
        board.pid.store(pid, Ordering::Relaxed);
        board
            .tenure
            .store(u32::from(tenant.tenure), Ordering::Relaxed);
        board.served.store(0, Ordering::Relaxed);
        board.busy_us.store(0, Ordering::Relaxed);
        board.deadline_us.store(0, Ordering::Relaxed);
        board.state.store(SeatState::Idle as u32, Ordering::Release);
        let worker = exchange.geometry().worker_of(tenant.seat);
        let timeout_us = timeout.map_or(0, |timeout| timeout.as_micros() as u64);
        Self {
            exchange,
            tenant,
            sources: Sources {
                own: exchange.own_ring(worker),
                shared: exchange.ready(),
            },
            timeout_us,
            took_own: AtomicBool::new(false),
            unsettled: AtomicBool::new(false),
        }
    }

    /// Takes the oldest request that is ready, without waiting. Those for this worker alone and
    /// those for everybody take turns, so that neither shuts out the other.
    pub fn take(&self) -> Option<Taken<'x>> {
        let own_first = !self.took_own.load(Ordering::Relaxed);
        let (slot, turn, own) = self
            .sources
            .take(self.exchange.words(), self.tenant, own_first)?;
        self.took_own.store(own, Ordering::Relaxed);
        if self.exchange.geometry().event_loops {
            // With the fence of who posts news of the slot: either he sees that it is ours, or we see the news.
            fence(Ordering::SeqCst);
        }
        let now_us = monotonic_us();
        self.settle(now_us);
        self.exchange
            .head(slot)
            .taken_us
            .store(now_us, Ordering::Relaxed);
        let board = self.exchange.seat(self.tenant.seat);
        board.slot.store(slot, Ordering::Relaxed);
        board.started_us.store(now_us, Ordering::Relaxed);
        let deadline_us = if self.timeout_us == 0 {
            0
        } else {
            now_us + self.timeout_us
        };
        board.deadline_us.store(deadline_us, Ordering::Release);
        board.state.store(SeatState::Busy as u32, Ordering::Release);
        Some(Taken {
            exchange: self.exchange,
            tenant: self.tenant,
            slot,
            turn,
            acceptor: self.exchange.header().acceptor.load(Ordering::Relaxed),
            taken_us: now_us,
            written: 0,
            published: 0,
            base: 0,
            received: 0,
            room: self.exchange.geometry().response_bytes as u64,
            finished: false,
        })
    }

    /// The seat is through with the request it took last, whose answer may have been given back
    /// a while ago: apps clean up after their answers. How long that took is counted once the seat
    /// looks at the clock anyway: when it takes the next request, or before it sleeps.
    pub fn rest(&self) {
        let board = self.exchange.seat(self.tenant.seat);
        board.deadline_us.store(0, Ordering::Relaxed);
        board.state.store(SeatState::Idle as u32, Ordering::Release);
        add(&board.served, 1);
        self.unsettled.store(true, Ordering::Relaxed);
    }

    /// Counts the time spent on the request taken last.
    fn settle(&self, now_us: u64) {
        if self.unsettled.load(Ordering::Relaxed) {
            self.unsettled.store(false, Ordering::Relaxed);
            let board = self.exchange.seat(self.tenant.seat);
            let started_us = board.started_us.load(Ordering::Relaxed);
            add(&board.busy_us, now_us.saturating_sub(started_us));
        }
    }

    /// Whether a request is ready that this seat may take, as far as can be seen.
    pub fn sees_request(&self) -> bool {
        !self.sources.own.is_empty() || !self.sources.shared.is_empty()
    }

    /// Waits for a request, until `leave` is true. A signal handler that makes it true must also
    /// change the word of [`Exchange::ready_bell`].
    pub fn wait(&self, leave: impl Fn() -> bool) -> Option<Taken<'x>> {
        let bell = self.exchange.ready_bell();
        loop {
            let seen = bell.prepare();
            if leave() {
                // We may be the one who was woken for what is there.
                if !self.exchange.ready().is_empty() {
                    bell.rouse(1);
                }
                return None;
            }
            if let Some(taken) = self.take() {
                return Some(taken);
            }
            self.settle(monotonic_us());
            bell.sleep(seen, LOOK_AGAIN);
        }
    }
}

/// Only the seat writes its own figures, so that adding to one takes no locked instruction.
fn add(figure: &AtomicU64, more: u64) {
    let sum = figure.load(Ordering::Relaxed).wrapping_add(more);
    figure.store(sum, Ordering::Relaxed);
}

impl Drop for SeatSide<'_> {
    fn drop(&mut self) {
        self.exchange
            .seat(self.tenant.seat)
            .state
            .store(SeatState::Empty as u32, Ordering::Release);
    }
}

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

impl Taken<'_> {
    /// Bytes of the request record.
    pub fn request_len(&self) -> usize {
        let head = self.exchange.head(self.slot);
        let len = head.request_len.load(Ordering::Relaxed) as usize;
        len.min(self.exchange.geometry().request_bytes)
    }

    /// Copies the request record from `at` on into `into`, as far as there is room or record; gives
    /// how many bytes that were. A copy, since others may write where it lies.
    pub fn read_request(&self, at: usize, into: &mut [u8]) -> usize {
        let len = self.request_len().saturating_sub(at).min(into.len());
        if len > 0 {
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
        self.exchange.head(self.slot).flow.0.is_gone() || self.is_orphaned()
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
                        self.is_orphaned() || asked::is_quick()
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
        let word = self.exchange.word(self.slot);
        let is_ours = word.is_some_and(|word| (word.tenant, word.turn) == (self.tenant, self.turn));
        if !is_ours || self.client_gone() {
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
        if self.published == self.written {
            return;
        }
        let flow = &self.exchange.head(self.slot).flow.0;
        flow.produced.store(self.written, Ordering::Release);
        if self.published == 0 {
            self.exchange
                .set_word(self.slot, SlotPhase::Answering, self.tenant, self.turn);
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
        let now_us = monotonic_us();
        let head = self.exchange.head(self.slot);
        head.done_us.store(now_us, Ordering::Relaxed);
        head.ending.store(ending as u32, Ordering::Relaxed);
        // Who has seen the state before this one may see it: the last bytes come first.
        head.flow.0.produced.store(self.written, Ordering::Release);
        self.exchange
            .set_word(self.slot, SlotPhase::Done, self.tenant, self.turn);
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
