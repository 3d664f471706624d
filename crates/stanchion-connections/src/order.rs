//! The order in which connections have their turns: connections of which the kernel or another part of the server has news go first, then one
//! that has used up its turn, and last the wasteful ones, for a small part of the time.
//!
//! A turn of a connection is 256 KiB at most, or 0.1 ms after its first 4 KiB. Of the connections that stand behind,
//! one goes on in each turn of the loop, or several that have little to do: clients by turns, and then connections.
//! Once a connection of a client has used up its turn, or all of the client's have had 16 KiB, its others stand behind,
//! too, if the kernel has news of them in that turn of the loop. The tally counts turns, so that the server finds a
//! turn that does not end (`stanchion_sys::signal::spin`), and a turn that does not begin
//! (`stanchion_generation::heartbeat`).

use stanchion_sys::clock::monotonic_us;

use super::Connections;
use super::transport::TIMED_BYTES;
use crate::poller::{Poller, Ready};
use stanchion_dispatch::storage::woken::CLIENT_BYTES_MAX;
use stanchion_requests::Requests;

/// How many connections that have used up their turn go on in one turn of the loop, at most.
const BEHIND_MAX: usize = 16;

/// The loop drives wasteful connections for so long, one after the other. The last of them may use up its turn, which comes on
/// top ([`Transport`]).
///
/// [`Transport`]: super::transport::Transport
const WASTE_US_MAX: u64 = 100;
/// Then wasteful connections rest for so long: however many there are, they take between a seventh and a quarter of its time.
const WASTE_REST_US: u64 = 600;

impl Connections {
    /// Drives a connection of which the kernel has news. If another connection of its client has used up its turn meanwhile,
    /// this one stands behind: so many connections of one client get no more of a turn of the loop than a single one.
    pub fn hear(&mut self, number: u32, ready: Ready, requests: &mut Requests, poller: &Poller) {
        if let Some(connection) = self.table.get_mut(number)
            && !connection.link.turns.is_behind
            && (connection.link.turns.is_wasteful(requests.now_us)
                || connection.link.client_has_spent(&requests.wakes))
        {
            connection.note_ready(Some(ready));
            connection.link.wake_later(&requests.wakes, requests.now_us);
            return;
        }
        self.drive(number, Some(ready), requests, poller);
        if let Some(connection) = self.table.get_mut(number)
            && let bytes = connection.link.transport.turn_bytes()
            && bytes >= TIMED_BYTES
            && let Some(client) = connection.link.only_client()
        {
            requests.wakes.clients.had(client, bytes);
        }
    }

    /// Drives a connection for which a worker, a thread, a clock or another connection has left a note.
    pub fn wake(&mut self, number: u32, requests: &mut Requests, poller: &Poller) {
        match self.table.get_mut(number) {
            Some(connection) if connection.link.turns.is_wasteful(requests.now_us) => {
                connection.link.wake_later(&requests.wakes, requests.now_us);
            }
            Some(_) => {
                self.drive(number, None, requests, poller);
            }
            None => {}
        }
    }

    /// Has one connection go on that has used up its turn; and further ones as long as they have little to do.
    pub fn drive_behind(&mut self, requests: &mut Requests, poller: &Poller) {
        let mut bytes = 0;
        for _ in 0..BEHIND_MAX {
            let Some(number) = requests.wakes.clients.next_behind() else {
                return;
            };
            self.drive_from_behind(number, requests, poller);
            if let Some(connection) = self.table.get_mut(number) {
                bytes += connection.link.transport.turn_bytes();
                if connection.link.turns.is_behind {
                    return;
                }
            }
            if bytes >= CLIENT_BYTES_MAX {
                return;
            }
        }
    }

    /// Has wasteful connections go on for a moment, if they have rested.
    pub fn drive_wasteful(&mut self, requests: &mut Requests, poller: &Poller) {
        if !requests.wakes.clients.may_waste(requests.now_us) {
            return;
        }
        let since_us = monotonic_us();
        let mut now_us = since_us;
        while now_us.saturating_sub(since_us) < WASTE_US_MAX
            && let Some(number) = requests.wakes.clients.next_wasteful()
        {
            self.drive_from_behind(number, requests, poller);
            now_us = monotonic_us();
        }
        let spent_us = now_us.saturating_sub(since_us);
        requests
            .wakes
            .clients
            .rest_until(requests.now_us + spent_us + WASTE_REST_US);
    }

    /// Drives a connection that stands behind others no more.
    fn drive_from_behind(&mut self, number: u32, requests: &mut Requests, poller: &Poller) {
        if let Some(connection) = self.table.get_mut(number) {
            connection.link.turns.is_behind = false;
        }
        self.drive(number, None, requests, poller);
    }
}
