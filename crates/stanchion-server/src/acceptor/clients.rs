//! How many connections each client has, where that is limited.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

/// A host that has IPv6 addresses at all mostly has the 2⁶⁴ of a network to itself (RFC 6177), so
/// a network counts as one client.
const V6_CLIENT_BITS: u32 = 64;

/// Connections by client. It has an entry for each client that is here, so it is bounded by
/// `max_connections`.
#[derive(Default)]
pub(super) struct Clients {
    /// 0 = no limit, and then nobody is counted.
    max: u32,
    here: HashMap<IpAddr, u32>,
}

/// A client of whom a connection is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted(IpAddr);

/// The client has as many connections as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMany;

impl Clients {
    pub(super) fn new(max: u32) -> Self {
        let here = HashMap::new();
        Self { max, here }
    }

    /// One more connection from this address; `None` where nobody counts.
    pub(super) fn enter(&mut self, address: IpAddr) -> Result<Option<Counted>, TooMany> {
        if self.max == 0 {
            return Ok(None);
        }
        let client = client(address);
        let connections = self.here.entry(client).or_default();
        if *connections >= self.max {
            return Err(TooMany);
        }
        *connections += 1;
        Ok(Some(Counted(client)))
    }

    /// It has ended.
    pub(super) fn leave(&mut self, Counted(client): Counted) {
        if let Some(connections) = self.here.get_mut(&client) {
            *connections -= 1;
            if *connections == 0 {
                self.here.remove(&client);
            }
        }
    }
}

fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let network = v6.to_bits() & (u128::MAX << (128 - V6_CLIENT_BITS));
            Ipv6Addr::from_bits(network).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(clients: &mut Clients, address: &str) -> Result<Option<Counted>, TooMany> {
        clients.enter(address.parse().unwrap())
    }

    #[test]
    fn each_client_has_its_own_share() {
        let mut clients = Clients::new(2);
        let first = enter(&mut clients, "192.0.2.1").unwrap().unwrap();
        // The same client by a dual-stack socket (ipv6(7)).
        let again = enter(&mut clients, "::ffff:192.0.2.1").unwrap().unwrap();
        assert_eq!(first, again);
        assert_eq!(enter(&mut clients, "192.0.2.1"), Err(TooMany));
        assert!(enter(&mut clients, "192.0.2.2").is_ok());
        clients.leave(first);
        assert!(enter(&mut clients, "192.0.2.1").is_ok());
        assert_eq!(enter(&mut clients, "192.0.2.1"), Err(TooMany));
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let mut clients = Clients::new(1);
        assert!(enter(&mut clients, "2001:db8::1").is_ok());
        assert_eq!(enter(&mut clients, "2001:db8::ffff:0:0:2"), Err(TooMany));
        assert!(enter(&mut clients, "2001:db8:0:1::1").is_ok());
    }

    #[test]
    fn nothing_is_kept_of_who_has_left() {
        let mut clients = Clients::new(1);
        for address in ["192.0.2.1", "2001:db8::1"] {
            let client = enter(&mut clients, address).unwrap().unwrap();
            assert_eq!(enter(&mut clients, address), Err(TooMany));
            clients.leave(client);
        }
        assert!(clients.here.is_empty());
    }

    #[test]
    fn without_a_limit_nobody_is_counted() {
        let mut clients = Clients::new(0);
        for _ in 0..3 {
            assert_eq!(enter(&mut clients, "192.0.2.1"), Ok(None));
        }
        assert!(clients.here.is_empty());
    }
}
