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

use super::phase::Phase;
use super::stage::{Stage, TURNS_MAX};
use super::*;
use stanchion_dispatch::rig::peer;
use stanchion_dispatch::ticket::{Start, Ticket};
use stanchion_generation::messages::WorkerRef;
use stanchion_generation::tally::Outcome;
use stanchion_requests::rig::{S, answer, requests, undated};

/// The only worker.
const WORKER: WorkerRef = WorkerRef { index: 0, epoch: 1 };

impl Stage {
    fn new(settings: &str) -> Self {
        let (socket, ours) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut stage = Self::of(requests(settings), Rc::default(), socket);
        stage.admit(ours, false);
        stage
    }

    fn admit(&mut self, ours: UnixStream, is_turned_away: bool) {
        self.let_in(ours, peer(), is_turned_away);
    }

    /// Has another client connect, which is this peer, and gives its end.
    fn connect(&mut self, peer: Peer) -> UnixStream {
        let (theirs, ours) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        self.let_in(ours, peer, false);
        theirs
    }

    /// Has the worker come to its seats.
    fn seat_worker(&mut self) {
        let now_us = self.requests.now_us;
        let dispatch = &mut self.requests.dispatch;
        dispatch.worker_ready(WORKER, (0, 1, 1), now_us);
    }

    /// Has the client send this.
    fn say(&mut self, text: &str) {
        self.socket.write_all(text.as_bytes()).unwrap();
        self.turn();
    }

    /// The bytes that the client has got, and whether the connection has ended.
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
        self.clients.table.get_mut(0).expect("it is here")
    }

    fn doing(&mut self) -> Option<ConnectionState> {
        self.clients.table.get_mut(0).map(|one| one.phase.doing())
    }

    /// The request that waits for its answer.
    fn ticket(&mut self) -> Rc<Ticket> {
        match &self.connection().phase {
            Phase::Waiting(waiting) => Rc::clone(&waiting.request.ticket),
            _ => panic!("no request waits"),
        }
    }

    /// Whether a request waits, and no more of its body is to come.
    fn takes_no_body(&mut self) -> bool {
        let phase = &self.connection().phase;
        matches!(phase, Phase::Waiting(waiting) if waiting.request.upload.is_none())
    }

    /// Has the app answer.
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

    /// Ends all connections, and checks that the counts add up, whatever has happened.
    fn close_books(mut self) {
        self.clients.abandon_all(&mut self.requests);
        assert_eq!(self.clients.len(), 0);
        let counts = self.requests.common.tally.read();
        assert_eq!((counts.in_flight(), counts.connections()), (0, 0));
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\n";
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
