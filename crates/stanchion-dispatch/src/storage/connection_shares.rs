//! How many connections each client has.

use std::net::IpAddr;
use std::rc::Rc;

use super::clients::{Client, Share, Shares, TooMuch};
use stanchion_settings::Settings;

/// The acceptor answers 429 on at most so many connections of a client past its limit, at a time.
const TURNED_AWAY_MAX_EACH: u64 = 16;

/// How many connections each client may have, and has.
#[derive(Default)]
pub struct ConnectionShares {
    /// The limit, if there is one.
    each_max: Option<u64>,
    shares: Rc<Shares>,
    /// The same for connections past the limit, on which the client is answered 429.
    turned_away_max_each: u64,
    turned_away: Rc<Shares>,
    /// Streams of HTTP/2, of which a client may have as many as it may have connections.
    streams: Rc<Shares>,
}

/// How a connection counts among the connections of its client.
pub enum ConnectionAdmission {
    /// Connections of its client are not limited.
    Unlimited,
    /// The connection is within the limit.
    Served(Share),
    /// The connection is past the limit, and is answered 429.
    ToBeTold(Share),
    /// The connection is past the limit, and as many others as may be are answered 429 already.
    TooMuch,
}

impl ConnectionShares {
    /// Makes the shares of so many connections in all.
    pub fn new(settings: &Settings, connections_max: usize) -> Self {
        Self {
            each_max: max_each(settings, connections_max),
            shares: Rc::default(),
            turned_away_max_each: turned_away_max_each(connections_max),
            turned_away: Rc::default(),
            streams: Rc::default(),
        }
    }

    /// Takes one more stream of HTTP/2, if the client at this address may have it; the limit does not apply to a peer
    /// without an address.
    pub fn claim_stream(&self, ip: Option<IpAddr>) -> Result<Option<Share>, TooMuch> {
        let limited = ip.zip(self.each_max);
        let claim = limited.map(|(ip, most)| self.streams.take(Client::at(ip), 1, most));
        claim.transpose()
    }

    /// Counts one more connection of the client at this address; the limit does not apply to a peer without an address.
    pub fn claim(&self, ip: Option<IpAddr>) -> ConnectionAdmission {
        let Some((ip, most)) = ip.zip(self.each_max) else {
            return ConnectionAdmission::Unlimited;
        };
        let client = Client::at(ip);
        let served = self
            .shares
            .take(client, 1, most)
            .map(ConnectionAdmission::Served);
        let told = |_| {
            let told = self.turned_away.take(client, 1, self.turned_away_max_each);
            told.map(ConnectionAdmission::ToBeTold)
        };
        served.or_else(told).unwrap_or(ConnectionAdmission::TooMuch)
    }
}

/// How many of `all` connections, streams or sessions one client may have, if there is a limit: never so many that no other
/// client has one.
pub(crate) fn max_each(settings: &Settings, all: usize) -> Option<u64> {
    let wanted = u64::from(settings.limits.max_connections_per_client);
    (wanted > 0).then(|| wanted.min(all as u64 / 2).max(1))
}

/// How many of so many connections one client may have that is only being told that it has too many: each
/// takes a place until that is said.
fn turned_away_max_each(connections_max: usize) -> u64 {
    TURNED_AWAY_MAX_EACH.min(connections_max as u64 / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_never_has_all_connections() {
        for (asked, all, expected) in [
            (1_024, 16_384, Some(1_024)),
            (1_024, 480, Some(240)),
            (1_024, 3, Some(1)),
            (1_024, 1, Some(1)),
            (7, 16_384, Some(7)),
            (20_000, 16_384, Some(8_192)),
            (0, 16_384, None),
        ] {
            let settings = format!(r#"{{"max_connections_per_client": {asked}}}"#);
            let settings = Settings::from_json(&settings).unwrap();
            let each = max_each(&settings, all);
            assert_eq!(each, expected, "{asked} of {all}");
            let most = each.map_or(0, |each| each + turned_away_max_each(all));
            assert!(all == 1 || most < all as u64, "{asked} of {all}");
        }
    }
}
