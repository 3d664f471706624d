//! Connections that have something to do, at once or in a moment.

use std::cell::RefCell;
use std::collections::VecDeque;

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

/// Numbers of those that look again after a time that is the same for all, each with when that is. There are at most as
/// many as ask within that time, and one asks once for each body.
#[derive(Default)]
pub(crate) struct Later(VecDeque<(u64, u32)>);

impl Later {
    /// The last to ask is the last to be due.
    pub(crate) fn add(&mut self, connection: u32, due_us: u64) {
        self.0.push_back((due_us, connection));
    }

    /// When the first is due.
    pub(crate) fn due_us(&self) -> Option<u64> {
        self.0.front().map(|(due_us, _)| *due_us)
    }

    /// Leaves a note for each that is due.
    pub(crate) fn wake(&mut self, now_us: u64, woken: &Woken) {
        let due = self.0.partition_point(|(due_us, _)| *due_us <= now_us);
        let due = self.0.drain(..due);
        due.for_each(|(_, connection)| woken.add(connection));
    }
}
