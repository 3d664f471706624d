//! The memory of clients: how much each has, and which connections the acceptor cuts off when all have more than they may.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use serde::Serialize;
use stanchion_sys::charge;

use super::connection::Connection;
use stanchion_dispatch::storage::clients::Client;
use stanchion_settings::{Believed, Settings};

/// How many of the clients that have most the status names.
const NAMED_MAX: usize = 5;
/// The acceptor cuts connections off until clients have this share less than they may. It looks at all connections again
/// when clients have half of this share more than before: each look takes a while, and connections that are gone may have
/// left memory in requests that still run.
const MARGIN_SHARE: usize = 8;

/// A client, or a connection of a peer that may speak for many clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Sharer {
    Client(Client),
    Connection(u32),
}

/// A connection or stream, and its memory.
#[derive(Clone, Copy, Debug)]
struct Weight {
    sharer: Sharer,
    bytes: usize,
    /// When the client is too slow if it does not move. The slowest client is the first to be due.
    due_us: u64,
    number: u32,
}

/// The memory of one client.
#[derive(Debug, Default, Serialize)]
pub struct ClientMemory {
    /// An address of the client; of a proxy, if it may speak for many.
    pub client: String,
    /// The bytes that are counted.
    pub bytes: usize,
    /// How many connections and streams it has.
    pub connections: usize,
}

/// The connections that have to go until the rest has no more than `bytes_max`, in order: each is the slowest of the client
/// that has most after those before it are gone. Of a client's connections, those with less than the average go last, since
/// they make little room, and before these go those that the server does not wait for.
fn overweight(weights: &[Weight], bytes_max: usize) -> Vec<u32> {
    let all: usize = weights.iter().map(|weight| weight.bytes).sum();
    let mut excess = all.saturating_sub(bytes_max);
    if excess == 0 {
        return Vec::new();
    }
    let mut sharers: HashMap<Sharer, (usize, Vec<_>)> = HashMap::new();
    for weight in weights {
        let (sum, own) = sharers.entry(weight.sharer).or_default();
        *sum += weight.bytes;
        own.push(weight);
    }
    let sharers = sharers.into_iter().map(|(sharer, (sum, own))| {
        let average = sum / own.len();
        let own = own.into_iter().map(|one| {
            let is_heavy = one.bytes >= average;
            (is_heavy, Reverse(one.due_us), one.bytes, one.number)
        });
        let mut own: Vec<_> = own.collect();
        // The connection that goes first is the last.
        own.sort_unstable();
        (sum, sharer, own)
    });
    let mut sharers: BinaryHeap<_> = sharers.collect();
    let mut overweight = Vec::new();
    while excess > 0
        && let Some((sum, sharer, mut own)) = sharers.pop()
        && let Some((_, _, bytes, number)) = own.pop()
    {
        overweight.push(number);
        excess = excess.saturating_sub(bytes);
        sharers.push((sum - bytes, sharer, own));
    }
    overweight
}

impl Weight {
    fn of(connection: &Connection, believed: &Believed, settings: &Settings) -> Self {
        Self {
            sharer: Sharer::of(connection, believed),
            bytes: connection.paying.bytes(),
            due_us: connection.due_us(settings),
            number: connection.link.number,
        }
    }
}

impl Sharer {
    fn of(connection: &Connection, believed: &Believed) -> Self {
        let client = connection.client(believed);
        client.map_or(Self::Connection(connection.link.number), Self::Client)
    }
}

/// The clients that have most memory, the largest first.
pub(super) fn heaviest<'c>(
    connections: impl Iterator<Item = &'c Connection>,
    believed: &Believed,
) -> Vec<ClientMemory> {
    let mut clients: HashMap<Sharer, ClientMemory> = HashMap::new();
    for connection in connections {
        let sharer = Sharer::of(connection, believed);
        let client = clients.entry(sharer).or_default();
        client.bytes += connection.paying.bytes();
        client.connections += 1;
        if client.client.is_empty() {
            client.client.clone_from(&connection.link.peer.address);
        }
    }
    let mut clients: Vec<_> = clients.into_values().collect();
    clients.sort_unstable_by_key(|one| Reverse(one.bytes));
    clients.truncate(NAMED_MAX);
    clients
}

/// The limit of the memory that all clients together may have.
#[derive(Default)]
pub(super) struct WeightLimit {
    /// How much memory clients had after the last look at all of them.
    looked_at_bytes: usize,
}

impl WeightLimit {
    /// Whether a look at all connections is due, because clients have more memory than `bytes_max`; 0 = no limit.
    pub(super) fn is_broken(&mut self, bytes_max: usize) -> bool {
        let all = charge::all();
        if bytes_max == 0 || all <= bytes_max {
            self.looked_at_bytes = 0;
            return false;
        }
        all >= self.looked_at_bytes + margin(bytes_max) / 2
    }

    /// The connections that have to go.
    pub(super) fn overweight<'c>(
        connections: impl Iterator<Item = &'c Connection>,
        believed: &Believed,
        settings: &Settings,
    ) -> Vec<u32> {
        let weights = connections.map(|one| Weight::of(one, believed, settings));
        let weights: Vec<_> = weights.collect();
        let bytes_max = settings.buffers.max_client_memory;
        overweight(&weights, bytes_max - margin(bytes_max))
    }

    /// Notes that these connections are gone.
    pub(super) fn has_looked(&mut self) {
        self.looked_at_bytes = charge::all();
    }
}

fn margin(bytes_max: usize) -> usize {
    bytes_max / MARGIN_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_the_client_that_has_most_goes_first_until_the_rest_fits() {
        let client = |last| Sharer::Client(Client::at([192, 0, 2, last].into()));
        let [one, other] = [client(1), client(2)];
        let proxied = Sharer::Connection(9);
        // (sharer, bytes, due); the number is the row.
        let rows = [
            (one, 10, 300),
            (one, 10, 100),
            (one, 10, 200),
            (other, 25, 50),
            (proxied, 20, 1),
            (other, 1, u64::MAX),
            (one, 2, u64::MAX),
            (one, 3, u64::MAX),
        ];
        let weights: Vec<_> = (0..)
            .zip(rows)
            .map(|(number, (sharer, bytes, due_us))| Weight {
                sharer,
                bytes,
                due_us,
                number,
            })
            .collect();
        for (bytes_max, expected) in [
            (81, &[][..]),
            (80, &[1]),
            (71, &[1]),
            // The other client has most now, by a byte.
            (70, &[1, 3]),
            (46, &[1, 3]),
            (45, &[1, 3, 2]),
            (35, &[1, 3, 2, 4]),
            (5, &[1, 3, 2, 4, 0, 7]),
            (0, &[1, 3, 2, 4, 0, 7, 6, 5]),
        ] {
            assert_eq!(overweight(&weights, bytes_max), expected, "{bytes_max}");
        }
        assert_eq!(overweight(&[], 0), &[0_u32; 0]);
    }
}
