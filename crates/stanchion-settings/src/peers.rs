//! The peers that are believed when they say which client a request comes from.

use std::fmt;
use std::net::IpAddr;

use stanchion_http::{ClientField, Head};

/// The word for peers on unix sockets, which have no address.
const UNIX: &str = "unix";

/// The proxies whose forwarding headers count: `*`, or addresses, networks and `unix` with commas
/// between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedPeers {
    text: String,
    any: bool,
    unix: bool,
    networks: Vec<Network>,
}

/// The proxies that are believed, and the field in which they name the client of a request.
#[derive(Clone, Debug)]
pub struct Believed {
    /// `forwarded_allow_ips`.
    pub peers: AllowedPeers,
    /// `forwarded_header`.
    pub field: ClientField,
}

impl Believed {
    /// The client of a request that came from `peer`; the head that it has `said` counts if the peer is believed.
    pub fn client(&self, peer: Option<IpAddr>, said: Option<&Head>) -> Option<IpAddr> {
        self.field.client(peer, said, |ip| self.peers.lists(ip))
    }
}

/// An address and the length of the prefix that a peer must share with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    prefix_bits: u32,
}

impl AllowedPeers {
    /// Reads `*`, `127.0.0.1,::1,unix`, `10.0.0.0/8`; an empty text allows no peer.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut peers = Self {
            text: text.to_owned(),
            any: false,
            unix: false,
            networks: Vec::new(),
        };
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            if part == "*" {
                peers.any = true;
            } else if part == UNIX {
                peers.unix = true;
            } else {
                peers.networks.push(Network::parse(part)?);
            }
        }
        Ok(peers)
    }

    /// Whether this peer is believed. `None` is a peer without an address, on a unix socket.
    pub fn allows(&self, peer: Option<IpAddr>) -> bool {
        self.any || peer.map_or(self.unix, |peer| self.lists(peer))
    }

    /// Whether the address is listed, itself or by its network; `*` lists none.
    pub fn lists(&self, address: IpAddr) -> bool {
        // A dual-stack socket shows an IPv4 peer as ::ffff:a.b.c.d (ipv6(7)).
        let address = address.to_canonical();
        self.networks
            .iter()
            .any(|network| network.contains(address))
    }
}

impl Network {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not an address, a network, unix or *");
        let (address, prefix) = text
            .split_once('/')
            .map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let width_bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix {
            None => return Ok(Self::of(address.to_canonical())),
            Some(prefix) => prefix.parse().map_err(|_| wrong())?,
        };
        if prefix_bits > width_bits {
            return Err(wrong());
        }
        let network = Self {
            address,
            prefix_bits,
        };
        // 10.0.0.1/8 is more often a slip for 10.0.0.1/32 than meant; gunicorn refuses it too.
        if bits(address) & !network.mask() != 0 {
            return Err(format!("'{text}' has host bits set"));
        }
        Ok(network)
    }

    /// The network of this address alone.
    fn of(address: IpAddr) -> Self {
        Self {
            address,
            prefix_bits: if address.is_ipv4() { 32 } else { 128 },
        }
    }

    fn contains(self, peer: IpAddr) -> bool {
        self.address.is_ipv4() == peer.is_ipv4()
            && (bits(self.address) ^ bits(peer)) & self.mask() == 0
    }

    /// The prefix as a mask over [`bits`].
    fn mask(self) -> u128 {
        u128::MAX.checked_shl(128 - self.prefix_bits).unwrap_or(0)
    }
}

/// The address with its first bit at the top, so that one mask serves both families.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl fmt::Display for AllowedPeers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn allows(list: &str, peer: &str) -> bool {
        AllowedPeers::parse(list)
            .unwrap()
            .allows(Some(peer.parse().unwrap()))
    }

    #[test]
    fn addresses_networks_and_everybody() {
        assert!(allows("127.0.0.1,::1", "127.0.0.1"));
        assert!(allows("127.0.0.1, ::1", "::1"));
        assert!(allows("127.0.0.1", "::ffff:127.0.0.1"));
        assert!(!allows("127.0.0.1,::1", "127.0.0.2"));
        assert!(allows("10.0.0.0/8", "10.255.0.1"));
        assert!(!allows("10.0.0.0/8", "11.0.0.1"));
        assert!(allows("fd00::/8", "fd12::1"));
        assert!(allows("0.0.0.0/0", "192.0.2.1"));
        assert!(!allows("0.0.0.0/0", "2001:db8::1"));
        assert!(allows("*", "2001:db8::1"));
        assert!(!allows("", "127.0.0.1"));
    }

    #[test]
    fn a_peer_on_a_unix_socket_is_believed_if_the_list_says_so() {
        for (list, expected) in [
            ("", false),
            ("127.0.0.1,::1", false),
            ("0.0.0.0/0,::/0", false),
            ("unix", true),
            ("127.0.0.1, unix", true),
            ("*", true),
        ] {
            let peers = AllowedPeers::parse(list).unwrap();
            assert_eq!(peers.allows(None), expected, "{list}");
        }
        assert!(!allows("unix", "127.0.0.1"));
    }

    #[test]
    fn mistakes_are_refused() {
        for text in [
            "localhost",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "::/129",
            "1.2.3",
            "*.*",
            "UNIX",
            "unix:",
        ] {
            assert!(AllowedPeers::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parse_never_panics(text in r"[0-9a-f:./*, ]{0,40}|\PC{0,20}") {
            let _ = AllowedPeers::parse(&text);
        }

        #[test]
        fn an_address_allows_itself(peer: IpAddr) {
            prop_assert!(allows(&peer.to_canonical().to_string(), &peer.to_string()));
        }
    }
}
