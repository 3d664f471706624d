//! The TLS handshake. It takes as long as some dozens of small requests, so helper threads compute it, and the loop goes on
//! meanwhile.
//!
//! The client's bytes go to a helper thread with the whole state of the connection's TLS, and come back with the bytes
//! to answer. So a handshake delays no other client.

use std::rc::Rc;

use bytes::Bytes;
use stanchion_tls::{Fault, Tls};
use tracing::debug;

use super::connection::{Connection, Phase, Step};
use super::transport::{Broken, Read};
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::request::Peer;
use stanchion_dispatch::storage::disk::Job;
use stanchion_generation::credentials::HTTP_2;
use stanchion_generation::tally::Event;
use stanchion_requests::Requests;
use stanchion_requests::tls::{TlsService, Turn};

/// How many bytes of a client's handshake the connection takes at a time. It is less than a record, so that there is room
/// for the bytes behind its last message, which begin a request.
const SAID_BYTES_MAX: usize = 8 << 10;

/// A handshake under way.
pub(super) struct Handshaking {
    since_us: u64,
    /// The helper thread's work on the bytes that the client has sent.
    computing: Option<Computing>,
}

struct Computing {
    job: Job<Computed>,
    /// The client's share of the handshakes that may be computed at a time.
    _turn: Turn,
}

/// The state after the computation.
struct Computed {
    tls: Box<Tls>,
    taken: Result<(), Fault>,
}

impl Handshaking {
    /// Since when the handshake waits for the client, if it does.
    pub(super) fn spare_since_us(&self) -> Option<u64> {
        self.computing.is_none().then_some(self.since_us)
    }
}

impl Connection {
    /// Since when a connection is new, and has not brought a request.
    pub(super) fn new_since_us(&self) -> u64 {
        match &self.phase {
            Phase::New { since_us } => *since_us,
            Phase::Handshaking(handshaking) => handshaking.since_us,
            _ => u64::MAX,
        }
    }

    /// Whether the client is to speak TLS, and has not begun to.
    pub(super) fn awaits_handshake(&self) -> bool {
        // A stream comes over the TLS of its HTTP/2 connection.
        self.peer.speaks_tls && self.transport.socket().is_some()
    }

    /// Begins a handshake with a client that has connected.
    pub(super) fn begin_handshake(&mut self, requests: &Requests) -> Step {
        let since_us = self.new_since_us();
        let tls = match requests.tls.as_ref().map(TlsService::begin) {
            Some(Ok(tls)) => tls,
            Some(Err(error)) => {
                debug!("no handshake can be begun: {error}");
                return Step::Close;
            }
            // No listener speaks TLS then.
            None => return Step::Close,
        };
        self.transport.cover(Box::new(tls));
        self.phase = Phase::Handshaking(Box::new(Handshaking {
            since_us,
            computing: None,
        }));
        Step::On
    }

    /// Goes on with a handshake.
    pub(super) fn shake_hands(&mut self, requests: &mut Requests) -> Step {
        let Phase::Handshaking(handshaking) = &mut self.phase else {
            return Step::On;
        };
        if let Some(computing) = &mut handshaking.computing {
            let Some(computed) = computing.job.take() else {
                return Step::Wait;
            };
            handshaking.computing = None;
            match computed {
                Ok(computed) => {
                    self.transport.cover(computed.tls);
                    if let Err(fault) = computed.taken {
                        return self.fail_handshake(&fault, requests);
                    }
                }
                Err(error) => {
                    debug!("a handshake is given up: {error}");
                    return Step::Close;
                }
            }
        }
        if self.transport.flush() == Err(Broken) {
            return Step::Close;
        }
        if self
            .transport
            .tls()
            .is_some_and(|tls| !tls.is_handshaking())
        {
            return self.end_handshake(requests);
        }
        if !self.transport.is_readable() {
            return if self.transport.has_ended() {
                Step::Close
            } else {
                Step::Wait
            };
        }
        self.hear_handshake(requests)
    }

    /// Has a thread compute the answer to the bytes that the client has sent.
    fn hear_handshake(&mut self, requests: &mut Requests) -> Step {
        let Some(tls) = &requests.tls else {
            return Step::Close;
        };
        let Some(turn) = tls.turn(self.peer.limited_ip(), self.number) else {
            return Step::Wait;
        };
        let mut said = Vec::with_capacity(SAID_BYTES_MAX);
        match self.transport.receive(&mut said) {
            Read::Bytes(_) => {}
            Read::Nothing => return Step::Wait,
            Read::End | Read::Failed => return Step::Close,
        }
        let Phase::Handshaking(handshaking) = &mut self.phase else {
            return Step::Close;
        };
        let Some(mut own) = self.transport.uncover() else {
            return Step::Close;
        };
        if own.is_fresh() && speaks_http(&said) {
            // The client has begun in clear text, and gets the refusal in clear text.
            let refusal = Refusal::BadRequest("plain HTTP on a port for TLS");
            return self.refuse_unread(refusal, requests);
        }
        let compute = move || {
            let taken = own.take(&said).map(drop);
            Ok(Computed { tls: own, taken })
        };
        handshaking.computing = Some(Computing {
            job: tls.compute(self.number, compute),
            _turn: turn,
        });
        Step::Wait
    }

    /// Ends a handshake that has succeeded: a request follows as on any other connection.
    fn end_handshake(&mut self, requests: &mut Requests) -> Step {
        let Some(tls) = self.transport.tls() else {
            return Step::Close;
        };
        let Some(service) = &requests.tls else {
            return Step::Close;
        };
        let is_asgi = requests.common.settings.is_asgi();
        match service.facts(tls, is_asgi, &self.peer.address) {
            Ok(facts) => {
                self.peer = Rc::new(Peer {
                    tls: facts,
                    ..Peer::clone(&self.peer)
                });
            }
            Err(why) => {
                requests.record.handshake_failed(&why, &self.peer.address);
                return self.say_last(&[], requests);
            }
        }
        let tally = &requests.common.tally;
        tally.happened(Event::Handshaken);
        let tls = self.transport.tls();
        if tls.is_some_and(Tls::is_post_quantum) {
            tally.happened(Event::HandshakenPostQuantum);
        }
        if tls.and_then(Tls::alpn) == Some(HTTP_2) {
            return self.begin_carrying(Bytes::new(), requests);
        }
        self.phase = Phase::New {
            since_us: requests.now_us,
        };
        Step::On
    }

    /// Ends a handshake that has failed, with an alert to the client.
    fn fail_handshake(&mut self, fault: &Fault, requests: &mut Requests) -> Step {
        requests.record.handshake_failed(fault, &self.peer.address);
        // The kernel takes the rest of the alert once it has room.
        let _ = self.transport.flush();
        self.transport.heed_no_more();
        self.say_last(&[], requests)
    }
}

/// Whether a client has begun to speak HTTP in clear text: all methods are of letters, and no TLS record begins with one
/// (RFC 8446 section 5.1).
fn speaks_http(said: &[u8]) -> bool {
    said.first().is_some_and(u8::is_ascii_alphabetic)
}
