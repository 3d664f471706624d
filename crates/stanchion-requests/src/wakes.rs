//! Connections that have something to do, though the kernel has no news of them.

use std::rc::Rc;

use stanchion_dispatch::storage::woken::{Later, Woken};

/// The notes for connections that the loop has to drive.
#[derive(Default)]
pub struct Wakes {
    /// Clients' connections.
    pub clients: Rc<Woken>,
    /// Operators' connections.
    pub operators: Woken,
    /// Connections whose bodies have begun to come.
    pub later: Later,
}

impl Wakes {
    /// Leaves a note for each client's connection whose time has come.
    pub fn wake_due(&mut self, now_us: u64) {
        self.later.wake(now_us, &self.clients);
    }
}
