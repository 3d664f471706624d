//! A request that is over, as the acceptor hands it to the observers.

use std::rc::Rc;

use super::ticket::Ticket;
use stanchion_generation::tally::Outcome;

/// One request at its end, with the facts that observers record.
pub struct Over {
    /// The request, and how it went.
    pub ticket: Rc<Ticket>,
    /// The status of the answer.
    pub status: u16,
    /// How the request ended, for the counts.
    pub outcome: Outcome,
    /// The head of the answer in wire form, as it was sent; empty if there was none.
    pub head: Vec<u8>,
    /// Bytes of the body that the connection took.
    pub bytes: u64,
    /// When it ended.
    pub now_us: u64,
}
