//! Closing a connection so that the client gets to read what it was told (RFC 9112 section 9.6).
//!
//! Closing a socket with bytes unread resets the connection (tcp(7), and unix(7) likewise), and
//! the reset can overtake the answer. So we close our direction first, and read what still comes
//! until the client has closed its own.

use std::time::Duration;

use bytes::Bytes;

use super::connection::{Connection, Phase, Step};
use super::transport::{Broken, Read};
use crate::acceptor::poller::Poller;
use crate::acceptor::requests::Requests;

/// A client that is still sending gets this long in all, must send something in each such while, and
/// may send this much. nginx has 30 s, 5 s and no bound (`lingering_time`, `lingering_timeout`).
pub(super) const LINGER: Duration = Duration::from_secs(10);
pub(super) const LINGER_PAUSE: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 64 << 20;
/// A client that has broken a rule of HTTP/2, or floods, may send no more than this behind the GOAWAY, which crosses what it has
/// under way (RFC 9113 section 5.4.1). Then the server resets the connection.
const FAULTY_BYTES_MAX: usize = 256 << 10;
/// Less than this wakes nobody: one that drips would be as much work as one that asks.
const WASTE_BYTES: u16 = 16 << 10;
/// How long writing a last word may take.
pub(super) const LAST_WORD: Duration = Duration::from_secs(1);

/// A connection that is seen out.
pub(super) struct Leaving {
    pub(super) since_us: u64,
    /// When something came last.
    pub(super) last_us: u64,
    /// What is still to be said.
    pub(super) last_word: Vec<u8>,
    /// Bytes that were thrown away, and how many may be.
    wasted: usize,
    wasted_max: usize,
    /// There were streams of HTTP/2 on it. Who reads their answers goes on saying so (RFC 9113 section 6.9), and if the
    /// socket is closed by then it is told by a reset, which overtakes what it has not got yet.
    had_streams: bool,
}

impl Connection {
    /// The last answer is out. Ends the connection, or waits until the client does where it may still be sending.
    pub(super) fn leave(&mut self, requests: &mut Requests) -> Step {
        if self.transport.is_stream() {
            // What its client still sends is between it and the connection.
            self.transport.end();
            return Step::Close;
        }
        let more = self.unread || !self.ahead.is_empty() || self.has_more(requests);
        if !more {
            // TLS has an end of its own, and may have to wait for room for it.
            if self.transport.is_bare() {
                return Step::Close;
            }
            self.transport.end();
            if !self.transport.has_unsent() {
                return Step::Close;
            }
        }
        self.say_last(&[], requests)
    }

    /// Says a last word, then throws away what still comes.
    pub(super) fn say_last(&mut self, word: &[u8], requests: &mut Requests) -> Step {
        let written = if word.is_empty() {
            0
        } else {
            match self.transport.write_last(word).len() {
                Ok(len) => len,
                Err(Broken) => return Step::Close,
            }
        };
        self.ahead = Bytes::new();
        let (had_streams, is_faulty) = match &self.phase {
            Phase::Carrying(carrier) => (true, carrier.is_faulty()),
            _ => (false, false),
        };
        let leaving = Leaving {
            since_us: requests.now_us,
            last_us: requests.now_us,
            last_word: word[written..].to_vec(),
            wasted: 0,
            wasted_max: if is_faulty {
                FAULTY_BYTES_MAX
            } else {
                LINGER_BYTES_MAX
            },
            had_streams,
        };
        if leaving.last_word.is_empty() {
            self.transport.end();
        }
        self.transport.wake_at(WASTE_BYTES);
        self.phase = Phase::Leaving(Box::new(leaving));
        Step::On
    }

    fn has_more(&mut self, requests: &mut Requests) -> bool {
        // Also if the kernel has told of nothing: it may be about to.
        let (read, wasted) = self.throw_away(requests);
        // A connection that has had its turn reads nothing, and so does not know.
        let is_unknown = !self.transport.is_bare() && self.transport.has_had_its_turn();
        matches!(read, Read::Bytes(_)) || wasted > 0 || is_unknown
    }

    /// Reads what has come, and throws it away. Gives how many bytes of the socket that were, too: they need not hold any
    /// plaintext.
    fn throw_away(&mut self, requests: &mut Requests) -> (Read, usize) {
        let before = self.transport.turn_bytes();
        let read = requests.with_scratch(|scratch, _| self.transport.read(scratch));
        (read, self.transport.turn_bytes() - before)
    }

    pub(super) fn see_out(&mut self, requests: &mut Requests, poller: &Poller) -> Step {
        let Phase::Leaving(leaving) = &mut self.phase else {
            return Step::On;
        };
        if !leaving.last_word.is_empty() {
            match self.transport.write(&leaving.last_word).len() {
                Ok(len) => drop(leaving.last_word.drain(..len)),
                Err(Broken) => return Step::Close,
            }
            if leaving.last_word.is_empty() {
                self.transport.end();
            }
            self.transport
                .watch_room(!leaving.last_word.is_empty(), poller);
        }
        if self.transport.is_stream() {
            return if leaving.last_word.is_empty() {
                Step::Close
            } else {
                Step::Wait
            };
        }
        let is_watched = leaving.had_streams || self.transport.has_unsent();
        let untaken = if is_watched {
            self.transport.untaken()
        } else {
            0
        };
        if untaken > 0 {
            let pace = requests.intake_pace();
            self.intake.stalled(pace, untaken, requests.now_us);
        } else if self.intake.is_stalled() {
            // Only from now on it is our end that is waited for, and then the client's.
            self.intake.wrote(0, requests.now_us);
            (leaving.since_us, leaving.last_us) = (requests.now_us, requests.now_us);
        }
        while self.transport.is_readable() {
            if self.transport.has_had_its_turn() {
                self.wake_later(requests);
                return Step::Wait;
            }
            let (read, wasted) = self.throw_away(requests);
            if matches!(read, Read::End | Read::Failed) {
                return Step::Close;
            }
            let Phase::Leaving(leaving) = &mut self.phase else {
                return Step::On;
            };
            if wasted > 0 {
                leaving.wasted += wasted;
                leaving.last_us = requests.now_us;
            }
            if leaving.wasted >= leaving.wasted_max {
                return Step::Close;
            }
        }
        Step::Wait
    }
}
