//! Clients whose connections ended as wasteful ones: their next connections begin as such. A client that is sent away for a flood
//! would otherwise come back at once, with all of the acceptor's time for its handshake and its first frames.

use std::collections::HashMap;

use stanchion_sys::charge;

use super::connection::Connection;
use super::turns::Waste;
use stanchion_dispatch::storage::clients::Client;

/// So many clients are remembered, each for a minute at most.
const CLIENTS_MAX: usize = 4_096;

/// The bytes that these clients have wasted.
#[derive(Debug, Default)]
pub(super) struct Wasters(HashMap<Client, Waste>);

impl Wasters {
    /// A connection of the client has ended, and had wasted so much.
    pub(super) fn ended(&mut self, client: Client, waste: Waste, now_us: u64) {
        if !waste.is_too_much(now_us) {
            return;
        }
        // The table is for all clients, so no single one pays for it.
        let _charged = charge::to_nobody();
        if self.0.len() >= CLIENTS_MAX {
            self.0.retain(|_, waste| waste.is_too_much(now_us));
        }
        if self.0.len() < CLIENTS_MAX || self.0.contains_key(&client) {
            let known = self.0.entry(client).or_default();
            *known = waste.max(*known);
        }
    }

    /// A connection begins with what earlier ones of its client have wasted, once the client is known: a PROXY header may name it.
    pub(super) fn meet(&mut self, connection: &mut Connection, now_us: u64) {
        if connection.link.turns.is_met || connection.link.transport.is_stream() {
            return;
        }
        if let Some(client) = connection.link.only_client() {
            connection.link.turns.is_met = true;
            connection.link.turns.waste = self.waste_of(client, now_us);
        }
    }

    fn waste_of(&mut self, client: Client, now_us: u64) -> Waste {
        match self.0.get(&client) {
            None => Waste::default(),
            Some(waste) if waste.is_too_much(now_us) => *waste,
            Some(_) => {
                self.0.remove(&client);
                Waste::default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::turns::Turns;
    use super::*;

    const S: u64 = 1_000_000;

    fn client(number: u32) -> Client {
        Client::at(number.to_be_bytes().into())
    }

    /// The waste of a client that sent so many bytes for nothing.
    fn waste(bytes: u64) -> Waste {
        let mut turns = Turns::default();
        turns.count(bytes, 0, 0, S);
        turns.waste
    }

    #[test]
    fn the_next_connection_begins_with_the_most_that_one_before_it_has_wasted() {
        let mut wasters = Wasters::default();
        wasters.ended(client(1), waste(8_000), S);
        assert_eq!(wasters.waste_of(client(1), S), Waste::default());
        wasters.ended(client(1), waste(20_000), S);
        wasters.ended(client(1), waste(10_000), S);
        assert_eq!(wasters.waste_of(client(1), S), waste(20_000));
        assert_eq!(wasters.waste_of(client(2), S), Waste::default());
        // Time has paid, and the client is forgotten.
        assert_eq!(wasters.waste_of(client(1), 20 * S), Waste::default());
        assert!(wasters.0.is_empty());
    }

    #[test]
    fn so_many_clients_are_remembered_and_no_more() {
        let mut wasters = Wasters::default();
        let all = CLIENTS_MAX as u32;
        (0..all).for_each(|number| wasters.ended(client(number), waste(20_000), S));
        wasters.ended(client(all), waste(30_000), S);
        wasters.ended(client(0), waste(30_000), S);
        assert_eq!(wasters.waste_of(client(all), S), Waste::default());
        assert_eq!(wasters.waste_of(client(0), S), waste(30_000));
        // All but one have been repaid, and make room.
        let later_us = 15 * S;
        let mut turns = Turns::default();
        turns.count(20_000, 0, 0, later_us);
        wasters.ended(client(all), turns.waste, later_us);
        assert_eq!(wasters.0.len(), 2);
    }
}
