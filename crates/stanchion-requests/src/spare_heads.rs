//! The acceptor keeps the memory of heads for the next ones.

use std::rc::Rc;

use stanchion_http::Head;
use stanchion_sys::charge;

use stanchion_dispatch::ticket::Ticket;

/// At most so many heads are kept, each of this length at most.
const HEADS_MAX: usize = 64;
const HEAD_BYTES_MAX: usize = 32 << 10;

/// Heads of requests that are over.
#[derive(Default)]
pub struct SpareHeads(Vec<Head>);

impl SpareHeads {
    /// An empty head, with the memory of one before it if there is any.
    pub fn take(&mut self) -> Head {
        let mut head = self.0.pop().unwrap_or_default();
        let (bytes, fields) = head.buffers();
        charge::take_over(bytes);
        charge::take_over(fields);
        head
    }

    /// Keeps the head of a request that is over, so that its memory serves the next one, unless something else still
    /// has the ticket.
    pub fn keep(&mut self, ticket: Rc<Ticket>) {
        if let Ok(ticket) = Rc::try_unwrap(ticket)
            && self.0.len() < HEADS_MAX
            && ticket.request.head.bytes().len() <= HEAD_BYTES_MAX
        {
            let mut head = ticket.request.head;
            head.clear();
            let (bytes, fields) = head.buffers();
            charge::give_back(bytes);
            charge::give_back(fields);
            let _charged = charge::to_nobody();
            self.0.push(head);
        }
    }
}
