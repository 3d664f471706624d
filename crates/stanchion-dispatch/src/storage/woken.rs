//! Connections that have something to do, at once or in a moment.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use stanchion_sys::charge;

pub use super::behind::CLIENT_BYTES_MAX;
use super::behind::FairQueue;
use super::clients::Client;

/// The numbers of these connections: code that has something for a connection leaves a note here.
#[derive(Default)]
pub struct Woken {
    notes: RefCell<Vec<u32>>,
    /// Connections that have used up their turn.
    behind: RefCell<FairQueue>,
    /// Connections that keep the acceptor busy with bytes that carry nothing. They go on once they have rested.
    wasteful: RefCell<FairQueue>,
    rest_until_us: Cell<u64>,
    called: Arc<Called>,
}

/// The same for connections that a [`Waker`] calls. All is in one thread, but a waker has to work in any.
#[derive(Default)]
struct Called(Mutex<Vec<u32>>);

struct Caller {
    connection: u32,
    called: Arc<Called>,
}

impl Called {
    fn numbers(&self) -> MutexGuard<'_, Vec<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let _charged = charge::to_nobody();
        self.called.numbers().push(self.connection);
    }
}

impl Woken {
    /// Notes a connection.
    pub fn add(&self, connection: u32) {
        // The table is for all clients, so no single one pays for it.
        let _charged = charge::to_nobody();
        self.notes.borrow_mut().push(connection);
    }

    /// Has the connection go on once all others had their turn. Of the connections that have used up their turn, one goes on in
    /// each turn of the loop, or several that have little to do: however many they are, they delay all others by one such turn.
    /// The connections of a `client` with an address take turns with those of other clients as if they were one. A wasteful
    /// connection goes on when all wasteful ones have rested.
    pub fn stand_behind(&self, connection: u32, client: Option<Client>, is_wasteful: bool) {
        let _charged = charge::to_nobody();
        if is_wasteful {
            self.wasteful.borrow_mut().stand(connection, client);
        } else {
            self.behind.borrow_mut().stand(connection, client);
        }
    }

    /// Counts bytes that a connection of the client has had in its turn.
    pub fn had(&self, client: Client, bytes: usize) {
        let _charged = charge::to_nobody();
        self.behind.borrow_mut().had(client, bytes);
    }

    /// Whether all connections of the client together have had as much as one client may have, or one of them has used
    /// up its turn in this turn of the loop.
    pub fn has_spent(&self, client: Client) -> bool {
        self.behind.borrow().has_spent(client)
    }

    /// Ends a turn of the loop.
    pub fn end_turn(&self) {
        self.behind.borrow_mut().end_turn();
        self.wasteful.borrow_mut().end_turn();
    }

    /// Takes the next connection of those that have used up their turn.
    pub fn next_behind(&self) -> Option<u32> {
        self.behind.borrow_mut().next()
    }

    /// Whether a wasteful connection stands here, and they have rested.
    pub fn may_waste(&self, now_us: u64) -> bool {
        self.wasteful_due_us()
            .is_some_and(|due_us| due_us <= now_us)
    }

    /// When the next wasteful connection may go on; `None` if there is none.
    pub fn wasteful_due_us(&self) -> Option<u64> {
        (!self.wasteful.borrow().is_empty()).then(|| self.rest_until_us.get())
    }

    /// The next wasteful connection that may go on.
    pub fn next_wasteful(&self) -> Option<u32> {
        self.wasteful.borrow_mut().next()
    }

    /// Lets wasteful connections rest until then.
    pub fn rest_until(&self, until_us: u64) {
        self.rest_until_us.set(until_us);
    }

    /// Removes a connection that is gone.
    pub fn leave(&self, connection: u32, client: Option<Client>) {
        self.behind.borrow_mut().leave(connection, client);
        self.wasteful.borrow_mut().leave(connection, client);
    }

    /// Takes all notes; some may be of connections that are gone, or whose numbers other connections have now.
    pub fn take(&self, into: &mut Vec<u32>) {
        into.append(&mut self.notes.borrow_mut());
        self.take_called(into);
    }

    /// Takes the notes that wakers have left, and no others.
    pub fn take_called(&self, into: &mut Vec<u32>) {
        into.append(&mut self.called.numbers());
    }

    /// Whether no connection has a note that is due.
    pub fn is_empty(&self) -> bool {
        self.notes.borrow().is_empty()
            && self.behind.borrow().is_empty()
            && self.called.numbers().is_empty()
    }

    /// Makes a waker that calls a connection, for code that knows nothing of connections.
    pub fn waker(&self, connection: u32) -> Waker {
        let called = Arc::clone(&self.called);
        Arc::new(Caller { connection, called }).into()
    }
}

/// The numbers of connections that look again after a time that is the same for all, each with when that is. There are
/// at most as many as ask within that time, and a connection asks once for each body.
#[derive(Default)]
pub struct Later(VecDeque<(u64, u32)>);

impl Later {
    /// Adds a connection. The last to ask is the last to be due.
    pub fn add(&mut self, connection: u32, due_us: u64) {
        let _charged = charge::to_nobody();
        self.0.push_back((due_us, connection));
    }

    /// When the first connection is due.
    pub fn due_us(&self) -> Option<u64> {
        self.0.front().map(|(due_us, _)| *due_us)
    }

    /// Leaves a note for each connection that is due.
    pub fn wake(&mut self, now_us: u64, woken: &Woken) {
        let due = self.0.partition_point(|(due_us, _)| *due_us <= now_us);
        let due = self.0.drain(..due);
        due.for_each(|(_, connection)| woken.add(connection));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_is_remembered_past_a_turn_of_the_loop() {
        let woken = Woken::default();
        for (number, is_wasteful) in [(1, false), (2, true)] {
            let client = Client::at([192, 0, 2, number].into());
            woken.stand_behind(u32::from(number), Some(client), is_wasteful);
        }
        assert!(woken.next_behind().is_some() && woken.next_wasteful().is_some());
        woken.end_turn();
        assert!(woken.behind.borrow().is_forgotten() && woken.wasteful.borrow().is_forgotten());
    }
}
