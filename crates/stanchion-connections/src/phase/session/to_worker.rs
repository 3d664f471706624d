//! Messages on their way to the worker, from frames that the client has sent.

use bytes::Bytes;
use stanchion_exchange::MaskedBytes;
use stanchion_websocket::{Close, Event, Payload, UnreadBytes, code};

use super::Session;
use super::ending::End;
use super::inward::{Inward, MaskedPiece};
use super::unfinished::Unfinished;
use crate::link::ClientLink;
use crate::outcome::Read;
use crate::pace::body_pace;
use crate::turns::{Turns, WHOLE_BYTES};
use stanchion_dispatch::Dispatch;
use stanchion_dispatch::sessions::MessageTotals;
use stanchion_dispatch::storage::memory::Held;
use stanchion_dispatch::storage::message_memory::MessageMemory;
use stanchion_dispatch::ticket::Ticket;
use stanchion_generation::tally;
use stanchion_record::MessageForm;
use stanchion_requests::{Requests, Storage};
use stanchion_settings::Settings;

/// How many frames the connection begins before it looks how long its turn has lasted: tens of microseconds, if they are as
/// short as can be.
const FRAMES_AT_A_TIME: usize = 1_000;

/// Messages for the worker.
pub(super) struct ToWorker {
    /// The message for which the worker has had no room yet.
    pub(super) inward: Inward,
    /// The account of the client's bytes that are in memory.
    held: Held,
    pub(super) unfinished: Unfinished,
}

impl ToWorker {
    pub(super) fn new(memory: &MessageMemory) -> Self {
        Self {
            inward: Inward::default(),
            held: memory.held(),
            unfinished: Unfinished::default(),
        }
    }
}

impl Session {
    /// Reads from the client, as far as the worker has room for its messages. Gives how many bytes have come; `None` if the
    /// connection has ended.
    pub(super) fn read_from_client(
        &mut self,
        link: &mut ClientLink,
        requests: &mut Requests,
    ) -> Option<usize> {
        if !self.may_read() || self.ending.is_client_done {
            return Some(0);
        }
        let (transport, ahead, turns) = (&mut link.transport, &mut link.ahead, &mut link.turns);
        if !ahead.is_empty() || self.to_worker.inward.has_more_behind {
            return requests.with_scratch(|scratch, requests| {
                scratch.extend_from_slice(ahead);
                let left = self.take_frames(scratch, turns, requests);
                let len = ahead.len() - left;
                transport.add_to_turn(len);
                // The rest is copied, so that the bytes that are used up take no memory.
                if len > 0 {
                    *ahead = Bytes::copy_from_slice(&ahead[len..]);
                }
                // This counts as progress even if no byte was used up: an earlier one may have led to something.
                Some(len.max(1))
            });
        }
        if !transport.is_readable() {
            return Some(0);
        }
        requests.with_scratch(|scratch, requests| match transport.read(scratch) {
            Read::Bytes(len) => {
                let left = self.take_frames(scratch, turns, requests);
                *ahead = Bytes::copy_from_slice(&scratch[len - left..]);
                Some(len)
            }
            // Records without plaintext have used up the turn. The kernel need not report again what is still there
            // (epoll(7), EPOLLET), so this counts as progress: the caller then sees that the turn is over, and wakes the
            // connection later.
            Read::Nothing => Some(usize::from(transport.has_had_its_turn())),
            Read::End | Read::Failed => None,
        })
    }

    /// Whether the server reads from the client. It does not while the worker takes nothing. Nor does it read from a client
    /// that does not take its frames: such a client may ping without end.
    pub(super) fn may_read(&self) -> bool {
        self.to_client.pending.is_empty() && self.to_worker.inward.is_empty()
    }

    /// Takes frames of `bytes`, and `turns` counts what they carried. Gives how many bytes are left.
    fn take_frames(
        &mut self,
        bytes: &mut [u8],
        turns: &mut Turns,
        requests: &mut Requests,
    ) -> usize {
        let before = self.carried();
        let len = bytes.len();
        let left = self.came(UnreadBytes::at_most(bytes, FRAMES_AT_A_TIME), requests);
        let after = self.carried();
        turns.count(
            (len - left) as u64,
            after.bytes.saturating_sub(before.bytes),
            (after.count - before.count) * WHOLE_BYTES,
            requests.now_us,
        );
        left
    }

    /// The messages that the client has sent, and their bytes with those of a message that is not whole.
    fn carried(&self) -> MessageTotals {
        let whole = self.facts.received;
        MessageTotals {
            bytes: whole.bytes + self.socket.unfinished_bytes() as u64,
            ..whole
        }
    }

    /// Takes bytes of the client. Gives how many are left, for when the worker has room or more frames may be begun.
    pub(crate) fn came(&mut self, mut left: UnreadBytes<'_>, requests: &mut Requests) -> usize {
        let now_us = requests.now_us;
        self.to_worker.inward.has_more_behind = true;
        while self.to_worker.inward.is_empty() {
            let Some(event) = self.socket.next(&mut left) else {
                self.to_worker.inward.has_more_behind = false;
                break;
            };
            match event {
                Event::Message(form, message) => {
                    self.to_worker.unfinished.end();
                    if !self.ending.is_closed() {
                        self.facts.received.add(message.len());
                        requests
                            .common
                            .tally
                            .happened(tally::Event::SessionReceived);
                        self.hand_over(form, message, &mut requests.dispatch);
                    }
                }
                Event::Pong => self.pings.answered(&requests.common.settings, now_us),
                Event::Acknowledged => self.ending.is_client_done = true,
                Event::Closed(close) => {
                    self.ending.is_client_done = true;
                    self.close(End::ByClient, &close, now_us);
                }
                Event::Failed(close) => {
                    self.ending.is_client_done = true;
                    self.close(End::ForClient, &close, now_us);
                }
            }
            self.give_to_worker(&mut requests.dispatch);
        }
        left.len()
    }

    /// Hands the worker a message of the client: as much of its first piece as finds room goes from where it was read.
    fn hand_over(&mut self, form: MessageForm, message: Payload<'_>, dispatch: &mut Dispatch) {
        if self.ending.is_worker_done {
            return;
        }
        let ticket = &self.ticket;
        let inward = &mut self.to_worker.inward;
        inward.put(form, message, |pieces| pour(ticket, pieces, dispatch));
    }

    /// Gives the worker as many bytes as it has room for, and returns how many these were.
    pub(super) fn give_to_worker(&mut self, dispatch: &mut Dispatch) -> usize {
        let inward = &mut self.to_worker.inward;
        if self.ending.is_worker_done {
            inward.clear();
        }
        // If the slot makes no sense, or is gone, the next read from the worker shows it.
        inward.pour(|pieces| pour(&self.ticket, pieces, dispatch))
    }

    /// Counts the client's bytes that are in memory, `ahead` of them not parsed yet. If all clients together may not have so
    /// many, closes the session.
    pub(super) fn count(
        &mut self,
        ahead: usize,
        settings: &Settings,
        storage: &Storage,
        now_us: u64,
    ) {
        let (came, held) = (self.socket.unfinished_bytes(), self.socket.held_bytes());
        let reads = self.may_read();
        let to_worker = &mut self.to_worker;
        let unfinished = &mut to_worker.unfinished;
        unfinished.has(came, held, body_pace(settings), now_us);
        unfinished.waits(reads, now_us);
        let bytes = held + to_worker.inward.held_bytes() + ahead;
        let messages = &storage.messages;
        // A session that is closed already is not closed again.
        if !messages.hold(&mut to_worker.held, bytes, now_us) && !self.ending.is_closed() {
            let close = Close::new(code::TRY_LATER, "no memory is left for messages");
            self.close(End::ForMemory, &close, now_us);
        }
    }
}

/// Hands pieces to the worker, and takes masks off them on the way.
fn pour(ticket: &Ticket, pieces: [MaskedPiece<'_>; 2], dispatch: &mut Dispatch) -> Option<usize> {
    let parts = pieces.map(|(bytes, mask)| MaskedBytes::new(bytes, mask));
    dispatch.slots.pour(ticket, &parts)
}
