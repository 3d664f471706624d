//! Who is let into the line, and into which lane.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;

use http::HeaderMap;
use stanchion_line::{Clients, LaneId, LaneLimits, Line, LineLimits, Order, Place, Reserve};

use super::Dispatch;
use crate::acceptor::refusal::Refusal;
use crate::acceptor::request::Arrived;
use crate::acceptor::ticket::Ticket;
use crate::settings::{AllowedPeers, Lane, QueueOrder, Seconds, Settings};

/// Bits of an IPv6 address that are one client: a host has a network of its own (RFC 7421), in which it
/// may take any address.
const V6_CLIENT_BITS: u32 = 64;

/// The settings of the line, as it takes them.
pub(super) fn line_limits(settings: &Settings) -> LineLimits {
    let us = |seconds: Seconds| {
        seconds
            .as_duration()
            .map_or(0, |duration| duration.as_micros() as u64)
    };
    LineLimits {
        waiting_max: settings.max_waiting as usize,
        queue_timeout_us: us(settings.queue_timeout),
        order: match settings.queue_order {
            QueueOrder::Fifo => Order::Fifo,
            QueueOrder::Adaptive => Order::Adaptive {
                target_us: us(settings.queue_target),
            },
        },
    }
}

/// Every lane, that of whoever is in no other first; mostly there is none but that.
pub(in crate::acceptor) struct Lanes {
    lanes: Vec<Lane>,
    waiting_max: usize,
}

impl Lanes {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            lanes: settings.lanes(),
            waiting_max: settings.max_waiting as usize,
        }
    }

    /// The default lane first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter()
    }

    /// How many may wait, but for those in lanes with room of their own.
    pub(super) fn waiting_max(&self) -> usize {
        self.waiting_max
    }

    pub(super) fn line<T>(&self, limits: LineLimits) -> Line<T> {
        let lanes: Vec<_> = self
            .lanes
            .iter()
            .map(|lane| LaneLimits {
                priority: lane.priority,
                waiting_max: lane.waiting,
            })
            .collect();
        Line::with_lanes(limits, &lanes)
    }

    pub(super) fn reserve(&self) -> Reserve {
        Reserve::new(self.lanes.iter().map(|lane| lane.seats).collect())
    }

    /// The lane that a request is to wait in. Ports of single workers have but one.
    fn lane_of(&self, request: &Arrived) -> LaneId {
        if self.lanes.len() == 1 || request.peer.only_worker.is_some() {
            return LaneId::DEFAULT;
        }
        let mut others = (1..).zip(&self.lanes[1..]);
        others
            .find(|(_, lane)| lane.takes(&request.head))
            .map_or(LaneId::DEFAULT, |(index, _)| LaneId::new(index))
    }

    fn has_room_of_its_own(&self, lane: LaneId) -> bool {
        self.lanes[lane.index()].waiting.is_some()
    }

    /// What the operator calls it; `None` if there is but one.
    pub(in crate::acceptor) fn name(&self, lane: LaneId) -> Option<&str> {
        (self.lanes.len() > 1).then(|| self.lanes[lane.index()].name.as_str())
    }
}

/// The bound on how many of one client wait, if there is one.
pub(super) struct ClientLimit {
    clients: Rc<RefCell<Clients<IpAddr>>>,
    believed: AllowedPeers,
}

/// One of those of a client who wait; given back however it ends.
pub(in crate::acceptor) struct ClientShare {
    clients: Rc<RefCell<Clients<IpAddr>>>,
    address: IpAddr,
}

impl Drop for ClientShare {
    fn drop(&mut self) {
        self.clients.borrow_mut().leave(self.address);
    }
}

impl ClientLimit {
    pub(super) fn new(settings: &Settings) -> Option<Self> {
        let each_max = settings.max_waiting_per_client as usize;
        (each_max > 0).then(|| Self {
            clients: Rc::new(RefCell::new(Clients::new(each_max))),
            believed: settings.forwarded_allow_ips.clone(),
        })
    }

    /// A share for one more of this client; `Err` if he has all he may. No share is needed where it
    /// is not known whose a request is.
    fn share(&self, request: &Arrived) -> Result<Option<ClientShare>, ()> {
        let peer = request.peer.address.parse().ok();
        let said = request.peer.trusted.then_some(&request.head.headers);
        let Some(address) = client_address(peer, said, &self.believed).map(network) else {
            return Ok(None);
        };
        if !self.clients.borrow_mut().enter(address) {
            return Err(());
        }
        let clients = Rc::clone(&self.clients);
        Ok(Some(ClientShare { clients, address }))
    }
}

/// Whose a request is: the peer's, or, where the peer is believed, the one nearest to us in
/// `X-Forwarded-For` that is not a proxy we believe as well. Each proxy adds the address it saw at
/// the end, and what stands before the last one we believe anybody may have written.
///
/// `*` believes the peer, whoever it is, and nobody behind it.
fn client_address(
    peer: Option<IpAddr>,
    said: Option<&HeaderMap>,
    believed: &AllowedPeers,
) -> Option<IpAddr> {
    let mut client = peer;
    let fields = said
        .into_iter()
        .flat_map(|headers| headers.get_all("x-forwarded-for"));
    // From the end, over all fields as if they were one (RFC 9110 section 5.3).
    let fields: Vec<&[u8]> = fields.map(http::HeaderValue::as_bytes).collect();
    for word in fields
        .iter()
        .rev()
        .flat_map(|field| field.rsplit(|&byte| byte == b','))
    {
        let Some(address) = std::str::from_utf8(word).ok().and_then(address) else {
            // Nobody we believe writes such a thing, or it hides who it was: the proxy stands for
            // all of them.
            break;
        };
        client = Some(address);
        if !believed.lists(address) {
            break;
        }
    }
    client
}

/// The network that is one client.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => {
            Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (128 - V6_CLIENT_BITS))).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// An address as proxies write it: some add the port.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let with_port = || {
        text.parse()
            .ok()
            .map(|with: std::net::SocketAddr| with.ip())
    };
    text.parse()
        .ok()
        .or_else(with_port)
        .map(|address: IpAddr| address.to_canonical())
}

impl Dispatch {
    /// Lets a request into its lane, or says why not.
    pub(super) fn admit(&mut self, ticket: &Rc<Ticket>, now_us: u64) -> Result<Place, Refusal> {
        let lane = self.lanes.lane_of(&ticket.request);
        ticket.lane.set(lane);
        // A lane with room of its own is bounded already, and those who probe a server through its proxy
        // are all one client to us.
        let limit = self.client_limit.as_ref();
        let limit = limit.filter(|_| !self.lanes.has_room_of_its_own(lane));
        let Ok(share) = limit.map_or(Ok(None), |limit| limit.share(&ticket.request)) else {
            let retry_after_s = self.retry_after_s(ticket, now_us);
            return Err(Refusal::TooManyOfClient { retry_after_s });
        };
        // Who waits at ports counts for the same bound.
        let port = ticket.request.peer.only_worker;
        let full = !self.line.has_room(lane, self.ports.waiting())
            || port.is_some_and(|port| self.ports.is_full(port));
        let Some(line) = self.line_of(ticket) else {
            let retry_after_s = self.retry_after_s(ticket, now_us);
            return Err(Refusal::WorkerAbsent { retry_after_s });
        };
        if full {
            let retry_after_s = line.retry_after_s(now_us, lane);
            return Err(Refusal::LineFull { retry_after_s });
        }
        let joined = line.join(now_us, lane, Rc::clone(ticket));
        let place = joined.map_err(|(_, stanchion_line::Refusal::Full { retry_after_s })| {
            Refusal::LineFull { retry_after_s }
        })?;
        ticket.client_share.set(share);
        Ok(place)
    }

    /// When whoever is told no should come again: at the pace of the lane it is in or was to join.
    pub(super) fn retry_after_s(&mut self, ticket: &Ticket, now_us: u64) -> u64 {
        let lane = ticket.lane.get();
        if let Some(line) = self.line_of(ticket) {
            return line.retry_after_s(now_us, lane);
        }
        self.line.retry_after_s(now_us, lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn whose_a_request_is() {
        // (peer, what X-Forwarded-For says, whom we believe, whose it is)
        let table: &[(&str, &[&str], &str, &str)] = &[
            ("192.0.2.1", &["198.51.100.7"], "", "192.0.2.1"),
            ("127.0.0.1", &[], "127.0.0.1", "127.0.0.1"),
            ("127.0.0.1", &["198.51.100.7"], "127.0.0.1", "198.51.100.7"),
            // What the client wrote itself stands before.
            (
                "127.0.0.1",
                &["10.1.1.1, 198.51.100.7"],
                "127.0.0.1",
                "198.51.100.7",
            ),
            (
                "127.0.0.1",
                &["10.1.1.1", "198.51.100.7"],
                "127.0.0.1",
                "198.51.100.7",
            ),
            // Another proxy of ours between.
            (
                "127.0.0.1",
                &["198.51.100.7,10.0.0.2"],
                "127.0.0.1,10.0.0.0/8",
                "198.51.100.7",
            ),
            (
                "127.0.0.1",
                &["198.51.100.7", "10.0.0.2"],
                "127.0.0.1,10.0.0.0/8",
                "198.51.100.7",
            ),
            // Nobody but proxies of ours: the first of them asks for itself.
            (
                "127.0.0.1",
                &["10.0.0.3, 10.0.0.2"],
                "127.0.0.1,10.0.0.0/8",
                "10.0.0.3",
            ),
            (
                "127.0.0.1",
                &["198.51.100.7, unknown"],
                "127.0.0.1",
                "127.0.0.1",
            ),
            (
                "127.0.0.1",
                &["unknown, 10.0.0.2"],
                "127.0.0.1,10.0.0.0/8",
                "10.0.0.2",
            ),
            ("127.0.0.1", &[""], "127.0.0.1", "127.0.0.1"),
            // With a port, and in all forms of IPv6.
            (
                "127.0.0.1",
                &["198.51.100.7:4711"],
                "127.0.0.1",
                "198.51.100.7",
            ),
            (
                "127.0.0.1",
                &["[2001:db8::1]:4711"],
                "127.0.0.1",
                "2001:db8::1",
            ),
            ("127.0.0.1", &["2001:db8::1"], "127.0.0.1", "2001:db8::1"),
            (
                "127.0.0.1",
                &["::ffff:198.51.100.7"],
                "127.0.0.1",
                "198.51.100.7",
            ),
            // Whoever the peer is, it is believed; whoever it names is not.
            (
                "192.0.2.1",
                &["10.1.1.1, 198.51.100.7"],
                "*",
                "198.51.100.7",
            ),
            // A unix socket.
            ("", &["10.1.1.1, 198.51.100.7"], "unix", "198.51.100.7"),
            ("", &["10.1.1.1, 198.51.100.7"], "", ""),
            ("", &[], "unix", ""),
        ];
        for &(peer, said, believed, expected) in table {
            let believed = AllowedPeers::parse(believed).unwrap();
            let peer = peer.parse().ok();
            let mut headers = HeaderMap::new();
            for value in said {
                headers.append("x-forwarded-for", value.parse().unwrap());
            }
            let said = believed.allows(peer).then_some(&headers);
            let client = client_address(peer, said, &believed);
            assert_eq!(client, expected.parse().ok(), "{peer:?} {headers:?}");
        }
    }
}
