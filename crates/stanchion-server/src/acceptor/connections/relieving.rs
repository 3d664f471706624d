//! The memory of clients: how much each has, and which connections the acceptor cuts off when all have more than they may.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use stanchion_sys::charge;

use super::connection::{Connection, Fate, Phase};
use super::intake::CutOff;
use super::{Connections, after};
use crate::acceptor::poller::Poller;
use crate::acceptor::requests::Requests;
use crate::acceptor::storage::clients::Client;

/// The status names so many of the clients that have most.
const NAMED_MAX: usize = 5;

/// A holder of memory: a client, or a connection of a proxy, which speaks for many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Holder {
    Client(Client),
    Connection(u32),
}

/// The memory of one holder.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) bytes: usize,
    /// Connections and streams.
    pub(crate) connections: usize,
    /// The address of one of its connections, as the log shows it.
    pub(crate) address: String,
}

impl Connection {
    fn holder(&self) -> Holder {
        let ip = self.peer.limited_ip();
        ip.map_or(Holder::Connection(self.number), |ip| {
            Holder::Client(Client::at(ip))
        })
    }

    /// The time that the client has left at its pace. The slowest client has least, and a client that the server does not
    /// wait for has most.
    fn in_hand_us(&self, requests: &Requests) -> u64 {
        let now_us = requests.now_us;
        let sends = match &self.phase {
            Phase::Body(body) => body.pace.in_hand_us(now_us),
            Phase::Head(head) => {
                let limit = requests.common.settings.header_timeout.as_duration();
                limit.map(|limit| after(head.since_us, limit).saturating_sub(now_us))
            }
            _ => None,
        };
        let uploads = self.upload.as_ref();
        let uploads = uploads.and_then(|upload| upload.pace.in_hand_us(now_us));
        let takes = self.intake.in_hand_us(now_us);
        let waits = [sends, uploads, takes].into_iter().flatten();
        waits.min().unwrap_or(u64::MAX)
    }
}

impl Connections {
    /// The holders that have most memory, in order.
    pub(crate) fn memory(&self) -> Vec<Held> {
        let mut held: HashMap<Holder, Held> = HashMap::new();
        for connection in self.roll.iter() {
            let of_holder = held.entry(connection.holder()).or_default();
            of_holder.bytes += connection.memory.bytes();
            of_holder.connections += 1;
            if of_holder.address.is_empty() {
                of_holder.address.clone_from(&connection.peer.address);
            }
        }
        let mut held: Vec<_> = held.into_values().collect();
        held.sort_unstable_by_key(|one| Reverse(one.bytes));
        held.truncate(NAMED_MAX);
        held
    }

    /// Cuts connections off if all clients together have more memory than they may: the slowest of the client that has most
    /// goes first, and so on until the rest fits.
    pub(crate) fn relieve(&mut self, requests: &mut Requests, poller: &Poller) {
        let bytes_max = requests.common.settings.max_client_memory;
        if bytes_max == 0 || charge::all() <= bytes_max {
            return;
        }
        for number in self.too_heavy(bytes_max, requests) {
            if let Some(connection) = self.roll.get_mut(number) {
                connection.cut_off(CutOff::HeldMemory, requests);
                self.settle(number, Fate::Ends, requests, poller);
            }
        }
    }

    /// The connections that have to go, in order. Memory that connections have left behind goes by itself.
    fn too_heavy(&self, bytes_max: usize, requests: &Requests) -> Vec<u32> {
        let mut excess = 0;
        let mut holders: HashMap<Holder, (usize, Vec<_>)> = HashMap::new();
        for connection in self.roll.iter() {
            let bytes = connection.memory.bytes();
            let (sum, ones) = holders.entry(connection.holder()).or_default();
            *sum += bytes;
            excess += bytes;
            let in_hand_us = connection.in_hand_us(requests);
            ones.push((Reverse(in_hand_us), bytes, connection.number));
        }
        excess = excess.saturating_sub(bytes_max);
        let holders = holders.into_values();
        let holders = holders.map(|(sum, mut ones)| {
            // The slowest last, and of those that are as slow the one that has most.
            ones.sort_unstable();
            (sum, ones)
        });
        let mut holders: BinaryHeap<_> = holders.collect();
        let mut too_heavy = Vec::new();
        while excess > 0
            && let Some((sum, mut ones)) = holders.pop()
            && let Some((_, bytes, number)) = ones.pop()
        {
            too_heavy.push(number);
            excess = excess.saturating_sub(bytes);
            holders.push((sum - bytes, ones));
        }
        too_heavy
    }
}
