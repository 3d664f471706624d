//! Room for connections: how many there may be, and how many of each client.

use std::rc::Rc;

use stanchion_sys::process;
use tracing::{info, warn};

use crate::acceptor::dispatch::request::Peer;
use crate::acceptor::storage::clients::{Client, Share, Shares};
use crate::settings::Settings;

/// How many connections past those that it may have a client has at a time to be told so on.
const TURNED_AWAY_MAX_EACH: u64 = 16;

/// Descriptors kept for other things than connections: logs, listeners.
const DESCRIPTORS_SPARE: usize = 64;
/// A connection's socket, and the file it sends or the spool file it fills.
const DESCRIPTORS_EACH: usize = 2;

/// How many connections there may be, and who has them.
pub(super) struct Room {
    pub(super) connections_max: usize,
    /// Of these, how many each client may have, where that is limited, and has.
    each_max: Option<u64>,
    shares: Rc<Shares>,
    /// The same of connections on which a client is told that it has too many.
    turned_away_max_each: u64,
    turned_away: Rc<Shares>,
}

/// As what a connection counts among its client's.
pub(super) enum Claim {
    Unlimited,
    Served(Share),
    /// It is one too many.
    ToBeTold(Share),
    /// As many as may be told so already.
    TooMuch,
}

impl Room {
    pub(super) fn new(settings: &Settings, connections_max: usize) -> Self {
        Self {
            connections_max,
            each_max: connections_max_each(settings, connections_max),
            shares: Rc::default(),
            turned_away_max_each: turned_away_max_each(connections_max),
            turned_away: Rc::default(),
        }
    }

    /// One more connection of a client. Behind a trusted proxy are many.
    pub(super) fn claim(&self, peer: &Peer) -> Claim {
        let limited = peer.ip.filter(|_| !peer.trusted).zip(self.each_max);
        let Some((ip, most)) = limited else {
            return Claim::Unlimited;
        };
        let client = Client::at(ip);
        let served = self.shares.take(client, 1, most).map(Claim::Served);
        let told = |_| {
            let told = self.turned_away.take(client, 1, self.turned_away_max_each);
            told.map(Claim::ToBeTold)
        };
        served.or_else(told).unwrap_or(Claim::TooMuch)
    }
}

/// How many connections there may be at a time. Makes room for their descriptors, so that none has to
/// wait for one; to be called before there are threads.
pub(crate) fn connections_max(settings: &Settings, is_first: bool) -> usize {
    let limit = process::raise_open_files();
    let descriptors = usize::try_from(limit).unwrap_or(usize::MAX);
    let wanted = settings.max_connections as usize;
    let connections_max = wanted
        .min(descriptors.saturating_sub(DESCRIPTORS_SPARE) / DESCRIPTORS_EACH)
        // Never none, which would be a server that is up and serves nobody.
        .max(1);
    // Once, not at each reload.
    if connections_max < wanted && is_first {
        info!(
            "at most {connections_max} connections: the limit of open files is {limit} (ulimit -Hn)"
        );
    }
    let needed = connections_max * DESCRIPTORS_EACH + DESCRIPTORS_SPARE;
    if let Err(error) = process::reserve_descriptors(needed.min(descriptors)) {
        warn!(
            "accepting will sometimes pause for about 10 ms until {needed} files have been open once: {error}"
        );
    }
    connections_max
}

/// How many of so many connections one client may have, if there is a limit: never so many that nobody else
/// has one.
fn connections_max_each(settings: &Settings, connections_max: usize) -> Option<u64> {
    let wanted = u64::from(settings.max_connections_per_client);
    (wanted > 0).then(|| wanted.min(connections_max as u64 / 2).max(1))
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
            let each = connections_max_each(&settings, all);
            assert_eq!(each, expected, "{asked} of {all}");
            let most = each.map_or(0, |each| each + turned_away_max_each(all));
            assert!(all == 1 || most < all as u64, "{asked} of {all}");
        }
    }
}
