//! Counts the streams of one HTTP/2 connection, and bounds the bytes of their answers that h2 holds.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

use bytes::{Buf, Bytes};
use stanchion_sys::charge::{self, Charged, Payer};

use stanchion_dispatch::storage::memory::{Memory, Piece};

/// How many bytes h2 holds of the answers of one connection when the socket has no room, shared by its open streams;
const ANSWERS_BYTES_MAX: usize = 256 << 10;
/// but at least so many of each open stream, which is a frame of usual size: then h2 sends frames of all of them in turn.
const STREAM_BYTES_MIN: usize = 16 << 10;

/// The counts of one connection's streams.
pub(super) struct Ledger {
    open: Cell<usize>,
    /// Streams that the client reset before it had the head of an answer, less the streams whose head it had.
    resets: Cell<u32>,
    /// Bytes of answers that h2 holds, also for streams that are over.
    answers_bytes: Cell<usize>,
    /// Bytes of answers that h2 has put into frames.
    framed_bytes: Cell<u64>,
    /// Streams that wait for room held by streams that are over; they are woken when there is more.
    waiting: RefCell<Vec<Waker>>,
    /// The account on which these bytes count, as the bytes in the streams do.
    memory: Rc<Memory>,
    /// The connection's payer pays for all that h2 holds, since streams may be over before h2 has sent their answers.
    payer: Payer,
}

/// The part of one stream's answer that h2 holds.
#[derive(Default)]
pub(super) struct StreamBacklog {
    bytes: Cell<usize>,
    /// The stream's waker, if it waits until h2 holds less of it.
    waiting: Cell<Option<Waker>>,
}

/// Bytes of an answer that h2 holds. h2 drops them when it has written them, or their stream is reset.
pub(super) struct AccountedBytes {
    piece: Piece,
    len: usize,
    sent: Rc<StreamBacklog>,
    ledger: Rc<Ledger>,
}

impl AccountedBytes {
    pub(super) fn new(bytes: Bytes, sent: &Rc<StreamBacklog>, ledger: &Rc<Ledger>) -> Self {
        let len = bytes.len();
        ledger.answers_bytes.set(ledger.answers_bytes.get() + len);
        sent.bytes.set(sent.bytes.get() + len);
        Self {
            piece: Piece::new(&ledger.memory, bytes),
            len,
            sent: Rc::clone(sent),
            ledger: Rc::clone(ledger),
        }
    }
}

impl Buf for AccountedBytes {
    fn remaining(&self) -> usize {
        self.piece.len()
    }

    fn chunk(&self) -> &[u8] {
        self.piece.as_slice()
    }

    fn advance(&mut self, count: usize) {
        self.piece.advance(count);
        let framed = &self.ledger.framed_bytes;
        framed.set(framed.get() + count as u64);
    }
}

impl Drop for AccountedBytes {
    fn drop(&mut self) {
        let (ledger, sent) = (&self.ledger, &self.sent);
        sent.bytes.set(sent.bytes.get() - self.len);
        ledger
            .answers_bytes
            .set(ledger.answers_bytes.get() - self.len);
        if let Some(stream) = sent.waiting.take() {
            stream.wake();
        }
        ledger.waiting.take().into_iter().for_each(Waker::wake);
    }
}

impl Ledger {
    pub(super) fn new(memory: &Rc<Memory>) -> Rc<Self> {
        Rc::new(Self {
            open: Cell::default(),
            resets: Cell::default(),
            answers_bytes: Cell::default(),
            framed_bytes: Cell::default(),
            waiting: RefCell::default(),
            memory: Rc::clone(memory),
            payer: charge::current(),
        })
    }

    /// Charges the connection for all that is allocated until the guard is dropped.
    pub(super) fn charged(&self) -> Charged {
        charge::to(self.payer)
    }

    /// Whether the client waits for answers.
    pub(super) fn has_open(&self) -> bool {
        self.open.get() > 0
    }

    pub(super) fn framed_bytes(&self) -> u64 {
        self.framed_bytes.get()
    }

    pub(super) fn resets(&self) -> u32 {
        self.resets.get()
    }

    /// How many more bytes of a stream's answer h2 may take. A stream that finds no room is woken when there may be some.
    ///
    /// The shares of all open streams fit together, so no stream takes the room of another one. Only the rest of streams
    /// that are over takes room, and h2 sends that first.
    pub(super) fn room(&self, sent: &StreamBacklog, waker: &Waker) -> usize {
        let open = self.open.get().max(1);
        let share = (ANSWERS_BYTES_MAX / open).max(STREAM_BYTES_MIN);
        let all = ANSWERS_BYTES_MAX + open * STREAM_BYTES_MIN;
        let own_room = share.saturating_sub(sent.bytes.get());
        if own_room == 0 {
            sent.waiting.set(Some(waker.clone()));
            return 0;
        }
        let room = all.saturating_sub(self.answers_bytes.get());
        if room == 0 {
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|other| other.will_wake(waker)) {
                waiting.push(waker.clone());
            }
        }
        own_room.min(room)
    }

    pub(super) fn began(&self) {
        self.open.set(self.open.get() + 1);
    }

    pub(super) fn answered(&self) {
        self.resets.set(self.resets.get().saturating_sub(1));
    }

    pub(super) fn ended(&self, is_in_vain: bool, waker: &Waker) {
        self.open.set(self.open.get().saturating_sub(1));
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|other| !other.will_wake(waker));
        let in_vain = u32::from(is_in_vain);
        self.resets.set(self.resets.get().saturating_add(in_vain));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_streams_share_the_room_and_none_takes_it_from_another_one() {
        let memory = Memory::new(0);
        let ledger = Ledger::new(&memory);
        let waker = Waker::noop();
        let streams: Vec<Rc<StreamBacklog>> = (0..100).map(|_| Rc::default()).collect();
        let (first, others) = streams.split_first().expect("some");
        ledger.began();
        let part = |len: usize, sent| AccountedBytes::new(Bytes::from(vec![0; len]), sent, &ledger);
        let alone = ledger.room(first, waker);
        let mut parts = vec![part(alone, first)];
        assert_eq!((alone, ledger.room(first, waker)), (ANSWERS_BYTES_MAX, 0));
        for other in others {
            ledger.began();
            let room = ledger.room(other, waker);
            assert!(room >= STREAM_BYTES_MIN, "{room}");
            parts.push(part(STREAM_BYTES_MIN, other));
        }
        assert_eq!(memory.bytes(), ledger.answers_bytes.get());
        drop(parts);
        assert_eq!((memory.bytes(), ledger.answers_bytes.get()), (0, 0));
        assert!(streams.iter().all(|sent| sent.bytes.get() == 0));
    }

    #[test]
    fn what_is_left_of_streams_that_are_over_is_bounded() {
        let memory = Memory::new(0);
        let ledger = Ledger::new(&memory);
        let mut parts = Vec::new();
        for _ in 0..1_000 {
            ledger.began();
            let sent = Rc::default();
            let room = ledger.room(&sent, Waker::noop()).min(64_000);
            parts.push(AccountedBytes::new(
                Bytes::from(vec![0; room]),
                &sent,
                &ledger,
            ));
            ledger.ended(false, Waker::noop());
        }
        assert_eq!(memory.bytes(), ANSWERS_BYTES_MAX + STREAM_BYTES_MIN);
    }
}
