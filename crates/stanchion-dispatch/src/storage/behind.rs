//! Connections that have used up their turn: they go on one by one, turns by client first and then by connection.

use std::collections::{HashMap, VecDeque};

use super::clients::Client;

/// All connections of a client together may have so many bytes in one turn of the loop, and the connections that go on
/// from behind may have as many: in frames of one byte they take 0.1 ms.
pub const CLIENT_BYTES_MAX: usize = 16 << 10;

/// A client with all its connections, or a connection of a proxy or without an address, waits for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Who {
    Client(Client),
    Connection(u32),
}

impl Who {
    fn of(client: Option<Client>, connection: u32) -> Self {
        client.map_or(Self::Connection(connection), Self::Client)
    }
}

/// The connections that have used up their turn, first come, first served, of each client; there are at most as many as
/// connections.
#[derive(Debug, Default)]
pub(super) struct FairQueue {
    /// Clients and connections, in the order of their turns.
    turns: VecDeque<Who>,
    lines: HashMap<Who, VecDeque<u32>>,
    /// Bytes that the connections of clients have had since the loop's turn began.
    had_bytes: HashMap<Client, usize>,
}

impl FairQueue {
    /// Adds a connection that has used up its turn, or whose client has.
    pub(super) fn stand(&mut self, connection: u32, client: Option<Client>) {
        let who = Who::of(client, connection);
        let line = self.lines.entry(who).or_default();
        if line.is_empty() {
            self.turns.push_back(who);
        }
        line.push_back(connection);
        if let Some(client) = client {
            self.had_bytes.insert(client, CLIENT_BYTES_MAX);
        }
    }

    /// Counts bytes that a connection of the client has had.
    pub(super) fn had(&mut self, client: Client, bytes: usize) {
        let had_bytes = self.had_bytes.entry(client).or_default();
        *had_bytes = had_bytes.saturating_add(bytes);
    }

    /// Whether another connection of the client has used up its turn in this turn of the loop, or all connections of
    /// the client have had as much.
    pub(super) fn has_spent(&self, client: Client) -> bool {
        let had_bytes = self.had_bytes.get(&client);
        had_bytes.is_some_and(|bytes| *bytes >= CLIENT_BYTES_MAX)
    }

    /// Ends a turn of the loop.
    pub(super) fn end_turn(&mut self) {
        // Most turns have none, and a map that had many costs as much to clear as they did.
        if !self.had_bytes.is_empty() {
            self.had_bytes = HashMap::new();
        }
    }

    /// Takes the next connection: of the client whose turn it is, the connection that has waited for the longest.
    pub(super) fn next(&mut self) -> Option<u32> {
        let who = self.turns.pop_front()?;
        let line = self.lines.get_mut(&who)?;
        let connection = line.pop_front();
        if line.is_empty() {
            self.lines.remove(&who);
        } else {
            self.turns.push_back(who);
        }
        connection
    }

    /// Removes a connection that is gone.
    pub(super) fn leave(&mut self, connection: u32, client: Option<Client>) {
        let who = Who::of(client, connection);
        let Some(line) = self.lines.get_mut(&who) else {
            return;
        };
        line.retain(|one| *one != connection);
        if line.is_empty() {
            self.lines.remove(&who);
            self.turns.retain(|one| *one != who);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    #[cfg(test)]
    pub(super) fn is_forgotten(&self) -> bool {
        self.is_empty() && self.lines.is_empty() && self.had_bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> Client {
        Client::at([192, 0, 2, number].into())
    }

    fn all(behind: &mut FairQueue) -> Vec<u32> {
        std::iter::from_fn(|| behind.next()).collect()
    }

    #[test]
    fn a_client_has_one_turn_however_many_connections_it_has() {
        let mut behind = FairQueue::default();
        (0..8).for_each(|connection| behind.stand(connection, Some(client(1))));
        behind.stand(10, Some(client(2)));
        behind.stand(11, Some(client(2)));
        // Connections from a proxy, or of a unix socket, are of many clients.
        behind.stand(20, None);
        behind.stand(21, None);
        assert_eq!(all(&mut behind), [0, 10, 20, 21, 1, 11, 2, 3, 4, 5, 6, 7]);
        assert!(behind.is_empty() && behind.lines.is_empty());
    }

    #[test]
    fn who_comes_again_and_again_waits_for_one_turn_of_each_other_client() {
        let mut behind = FairQueue::default();
        (0..8).for_each(|connection| behind.stand(connection, Some(client(1))));
        behind.stand(10, Some(client(2)));
        let mut seen = Vec::new();
        for _ in 0..8 {
            let next = behind.next().unwrap();
            behind.stand(next, Some(client(if next == 10 { 2 } else { 1 })));
            seen.push(next);
        }
        assert_eq!(seen, [0, 10, 1, 10, 2, 10, 3, 10]);
    }

    #[test]
    fn who_is_gone_has_no_turn() {
        let mut behind = FairQueue::default();
        for (connection, of) in [(0, Some(1)), (1, Some(1)), (2, Some(2)), (3, None)] {
            behind.stand(connection, of.map(client));
        }
        behind.leave(0, Some(client(1)));
        behind.leave(2, Some(client(2)));
        behind.leave(3, None);
        behind.leave(9, Some(client(9)));
        assert_eq!(all(&mut behind), [1]);
        assert!(behind.is_empty() && behind.lines.is_empty());
    }

    #[test]
    fn a_client_has_spent_its_turn_until_that_of_the_loop_is_over() {
        let mut behind = FairQueue::default();
        let [one, other] = [1, 2].map(client);
        behind.stand(0, Some(one));
        behind.stand(1, None);
        assert!(behind.has_spent(one) && !behind.has_spent(other));
        behind.end_turn();
        assert!(!behind.has_spent(one) && !behind.is_empty());
        for (bytes, has_spent) in [(CLIENT_BYTES_MAX - 1, false), (1, true)] {
            behind.had(other, bytes);
            assert_eq!(behind.has_spent(other), has_spent);
        }
        assert!(!behind.has_spent(one));
    }
}
