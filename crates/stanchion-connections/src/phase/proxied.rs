//! The client of a connection as a proxy names it: in a PROXY header at the start, or in a packet of the uwsgi protocol.
//!
//! The acceptor looks at a PROXY header in the socket and then takes only the header from it, so that the next reader
//! begins at the client's first byte. From then on the client is the peer: the connection counts as one of the client's
//! own, and the rule of trust (`forwarded_allow_ips`) applies to it.

use std::rc::Rc;

use stanchion_http::{Head, PROXY_HEADER_BYTES_MAX, ProxyHeader, ProxyStart, proxy_start};

use crate::link::ClientLink;
use crate::outcome::Read;
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::storage::connection_shares::ConnectionAdmission;
use stanchion_requests::Requests;
use stanchion_settings::Settings;

/// The news that the first bytes of a connection bring about its client.
pub(super) enum ProxyNews {
    /// The client is known.
    Client,
    /// The header has not come whole.
    Part,
    /// The server refuses the client.
    Refused(Refusal),
    /// The connection is over.
    Over,
}

/// Reads the header and nothing behind it, which the next phase reads. Until the header is whole, it stays in the socket
/// and is only looked at. It has to be whole within the time that a head may take.
pub(super) fn read_proxy_header(link: &mut ClientLink, requests: &Requests) -> ProxyNews {
    let Some(versions) = requests.common.settings.proxies.proxy_protocol else {
        return name_client(&ProxyHeader::default(), link, requests);
    };
    if !link.transport.is_readable() {
        return ProxyNews::Part;
    }
    let mut seen = [0; PROXY_HEADER_BYTES_MAX];
    let len = match link.transport.peek(&mut seen) {
        Read::Bytes(len) => len,
        Read::Nothing => return ProxyNews::Part,
        Read::End | Read::Failed => return ProxyNews::Over,
    };
    match proxy_start(&seen[..len], versions) {
        // The client has ended, so the rest never comes.
        Ok(ProxyStart::Part) if link.transport.has_ended() => ProxyNews::Over,
        Ok(ProxyStart::Part) => {
            link.transport.wait_for_more();
            ProxyNews::Part
        }
        Ok(ProxyStart::Absent) => name_client(&ProxyHeader::default(), link, requests),
        Ok(ProxyStart::Header(header)) => {
            match link.transport.read_exact(&mut seen[..header.len]) {
                Ok(()) => name_client(&header, link, requests),
                Err(_) => ProxyNews::Over,
            }
        }
        Err(fault) => ProxyNews::Refused(fault.into()),
    }
}

/// Takes the client that the header names for the peer, and counts the connection among those of that client.
fn name_client(header: &ProxyHeader, link: &mut ClientLink, requests: &Requests) -> ProxyNews {
    let believed = &requests.common.settings.proxies.forwarded_allow_ips;
    link.peer = Rc::new(link.peer.behind(header, believed));
    claim(link, requests)
}

/// Takes the client that the packet names for the peer.
pub(super) fn name_client_by_packet(
    head: &Head,
    link: &mut ClientLink,
    requests: &Requests,
) -> ProxyNews {
    let believed = &requests.common.settings.proxies.forwarded_allow_ips;
    link.peer = Rc::new(link.peer.of_packet(head, believed));
    claim(link, requests)
}

/// Counts the connection among those of its client.
fn claim(link: &mut ClientLink, requests: &Requests) -> ProxyNews {
    match requests.connection_shares.claim(link.peer.limited_ip()) {
        ConnectionAdmission::Unlimited => ProxyNews::Client,
        ConnectionAdmission::Served(share) => {
            link.claim = Some(share);
            ProxyNews::Client
        }
        ConnectionAdmission::ToBeTold(share) => {
            link.claim = Some(share);
            ProxyNews::Refused(Refusal::TooManyConnections)
        }
        ConnectionAdmission::TooMuch => {
            requests
                .record
                .turn_out(&link.peer.address, requests.now_us);
            link.transport.reset();
            ProxyNews::Over
        }
    }
}

/// The refusal of a PROXY header from a peer that is not to send one.
pub(super) fn unwanted(settings: &Settings) -> Refusal {
    Refusal::Forbidden(match settings.proxies.proxy_protocol {
        None => "a PROXY header where proxy_protocol is off",
        Some(_) => "a PROXY header from a peer that is not in proxy_allow_ips",
    })
}
