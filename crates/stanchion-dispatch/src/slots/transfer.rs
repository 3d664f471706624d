//! Bodies and messages between a connection and the worker that has its request.

use std::io;
use std::os::fd::BorrowedFd;

use stanchion_exchange::{AcceptorSide, AnswerEnd, Corrupt, MaskedBytes, SlotState, Submitted};

use super::SlotTable;
use crate::outflow::Fetchable;
use crate::ticket::Ticket;

/// Where the rest of a body can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// So many bytes can go to the worker.
    Bytes(usize),
    /// It can go nowhere now; the dispatch wakes the connection when there is room.
    Nothing,
    /// The request is over, and its worker takes nothing more.
    Over,
}

impl SlotTable {
    /// Whether a seat has this request.
    pub fn has_seat(&self, ticket: &Ticket) -> bool {
        let state = ticket.submitted().map(|at| self.side.state(at.slot));
        matches!(state, Some(Ok(SlotState::Running { .. })))
    }

    /// Where the rest of a request's body can go.
    pub fn room_for(&mut self, ticket: &Ticket) -> Room {
        if ticket.is_over() {
            return Room::Over;
        }
        let mut room = None;
        if ticket.submitted().is_some() {
            match self.with_slot(ticket, |side, slot| Ok(side.await_inflow_room(slot))) {
                Some(found) => room = found,
                None => return Room::Over,
            }
        }
        ticket.wants_room(room.is_none());
        room.map_or(Room::Nothing, Room::Bytes)
    }

    /// Hands the worker as many bytes as there was [`Room`] for, and the end of the body if they are the last.
    pub fn hand_over(&mut self, ticket: &Ticket, bytes: &[u8], is_last: bool) {
        let poured = if is_last {
            self.with_slot(ticket, |side, slot| side.pour_last(slot, bytes))
        } else {
            self.pour(ticket, &[bytes.into()])
        };
        if poured.is_some_and(|poured| poured < bytes.len()) {
            self.distrust(ticket, Corrupt("the room for a body has become less"));
        }
    }

    /// Hands what a client has sent to its worker, one part after the other, as far as there is room, and gives how
    /// many bytes that were. If it was not all, the dispatch wakes the connection when there is room. `None` if the
    /// worker takes nothing any more.
    pub fn pour(&mut self, ticket: &Ticket, parts: &[MaskedBytes<'_>]) -> Option<usize> {
        let all: usize = parts.iter().map(MaskedBytes::len).sum();
        let poured = self.with_slot(ticket, |side, slot| side.pour(slot, parts))?;
        ticket.wants_room(poured < all);
        Some(poured)
    }

    /// How many bytes of messages the worker has written that the connection has not taken.
    pub fn messages_len(&mut self, ticket: &Ticket) -> usize {
        self.with_slot(ticket, |side, slot| side.readable(slot))
            .unwrap_or(0)
    }

    /// Takes up to `max` bytes of messages that the worker has written.
    pub fn take_messages(&mut self, ticket: &Ticket, max: usize, out: &mut Vec<u8>) -> usize {
        let taken = self.with_slot(ticket, |side, slot| side.read(slot, max, out));
        taken.unwrap_or(0)
    }

    /// How much of a body the connection may send from the exchange now: what the worker has written, but no more than
    /// the outflow has room for, since that keeps what the client does not take. Only for a connection that fetches:
    /// [`crate::outflow::Outflow::fetches`].
    pub fn fetchable(&mut self, ticket: &Ticket) -> Fetchable {
        let room = ticket.outflow(|outflow| outflow.room()).unwrap_or(0);
        let found = self.with_slot(ticket, |side, slot| {
            // The state is read before the length: no seat writes to a slot that is done. A slot that makes no sense
            // has nothing to send.
            let state = side.state(slot)?;
            let readable = side.readable(slot)?;
            Ok(Fetchable {
                len: readable.min(room),
                is_last: is_whole(state) && readable <= room,
            })
        });
        found.unwrap_or_default()
    }

    /// Sends `len` bytes of a body from the exchange over `socket`, with the bytes `before` in front of them and
    /// `after` behind. Gives how many bytes the kernel took of all, and appends to `left` the bytes of the body that it
    /// did not take. `None` if the slot makes no sense any more.
    pub fn send(
        &mut self,
        ticket: &Ticket,
        len: usize,
        socket: BorrowedFd<'_>,
        (before, after): (&[&[u8]], &[u8]),
        left: &mut Vec<u8>,
    ) -> Option<io::Result<usize>> {
        self.with_slot(ticket, |side, slot| {
            let owed = ticket.owed_after(len)?;
            let sent = side.send(slot, len, socket, before, after, left)?;
            if sent.is_ok() {
                ticket.fetched(len, owed);
            }
            Ok(sent)
        })
    }

    /// Poisons the slot of a request in which a worker has written nonsense: the master replaces the worker.
    pub fn distrust(&mut self, ticket: &Ticket, corrupt: Corrupt) {
        if let Some(Submitted { slot, .. }) = ticket.submitted() {
            self.poison(slot, ticket, corrupt);
        }
    }

    /// Lets `act` use the slot of a request. If the slot makes no sense, it is poisoned, and the result is `None`.
    fn with_slot<T>(
        &mut self,
        ticket: &Ticket,
        act: impl FnOnce(&mut AcceptorSide<'_>, u32) -> Result<T, Corrupt>,
    ) -> Option<T> {
        let Submitted { slot, .. } = ticket.submitted()?;
        if self.is_poisoned(slot) {
            return None;
        }
        let seen = act(&mut self.side, slot);
        seen.map_err(|corrupt| self.poison(slot, ticket, corrupt))
            .ok()
    }
}

/// Whether a seat has written all of an answer.
pub(crate) fn is_whole(state: SlotState) -> bool {
    matches!(
        state,
        SlotState::Done {
            ending: Some(AnswerEnd::Complete),
            ..
        }
    )
}
