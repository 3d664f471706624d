//! A request that is over, as the acceptor hands it to the observers.

use std::rc::Rc;

use super::ticket::Ticket;
use crate::tally::Outcome;

/// One request at its end, with the facts that observers record.
pub(crate) struct Over {
    pub(crate) ticket: Rc<Ticket>,
    pub(crate) status: u16,
    pub(crate) outcome: Outcome,
    /// The head of the answer in wire form, as it was sent; empty if there was none.
    pub(crate) head: Vec<u8>,
    /// Bytes of the body that the connection took.
    pub(crate) bytes: u64,
    pub(crate) now_us: u64,
}
