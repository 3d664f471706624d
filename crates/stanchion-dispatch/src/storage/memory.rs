//! Memory that many connections share: how much of it is in use, and the holders that give it back.

use std::cell::Cell;
use std::rc::Rc;

use bytes::{Buf, Bytes};

/// A bound on bytes that are in memory for all clients together, and how many there are.
///
/// It refuses nothing by itself: the code that adds bytes looks first.
pub struct Memory {
    bytes_max: usize,
    bytes: Cell<usize>,
}

impl Memory {
    /// Memory for so many bytes.
    pub fn new(bytes_max: usize) -> Rc<Self> {
        let bytes = Cell::new(0);
        Rc::new(Self { bytes_max, bytes })
    }

    /// How many bytes still fit.
    pub fn left(&self) -> usize {
        self.bytes_max.saturating_sub(self.bytes.get())
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Whether there is more than should be.
    pub fn is_over(&self) -> bool {
        self.bytes.get() > self.bytes_max
    }
}

/// Bytes counted as in memory, until this is dropped.
pub struct Held {
    bytes: usize,
    memory: Rc<Memory>,
}

impl Held {
    /// Counts so many bytes as in this memory.
    pub fn new(memory: &Rc<Memory>, bytes: usize) -> Self {
        memory.bytes.set(memory.bytes.get() + bytes);
        let memory = Rc::clone(memory);
        Self { bytes, memory }
    }

    /// How many bytes are counted.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts so many bytes more.
    pub fn add(&mut self, bytes: usize) {
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
pub struct Piece {
    bytes: Bytes,
    _held: Held,
}

impl Piece {
    /// A piece of these bytes, in this memory.
    pub fn new(memory: &Rc<Memory>, bytes: Bytes) -> Self {
        let held = Held::new(memory, bytes.len());
        Self { bytes, _held: held }
    }

    /// How many bytes are left.
    #[allow(
        clippy::len_without_is_empty,
        reason = "no caller asks whether it is empty"
    )]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes that are left.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The bytes that are left.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// Drops so many bytes, which the socket has taken.
    pub fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}
