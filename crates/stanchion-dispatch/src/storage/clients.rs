//! The clients that connections and requests are from, and each client's share of a resource.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;

use stanchion_http::Head;
use stanchion_line::Clients;
use stanchion_sys::charge;

use stanchion_settings::Believed;

/// A host that has IPv6 addresses at all mostly has the 2⁶⁴ of a network to itself (RFC 6177), and may
/// take any of them (RFC 7421), so a network counts as one client.
const V6_CLIENT_BITS: u32 = 64;

/// A client that may have a share: an address, or a network of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Client(IpAddr);

impl Client {
    /// The client at this address.
    pub fn at(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let network = v6.to_bits() & (u128::MAX << (128 - V6_CLIENT_BITS));
                Ipv6Addr::from_bits(network).into()
            }
            v4 @ IpAddr::V4(_) => v4,
        })
    }

    /// The client of a request that came from `peer`; `None` if it is unknown, or if a proxy does not name its client:
    /// then the request may be from any of many. `said` is the head of the request, if the peer is believed.
    pub(crate) fn behind_proxies(
        peer: Option<IpAddr>,
        said: Option<&Head>,
        believed: &Believed,
    ) -> Option<Self> {
        let client = believed.client(peer, said)?;
        // The comparison is by address, and not by network: a client may live next to its proxy.
        let itself = peer.map(|ip| ip.to_canonical()) == Some(client.to_canonical());
        (said.is_none() || !itself).then(|| Self::at(client))
    }
}

/// Each client's share of a resource.
#[derive(Default)]
pub struct Shares(RefCell<Clients<Client>>);

/// A client's share of the resource, given back when this is dropped.
pub struct Share {
    shares: Rc<Shares>,
    client: Client,
    amount: u64,
}

/// The client would have more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuch;

impl Shares {
    /// Takes an amount of the resource for a client, which may have `most` of it in all.
    pub fn take(self: &Rc<Self>, client: Client, amount: u64, most: u64) -> Result<Share, TooMuch> {
        let mut share = self.none_yet(client);
        share.grow(amount, most)?;
        Ok(share)
    }

    /// An empty share, for a client that is about to have something.
    pub(crate) fn none_yet(self: &Rc<Self>, client: Client) -> Share {
        Share {
            shares: Rc::clone(self),
            client,
            amount: 0,
        }
    }
}

impl Share {
    /// Takes so much more, if the client has no more than `most` in all then.
    pub(crate) fn grow(&mut self, amount: u64, most: u64) -> Result<(), TooMuch> {
        // The table is for all clients, so no single one pays for it.
        let charged = charge::to_nobody();
        let taken = self.shares.0.borrow_mut().take(self.client, amount, most);
        drop(charged);
        if !taken {
            return Err(TooMuch);
        }
        self.amount += amount;
        Ok(())
    }

    /// Gives so much back.
    pub(crate) fn shrink(&mut self, amount: u64) {
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
    use stanchion_http::ClientField;

    use super::*;
    use stanchion_settings::AllowedPeers;

    fn at(address: &str) -> Client {
        Client::at(address.parse().unwrap())
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:0:0:2"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
        // The address comes by a dual-stack socket (ipv6(7)).
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
        let believed = Believed {
            peers: AllowedPeers::parse("127.0.0.1,2001:db8::1,unix").unwrap(),
            field: ClientField::XForwardedFor,
        };
        let none = Head::of("GET", "/", &[]);
        let said = |text: &str| Head::of("GET", "/", &[("X-Forwarded-For", text)]);
        for (ip, head, expected) in [
            ("127.0.0.1", said("192.0.2.1"), Some("192.0.2.1")),
            ("127.0.0.1", said("unknown"), None),
            ("2001:db8::1", said("unknown"), None),
            ("2001:db8::1", said("2001:db8::1"), None),
            ("::ffff:127.0.0.1", none.clone(), None),
            // A neighbour of the proxy's is a client of its own.
            ("2001:db8::1", said("2001:db8::2"), Some("2001:db8::2")),
            ("127.0.0.1", none.clone(), None),
            ("", none, None),
            ("", said("192.0.2.1"), Some("192.0.2.1")),
            ("192.0.2.9", said("192.0.2.1"), Some("192.0.2.9")),
        ] {
            let ip: Option<IpAddr> = ip.parse().ok();
            let head = believed.peers.allows(ip).then_some(&head);
            let client = Client::behind_proxies(ip, head, &believed);
            assert_eq!(client, expected.map(at), "{ip:?} {head:?}");
        }
    }
}
