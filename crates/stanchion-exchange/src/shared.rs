//! The mapping itself, and the references into it.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use stanchion_sys::eventfd::EventFd;
use stanchion_sys::memory::SharedMemory;

use crate::inbox::Inbox;
use crate::layout::{
    Geometry, InboxHead, LINE_BYTES, OwnPositions, Padded, RegionHeader, SeatFigures, SeatState,
    SlotHead,
};
use crate::protocol::{Bell, Flow, Notices};
use crate::ring::ReadyRing;
use crate::sync::AtomicU64;
use crate::word::{SlotPhase, Tenant, Word};

/// An event loop that has not turned for this long counts as blocked: a loop turns four times a second if nothing
/// blocks it, or shows how long it sleeps.
const TURNS_WITHIN_US: u64 = 600_000;
/// The usual size of a page.
const PAGE_BYTES: usize = 4096;

/// The shared memory. The master makes it before any fork, and every process inherits it.
#[derive(Debug)]
pub struct Exchange {
    memory: SharedMemory,
    geometry: Geometry,
    offsets: Offsets,
    /// Workers write to it when the acceptor sleeps.
    doorbell: EventFd,
    /// By worker: the acceptor writes to it when the worker's event loop sleeps.
    wakes: Vec<EventFd>,
    /// Private to this process: see [`Exchange::forsake`].
    pub(crate) forsaken: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Offsets {
    seats: usize,
    words: usize,
    heads: usize,
    ring: usize,
    own_positions: usize,
    own_rings: usize,
    notices: usize,
    inbox_heads: usize,
    inbox_bits: usize,
    requests: Areas,
    inflows: Areas,
    responses: Areas,
    end: usize,
}

/// The areas of one kind, one for each slot.
#[derive(Clone, Copy, Debug)]
struct Areas {
    /// The offset of the first one.
    first: usize,
    /// Bytes of each.
    bytes: usize,
}

impl Offsets {
    fn of(geometry: &Geometry) -> Self {
        let mut end = 0;
        let mut place = |bytes: usize| {
            let start = end;
            end = (start + bytes).next_multiple_of(LINE_BYTES);
            start
        };
        let _header = place(size_of::<RegionHeader>());
        let seats = place(geometry.seats * size_of::<SeatFigures>());
        let words = place(geometry.slots() * size_of::<AtomicU64>());
        let heads = place(geometry.slots() * size_of::<SlotHead>());
        let ring = place(geometry.ring_entries() * size_of::<AtomicU64>());
        let own_positions = place(geometry.workers() * size_of::<OwnPositions>());
        let own_entries = geometry.workers() * geometry.own_ring_entries();
        let own_rings = place(own_entries * size_of::<AtomicU64>());
        let notices = place(geometry.notice_words() * size_of::<AtomicU64>());
        let inboxes = geometry.inboxes();
        let inbox_heads = place(inboxes * size_of::<InboxHead>());
        let inbox_bits = place(inboxes * geometry.notice_words() * size_of::<AtomicU64>());
        // Each area gets pages of its own, as far as its length allows.
        let mut areas = |bytes: usize| {
            let up_to_here = place(0);
            let _rest_of_page = place(up_to_here.next_multiple_of(PAGE_BYTES) - up_to_here);
            let first = place(geometry.slots() * bytes);
            Areas { first, bytes }
        };
        let requests = areas(geometry.request_bytes);
        let inflows = areas(geometry.inflow_bytes);
        let responses = areas(geometry.response_bytes);
        Self {
            seats,
            words,
            heads,
            ring,
            own_positions,
            own_rings,
            notices,
            inbox_heads,
            inbox_bits,
            requests,
            inflows,
            responses,
            end,
        }
    }
}

impl Exchange {
    /// Maps and prepares the memory. The areas take memory only once they are used.
    pub fn create(geometry: Geometry) -> io::Result<Self> {
        geometry
            .check()
            .map_err(|bad| io::Error::new(io::ErrorKind::InvalidInput, bad))?;
        let offsets = Offsets::of(&geometry);
        let memory = SharedMemory::create("stanchion-exchange", offsets.end)?;
        let wakes = (0..geometry.inboxes()).map(|_| EventFd::new());
        Ok(Self {
            memory,
            geometry,
            offsets,
            doorbell: EventFd::new()?,
            wakes: wakes.collect::<io::Result<_>>()?,
            forsaken: AtomicBool::new(false),
        })
    }

    /// The sizes it was made with.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The eventfd that workers ring when the acceptor sleeps, for the acceptor's event loop.
    pub fn doorbell(&self) -> &EventFd {
        &self.doorbell
    }

    /// The inbox at which a worker's event loop sleeps; `None` if the worker's seats are threads.
    pub fn inbox(&self, worker: u16) -> Option<Inbox<'_>> {
        let (words, worker) = (self.geometry.notice_words(), usize::from(worker));
        let wake = self.wakes.get(worker)?;
        let heads: &[InboxHead] = self.slice(self.offsets.inbox_heads, self.wakes.len());
        let bits = self.slice(self.offsets.inbox_bits, self.wakes.len() * words);
        Some(Inbox::new(
            &heads[worker],
            &bits[worker * words..][..words],
            wake,
        ))
    }

    /// The inboxes of all workers that there may be.
    pub fn inboxes(&self) -> impl Iterator<Item = Inbox<'_>> {
        (0..self.wakes.len() as u16).filter_map(|worker| self.inbox(worker))
    }

    /// How many ready requests the event loop of a worker should take, so that all loops that turn run equally many:
    /// none from the shared ring if it already runs more than its share. The requests in its own ring come on top.
    pub fn share_of_ready(&self, worker: u16, now_us: u64) -> usize {
        let most = self.geometry.seats_per_worker as u32;
        let (mut running, mut loops, mut own) = (0, 0, 0);
        for (index, inbox) in (0..).zip(self.inboxes()) {
            let is_own = index == worker;
            // A loop that is blocked, or takes no more requests, gets no share.
            let turns = now_us.saturating_sub(inbox.beat_us()) < TURNS_WITHIN_US;
            if is_own || (turns && inbox.load() != Inbox::NO_ROOM) {
                let load = inbox.load().min(most) as usize;
                running += load;
                loops += 1;
                if is_own {
                    own = load;
                }
            }
        }
        let ready = self.ready().len();
        let part = (running + ready).div_ceil(loops.max(1));
        part.saturating_sub(own).min(ready) + self.own_ring(worker).len()
    }

    /// The position of the request that has been ready for the longest. The position differs once that request has been
    /// taken.
    pub fn oldest_ready(&self) -> Option<u64> {
        self.ready().oldest()
    }

    /// Makes every seat look for work, whether or not it shows that it sleeps.
    pub fn rouse_all(&self) {
        self.ready_bell().rouse(u32::MAX);
        self.inboxes().for_each(|inbox| inbox.rouse());
    }

    /// The bell on which idle threads sleep, one per seat.
    pub fn ready_bell(&self) -> &Bell {
        &self.header().bell.0
    }

    /// The scoreboard's entry for a seat.
    pub fn seat(&self, seat: u16) -> &SeatFigures {
        &self.seats()[usize::from(seat)]
    }

    /// The scoreboard.
    pub fn seats(&self) -> &[SeatFigures] {
        self.slice(self.offsets.seats, self.geometry.seats)
    }

    /// The activity of a seat, according to the seat.
    pub fn seat_state(&self, seat: u16) -> SeatState {
        SeatState::from_bits(self.seat(seat).state.load(Ordering::Acquire))
    }

    /// The process at a seat, according to that process; `None` if there is no such seat.
    pub fn pid_at(&self, seat: u16) -> Option<u32> {
        let seat = self.seats().get(usize::from(seat))?;
        Some(seat.pid.load(Ordering::Relaxed))
    }

    /// Empties the inbox of a worker that has gone. [`Exchange::vacate`] does the same for its seats.
    pub fn vacate_loop(&self, worker: u16) {
        if let Some(inbox) = self.inbox(worker) {
            inbox.vacate();
        }
    }

    /// The seat that shows that it is busy with `slot`, if there is one.
    pub fn busy_seat_of(&self, slot: u32) -> Option<u16> {
        let busy = |seat: &u16| {
            self.seat_state(*seat) == SeatState::Busy
                && self.seat(*seat).slot.load(Ordering::Relaxed) == slot
        };
        (0..self.geometry.seats as u16).find(busy)
    }

    /// The seat that last took a request from this slot, whether or not it is done with it. A seat that finds that its
    /// slot was taken back leaves the slot alone and goes on.
    pub fn last_seat_of(&self, slot: u32) -> Option<u16> {
        let has_had = |seat: &u16| {
            self.seat_state(*seat) != SeatState::Empty
                && self.seat(*seat).slot.load(Ordering::Relaxed) == slot
                && self.seat(*seat).started_us.load(Ordering::Relaxed) != 0
        };
        let last = (0..self.geometry.seats as u16).filter(has_had);
        last.max_by_key(|seat| self.seat(*seat).started_us.load(Ordering::Relaxed))
    }

    /// Empties a seat whose worker has gone. The master calls this before it forks another worker for the seat.
    pub fn vacate(&self, seat: u16) {
        let seat = self.seat(seat);
        seat.state.store(SeatState::Empty as u32, Ordering::Release);
        seat.pid.store(0, Ordering::Relaxed);
        seat.deadline_us.store(0, Ordering::Relaxed);
    }

    /// Closes the exchange: no process is left that would use it, so the workers that still sit at a seat must leave.
    pub fn close(&self) {
        self.header().closed.store(1, Ordering::Release);
        self.rouse_all();
    }

    /// Opens the exchange again: it is not closed while there is an acceptor. Returns whether it was closed.
    pub(crate) fn reopen(&self) -> bool {
        self.header().closed.swap(0, Ordering::AcqRel) != 0
    }

    /// Whether [`Exchange::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.header().closed.load(Ordering::Acquire) != 0
    }

    /// Whether the acceptor drains: it serves the clients that are here, and then its whole generation leaves.
    pub fn is_draining(&self) -> bool {
        self.header().draining.load(Ordering::Acquire) != 0
    }

    /// If the seat's present request is past its deadline at `now_us`: how long the request has run, in microseconds.
    pub fn overdue_us(&self, seat: u16, now_us: u64) -> Option<u64> {
        let board = self.seat(seat);
        let deadline = board.deadline_us.load(Ordering::Acquire);
        if deadline == 0 || now_us < deadline || self.seat_state(seat) != SeatState::Busy {
            return None;
        }
        let started = board.started_us.load(Ordering::Acquire);
        // If the deadline is unchanged, the seat has not gone on to another request while we looked.
        (board.deadline_us.load(Ordering::Acquire) == deadline)
            .then(|| now_us.saturating_sub(started))
    }

    pub(crate) fn header(&self) -> &RegionHeader {
        &self.slice(0, 1)[0]
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.slice(self.offsets.words, self.geometry.slots())
    }

    pub(crate) fn head(&self, slot: u32) -> &SlotHead {
        let heads: &[SlotHead] = self.slice(self.offsets.heads, self.geometry.slots());
        &heads[slot as usize]
    }

    /// The flow of a slot's answer.
    pub(crate) fn flow(&self, slot: u32) -> &Flow {
        &self.head(slot).flow.0
    }

    /// The flow of a slot's inflow.
    pub(crate) fn inflow(&self, slot: u32) -> &Flow {
        &self.head(slot).inflow.0
    }

    pub(crate) fn ready(&self) -> ReadyRing<'_> {
        let header = self.header();
        let Padded(head) = &header.head;
        let Padded(tail) = &header.tail;
        let entries = self.slice(self.offsets.ring, self.geometry.ring_entries());
        ReadyRing {
            head,
            tail,
            entries,
        }
    }

    /// The ring of the requests that one worker alone may take.
    pub(crate) fn own_ring(&self, worker: u16) -> ReadyRing<'_> {
        let workers = self.geometry.workers();
        let positions: &[OwnPositions] = self.slice(self.offsets.own_positions, workers);
        let OwnPositions { head, tail } = &positions[usize::from(worker)];
        let len = self.geometry.own_ring_entries();
        let entries: &[AtomicU64] = self.slice(self.offsets.own_rings, workers * len);
        ReadyRing {
            head,
            tail,
            entries: &entries[usize::from(worker) * len..][..len],
        }
    }

    pub(crate) fn notices(&self) -> Notices<'_> {
        let bits = self.slice(self.offsets.notices, self.geometry.notice_words());
        Notices {
            bits,
            asleep: &self.header().asleep.0,
        }
    }

    pub(crate) fn word(&self, slot: u32) -> Option<Word> {
        Word::unpack(self.words()[slot as usize].load(Ordering::Acquire))
    }

    pub(crate) fn set_word(&self, slot: u32, phase: SlotPhase, tenant: Tenant, turn: u32) {
        let word = Word {
            phase,
            tenant,
            turn,
        };
        self.words()[slot as usize].store(word.pack(), Ordering::Release);
    }

    /// The first byte of a slot's request area, of `request_bytes`.
    pub(crate) fn request_area(&self, slot: u32) -> *mut u8 {
        self.area(self.offsets.requests, slot)
    }

    /// The first byte of a slot's inflow ring, of `inflow_bytes`.
    pub(crate) fn inflow_area(&self, slot: u32) -> *mut u8 {
        self.area(self.offsets.inflows, slot)
    }

    /// The first byte of a slot's response ring, of `response_bytes`.
    pub(crate) fn response_area(&self, slot: u32) -> *mut u8 {
        self.area(self.offsets.responses, slot)
    }

    /// The length of the request record in a slot.
    pub(crate) fn request_len(&self, slot: u32) -> usize {
        let len = self.head(slot).request_len.load(Ordering::Relaxed) as usize;
        len.min(self.geometry.request_bytes)
    }

    /// Wipes a request (`request` bytes), its inflow (`poured` bytes) and its answer, which `reached` so far into its
    /// ring. It touches no more than that, since memory that was never used takes no pages. `reached` is `None` if the
    /// seat is dead and the length is unknown. So neither the slot's next owner nor a process that reads where it
    /// should not finds any of these bytes.
    pub(crate) fn wipe(&self, slot: u32, request: usize, poured: u64, reached: Option<usize>) {
        self.zero(self.offsets.requests, slot, 0..request);
        let poured = usize::try_from(poured).unwrap_or(usize::MAX);
        self.zero(self.offsets.inflows, slot, 0..poured);
        match reached {
            Some(reached) => self.wipe_answer(slot, reached),
            None => self.zero_all(self.offsets.responses, slot),
        }
        self.head(slot).request_len.store(0, Ordering::Relaxed);
        self.inflow(slot).produced.store(0, Ordering::Relaxed);
        self.flow(slot).produced.store(0, Ordering::Relaxed);
    }

    /// Wipes these `bytes` of a slot's request area.
    pub(crate) fn wipe_request(&self, slot: u32, bytes: Range<usize>) {
        self.zero(self.offsets.requests, slot, bytes);
    }

    /// Wipes the first `bytes` of a slot's response ring.
    pub(crate) fn wipe_answer(&self, slot: u32, bytes: usize) {
        self.zero(self.offsets.responses, slot, 0..bytes);
    }

    fn areas(&self) -> [Areas; 3] {
        let offsets = &self.offsets;
        [offsets.requests, offsets.inflows, offsets.responses]
    }

    /// Wipes all areas of a slot, when it is unknown how far each was used.
    pub(crate) fn wipe_all(&self, slot: u32) {
        for areas in self.areas() {
            self.zero_all(areas, slot);
        }
    }

    /// Gives the memory of a free slot that holds only zeroes back to the kernel. Memory that the kernel does not take
    /// stays.
    pub(crate) fn give_all_back(&self, slot: u32) {
        let give_back = |areas| self.try_zero_all(areas, slot);
        let _ = self.areas().into_iter().try_for_each(give_back);
    }

    /// Gives memory back to the kernel: the request area, once no code reads it again, and the response ring, once the
    /// acceptor has read all of it. False if the kernel does not take it.
    pub(crate) fn give_back(&self, slot: u32) -> bool {
        let give_back = |areas| self.try_zero_all(areas, slot).is_ok();
        if !give_back(self.offsets.requests) {
            return false;
        }
        self.head(slot).request_len.store(0, Ordering::Relaxed);
        give_back(self.offsets.responses)
    }

    /// Writes zeroes over `part` of a slot's area, as far as it is within the area.
    fn zero(&self, areas: Areas, slot: u32, part: Range<usize>) {
        let end = part.end.min(areas.bytes);
        let start = part.start.min(end);
        // SAFETY: the range is within the area of the slot, to which no references are made.
        unsafe { std::ptr::write_bytes(self.area(areas, slot).add(start), 0, end - start) };
    }

    /// Fills an area with zeroes, without touching pages that were never used: a worker may die with a thousand
    /// requests.
    fn zero_all(&self, areas: Areas, slot: u32) {
        if self.try_zero_all(areas, slot).is_err() {
            self.zero(areas, slot, 0..areas.bytes);
        }
    }

    /// Like [`Self::zero_all`], or fails and changes nothing: not all kernels take pages back, and no kernel takes back
    /// locked memory (madvise(2)).
    fn try_zero_all(&self, areas: Areas, slot: u32) -> io::Result<()> {
        let (area, bytes) = (self.area(areas, slot), areas.bytes);
        let start = areas.first + slot as usize * bytes;
        // SAFETY: the range is the area of the slot, to which no references are made; the edges that are written lie
        // within it.
        unsafe {
            let pages = self.memory.give_back(start, bytes)?;
            if pages.is_empty() {
                std::ptr::write_bytes(area, 0, bytes);
            } else {
                let (before, behind) = (pages.start - start, start + bytes - pages.end);
                std::ptr::write_bytes(area, 0, before);
                std::ptr::write_bytes(area.add(bytes - behind), 0, behind);
            }
        }
        Ok(())
    }

    fn area(&self, Areas { first, bytes }: Areas, slot: u32) -> *mut u8 {
        assert!(
            (slot as usize) < self.geometry.slots(),
            "slot {slot} does not exist"
        );
        let base = self.memory.base().as_ptr();
        // SAFETY: `Offsets::of` reserved an area of this size for each slot.
        unsafe { base.add(first + slot as usize * bytes) }
    }

    /// `count` values at `offset`. It is private, and called only with ranges that `Offsets::of` laid out.
    fn slice<T>(&self, offset: usize, count: usize) -> &[T] {
        debug_assert!(offset + count * size_of::<T>() <= self.offsets.end);
        // SAFETY: the range lies inside the mapping and is aligned, as `Offsets::of` placed it
        // there. `T` is only ever made of atomics (RegionHeader, SeatFigures, SlotHead, OwnPositions, InboxHead, AtomicU64), for which
        // any bits, and zeroes to begin with, are valid, and which other processes may change
        // under a shared reference.
        unsafe {
            let first = self.memory.base().as_ptr().add(offset).cast::<T>();
            debug_assert!(first.is_aligned());
            std::slice::from_raw_parts(first, count)
        }
    }
}
