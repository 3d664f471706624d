//! The client of a connection as a proxy names it: in a PROXY header at the start, or in a packet of the uwsgi protocol.
//!
//! The acceptor looks at a PROXY header in the socket and then takes only the header from it, so that the next reader
//! begins at the client's first byte. From then on the client is the peer: the connection counts as one of the client's
//! own, and the rule of trust (`forwarded_allow_ips`) applies to it.

use std::rc::Rc;

use stanchion_http::{Head, PROXY_HEADER_BYTES_MAX, ProxyHeader, ProxyStart, proxy_start};

use super::connection::{Connection, Step};
use super::transport::Read;
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::storage::connection_shares::Claim;
use stanchion_requests::Requests;

impl Connection {
    /// Reads the header and nothing behind it, which the next phase reads. Until the header is whole, it stays in the socket
    /// and is only looked at. It has to be whole within the time that a head may take.
    pub(super) fn read_proxy_header(&mut self, requests: &mut Requests) -> Step {
        let Some(versions) = requests.common.settings.proxy_protocol else {
            return self.is_of(&ProxyHeader::default(), requests);
        };
        if !self.transport.is_readable() {
            return Step::Wait;
        }
        let mut seen = [0; PROXY_HEADER_BYTES_MAX];
        let len = match self.transport.peek(&mut seen) {
            Read::Bytes(len) => len,
            Read::Nothing => return Step::Wait,
            Read::End | Read::Failed => return Step::Close,
        };
        match proxy_start(&seen[..len], versions) {
            // The client has ended, so the rest never comes.
            Ok(ProxyStart::Part) if self.transport.has_ended() => Step::Close,
            Ok(ProxyStart::Part) => {
                self.transport.wait_for_more();
                Step::Wait
            }
            Ok(ProxyStart::Absent) => self.is_of(&ProxyHeader::default(), requests),
            Ok(ProxyStart::Header(header)) => {
                match self.transport.read_exact(&mut seen[..header.len]) {
                    Ok(()) => self.is_of(&header, requests),
                    Err(_) => Step::Close,
                }
            }
            Err(fault) => self.refuse_unread(fault.into(), requests),
        }
    }

    /// Takes the client that the header names for the peer, and counts the connection among those of that client.
    fn is_of(&mut self, header: &ProxyHeader, requests: &mut Requests) -> Step {
        let believed = &requests.common.settings.forwarded_allow_ips;
        self.peer = Rc::new(self.peer.behind(header, believed));
        self.claim(requests).unwrap_or(Step::On)
    }

    /// Takes the client that the packet names for the peer. Returns the next step if the connection goes no further.
    pub(super) fn is_of_packet(&mut self, head: &Head, requests: &mut Requests) -> Option<Step> {
        let believed = &requests.common.settings.forwarded_allow_ips;
        self.peer = Rc::new(self.peer.of_packet(head, believed));
        self.claim(requests)
    }

    /// Counts the connection among those of its client. Returns the next step if the connection goes no further.
    fn claim(&mut self, requests: &mut Requests) -> Option<Step> {
        match requests.connection_shares.claim(self.peer.limited_ip()) {
            Claim::Unlimited => None,
            Claim::Served(share) => {
                self.claim = Some(share);
                None
            }
            Claim::ToBeTold(share) => {
                self.claim = Some(share);
                Some(self.refuse_unread(Refusal::TooManyConnections, requests))
            }
            Claim::TooMuch => {
                requests
                    .record
                    .turn_out(&self.peer.address, requests.now_us);
                self.transport.reset();
                Some(Step::Close)
            }
        }
    }
}

/// The refusal of a PROXY header from a peer that is not to send one.
pub(super) fn unwanted(requests: &Requests) -> Refusal {
    Refusal::Forbidden(match requests.common.settings.proxy_protocol {
        None => "a PROXY header where proxy_protocol is off",
        Some(_) => "a PROXY header from a peer that is not in proxy_allow_ips",
    })
}
