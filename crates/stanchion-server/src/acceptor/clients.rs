//! Whose a connection or a request is, and what each client has of what there is.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;

use http::HeaderMap;
use stanchion_line::Clients;

use super::request::Peer;
use crate::settings::AllowedPeers;

/// A host that has IPv6 addresses at all mostly has the 2⁶⁴ of a network to itself (RFC 6177), and may
/// take any of them (RFC 7421), so a network counts as one client.
const V6_CLIENT_BITS: u32 = 64;

/// Somebody who may have a share: an address, or a network of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client(IpAddr);

impl Client {
    /// Whoever is at this address.
    pub(super) fn at(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let network = v6.to_bits() & (u128::MAX << (128 - V6_CLIENT_BITS));
                Ipv6Addr::from_bits(network).into()
            }
            v4 @ IpAddr::V4(_) => v4,
        })
    }

    /// Whose a request is; `None` if nobody says.
    pub(super) fn of_request(
        peer: &Peer,
        headers: &HeaderMap,
        believed: &AllowedPeers,
    ) -> Option<Self> {
        client_address(peer.ip, peer.trusted.then_some(headers), believed).map(Self::at)
    }

    /// The same, but nobody where a proxy does not say for whom it asks: then it may be for many.
    pub(super) fn behind_proxies(
        peer: &Peer,
        headers: &HeaderMap,
        believed: &AllowedPeers,
    ) -> Option<Self> {
        let client = client_address(peer.ip, peer.trusted.then_some(headers), believed)?;
        // By address, and not by network: a client may live next to its proxy.
        let itself = peer.ip.map(|ip| ip.to_canonical()) == Some(client.to_canonical());
        (!peer.trusted || !itself).then(|| Self::at(client))
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

/// What each client has of something.
#[derive(Default)]
pub(super) struct Shares(RefCell<Clients<Client>>);

/// What a client has of it; given back when this is dropped.
pub(super) struct Share {
    shares: Rc<Shares>,
    client: Client,
    amount: u64,
}

/// The client would have more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMuch;

impl Shares {
    /// Something for a client who is to have `most` of it in all.
    pub(super) fn take(
        self: &Rc<Self>,
        client: Client,
        amount: u64,
        most: u64,
    ) -> Result<Share, TooMuch> {
        let mut share = self.none_yet(client);
        share.grow(amount, most)?;
        Ok(share)
    }

    /// Nothing yet, for a client who is about to have something.
    pub(super) fn none_yet(self: &Rc<Self>, client: Client) -> Share {
        Share {
            shares: Rc::clone(self),
            client,
            amount: 0,
        }
    }
}

impl Share {
    /// So much more, if the client has no more than `most` in all then.
    pub(super) fn grow(&mut self, amount: u64, most: u64) -> Result<(), TooMuch> {
        let taken = self.shares.0.borrow_mut().take(self.client, amount, most);
        if !taken {
            return Err(TooMuch);
        }
        self.amount += amount;
        Ok(())
    }

    /// So much less.
    pub(super) fn shrink(&mut self, amount: u64) {
        self.amount -= amount;
        let mut clients = self.shares.0.borrow_mut();
        clients.give_back(self.client, amount);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> Client {
        Client::at(address.parse().unwrap())
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:0:0:2"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
        // By a dual-stack socket (ipv6(7)).
        assert_eq!(at("192.0.2.1"), at("::ffff:192.0.2.1"));
    }

    #[test]
    fn what_is_dropped_is_given_back() {
        let shares = Rc::new(Shares::default());
        let (one, other) = (at("192.0.2.1"), at("192.0.2.2"));
        let first = shares.take(one, 1, 2).unwrap();
        let mut second = shares.take(one, 1, 2).unwrap();
        assert!(shares.take(one, 1, 2).is_err());
        assert!(shares.take(other, 1, 2).is_ok());
        drop(first);
        assert_eq!(second.grow(2, 2), Err(TooMuch));
        assert_eq!(second.grow(1, 2), Ok(()));
        second.shrink(2);
        assert!(shares.take(one, 2, 2).is_ok());
    }

    #[test]
    fn who_hides_behind_a_proxy_is_nobody() {
        let believed = AllowedPeers::parse("127.0.0.1,2001:db8::1,unix").unwrap();
        let said = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.append("x-forwarded-for", text.parse().unwrap());
            headers
        };
        for (ip, headers, expected) in [
            ("127.0.0.1", said("192.0.2.1"), Some("192.0.2.1")),
            ("127.0.0.1", said("unknown"), None),
            ("2001:db8::1", said("unknown"), None),
            ("2001:db8::1", said("2001:db8::1"), None),
            ("::ffff:127.0.0.1", HeaderMap::new(), None),
            // A neighbour of the proxy's, who is somebody all the same.
            ("2001:db8::1", said("2001:db8::2"), Some("2001:db8::2")),
            ("127.0.0.1", HeaderMap::new(), None),
            ("", HeaderMap::new(), None),
            ("", said("192.0.2.1"), Some("192.0.2.1")),
            ("192.0.2.9", said("192.0.2.1"), Some("192.0.2.9")),
        ] {
            let ip: Option<IpAddr> = ip.parse().ok();
            let peer = Peer {
                trusted: believed.allows(ip),
                ip,
                address: String::new(),
                port: 0,
                server_name: String::new(),
                server_port: String::new(),
                only_worker: None,
            };
            let client = Client::behind_proxies(&peer, &headers, &believed);
            assert_eq!(client, expected.map(at), "{ip:?} {headers:?}");
        }
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
