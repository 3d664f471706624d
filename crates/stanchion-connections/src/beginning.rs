//! The first bytes of a connection: which protocol they begin, and which of them the server refuses.

use stanchion_http::{
    HTTP2_PREFACE, Head, HeadReader, PrefaceStart, is_proxy_header, preface_start,
};

use super::connection::{Audience, Connection, Phase, Step};
use super::form::HeadForm;
use super::proxied;
use super::reading::PartialHead;
use stanchion_dispatch::refusal::Refusal;
use stanchion_requests::Requests;
use stanchion_settings::Protocol;

/// The first byte from a client that speaks TLS: a record of its handshake (RFC 8446 section 5.1). No method begins with it.
const TLS_HANDSHAKE: u8 = 0x16;
impl Connection {
    /// Recognises HTTP/2 in clear text by the client's first bytes, where the settings allow it. `None` if the client speaks
    /// something else; else the next step: to read on until it is certain, or to begin HTTP/2.
    pub(super) fn is_http2(&mut self, bytes: &[u8], requests: &Requests) -> Option<Step> {
        let settings = &requests.common.settings;
        let is_first = self.requests == 0 && self.audience == Audience::Clients;
        if !is_first || !settings.takes_http2_cleartext() || self.peer.sends_packets {
            return None;
        }
        let (before, since_us) = match &self.phase {
            Phase::New { .. } => (&[][..], requests.now_us),
            Phase::Head(partial) => (&partial.bytes[..], partial.since_us),
            _ => return None,
        };
        if before.len() >= HTTP2_PREFACE.len() {
            return None;
        }
        let len = bytes.len().min(HTTP2_PREFACE.len() - before.len());
        let start = preface_start(&[before, &bytes[..len]].concat());
        if start == PrefaceStart::Absent {
            return None;
        }
        let bytes = [before, bytes].concat();
        if start == PrefaceStart::Whole {
            return Some(self.begin_carrying(bytes.into(), requests));
        }
        self.phase = Phase::Head(Box::new(PartialHead {
            since_us,
            bytes,
            form: self.form(),
            head: Head::default(),
            dozes_until_us: None,
        }));
        Some(Step::On)
    }

    /// Why the server refuses the first bytes of a connection, if it does.
    pub(super) fn unfit(&self, bytes: &[u8], requests: &Requests) -> Option<Refusal> {
        if bytes.first() == Some(&TLS_HANDSHAKE) {
            return Some(Refusal::BadRequest("TLS on a port for plain HTTP"));
        }
        if is_proxy_header(bytes) {
            return Some(proxied::unwanted(requests));
        }
        let is_stranger = self.audience == Audience::Clients
            && requests.common.settings.protocol == Protocol::Uwsgi
            && !self.peer.sends_packets;
        is_stranger.then_some(Refusal::Forbidden(
            "the uwsgi protocol is for peers in uwsgi_allow_ips",
        ))
    }

    pub(super) fn form(&self) -> HeadForm {
        if self.peer.sends_packets {
            HeadForm::Packet
        } else {
            HeadForm::Text(HeadReader::default())
        }
    }
}
