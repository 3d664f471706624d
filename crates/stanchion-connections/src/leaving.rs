//! Closes a connection so that the client gets to read the answer (RFC 9112 section 9.6).
//!
//! If a socket is closed with bytes unread, the kernel resets the connection (tcp(7); unix(7) does the same), and the reset
//! can overtake the answer. So the server closes its own direction first, and reads what still comes until the client has
//! closed the other.
//!
//! The last answer of a TCP connection, if it is small, goes out in one segment with the FIN (`MSG_MORE` in send(2),
//! then shutdown(2)): a FIN of its own would be another packet and wake the client again. Then the acceptor tries to
//! read once, and closes the connection if nothing has come.

use std::time::Duration;

use bytes::Bytes;

use super::connection::{Connection, Phase, Step};
use super::pace::intake_pace;
use super::transport::{Broken, Read};
use crate::poller::Poller;
use stanchion_requests::Requests;

/// How long a client that is still sending gets in all, how long it may pause meanwhile, and how many bytes it may send.
/// nginx has 30 s, 5 s and no bound (`lingering_time`, `lingering_timeout`).
pub(super) const LINGER: Duration = Duration::from_secs(10);
pub(super) const LINGER_PAUSE: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 64 << 20;
/// How many bytes a client that has broken a rule of HTTP/2, or floods, may send behind the GOAWAY, which crosses what it
/// has under way (RFC 9113 section 5.4.1). Then the server resets the connection.
const FAULTY_BYTES_MAX: usize = 256 << 10;
/// Fewer bytes than this do not wake the connection: a client that drips would be as much work as one that asks.
const WASTE_BYTES: u16 = 16 << 10;
/// How long the server tries to write a last word.
pub(super) const LAST_WORD: Duration = Duration::from_secs(1);

/// A connection whose last answer is out.
pub(super) struct Leaving {
    pub(super) since_us: u64,
    /// When the client last sent something.
    pub(super) last_us: u64,
    /// Bytes that the server still has to write.
    pub(super) last_word: Vec<u8>,
    /// How many bytes the server has discarded, and how many it may.
    wasted: usize,
    wasted_max: usize,
    /// The connection had HTTP/2 streams. A client that reads their answers goes on sending `WINDOW_UPDATE` (RFC 9113 section
    /// 6.9). If the socket is closed by then, the kernel answers that with a reset, which overtakes the rest of the answers.
    had_streams: bool,
}

impl Connection {
    /// Ends the connection after the last answer. If the client may still be sending, waits until it has ended, too.
    pub(super) fn leave(&mut self, requests: &mut Requests) -> Step {
        if self.transport.is_stream() {
            // The HTTP/2 connection deals with what the client still sends on the stream.
            self.transport.end();
            return Step::Close;
        }
        let more = self.unread || !self.ahead.is_empty() || self.has_more(requests);
        if !more {
            // TLS has an end of its own, which may have to wait for room.
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

    /// Writes a last word, then discards what still comes.
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
        // This reads even if the kernel has reported nothing: it may be about to.
        let (read, wasted) = self.throw_away(requests);
        // A connection that has used up its turn reads nothing, and so does not know.
        let is_unknown = !self.transport.is_bare() && self.transport.has_had_its_turn();
        matches!(read, Read::Bytes(_)) || wasted > 0 || is_unknown
    }

    /// Reads what has come, and discards it. Also gives how many bytes of the socket that took: they need not hold any
    /// plaintext.
    fn throw_away(&mut self, requests: &mut Requests) -> (Read, usize) {
        let before = self.transport.turn_bytes();
        let read = requests
            .buffers
            .with_scratch(|scratch| self.transport.read(scratch));
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
            let pace = intake_pace(&requests.common.settings);
            self.intake.stalled(pace, untaken, requests.now_us);
        } else if self.intake.is_stalled() {
            // The client has read everything only now, so its time for the end begins now.
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
