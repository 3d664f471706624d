//! Memory that many connections share: how much of it is in use, and by whom it is given back.

use std::cell::Cell;
use std::rc::Rc;

use bytes::{Buf, Bytes};

/// A bound on bytes that are in memory for all clients together, and how many there are.
///
/// It refuses nothing by itself: whoever adds looks first.
pub(super) struct Memory {
    bytes_max: usize,
    bytes: Cell<usize>,
}

impl Memory {
    pub(super) fn new(bytes_max: usize) -> Rc<Self> {
        let bytes = Cell::new(0);
        Rc::new(Self { bytes_max, bytes })
    }

    /// Bytes that still fit.
    pub(super) fn left(&self) -> usize {
        self.bytes_max.saturating_sub(self.bytes.get())
    }

    pub(super) fn is_over(&self) -> bool {
        self.bytes.get() > self.bytes_max
    }
}

/// Bytes counted as in memory, until this is dropped.
pub(super) struct Held {
    bytes: usize,
    memory: Rc<Memory>,
}

impl Held {
    pub(super) fn new(memory: &Rc<Memory>, bytes: usize) -> Self {
        memory.bytes.set(memory.bytes.get() + bytes);
        let memory = Rc::clone(memory);
        Self { bytes, memory }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.memory.bytes.set(self.memory.bytes.get() + bytes);
    }

    pub(super) fn release(&mut self) {
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
/// taken it, so also while hyper has it.
pub(super) struct Piece {
    bytes: Bytes,
    _held: Held,
}

impl Piece {
    pub(super) fn new(memory: &Rc<Memory>, bytes: Bytes) -> Self {
        let held = Held::new(memory, bytes.len());
        Self { bytes, _held: held }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}
