//! The TLS handshake. It takes as long as some dozens of small requests, so helper threads compute it, and the loop goes on
//! meanwhile.
//!
//! The client's bytes go to a helper thread with the whole state of the connection's TLS, and come back with the bytes
//! to answer. So a handshake delays no other client.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use stanchion_tls::{Tls, TlsFault};
use tracing::debug;

use super::carrying::Carrier;
use super::leaving::{end, refuse_unread};
use super::{Phase, Step};
use crate::audience::HeadDeadlines;
use crate::judgement::Judgement;
use crate::link::ClientLink;
use crate::outcome::{Broken, Read};
use crate::pace::end_of;
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::request::Peer;
use stanchion_dispatch::storage::disk::Job;
use stanchion_generation::credentials::HTTP_2;
use stanchion_generation::tally::Event;
use stanchion_requests::tls::{HandshakeTurn, TlsService};
use stanchion_requests::{Record, Requests};

/// How many bytes of a client's handshake the connection takes at a time. It is less than a record, so that there is room
/// for the bytes behind its last message, which begin a request.
const HANDSHAKE_BYTES_MAX: usize = 8 << 10;

/// A handshake under way.
pub(crate) struct Handshaking {
    since_us: u64,
    /// The helper thread's work on the bytes that the client has sent.
    computing: Option<Computing>,
}

struct Computing {
    job: Job<Computed>,
    /// The client's share of the handshakes that may be computed at a time.
    _turn: HandshakeTurn,
}

/// The state after the computation.
struct Computed {
    tls: Box<Tls>,
    taken: Result<(), TlsFault>,
}

impl Handshaking {
    /// Begins a handshake with a client that has connected at this time.
    pub(super) fn begin(since_us: u64, link: &mut ClientLink, requests: &Requests) -> Step {
        let tls = match requests.tls.as_ref().map(TlsService::begin) {
            Some(Ok(tls)) => tls,
            Some(Err(error)) => {
                debug!("no handshake can be begun: {error}");
                return Step::Close;
            }
            // No listener speaks TLS then.
            None => return Step::Close,
        };
        link.transport.cover(Box::new(tls));
        Step::On(Phase::Handshaking(Box::new(Self {
            since_us,
            computing: None,
        })))
    }

    /// Goes on with a handshake.
    pub(super) fn go_on(
        mut self: Box<Self>,
        link: &mut ClientLink,
        requests: &mut Requests,
    ) -> Step {
        if let Some(computing) = &mut self.computing {
            let Some(computed) = computing.job.take() else {
                return Step::Wait(Phase::Handshaking(self));
            };
            self.computing = None;
            match computed {
                Ok(computed) => {
                    link.transport.cover(computed.tls);
                    if let Err(fault) = computed.taken {
                        return fail(&fault, link, &requests.record, requests.now_us);
                    }
                }
                Err(error) => {
                    debug!("a handshake is given up: {error}");
                    return Step::Close;
                }
            }
        }
        if link.transport.flush() == Err(Broken) {
            return Step::Close;
        }
        if let Some(tls) = link.transport.tls()
            && !tls.is_handshaking()
        {
            return succeed(link, requests);
        }
        if !link.transport.is_readable() {
            return if link.transport.has_ended() {
                Step::Close
            } else {
                Step::Wait(Phase::Handshaking(self))
            };
        }
        self.compute_answer(link, requests)
    }

    /// Has a thread compute the answer to the bytes that the client has sent.
    fn compute_answer(mut self: Box<Self>, link: &mut ClientLink, requests: &mut Requests) -> Step {
        let Some(service) = &requests.tls else {
            return Step::Close;
        };
        let Some(turn) = service.turn(link.peer.limited_ip(), link.number) else {
            return Step::Wait(Phase::Handshaking(self));
        };
        let mut said = Vec::with_capacity(HANDSHAKE_BYTES_MAX);
        match link.transport.receive(&mut said) {
            Read::Bytes(_) => {}
            Read::Nothing => return Step::Wait(Phase::Handshaking(self)),
            Read::End | Read::Failed => return Step::Close,
        }
        let Some(mut own) = link.transport.uncover() else {
            return Step::Close;
        };
        if own.is_fresh() && speaks_http(&said) {
            // The client has begun in clear text, and gets the refusal in clear text.
            let refusal = Refusal::BadRequest("plain HTTP on a port for TLS");
            return refuse_unread(link, refusal, requests);
        }
        let compute = move || {
            let taken = own.take(&said).map(drop);
            Ok(Computed { tls: own, taken })
        };
        self.computing = Some(Computing {
            job: service.compute(link.number, compute),
            _turn: turn,
        });
        Step::Wait(Phase::Handshaking(self))
    }

    /// Since when the handshake waits for the client, if it does.
    pub(super) fn spare_since_us(&self) -> Option<u64> {
        self.computing.is_none().then_some(self.since_us)
    }

    pub(super) fn judge(&self, deadlines: &HeadDeadlines, now_us: u64) -> Judgement {
        Judgement::within(self.since_us, deadlines.new, Judgement::Drop, now_us)
    }

    /// When the client is too slow, if it may take so long until its head has come.
    pub(super) fn sends_by_us(&self, limit: Option<Duration>) -> u64 {
        end_of(self.since_us, limit)
    }
}

/// Ends a handshake that has succeeded: a request follows as on any other connection.
fn succeed(link: &mut ClientLink, requests: &Requests) -> Step {
    let (Some(tls), Some(service)) = (link.transport.tls(), &requests.tls) else {
        return Step::Close;
    };
    let is_asgi = requests.common.settings.is_asgi();
    let facts = match service.facts(tls, is_asgi, &link.peer.address) {
        Ok(facts) => facts,
        Err(why) => {
            let address = &link.peer.address;
            requests.record.handshake_failed(&why, address);
            return end(link, requests.now_us);
        }
    };
    let tally = &requests.common.tally;
    tally.happened(Event::Handshaken);
    if tls.is_post_quantum() {
        tally.happened(Event::HandshakenPostQuantum);
    }
    let is_http2 = tls.alpn() == Some(HTTP_2);
    link.peer = Rc::new(Peer {
        tls: facts,
        ..Peer::clone(&link.peer)
    });
    if is_http2 {
        return Carrier::begin(Bytes::new(), link, requests);
    }
    Step::On(Phase::new(requests.now_us))
}

/// Ends a handshake that has failed, with an alert to the client.
fn fail(fault: &TlsFault, link: &mut ClientLink, record: &Record, now_us: u64) -> Step {
    record.handshake_failed(fault, &link.peer.address);
    // The kernel takes the rest of the alert once it has room.
    let _ = link.transport.flush();
    link.transport.discard_input();
    end(link, now_us)
}

/// Whether a client has begun to speak HTTP in clear text: all methods are of letters, and no TLS record begins with one
/// (RFC 8446 section 5.1).
fn speaks_http(said: &[u8]) -> bool {
    said.first().is_some_and(u8::is_ascii_alphabetic)
}
