//! The connections of a server without its loop, doors and workers, which tests and the fuzzer play.

use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Duration;

use super::{Audience, Connections, Newcomer};
use crate::poller::{Poller, Token};
use stanchion_dispatch::request::Peer;
use stanchion_dispatch::storage::payers::Payers;
use stanchion_requests::Requests;
use stanchion_requests::lifecycle::Lifecycle;

/// Turns of the loop that any test takes at most.
pub(super) const TURNS_MAX: usize = 2_000;

/// A server, and the client's end of its first connection where the test keeps that here.
pub(super) struct Stage<S = UnixStream> {
    pub(super) requests: Requests,
    pub(super) poller: Poller,
    pub(super) clients: Connections,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the fuzzer has clients of its own")
    )]
    pub(super) socket: S,
}

impl<S> Stage<S> {
    /// A server that is open, and has no connection.
    pub(super) fn of(mut requests: Requests, payers: Rc<Payers>, socket: S) -> Self {
        requests.serving.lifecycle = Lifecycle::Open;
        Self {
            requests,
            poller: Poller::new().expect("epoll"),
            clients: Connections::new(Audience::Clients, payers),
            socket,
        }
    }

    /// Adds a connection, as the doors do.
    pub(super) fn let_in(&mut self, ours: UnixStream, peer: Peer, is_turned_away: bool) {
        let newcomer = Newcomer {
            socket: ours.into(),
            peer,
            claim: None,
            is_turned_away,
            paying: self.clients.take_payer(),
        };
        let added = self.clients.add(newcomer, &mut self.requests, &self.poller);
        added.expect("it is watched");
    }

    /// Makes turns of the loop until there is no news.
    #[cfg(test)]
    pub(super) fn turn(&mut self) {
        for _ in 0..TURNS_MAX {
            if !self.turn_once() {
                return;
            }
        }
        panic!("it comes to no rest");
    }

    /// Makes one turn of the loop; false if there was no news. If only wasteful connections have something to do, their rest
    /// is over at once.
    pub(super) fn turn_once(&mut self) -> bool {
        self.poller.wait(Duration::ZERO).expect("epoll");
        let mut woken = Vec::new();
        self.requests.wakes.clients.take(&mut woken);
        if self.poller.news() == 0 && woken.is_empty() && self.requests.wakes.clients.is_empty() {
            let Some(due_us) = self.requests.wakes.clients.wasteful_due_us() else {
                return false;
            };
            self.requests.now_us = self.requests.now_us.max(due_us);
        }
        for index in 0..self.poller.news() {
            let (source, ready) = self.poller.get(index);
            let Token::Client(number) = source else {
                panic!("{source:?}");
            };
            let (requests, poller) = (&mut self.requests, &self.poller);
            self.clients.hear(number, ready, requests, poller);
        }
        for number in woken {
            let (requests, poller) = (&mut self.requests, &self.poller);
            self.clients.wake(number, requests, poller);
        }
        let (requests, poller) = (&mut self.requests, &self.poller);
        self.clients.drive_behind(requests, poller);
        self.clients.drive_wasteful(requests, poller);
        self.requests.wakes.clients.end_turn();
        self.clients.end_turn();
        true
    }

    /// Has a connection have sent bytes that carry nothing.
    #[cfg(test)]
    pub(super) fn make_wasteful(&mut self, number: u32) {
        let connection = self.clients.table.get_mut(number).expect("it is there");
        let now_us = self.requests.now_us;
        connection.link.turns.count(1 << 20, 0, 0, now_us);
        assert!(connection.link.turns.is_wasteful(now_us));
    }

    /// Looks at deadlines, this long after the last moment.
    #[cfg(test)]
    pub(super) fn later(&mut self, by_us: u64) {
        self.requests.now_us += by_us;
        self.clients.look(false, &mut self.requests, &self.poller);
        self.clients.end_turn();
    }
}
