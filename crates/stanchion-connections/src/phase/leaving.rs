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

use super::{Phase, Step};
use crate::audience::Audience;
use crate::judgement::Judgement;
use crate::link::ClientLink;
use crate::outcome::{Broken, Read};
use crate::pace::{after, intake_pace};
use crate::poller::Poller;
use stanchion_dispatch::refusal::Refusal;
use stanchion_requests::head::Told;
use stanchion_requests::{Buffers, Requests};

/// How long a client that is still sending gets in all, how long it may pause meanwhile, and how many bytes it may send.
/// nginx has 30 s, 5 s and no bound (`lingering_time`, `lingering_timeout`).
pub(crate) const LINGER: Duration = Duration::from_secs(10);
pub(crate) const LINGER_PAUSE: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 64 << 20;
/// How many bytes a client that has broken a rule of HTTP/2, or floods, may send behind the GOAWAY, which crosses what it
/// has under way (RFC 9113 section 5.4.1). Then the server resets the connection.
const FAULTY_BYTES_MAX: usize = 256 << 10;
/// Fewer bytes than this do not wake the connection: a client that drips would be as much work as one that asks.
const WASTE_BYTES: u16 = 16 << 10;
/// How long the server tries to write a last word.
pub(crate) const LAST_WORD: Duration = Duration::from_secs(1);

/// A connection whose last answer is out.
pub(crate) struct Leaving {
    pub(super) since_us: u64,
    /// When the client last sent something.
    pub(super) last_us: u64,
    /// Bytes that the server still has to write.
    last_word: Vec<u8>,
    /// How many bytes the server has discarded, and how many it may.
    wasted: usize,
    wasted_max: usize,
    /// The connection had HTTP/2 streams. A client that reads their answers goes on sending `WINDOW_UPDATE` (RFC 9113 section
    /// 6.9). If the socket is closed by then, the kernel answers that with a reset, which overtakes the rest of the answers.
    had_streams: bool,
}

/// Ends the connection after the last answer. If the client may still be sending, waits until it has ended, too.
pub(crate) fn leave(link: &mut ClientLink, buffers: &mut Buffers, now_us: u64) -> Step {
    if link.transport.is_stream() {
        // The HTTP/2 connection deals with what the client still sends on the stream.
        link.transport.end();
        return Step::Close;
    }
    let more = link.unread || !link.ahead.is_empty() || has_more(link, buffers);
    if !more {
        // TLS has an end of its own, which may have to wait for room.
        if link.transport.is_bare() {
            return Step::Close;
        }
        link.transport.end();
        if !link.transport.has_unsent() {
            return Step::Close;
        }
    }
    end(link, now_us)
}

/// Writes a last word, then discards what still comes.
fn write_last_word(link: &mut ClientLink, word: &[u8], now_us: u64) -> Step {
    match link.transport.write_last(word).len() {
        Ok(written) => linger(link, Leaving::new(word[written..].to_vec(), now_us)),
        Err(Broken) => Step::Close,
    }
}

/// Ends a connection to which nothing more is to be said, and discards what still comes.
pub(super) fn end(link: &mut ClientLink, now_us: u64) -> Step {
    linger(link, Leaving::new(Vec::new(), now_us))
}

/// The same for a connection that had HTTP/2 streams, whose client may be faulty.
pub(super) fn end_streams(link: &mut ClientLink, is_faulty: bool, now_us: u64) -> Step {
    let mut leaving = Leaving::new(Vec::new(), now_us);
    leaving.had_streams = true;
    if is_faulty {
        leaving.wasted_max = FAULTY_BYTES_MAX;
    }
    linger(link, leaving)
}

/// Refuses a request of which no head was read: the client gets the refusal, and the connection ends.
pub(crate) fn refuse_unread(
    link: &mut ClientLink,
    refusal: Refusal,
    requests: &mut Requests,
) -> Step {
    let now_us = requests.now_us;
    if link.audience == Audience::Clients {
        let address = &link.peer.address;
        requests.record.refused_unread(refusal, address, now_us);
    }
    let heads = &mut requests.answer_heads;
    let mut out = heads.take_out();
    let reply = refusal.reply(false);
    heads.compose_reply(&mut out, &reply, false, false, Told::default());
    out.extend_from_slice(&reply.body);
    let step = write_last_word(link, &out, now_us);
    heads.give_out(out);
    step
}

fn linger(link: &mut ClientLink, leaving: Leaving) -> Step {
    link.ahead = Bytes::new();
    if leaving.last_word.is_empty() {
        link.transport.end();
    }
    link.transport.wake_at(WASTE_BYTES);
    Step::On(Phase::Leaving(Box::new(leaving)))
}

fn has_more(link: &mut ClientLink, buffers: &mut Buffers) -> bool {
    // This reads even if the kernel has reported nothing: it may be about to.
    let (read, wasted) = throw_away(link, buffers);
    // A connection that has used up its turn reads nothing, and so does not know.
    let is_unknown = !link.transport.is_bare() && link.transport.has_had_its_turn();
    matches!(read, Read::Bytes(_)) || wasted > 0 || is_unknown
}

/// Reads what has come, and discards it. Also gives how many bytes of the socket that took: they need not hold any
/// plaintext.
fn throw_away(link: &mut ClientLink, buffers: &mut Buffers) -> (Read, usize) {
    let before = link.transport.turn_bytes();
    let read = buffers.with_scratch(|scratch| link.transport.read(scratch));
    (read, link.transport.turn_bytes() - before)
}

impl Leaving {
    fn new(last_word: Vec<u8>, now_us: u64) -> Self {
        Self {
            since_us: now_us,
            last_us: now_us,
            last_word,
            wasted: 0,
            wasted_max: LINGER_BYTES_MAX,
            had_streams: false,
        }
    }

    /// Writes the rest of the last word, and discards what comes.
    pub(super) fn go_on(
        mut self: Box<Self>,
        link: &mut ClientLink,
        requests: &mut Requests,
        poller: &Poller,
    ) -> Step {
        let now_us = requests.now_us;
        if !self.last_word.is_empty() {
            match link.transport.write(&self.last_word).len() {
                Ok(len) => drop(self.last_word.drain(..len)),
                Err(Broken) => return Step::Close,
            }
            if self.last_word.is_empty() {
                link.transport.end();
            }
            link.transport
                .watch_room(!self.last_word.is_empty(), poller);
        }
        if link.transport.is_stream() {
            return if self.last_word.is_empty() {
                Step::Close
            } else {
                Step::Wait(Phase::Leaving(self))
            };
        }
        let is_watched = self.had_streams || link.transport.has_unsent();
        let untaken = if is_watched {
            link.transport.untaken()
        } else {
            0
        };
        if untaken > 0 {
            let pace = intake_pace(&requests.common.settings);
            link.intake.stalled(pace, untaken, now_us);
        } else if link.intake.is_stalled() {
            // The client has read everything only now, so its time for the end begins now.
            link.intake.wrote(0, now_us);
            (self.since_us, self.last_us) = (now_us, now_us);
        }
        while link.transport.is_readable() {
            if link.transport.has_had_its_turn() {
                link.wake_later(&requests.wakes, now_us);
                break;
            }
            let (read, wasted) = throw_away(link, &mut requests.buffers);
            if matches!(read, Read::End | Read::Failed) {
                return Step::Close;
            }
            if wasted > 0 {
                self.wasted += wasted;
                self.last_us = now_us;
            }
            if self.wasted >= self.wasted_max {
                return Step::Close;
            }
        }
        Step::Wait(Phase::Leaving(self))
    }

    pub(super) fn judge(&self, now_us: u64) -> Judgement {
        let limit = if self.last_word.is_empty() {
            LINGER
        } else {
            LAST_WORD
        };
        let end_us = after(self.since_us, limit);
        let pause_us = after(self.last_us, LINGER_PAUSE);
        if now_us >= end_us {
            return Judgement::Drop;
        }
        if now_us >= pause_us {
            // A few bytes do not wake the connection, but they do keep it.
            return Judgement::Doubt;
        }
        Judgement::Well {
            until_us: end_us.min(pause_us),
        }
    }
}
