//! The names by which connections still call the parts of the dispatch.

use std::io;
use std::os::fd::BorrowedFd;

use stanchion_exchange::{Corrupt, Part};

use super::Dispatch;
use crate::outflow::Fetchable;
use crate::slots::Room;
use crate::ticket::Ticket;

impl Dispatch {
    /// [`crate::spare_buffers::SpareBuffers::take`].
    pub fn spare(&mut self) -> Vec<u8> {
        self.buffers.take()
    }

    /// [`crate::spare_buffers::SpareBuffers::keep`].
    pub fn recycle(&mut self, bytes: Vec<u8>) {
        self.buffers.keep(bytes);
    }

    /// [`crate::slots::SlotTable::has_seat`].
    pub fn has_seat(&self, ticket: &Ticket) -> bool {
        self.slots.has_seat(ticket)
    }

    /// [`crate::slots::SlotTable::room_for`].
    pub fn room_for(&mut self, ticket: &Ticket) -> Room {
        self.slots.room_for(ticket)
    }

    /// [`crate::slots::SlotTable::hand_over`].
    pub fn hand_over(&mut self, ticket: &Ticket, bytes: &[u8], is_last: bool) {
        self.slots.hand_over(ticket, bytes, is_last);
    }

    /// [`crate::slots::SlotTable::pour`].
    pub fn pour(&mut self, ticket: &Ticket, parts: &[Part<'_>]) -> Option<usize> {
        self.slots.pour(ticket, parts)
    }

    /// [`crate::slots::SlotTable::messages_len`].
    pub fn messages_len(&mut self, ticket: &Ticket) -> usize {
        self.slots.messages_len(ticket)
    }

    /// [`crate::slots::SlotTable::take_messages`].
    pub fn take_messages(&mut self, ticket: &Ticket, max: usize, out: &mut Vec<u8>) -> usize {
        self.slots.take_messages(ticket, max, out)
    }

    /// [`crate::slots::SlotTable::fetchable`].
    pub fn fetchable(&mut self, ticket: &Ticket) -> Fetchable {
        self.slots.fetchable(ticket)
    }

    /// [`crate::slots::SlotTable::send`].
    pub fn send(
        &mut self,
        ticket: &Ticket,
        len: usize,
        socket: BorrowedFd<'_>,
        around: (&[&[u8]], &[u8]),
        left: &mut Vec<u8>,
    ) -> Option<io::Result<usize>> {
        self.slots.send(ticket, len, socket, around, left)
    }

    /// [`crate::slots::SlotTable::distrust`].
    pub fn distrust(&mut self, ticket: &Ticket, corrupt: Corrupt) {
        self.slots.distrust(ticket, corrupt);
    }
}
