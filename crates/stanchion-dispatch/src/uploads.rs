//! Bodies that are still coming while their requests wait and run.

use stanchion_exchange::Corrupt;

use super::{Dispatch, Stage, Ticket};

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

impl Dispatch {
    /// Where the rest of a request's body can go.
    pub fn room_for(&mut self, ticket: &Ticket) -> Room {
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

    /// Hands the worker as many bytes as there was [`Room`] for, and the end of the body if they are the last.
    pub fn hand_over(&mut self, ticket: &Ticket, bytes: &[u8], is_last: bool) {
        let poured = if is_last {
            self.fetching(ticket, |side, slot| side.pour_last(slot, bytes))
        } else {
            self.pour(ticket, &[bytes.into()])
        };
        if poured.is_some_and(|poured| poured < bytes.len()) {
            self.distrust(ticket, Corrupt("the room for a body has become less"));
        }
    }
}
