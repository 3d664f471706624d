//! Each connection has a payer, and the allocator charges all that it allocates for the connection to that payer.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use stanchion_sys::charge::{self, Charged, Payer};
use tracing::error;

/// There are so many payers for each connection and stream: a connection that is gone may have left bytes behind, which a
/// worker still reads.
const PAYERS_EACH: usize = 2;
/// A search for a payer without bytes looks at so many.
const LOOKED_AT_MAX: usize = 8;

/// All payers.
#[derive(Default)]
pub struct Payers {
    max: u32,
    /// Connections have had payers 1 to this one so far.
    used: Cell<u32>,
    /// The payers of connections that are gone, in the order in which they went.
    idle: RefCell<VecDeque<Payer>>,
}

/// The payer of a connection. When this is dropped, another connection may have the payer.
pub struct Paying {
    payer: Payer,
    payers: Rc<Payers>,
}

impl Payers {
    /// Makes the payers of so many connections and streams.
    pub fn open(connections_max: usize, streams_max: usize) -> Rc<Self> {
        let needed = PAYERS_EACH * (connections_max + streams_max);
        let max = u32::try_from(needed).unwrap_or(u32::MAX);
        if !charge::open(max) {
            error!(
                "the acceptor does not count the memory of clients, and max_client_memory bounds nothing: our fault"
            );
        }
        Self::of(max)
    }

    fn of(max: u32) -> Rc<Self> {
        Rc::new(Self {
            max,
            ..Self::default()
        })
    }

    /// A payer for a connection.
    pub fn take(self: &Rc<Self>) -> Paying {
        Paying {
            payer: self.next(),
            payers: Rc::clone(self),
        }
    }

    fn next(&self) -> Payer {
        let mut idle = self.idle.borrow_mut();
        for _ in 0..LOOKED_AT_MAX.min(idle.len()) {
            let Some(payer) = idle.pop_front() else {
                break;
            };
            if payer.bytes() == 0 {
                return payer;
            }
            idle.push_back(payer);
        }
        let used = self.used.get();
        if used < self.max {
            self.used.set(used + 1);
            return Payer::new(used + 1);
        }
        // No connection pays for the bytes that another one has left behind.
        Payer::NOBODY
    }
}

impl Paying {
    /// The payer pays for all that is allocated until the guard is dropped.
    pub fn charged(&self) -> Charged {
        charge::to(self.payer)
    }

    /// The memory of the connection; 0 if no payer was left for it.
    pub fn bytes(&self) -> usize {
        if self.payer == Payer::NOBODY {
            return 0;
        }
        self.payer.bytes()
    }
}

impl Drop for Paying {
    fn drop(&mut self) {
        if self.payer != Payer::NOBODY {
            self.payers.idle.borrow_mut().push_back(self.payer);
        }
    }
}

/// For tests of payers, which all threads of a process share: one at a time.
#[cfg(debug_assertions)]
pub static IN_TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_has_a_payer_of_its_own_as_long_as_there_are_any() {
        let _in_turn = IN_TURN.lock();
        let payers = Payers::of(2);
        let [first, second, third] = [payers.take(), payers.take(), payers.take()];
        assert_eq!(first.payer, Payer::new(1));
        assert_eq!(second.payer, Payer::new(2));
        assert_eq!(third.payer, Payer::NOBODY);
        drop((third, second));
        assert_eq!(payers.take().payer, Payer::new(2));
        assert_eq!(Rc::new(Payers::default()).take().payer, Payer::NOBODY);
    }
}
