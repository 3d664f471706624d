//! A request on its way in: its head. The first bytes of a connection show which protocol they begin, and which of them the
//! server refuses.
//!
//! If a head arrives byte by byte, not every byte wakes the loop: the kernel collects bytes (`SO_RCVLOWAT`), and the
//! check of deadlines (`judging.rs`) reads them, each time after half of the time that the head has taken so far.

use std::time::Duration;

use bytes::Bytes;
use stanchion_http::{
    Framing, HTTP2_PREFACE, Head, HeadReader, PrefaceStart, is_proxy_header, preface_start,
};

use super::body::{ReadingBody, UnparsedBytes};
use super::carrying::Carrier;
use super::handshaking::Handshaking;
use super::leaving::refuse_unread;
use super::proxied::{self, ProxyNews};
use super::waiting::{arrive, refuse};
use super::{ConnectionState, Phase, Step};
use crate::audience::{Audience, HeadDeadlines};
use crate::form::HeadForm;
use crate::judgement::Judgement;
use crate::link::ClientLink;
use crate::outcome::Read;
use crate::pace::{doze_us, end_of};
use crate::transport::{DRIPPED_BYTES, Transport};
use crate::turns::WHOLE_BYTES;
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::request::{Body, Peer};
use stanchion_requests::Requests;
use stanchion_settings::{Protocol, Settings};

/// The first byte from a client that speaks TLS: a record of its handshake (RFC 8446 section 5.1). No method begins with it.
const TLS_HANDSHAKE: u8 = 0x16;
/// RFC 9110 section 15.2.1.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How much of the next head has come.
pub(crate) enum ReadingHead {
    /// The client has connected, and sent nothing yet.
    New { since_us: u64 },
    /// Between requests.
    Idle { since_us: u64 },
    /// A part of the head has come.
    Part(Box<PartialHead>),
}

/// A head of which a part has come.
pub(crate) struct PartialHead {
    since_us: u64,
    bytes: Vec<u8>,
    form: HeadForm,
    head: Head,
    /// Until when the connection stays asleep although a few bytes of the head come.
    dozes_until_us: Option<u64>,
}

impl From<ReadingHead> for Phase {
    fn from(head: ReadingHead) -> Self {
        Self::Head(head)
    }
}

impl ReadingHead {
    /// Reads on. A connection that has had `requests_max` requests begins no further one for now.
    pub(super) fn go_on(
        self,
        link: &mut ClientLink,
        requests_max: u32,
        requests: &mut Requests,
    ) -> Step {
        match self {
            Self::New { .. } if link.peer.sends_proxy_header => {
                match proxied::read_proxy_header(link, requests) {
                    ProxyNews::Client => Step::On(self.into()),
                    ProxyNews::Part => Step::Wait(self.into()),
                    ProxyNews::Refused(refusal) => refuse_unread(link, refusal, requests),
                    ProxyNews::Over => Step::Close,
                }
            }
            Self::New { since_us } if link.awaits_handshake() => {
                Handshaking::begin(since_us, link, requests)
            }
            Self::New { .. } | Self::Idle { .. } if link.requests == requests_max => {
                link.wake_later(&requests.wakes, requests.now_us);
                Step::Wait(self.into())
            }
            _ => self.read(link, requests),
        }
    }

    fn read(mut self, link: &mut ClientLink, requests: &mut Requests) -> Step {
        if !link.ahead.is_empty() {
            let bytes = std::mem::take(&mut link.ahead);
            return self.came(UnparsedBytes::Before(bytes), link, requests);
        }
        let (settings, now_us) = (&requests.common.settings, requests.now_us);
        if !link.transport.is_readable() {
            self.doze(&mut link.transport, settings, now_us);
            return Step::Wait(self.into());
        }
        requests.with_scratch(|scratch, requests| match link.transport.read(scratch) {
            Read::Bytes(_) => self.came(UnparsedBytes::now(scratch), link, requests),
            // Only records without plaintext have come.
            Read::Nothing if link.transport.has_had_its_turn() => {
                link.wake_later(&requests.wakes, now_us);
                Step::Wait(self.into())
            }
            Read::Nothing => {
                self.doze(&mut link.transport, settings, now_us);
                Step::Wait(self.into())
            }
            // In the middle of a head there is nothing to answer.
            Read::End | Read::Failed => Step::Close,
        })
    }

    fn came(self, came: UnparsedBytes<'_>, link: &mut ClientLink, requests: &mut Requests) -> Step {
        let (settings, now_us) = (&requests.common.settings, requests.now_us);
        let bytes = came.bytes();
        match self.http2_start(bytes, link, settings) {
            PrefaceStart::Absent => {}
            PrefaceStart::Whole => {
                let bytes = [self.bytes(), bytes].concat();
                return Carrier::begin(bytes.into(), link, requests);
            }
            PrefaceStart::Part => {
                let since_us = self.since_us().unwrap_or(now_us);
                let bytes = [self.bytes(), bytes].concat();
                return part(since_us, bytes, form(&link.peer), Head::default());
            }
        }
        if matches!(self, Self::New { .. })
            && let Some(refusal) = unfit(bytes, link, settings)
        {
            return refuse_unread(link, refusal, requests);
        }
        let rules = link.audience.head_rules(&requests.policy);
        if let Self::Part(mut partial) = self {
            partial.bytes.extend_from_slice(bytes);
            let PartialHead {
                bytes, form, head, ..
            } = &mut *partial;
            return match form.read(bytes, &rules, head) {
                Ok(None) => Step::On(Phase::Head(Self::Part(partial))),
                Ok(Some(len)) => {
                    link.transport.wake_at(1);
                    let rest = Bytes::copy_from_slice(&partial.bytes[len..]);
                    begin(partial.head, UnparsedBytes::Before(rest), link, requests)
                }
                Err(fault) if !form.is_whole() => refuse_unread(link, fault.into(), requests),
                Err(fault) => refuse_head(fault.into(), partial.head, link, requests),
            };
        }
        let mut form = form(&link.peer);
        let mut head = requests.buffers.heads.take();
        match form.read(bytes, &rules, &mut head) {
            Ok(Some(len)) => begin(head, came.behind(len), link, requests),
            Ok(None) => part(now_us, bytes.to_vec(), form, head),
            Err(fault) if !form.is_whole() => refuse_unread(link, fault.into(), requests),
            Err(fault) => refuse_head(fault.into(), head, link, requests),
        }
    }

    /// The bytes of the head that have come before.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::New { .. } | Self::Idle { .. } => &[],
            Self::Part(partial) => &partial.bytes,
        }
    }

    /// Since when the head comes, if it has begun to.
    fn since_us(&self) -> Option<u64> {
        match self {
            Self::New { .. } | Self::Idle { .. } => None,
            Self::Part(partial) => Some(partial.since_us),
        }
    }

    /// Whether a connection begins HTTP/2 in clear text with the client's first bytes, where the settings allow it.
    fn http2_start(&self, bytes: &[u8], link: &ClientLink, settings: &Settings) -> PrefaceStart {
        let is_first = link.requests == 0 && link.audience == Audience::Clients;
        if !is_first || !settings.takes_http2_cleartext() || link.peer.sends_packets {
            return PrefaceStart::Absent;
        }
        let before = self.bytes();
        if before.len() >= HTTP2_PREFACE.len() {
            return PrefaceStart::Absent;
        }
        let len = bytes.len().min(HTTP2_PREFACE.len() - before.len());
        preface_start(&[before, &bytes[..len]].concat())
    }

    /// Bytes of a head came, or the loop looked for some. Bytes that drip are left to gather: to wake the connection for
    /// each of them would cost as much as a request.
    fn doze(&mut self, transport: &mut Transport, settings: &Settings, now_us: u64) {
        let Self::Part(partial) = self else {
            return;
        };
        let since_us = partial.since_us;
        let took_us = now_us.saturating_sub(since_us);
        let by_us = end_of(since_us, settings.limits.header_timeout.as_duration());
        partial.dozes_until_us = doze_us(partial.bytes.len() as u64, took_us)
            .map(|doze_us| now_us + doze_us)
            .filter(|until_us| *until_us < by_us);
        let dozes = partial.dozes_until_us.is_some();
        transport.wake_at(if dozes { DRIPPED_BYTES } else { 1 });
    }

    /// Judges a client by the time that it takes until its head is whole.
    pub(super) fn judge(&self, deadlines: &HeadDeadlines, now_us: u64) -> Judgement {
        let within = |since_us, limit, over| Judgement::within(since_us, limit, over, now_us);
        match self {
            Self::New { since_us } => within(*since_us, deadlines.new, Judgement::Drop),
            Self::Idle { since_us } => within(*since_us, deadlines.idle, deadlines.idle_over),
            Self::Part(partial) => {
                let judged = within(partial.since_us, deadlines.head, deadlines.head_over);
                match partial.dozes_until_us {
                    Some(doze_us) => judged.doubted_at(doze_us, now_us),
                    None => judged,
                }
            }
        }
    }

    pub(super) fn doing(&self) -> ConnectionState {
        match self {
            Self::New { .. } => ConnectionState::New,
            Self::Idle { .. } => ConnectionState::Idle,
            Self::Part(_) => ConnectionState::Reading,
        }
    }

    pub(super) fn spare_since_us(&self) -> Option<u64> {
        match self {
            Self::New { since_us } | Self::Idle { since_us } => Some(*since_us),
            Self::Part(_) => None,
        }
    }

    pub(super) fn dozes_until_us(&self) -> Option<u64> {
        match self {
            Self::New { .. } | Self::Idle { .. } => None,
            Self::Part(partial) => partial.dozes_until_us,
        }
    }

    /// When the client is too slow, if it may take so long until its head has come.
    pub(super) fn sends_by_us(&self, limit: Option<Duration>) -> u64 {
        match self {
            Self::New { since_us } => end_of(*since_us, limit),
            Self::Idle { .. } => u64::MAX,
            Self::Part(partial) => end_of(partial.since_us, limit),
        }
    }
}

/// Why the server refuses the first bytes of a connection, if it does.
fn unfit(bytes: &[u8], link: &ClientLink, settings: &Settings) -> Option<Refusal> {
    if bytes.first() == Some(&TLS_HANDSHAKE) {
        return Some(Refusal::BadRequest("TLS on a port for plain HTTP"));
    }
    if is_proxy_header(bytes) {
        return Some(proxied::unwanted(settings));
    }
    let is_stranger = link.audience == Audience::Clients
        && settings.proxies.protocol == Protocol::Uwsgi
        && !link.peer.sends_packets;
    is_stranger.then_some(Refusal::Forbidden(
        "the uwsgi protocol is for peers in uwsgi_allow_ips",
    ))
}

/// Waits for the rest of a head that has begun to come at this time.
fn part(since_us: u64, bytes: Vec<u8>, form: HeadForm, head: Head) -> Step {
    Step::On(Phase::Head(ReadingHead::Part(Box::new(PartialHead {
        since_us,
        bytes,
        form,
        head,
        dozes_until_us: None,
    }))))
}

fn form(peer: &Peer) -> HeadForm {
    if peer.sends_packets {
        HeadForm::Packet
    } else {
        HeadForm::Text(HeadReader::default())
    }
}

/// Refuses a request whose head has come whole, but is wrong.
fn refuse_head(
    refusal: Refusal,
    head: Head,
    link: &mut ClientLink,
    requests: &mut Requests,
) -> Step {
    if link.audience == Audience::Operators {
        return refuse_unread(link, refusal, requests);
    }
    link.requests = link.requests.wrapping_add(1);
    let (account, started_us) = (requests.record.arrives(), requests.now_us);
    refuse(refusal, head, account, started_us, link, requests)
}

/// Begins the request of an HTTP/2 stream, whose head has come.
pub(crate) fn begin_stream(head: Head, link: &mut ClientLink, requests: &mut Requests) -> Step {
    begin(head, UnparsedBytes::Before(Bytes::new()), link, requests)
}

/// Begins a request whose head has come whole, with the bytes `rest` behind it.
fn begin(
    head: Head,
    rest: UnparsedBytes<'_>,
    link: &mut ClientLink,
    requests: &mut Requests,
) -> Step {
    link.requests = link.requests.wrapping_add(1);
    // A request pays for what earlier connections of the client have wasted.
    link.turns.count(0, 0, WHOLE_BYTES, requests.now_us);
    link.closing |= link.transport.is_worn();
    if link.audience == Audience::Operators {
        link.ahead = rest.kept();
        // Operators' requests need no body; the server does not read one.
        link.closing |= head.framing() != Framing::Empty;
        return Step::On(Phase::Asked(Box::new(head)));
    }
    if link.peer.sends_packets {
        match proxied::name_client_by_packet(&head, link, requests) {
            ProxyNews::Client | ProxyNews::Part => {}
            ProxyNews::Refused(refusal) => return refuse_unread(link, refusal, requests),
            ProxyNews::Over => return Step::Close,
        }
    }
    let account = requests.record.arrives();
    let started_us = requests.now_us;
    let framing = head.framing();
    if framing == Framing::Empty {
        link.ahead = rest.kept();
        return arrive(head, Body::Empty, account, started_us, link, requests);
    }
    if requests.policy.sends_on(&head, &link.peer) {
        link.closes_unread();
        return arrive(head, Body::Empty, account, started_us, link, requests);
    }
    let settings = &requests.common.settings;
    let body_max = settings.limits.limit_request_body;
    let is_too_long = matches!(framing, Framing::Length(len) if body_max > 0 && len > body_max);
    let too_long = is_too_long.then_some(Refusal::BodyTooLarge);
    if let Some(refusal) = too_long.or_else(|| requests.serving.lifecycle.refusal()) {
        return refuse(refusal, head, account, started_us, link, requests);
    }
    let has_begun = !rest.bytes().is_empty();
    if head.expects_continue() && !has_begun && !link.write_interim(CONTINUE) {
        return Step::Close;
    }
    let sink = requests.sink(&link.peer, &head, framing, link.number);
    let body = Box::new(ReadingBody::new(head, sink, account, started_us, settings));
    if has_begun {
        return body.came(rest, link, requests);
    }
    Step::On(Phase::Body(body))
}
