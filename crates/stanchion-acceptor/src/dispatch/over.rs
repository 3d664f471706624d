//! A request that is over, as the acceptor hands it to the observers.

use std::rc::Rc;

use super::ticket::Ticket;
use stanchion_generation::tally::Outcome;

/// One request at its end, with the facts that observers record.
pub(crate) struct Over {
    pub ticket: Rc<Ticket>,
    pub status: u16,
    pub outcome: Outcome,
    /// The head of the answer in wire form, as it was sent; empty if there was none.
    pub head: Vec<u8>,
    /// Bytes of the body that the connection took.
    pub bytes: u64,
    pub now_us: u64,
}
