//! The connections of clients. Each is a state machine that never waits ([`Connections::drive`]), and one table has all
//! of them. A connection is the client's side (a transport, a peer and their accounts) and a phase. A step of a phase
//! uses the phase up and gives the next one. HTTP/1.1, the streams of HTTP/2, sessions of `WebSocket`, and operators'
//! connections differ in the transport, the audience and the phases that they are given. [`poller`] is the epoll(7) by
//! which the loop learns what is ready.
//!
//! This crate does not decide what a request means or which worker answers it: a connection gives its requests to
//! [`stanchion_requests::Requests`], and takes what comes. It may not have listeners or threads, fork, or use unsafe
//! code. Each deadline is judged by the time that the loop passes down. Only here h2 takes frames apart.

#![forbid(unsafe_code)]

mod audience;
mod connection;
mod connection_table;
#[cfg(any(test, fuzzing))]
pub(crate) mod conversation;
mod form;
mod head_fields;
mod intake;
mod judgement;
mod judging;
mod ledger;
mod link;
mod order;
mod outcome;
mod overhead;
mod overweight;
mod pace;
mod phase;
pub mod poller;
#[cfg(any(test, fuzzing))]
mod stage;
mod stream;
mod streams;
#[cfg(test)]
mod tests;
pub(crate) mod transport;
mod turns;
mod wasters;
mod wire;

/// Entries for `fuzz/`.
#[cfg(fuzzing)]
pub mod fuzzing {
    use crate::conversation::play;

    /// Plays a script on a server, and panics if something does not add up.
    pub fn conversation(script: &[u8]) {
        play(script);
    }
}

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

pub use audience::Audience;
use connection::Connection;
pub use connection::DriveOutcome;
use connection_table::ConnectionTable;
use judgement::{CutOff, WantedResources};
use link::ClientLink;
pub use overweight::ClientMemory;
use overweight::WeightLimit;
use pace::GRACE;
pub use pace::after;
pub use phase::ConnectionState;
use phase::LAST_WORD;
use poller::{Poller, Ready, Token};
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::reply::Reply;
use stanchion_dispatch::request::Peer;
use stanchion_dispatch::storage::clients::Share;
use stanchion_dispatch::storage::payers::{Payers, Paying};
use stanchion_generation::tally::Event;
use stanchion_http::Head;
use stanchion_requests::Requests;
use stanchion_settings::{Believed, Seconds, Settings};
use transport::Transport;
use wasters::Wasters;

/// The server closes a connection for the sake of others only when it has idled for this long. A client that has just got an
/// answer, or has just connected, is about to ask something, and its request would be lost.
const SPARED_AFTER: Duration = Duration::from_secs(1);
/// The server closes this share of the idle connections at once, and at most this many, as nginx does.
const SHED_SHARE: usize = 8;
const SHED_MAX: usize = 32;

/// All connections of one audience.
pub struct Connections {
    audience: Audience,
    payers: Rc<Payers>,
    table: ConnectionTable<Box<Connection>>,
    wasters: Wasters,
    /// How many of them are HTTP/2 streams of others.
    streams: usize,
    /// A stream was refused since there are as many as may be.
    streams_wait: bool,
    weight_limit: WeightLimit,
    due: Vec<u32>,
}

/// An accepted connection that is about to be added.
pub struct Newcomer {
    /// The socket.
    pub socket: OwnedFd,
    /// The client, or the proxy in front of it.
    pub peer: Peer,
    /// The connection's share of those that its client may have.
    pub claim: Option<Share>,
    /// Only refuse the connection, because its client has too many.
    pub is_turned_away: bool,
    /// The payer that the connection's memory is charged to.
    pub paying: Paying,
}

impl Connections {
    /// No connections yet, of this audience.
    pub fn new(audience: Audience, payers: Rc<Payers>) -> Self {
        Self {
            audience,
            payers,
            table: ConnectionTable::default(),
            wasters: Wasters::default(),
            streams: 0,
            streams_wait: false,
            weight_limit: WeightLimit::default(),
            due: Vec::new(),
        }
    }

    /// Takes a payer for a connection that is about to be added.
    pub fn take_payer(&self) -> Paying {
        self.payers.take()
    }

    /// How many there are.
    #[allow(
        clippy::len_without_is_empty,
        reason = "no caller asks whether it is empty"
    )]
    pub fn len(&self) -> usize {
        self.table.len() - self.streams
    }

    /// How many connections can be spared.
    pub fn spare(&self) -> usize {
        self.table.spare()
    }

    /// The state of each connection.
    pub fn doing(&self) -> impl Iterator<Item = ConnectionState> {
        let all = self.table.iter();
        all.filter(|one| !one.link.transport.is_stream())
            .map(|one| one.phase.doing())
    }

    /// Adds a connection.
    ///
    /// # Errors
    /// The kernel cannot watch the connection, and it is closed.
    pub fn add(
        &mut self,
        newcomer: Newcomer,
        requests: &mut Requests,
        poller: &Poller,
    ) -> io::Result<()> {
        let paying = newcomer.paying;
        let charged = paying.charged();
        let number = self.table.next_number();
        let (source, tally) = match self.audience {
            Audience::Clients => (Token::Client(number), Some(&*requests.common.tally)),
            Audience::Operators => (Token::Operator(number), None),
        };
        let transport = Transport::new(newcomer.socket, source, tally, poller)?;
        let peer = Rc::new(newcomer.peer);
        let link = ClientLink::new(number, transport, peer, self.audience, newcomer.claim);
        let mut connection = Box::new(Connection::new(link, paying, requests.now_us));
        drop(charged);
        self.wasters.meet(&mut connection, requests.now_us);
        self.table.add(connection);
        // The client has not asked anything yet.
        self.table.set_spare(number, true);
        if self.audience == Audience::Clients {
            requests.common.tally.happened(Event::Accepted);
        }
        if newcomer.is_turned_away
            && let Some(connection) = self.table.get_mut(number)
        {
            let fate = connection.turn_away(Refusal::TooManyConnections, requests, poller);
            self.settle(number, fate, requests, poller);
        }
        Ok(())
    }

    /// Has a connection do all that it can.
    pub fn drive(
        &mut self,
        number: u32,
        ready: Option<Ready>,
        requests: &mut Requests,
        poller: &Poller,
    ) -> DriveOutcome {
        let Some(connection) = self.table.get_mut(number) else {
            return DriveOutcome::Stays;
        };
        if connection.link.turns.is_behind {
            connection.note_ready(ready);
            return DriveOutcome::Stays;
        }
        let fate = connection.drive(ready, requests, poller);
        self.settle(number, fate, requests, poller);
        self.cut_overweight(requests, poller);
        fate
    }

    /// Takes the request of an operator, which [`Self::reply`] is to answer.
    pub fn take_asked(&mut self, number: u32, now_us: u64) -> Option<Box<Head>> {
        self.table.get_mut(number)?.take_asked(now_us)
    }

    /// Answers an operator, whose request had this head. The connection is then the last that the server closes to make room.
    pub fn reply(
        &mut self,
        number: u32,
        head: &Head,
        reply: &Reply,
        requests: &mut Requests,
        poller: &Poller,
    ) -> DriveOutcome {
        self.table.set_spare(number, false);
        if let Some(connection) = self.table.get_mut(number) {
            connection.reply(head, reply, requests);
        }
        self.drive(number, None, requests, poller)
    }

    fn settle(
        &mut self,
        number: u32,
        fate: DriveOutcome,
        requests: &mut Requests,
        poller: &Poller,
    ) {
        requests.common.tally.turned();
        if fate == DriveOutcome::Ends {
            self.remove(number, requests);
            return;
        }
        self.begin_streams(number, requests, poller);
        let Some(connection) = self.table.get_mut(number) else {
            return;
        };
        self.wasters.meet(connection, requests.now_us);
        let (is_spare, look_us) = (connection.is_spare(), connection.phase.dozes_until_us());
        self.table.set_spare(number, is_spare);
        if let Some(look_us) = look_us {
            self.table.look_by(number, look_us);
        }
    }

    fn remove(&mut self, number: u32, requests: &Requests) {
        if let Some(connection) = self.table.get_mut(number) {
            let client = connection.link.only_client();
            if connection.link.turns.is_behind {
                // Another connection will have the number.
                requests.wakes.clients.leave(number, client);
            }
            if let Some(client) = client {
                let waste = connection.link.turns.waste;
                self.wasters.ended(client, waste, requests.now_us);
            }
        }
        match self.table.remove(number) {
            Some(gone) if gone.link.transport.is_stream() => self.streams -= 1,
            Some(_) if self.audience == Audience::Clients => {
                requests.common.tally.happened(Event::Closed);
            }
            _ => {}
        }
    }

    /// Looks at the connections that may dawdle, four times a second; `others_wait` for their places.
    pub fn look(&mut self, others_wait: bool, requests: &mut Requests, poller: &Poller) {
        let now_us = requests.now_us;
        let least = least_limit(&requests.common.settings);
        let streams_wait = std::mem::take(&mut self.streams_wait);
        let to_shed = |wanted: bool| if wanted { SHED_MAX } else { 0 };
        let (mut to_shed, mut streams_to_shed) = (to_shed(others_wait), to_shed(streams_wait));
        let mut seats_wanted = match self.audience {
            Audience::Clients => requests.dispatch.starving(now_us).min(SHED_MAX),
            Audience::Operators => 0,
        };
        // Once the server closes, connections get less time than before, and the same holds while others have no place: then
        // the loop looks at all connections. An upload is looked at each time anyway.
        let is_urgent = requests.serving.lifecycle.is_closing() || others_wait || streams_wait;
        let mut due = std::mem::take(&mut self.due);
        self.table
            .due(if is_urgent { u64::MAX } else { now_us }, &mut due);
        for number in due.drain(..) {
            let Some(connection) = self.table.get_mut(number) else {
                continue;
            };
            let places_wanted = if connection.link.transport.is_stream() {
                &mut streams_to_shed
            } else {
                &mut to_shed
            };
            let wanted = WantedResources {
                place: *places_wanted > 0,
                seat: seats_wanted > 0,
            };
            let looked = connection.look(wanted, requests, poller);
            if looked.made_way {
                *places_wanted = places_wanted.saturating_sub(1);
                seats_wanted = seats_wanted.saturating_sub(1);
            }
            if looked.fate == DriveOutcome::Asks {
                requests.wakes.operators.add(number);
            }
            let again_us = looked.again_us.min(after(now_us, least));
            self.table.look_at(number, again_us);
            self.settle(number, looked.fate, requests, poller);
        }
        self.due = due;
    }

    /// Closes some of the connections that have idled for the longest. Gives how long to wait until the next attempt.
    pub fn shed(&mut self, requests: &mut Requests, poller: &Poller) -> Duration {
        let now_us = requests.now_us;
        let batch = (self.table.spare() / SHED_SHARE).clamp(1, SHED_MAX);
        for _ in 0..batch {
            let Some(number) = self.table.longest_spare() else {
                break;
            };
            let Some(connection) = self.table.get_mut(number) else {
                break;
            };
            let idle_us =
                now_us.saturating_sub(connection.phase.spare_since_us().unwrap_or(now_us));
            let left = SPARED_AFTER.saturating_sub(Duration::from_micros(idle_us));
            if !left.is_zero() {
                return left;
            }
            let fate = match connection.phase.doing() {
                ConnectionState::Idle => connection.close_soon(requests, poller),
                _ => DriveOutcome::Ends,
            };
            let connection = self.table.get_mut(number);
            let leaves =
                connection.is_some_and(|one| one.phase.doing() == ConnectionState::Leaving);
            if fate == DriveOutcome::Ends || leaves {
                requests.common.tally.happened(Event::Shed);
            }
            // If a request has just arrived, the connection stays. If the server has only sent GOAWAY, it tries the others
            // first.
            self.table.set_spare(number, false);
            self.settle(number, fate, requests, poller);
        }
        SPARED_AFTER
    }

    /// Closes the connection that has asked nothing for the longest, or any one if all of them ask or are being answered.
    /// False if there is none.
    pub fn send_one_away(&mut self, requests: &Requests) -> bool {
        let spare = self.table.longest_spare();
        let Some(number) = spare.or_else(|| self.table.numbers().first().copied()) else {
            return false;
        };
        self.remove(number, requests);
        true
    }

    /// Ends the connections with their present requests for which `is_meant` holds.
    pub fn close_soon(
        &mut self,
        is_meant: impl Fn(ConnectionState) -> bool,
        requests: &mut Requests,
        poller: &Poller,
    ) {
        for number in self.table.numbers() {
            let Some(connection) = self.table.get_mut(number) else {
                continue;
            };
            if is_meant(connection.phase.doing()) {
                let fate = connection.close_soon(requests, poller);
                self.settle(number, fate, requests, poller);
            }
        }
    }

    /// Drives all connections, because something has changed for them.
    pub fn drive_all(&mut self, requests: &mut Requests, poller: &Poller) {
        for number in self.table.numbers() {
            self.drive(number, None, requests, poller);
        }
    }

    /// Ends all connections now, whatever they are in the middle of.
    pub fn abandon_all(&mut self, requests: &mut Requests) {
        for number in self.table.numbers() {
            if let Some(connection) = self.table.get_mut(number) {
                connection.abandon(requests);
            }
            self.remove(number, requests);
        }
    }

    /// The clients that have most memory, the largest first.
    pub fn heaviest(&self, believed: &Believed) -> Vec<ClientMemory> {
        overweight::heaviest(self.all(), believed)
    }

    fn all(&self) -> impl Iterator<Item = &Connection> {
        self.table.iter().map(|one| &**one)
    }

    /// Cuts connections off if all clients together have more memory than they may.
    fn cut_overweight(&mut self, requests: &mut Requests, poller: &Poller) {
        let settings = &requests.common.settings;
        if !self
            .weight_limit
            .is_broken(settings.buffers.max_client_memory)
            || self.audience == Audience::Operators
        {
            return;
        }
        let believed = &requests.policy.believed;
        for number in WeightLimit::overweight(self.all(), believed, settings) {
            if let Some(connection) = self.table.get_mut(number) {
                connection.cut_off(CutOff::Memory, requests);
                self.settle(number, DriveOutcome::Ends, requests, poller);
            }
        }
        self.weight_limit.has_looked();
    }

    /// Ends a turn of the loop.
    pub fn end_turn(&mut self) {
        self.table.end_turn();
    }
}

/// The shortest time that a connection may take for anything. No look comes later than this after the one before, so
/// whatever a connection begins meanwhile is not overdue for long.
fn least_limit(settings: &Settings) -> Duration {
    let limits = [
        settings.limits.header_timeout,
        settings.limits.body_timeout,
        settings.limits.write_timeout,
        settings.http.keepalive,
    ];
    let limits = limits.into_iter().filter_map(Seconds::as_duration);
    // A connection that is leaving has less time than most.
    limits.fold(GRACE.min(LAST_WORD), Duration::min)
}
