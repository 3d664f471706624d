//! What the streams of one connection of HTTP/2 come to, and what h2 has of their answers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

use bytes::{Buf, Bytes};

use crate::acceptor::storage::memory::{Memory, Piece};

/// So much of all answers together h2 has at a time that the socket has no room for. What is behind waits in the streams,
/// whose pace is looked at.
const ANSWERS_BYTES_MAX: usize = 256 << 10;

/// What is known of the streams of one connection.
pub(super) struct Ledger {
    open: Cell<usize>,
    /// Those that the client reset before it had the head of an answer, less those of which it had one.
    resets: Cell<u32>,
    /// Bytes of answers that h2 has.
    answers_bytes: Cell<usize>,
    /// Streams that are to be called once it has room for more.
    waiting: RefCell<Vec<Waker>>,
    /// Where these bytes count, like those that the streams have.
    memory: Rc<Memory>,
}

/// Bytes of an answer that h2 has. It drops them when they are written, or their stream is reset.
pub(super) struct Part {
    piece: Piece,
    len: usize,
    ledger: Rc<Ledger>,
}

impl Part {
    pub(super) fn new(bytes: Bytes, ledger: &Rc<Ledger>) -> Self {
        let len = bytes.len();
        ledger.answers_bytes.set(ledger.answers_bytes.get() + len);
        Self {
            piece: Piece::new(&ledger.memory, bytes),
            len,
            ledger: Rc::clone(ledger),
        }
    }
}

impl Buf for Part {
    fn remaining(&self) -> usize {
        self.piece.len()
    }

    fn chunk(&self) -> &[u8] {
        self.piece.as_slice()
    }

    fn advance(&mut self, count: usize) {
        self.piece.advance(count);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let ledger = &self.ledger;
        ledger
            .answers_bytes
            .set(ledger.answers_bytes.get() - self.len);
        if ledger.answers_bytes.get() <= ANSWERS_BYTES_MAX / 2 {
            ledger.waiting.take().iter().for_each(Waker::wake_by_ref);
        }
    }
}

impl Ledger {
    pub(super) fn new(memory: &Rc<Memory>) -> Rc<Self> {
        Rc::new(Self {
            open: Cell::default(),
            resets: Cell::default(),
            answers_bytes: Cell::default(),
            waiting: RefCell::default(),
            memory: Rc::clone(memory),
        })
    }

    /// Whether the client waits for answers.
    pub(super) fn has_open(&self) -> bool {
        self.open.get() > 0
    }

    pub(super) fn resets(&self) -> u32 {
        self.resets.get()
    }

    /// How much more of answers h2 may have. A stream that finds none is called when there is some.
    pub(super) fn room(&self, waker: &Waker) -> usize {
        let room = ANSWERS_BYTES_MAX.saturating_sub(self.answers_bytes.get());
        if room == 0 {
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|other| other.will_wake(waker)) {
                waiting.push(waker.clone());
            }
        }
        room
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
