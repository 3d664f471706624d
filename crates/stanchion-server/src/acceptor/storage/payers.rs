//! Each connection has a payer, and the allocator charges all that it allocates for the connection to that payer.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use stanchion_sys::charge::{self, Charged, Payer};
use tracing::warn;

/// There are so many payers for each connection and stream: a connection that is gone may have left bytes behind, which a
/// worker still reads.
const PAYERS_EACH: usize = 2;
/// A search for a payer without bytes looks at so many.
const LOOKED_AT_MAX: usize = 8;

/// All payers.
#[derive(Default)]
pub(crate) struct Payers {
    max: u32,
    /// So many were ever needed.
    used: Cell<u32>,
    /// The payers of connections that are gone, in the order in which they went.
    idle: RefCell<VecDeque<Payer>>,
}

/// A connection's payer, which is another one's when this is dropped.
pub(crate) struct MemoryAccount {
    payer: Payer,
    payers: Rc<Payers>,
}

impl Payers {
    /// For so many connections, and as many streams of theirs.
    pub(crate) fn open(connections_max: usize) -> Rc<Self> {
        let max = u32::try_from(2 * PAYERS_EACH * connections_max).unwrap_or(u32::MAX);
        let max = if charge::open(max) {
            max
        } else {
            warn!(
                "the memory of clients is not counted, and max_client_memory bounds nothing: our fault"
            );
            0
        };
        Rc::new(Self {
            max,
            ..Self::default()
        })
    }

    /// An account for a connection.
    pub(crate) fn account(self: &Rc<Self>) -> MemoryAccount {
        MemoryAccount {
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
        // There are more left-overs than connections.
        idle.pop_front().unwrap_or(Payer::NOBODY)
    }
}

impl MemoryAccount {
    /// The account pays for all that is allocated until the guard is dropped.
    pub(crate) fn charged(&self) -> Charged {
        charge::to(self.payer)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.payer.bytes()
    }
}

impl Drop for MemoryAccount {
    fn drop(&mut self) {
        if self.payer != Payer::NOBODY {
            self.payers.idle.borrow_mut().push_back(self.payer);
        }
    }
}
