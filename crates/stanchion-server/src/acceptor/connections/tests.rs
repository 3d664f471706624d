//! Connections as clients see them: each over a socket pair, with real requests and no worker.

mod deadlines;
mod fetching;
mod hints;
mod order;
mod sessions;
mod uploads;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::connection::Phase;
use super::*;
use crate::acceptor::dispatch::ticket::{Start, Ticket};
use crate::acceptor::requests::rig::{S, answer, peer, requests, undated};
use crate::tally::Outcome;

/// Turns of the loop that anything here takes at most.
const TURNS_MAX: usize = 2_000;

/// A server with one client.
struct Stage {
    requests: Requests,
    poller: Poller,
    clients: Connections,
    socket: UnixStream,
}

impl Stage {
    fn new(settings: &str) -> Self {
        let (socket, ours) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut stage = Self {
            requests: requests(settings),
            poller: Poller::new().unwrap(),
            clients: Connections::new(Audience::Clients, Rc::default()),
            socket,
        };
        stage.requests.lifecycle = crate::acceptor::lifecycle::Lifecycle::Open;
        stage.admit(ours, false);
        stage
    }

    fn admit(&mut self, ours: UnixStream, is_turned_away: bool) {
        let newcomer = Newcomer {
            socket: ours.into(),
            peer: peer(),
            claim: None,
            is_turned_away,
            paying: self.clients.take_payer(),
        };
        let added = self.clients.add(newcomer, &mut self.requests, &self.poller);
        added.expect("it is watched");
    }

    /// Turns of the loop until there is no news.
    fn turn(&mut self) {
        let mut woken = Vec::new();
        for _ in 0..TURNS_MAX {
            self.poller.wait(Duration::ZERO).unwrap();
            self.requests.woken.take(&mut woken);
            if self.poller.news() == 0 && woken.is_empty() && self.requests.woken.is_empty() {
                return;
            }
            for index in 0..self.poller.news() {
                let (source, ready) = self.poller.get(index);
                let Source::Client(number) = source else {
                    panic!("{source:?}");
                };
                let (requests, poller) = (&mut self.requests, &self.poller);
                self.clients.drive(number, Some(ready), requests, poller);
            }
            for number in woken.drain(..) {
                let (requests, poller) = (&mut self.requests, &self.poller);
                self.clients.drive(number, None, requests, poller);
            }
            let (requests, poller) = (&mut self.requests, &self.poller);
            self.clients.drive_behind(requests, poller);
            self.clients.end_turn();
        }
        panic!("it comes to no rest");
    }

    /// The client sends this.
    fn say(&mut self, text: &str) {
        self.socket.write_all(text.as_bytes()).unwrap();
        self.turn();
    }

    /// A look at deadlines, this long after the last moment.
    fn later(&mut self, by_us: u64) {
        self.requests.now_us += by_us;
        self.clients.look(false, &mut self.requests, &self.poller);
        self.clients.end_turn();
    }

    /// What the client hears, and whether that was the last of it.
    fn heard(&mut self) -> (String, bool) {
        let mut got = Vec::new();
        let is_over = match self.socket.read_to_end(&mut got) {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => true,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                false
            }
        };
        (undated(&got), is_over)
    }

    fn connection(&mut self) -> &mut Connection {
        self.clients.roll.get_mut(0).expect("it is here")
    }

    fn doing(&mut self) -> Option<Doing> {
        self.clients.roll.get_mut(0).map(|one| one.doing())
    }

    /// The request that waits for its answer.
    fn ticket(&mut self) -> Rc<Ticket> {
        match &self.connection().phase {
            Phase::Waiting(waiting) => Rc::clone(&waiting.ticket),
            _ => panic!("no request waits"),
        }
    }

    /// The app answers it.
    fn answer(&mut self, head: &str, body: &str) {
        let ticket = self.ticket();
        let is_head = ticket.request.head.method() == "HEAD";
        ticket.answer(answer(head, body.as_bytes(), is_head, Start::Whole));
        drop(ticket);
        self.turn();
    }

    fn ended(&self, outcome: Outcome) -> u64 {
        self.requests.common.tally.read().ended(outcome)
    }

    /// Whatever has happened, it adds up.
    fn close_books(mut self) {
        self.clients.abandon_all(&mut self.requests);
        assert_eq!(self.clients.len(), 0);
        let counts = self.requests.common.tally.read();
        assert_eq!((counts.in_flight(), counts.connections()), (0, 0));
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\n";
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
