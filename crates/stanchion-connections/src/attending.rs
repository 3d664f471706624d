//! A connection whose request has become a WebSocket: it reads the client's frames, and writes what the worker sends.
//!
//! When the app accepts a WebSocket, the seat takes another request, and the slot stays with the session. The
//! connection reads the frames, so pings, closing, fragments and limits need no worker. Whole messages cross the
//! exchange in both directions, each behind its kind and length (`stanchion_record`): to the worker through the slot's
//! inflow, back through the response ring. While either is full its sender waits: the acceptor reads the socket no
//! further, or `send()` of the app waits.

use bytes::Bytes;
use stanchion_websocket::Came;

use super::connection::{Connection, Phase, Step};
use super::pace::intake_pace;
use super::session::Session;
use super::transport::{Read, Written};
use super::turns::{Turns, WHOLE_BYTES};
use crate::poller::Poller;
use stanchion_requests::Requests;

/// How many frames the connection begins before it looks how long its turn has lasted: tens of microseconds, if they are as
/// short as can be.
const FRAMES_AT_A_TIME: usize = 1_000;

impl Connection {
    /// Goes on with a WebSocket.
    pub(super) fn attend(&mut self, requests: &mut Requests, poller: &Poller) -> Step {
        if let Phase::Session(session) = &mut self.phase {
            session.ticket.seen();
            session.retire(self.number, requests);
        }
        loop {
            let Phase::Session(session) = &mut self.phase else {
                return Step::On;
            };
            let written = session.say(&mut self.transport, requests);
            let passed_on = session.pass_on(requests);
            self.transport.add_to_turn(passed_on);
            session.count(self.ahead.len(), requests);
            if let Some(written) = written {
                match written {
                    Written::Bytes(len) => {
                        self.intake.wrote(len.get(), requests.now_us);
                        if !session.pending.is_empty() {
                            if self.transport.has_had_its_turn() {
                                self.wake_later(requests);
                                return Step::Wait;
                            }
                            // With EPOLLET the kernel reports room only after it has reported that there is none (epoll(7)).
                            continue;
                        }
                    }
                    Written::Full => {
                        let untaken = self.transport.untaken();
                        let pace = intake_pace(&requests.common.settings);
                        self.intake.stalled(pace, untaken, requests.now_us);
                        self.transport.watch_room(true, poller);
                    }
                    Written::Failed => return self.lose(requests),
                }
            }
            if session.pending.is_empty() {
                self.transport.watch_room(false, poller);
                if session.is_over(requests.now_us) {
                    return self.end_session(requests);
                }
            } else if requests.now_us >= session.closed_by_us {
                return self.lose(requests);
            }
            let Some(progress) = self.hear(requests) else {
                return self.lose(requests);
            };
            let Phase::Session(session) = &mut self.phase else {
                return Step::On;
            };
            let has_more =
                session.inward.goes_on() || session.has_more_to_say(&self.transport, requests);
            if progress == 0 && !has_more {
                if self.transport.is_hung_up() {
                    return self.lose(requests);
                }
                if session.tick(&self.transport, requests) {
                    continue;
                }
                return Step::Wait;
            }
            if self.transport.has_had_its_turn() {
                self.wake_later(requests);
                return Step::Wait;
            }
        }
    }

    /// Reads from the client, as far as the worker has room for its messages. Gives how many bytes have come; `None` if the
    /// connection has ended.
    fn hear(&mut self, requests: &mut Requests) -> Option<usize> {
        let Phase::Session(session) = &mut self.phase else {
            return Some(0);
        };
        if !session.hears() || session.is_client_done {
            return Some(0);
        }
        let (transport, ahead, turns) = (&mut self.transport, &mut self.ahead, &mut self.turns);
        if !ahead.is_empty() || session.inward.has_more_behind {
            return requests.with_scratch(|scratch, requests| {
                scratch.extend_from_slice(ahead);
                let left = came(session, scratch, turns, requests);
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
                let left = came(session, scratch, turns, requests);
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

    /// The connection has ended without a close frame, or its client reads none.
    fn lose(&mut self, requests: &mut Requests) -> Step {
        self.abandon(requests);
        Step::Close
    }

    fn end_session(&mut self, requests: &mut Requests) -> Step {
        let Phase::Session(session) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return Step::Close;
        };
        session.over(requests);
        // The server closes the connection first (RFC 6455 section 7.1.1), once the client has read all.
        self.unread = true;
        self.leave(requests)
    }
}

/// The session takes frames of `bytes`, and `turns` counts what they carried. Gives how many bytes are left.
fn came(
    session: &mut Session,
    bytes: &mut [u8],
    turns: &mut Turns,
    requests: &mut Requests,
) -> usize {
    let before = Carried::by(session);
    let len = bytes.len();
    let left = session.came(Came::at_most(bytes, FRAMES_AT_A_TIME), requests);
    let after = Carried::by(session);
    turns.count(
        (len - left) as u64,
        after.bytes.saturating_sub(before.bytes),
        (after.messages - before.messages) * WHOLE_BYTES,
        requests.now_us,
    );
    left
}

/// The messages and bytes that a client has sent in a session.
struct Carried {
    messages: u64,
    bytes: u64,
}

impl Carried {
    fn by(session: &Session) -> Self {
        let whole = session.facts.received;
        Self {
            messages: whole.count,
            bytes: whole.bytes + session.socket.unfinished_bytes() as u64,
        }
    }
}
