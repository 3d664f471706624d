//! Memory that many connections share: how much of it is in use, and the holders that give it back.

use std::cell::Cell;
use std::rc::Rc;

use bytes::{Buf, Bytes};

/// A bound on bytes that are in memory for all clients together, and how many there are.
///
/// It refuses nothing by itself: the code that adds bytes looks first.
pub(crate) struct Memory {
    bytes_max: usize,
    bytes: Cell<usize>,
}

impl Memory {
    pub(crate) fn new(bytes_max: usize) -> Rc<Self> {
        let bytes = Cell::new(0);
        Rc::new(Self { bytes_max, bytes })
    }

    /// How many bytes still fit.
    pub(crate) fn left(&self) -> usize {
        self.bytes_max.saturating_sub(self.bytes.get())
    }

    /// How many bytes there are.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.bytes.get() > self.bytes_max
    }
}

/// Bytes counted as in memory, until this is dropped.
pub(crate) struct Held {
    bytes: usize,
    memory: Rc<Memory>,
}

impl Held {
    pub(crate) fn new(memory: &Rc<Memory>, bytes: usize) -> Self {
        memory.bytes.set(memory.bytes.get() + bytes);
        let memory = Rc::clone(memory);
        Self { bytes, memory }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.memory.bytes.set(self.memory.bytes.get() + bytes);
    }

    /// Sets how many bytes there are now.
    pub(crate) fn set(&mut self, bytes: usize) {
        self.release();
        self.add(bytes);
    }

    pub(crate) fn release(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.memory.bytes.set(self.memory.bytes.get() - bytes);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
    }
}

/// A part of an answer's body on its way to a client. It counts as in memory until the socket has
/// taken it.
pub(crate) struct Piece {
    bytes: Bytes,
    _held: Held,
}

impl Piece {
    pub(crate) fn new(memory: &Rc<Memory>, bytes: Bytes) -> Self {
        let held = Held::new(memory, bytes.len());
        Self { bytes, _held: held }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// Drops so many bytes, which the socket has taken.
    pub(crate) fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}
