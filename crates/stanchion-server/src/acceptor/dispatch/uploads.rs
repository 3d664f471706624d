//! Bodies that are still coming while their requests wait and run.

use stanchion_exchange::Corrupt;

use super::{Dispatch, Stage, Ticket};

/// Where the rest of a body can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// So many bytes to its worker.
    Bytes(usize),
    /// Nowhere now; the connection is woken when there is room.
    Nothing,
    /// Nobody wants it any more.
    Over,
}

impl Dispatch {
    /// Where the rest of a request's body can go.
    pub(crate) fn room_for(&mut self, ticket: &Ticket) -> Room {
        let room = match ticket.stage.get() {
            Stage::Over => return Room::Over,
            Stage::New | Stage::Waiting(_) => None,
            Stage::Submitted(_) => {
                match self.fetching(ticket, |side, slot| Ok(side.await_inflow_room(slot))) {
                    Some(room) => room,
                    None => return Room::Over,
                }
            }
        };
        ticket.wants_room.set(room.is_none());
        room.map_or(Room::Nothing, Room::Bytes)
    }

    /// Hands on as much as there was [`Room`] for; with the end of the body, if it is the last.
    pub(crate) fn hand_over(&mut self, ticket: &Ticket, bytes: &[u8], is_last: bool) {
        let poured = if is_last {
            self.fetching(ticket, |side, slot| side.pour_last(slot, bytes))
        } else {
            self.pour(ticket, &[bytes.into()])
        };
        if poured.is_some_and(|poured| poured < bytes.len()) {
            self.distrust(ticket, Corrupt("room for a body has become less"));
        }
    }
}
