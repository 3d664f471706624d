//! Connections that have something to do.

use std::cell::RefCell;

/// Their numbers; whoever brings them something leaves a note here.
#[derive(Default)]
pub(crate) struct Woken(RefCell<Vec<u32>>);

impl Woken {
    pub(crate) fn add(&self, connection: u32) {
        self.0.borrow_mut().push(connection);
    }

    /// Takes all notes; some may be of connections that are gone, or that somebody else has the number of now.
    pub(crate) fn take(&self, into: &mut Vec<u32>) {
        into.append(&mut self.0.borrow_mut());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}
