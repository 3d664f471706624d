//! The listeners: the acceptor accepts as fast as connections come, so that the kernel's queue stays near empty whatever its
//! limit is, and makes room for the connections that it has accepted.
//!
//! Accepting comes first in each turn of the loop, because a connection in the kernel's queue takes up room for the
//! next one. One wait remains: if all cores are busy, the loop waits for a time slice of the scheduler. The normal
//! scheduling policy and shorter slices were tried, and lost more connections. `accept_thread` accepts in the meantime.

mod accept_thread;
mod agent;
mod door;
pub(crate) mod lent;
mod room;

use std::io;
use std::rc::Rc;
use std::time::Duration;

use stanchion_sys::listener::Listener;
use tracing::{debug, error, info};

pub(crate) use accept_thread::{AcceptThread, tell_of_promptness};
use agent::Agent;
use door::{Accepted, Door};
pub(crate) use door::{Closing, DoorKind};
pub(crate) use room::connections_max;
use stanchion_connections::poller::{Poller, Token};
use stanchion_connections::{Connections, Newcomer, after};
use stanchion_dispatch::PortNumber;
use stanchion_dispatch::storage::connection_shares::ConnectionAdmission;
use stanchion_dispatch::storage::shortage::Shortage;
use stanchion_generation::tally::Event;
use stanchion_requests::Requests;
use stanchion_requests::lifecycle::Lifecycle;
use stanchion_settings::Settings;

/// How many connections a door accepts in one turn of the loop; the others wait in the kernel's queue meanwhile.
const TURN_GUESTS_MAX: usize = 64;
/// How long the acceptor stops accepting after descriptors, memory or disk ran out.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections to the admin listener at a time: a few scrapers, pages and probes. One more takes the place of the connection
/// that has asked nothing for the longest, so that no client can keep a probe out by staying.
const OPERATORS_MAX: usize = 64;

/// All doors.
pub(crate) struct Doors {
    doors: Vec<Door>,
    next_number: u32,
    accept_thread: Rc<AcceptThread>,
    connections_max: usize,
    /// The acceptor accepts no client before this time,
    paused_until_us: u64,
    /// and no operator or balancer (listeners of `admin` and `agent`) before this one.
    private_paused_until_us: u64,
    /// When the acceptor may next close a connection to make room for those that wait.
    shed_at_us: u64,
    unaccepted: Shortage,
    private_unaccepted: Shortage,
    agent: Agent,
}

/// The connections and requests that doors add to.
pub(crate) struct DoorContext<'a> {
    pub clients: &'a mut Connections,
    pub operators: &'a mut Connections,
    pub requests: &'a mut Requests,
    pub poller: &'a Poller,
}

impl Doors {
    pub(crate) fn new(
        connections_max: usize,
        accept_thread: AcceptThread,
        poller: &Poller,
    ) -> io::Result<Self> {
        // The loop never reads this eventfd: a ring ends the wait, and each turn takes what the accept thread has.
        poller.watch(Token::Bell, accept_thread.bell())?;
        Ok(Self {
            doors: Vec::new(),
            next_number: 0,
            accept_thread: Rc::new(accept_thread),
            connections_max,
            paused_until_us: 0,
            private_paused_until_us: 0,
            shed_at_us: 0,
            unaccepted: Shortage::of("connections cannot be accepted (open files? memory?)"),
            private_unaccepted: Shortage::of(
                "the listener of admin or agent cannot accept connections (open files? memory?)",
            ),
            agent: Agent::default(),
        })
    }

    /// Adds a listener, which accepts once the lifecycle says so.
    pub(crate) fn add(
        &mut self,
        listener: &Listener,
        kind: DoorKind,
        port: Option<PortNumber>,
        settings: &Settings,
        poller: &Poller,
    ) -> io::Result<()> {
        let door = Door::new(
            self.next_number,
            listener,
            kind,
            port,
            port.is_none() && settings.speaks_tls(listener),
            &self.accept_thread,
            poller,
        )?;
        self.next_number += 1;
        if kind == DoorKind::Clients
            && door.is_unix()
            && !settings.proxies.forwarded_allow_ips.allows(None)
        {
            info!(
                "peers on {} are not trusted, so their X-Forwarded-Proto and similar headers are ignored: \
                 forwarded_allow_ips does not list unix",
                listener.address()
            );
        }
        self.doors.push(door);
        Ok(())
    }

    /// Whether a single worker has this door.
    pub(crate) fn has_port(&self, port: PortNumber) -> bool {
        self.doors.iter().any(|door| door.port == Some(port))
    }

    /// The listeners for clients.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = &Listener> {
        let doors = self.doors.iter();
        let doors = doors.filter(|door| door.kind == DoorKind::Clients);
        doors.map(|door| &door.listener)
    }

    /// How many client connections there may be.
    pub(crate) fn connections_max(&self) -> usize {
        self.connections_max
    }

    /// Notes that the kernel reported a connection in the queue of this door.
    pub(crate) fn told(&mut self, number: u32) {
        if let Some(door) = self.doors.iter_mut().find(|door| door.number == number) {
            door.is_ready = true;
        }
    }

    /// Closes a listener that no other acceptor has any more, and accepts the connections in its queue.
    pub(crate) fn let_in_last_ones(&mut self, address: &str) {
        for door in &mut self.doors {
            if door.listener.address().to_string() == address {
                door.close(Closing::AfterTheLast);
            }
        }
    }

    /// Closes a listener that a worker had for itself.
    pub(crate) fn take_back(&mut self, port: PortNumber, is_shared: bool) {
        for door in self.doors.iter_mut().filter(|door| door.port == Some(port)) {
            info!("listening no more at {}", door.listener.address());
            door.close(if is_shared {
                Closing::AtOnce
            } else {
                Closing::AfterTheLast
            });
        }
    }

    /// Moves each door to the state that the lifecycle asks for.
    pub(crate) fn follow(&mut self, lifecycle: Lifecycle, now_us: u64) {
        for door in &mut self.doors {
            door.advance(lifecycle, now_us);
        }
    }

    /// Whether all doors for clients are closed, and every connection in their queues was accepted.
    pub(crate) fn are_closed(&self) -> bool {
        let mut doors = self.doors.iter();
        !doors.any(|door| door.kind == DoorKind::Clients && !door.is_closed())
    }

    /// When to look again although the kernel reports nothing.
    pub(crate) fn due_us(&self, now_us: u64) -> Option<u64> {
        let later = |until_us: u64| (until_us > now_us).then_some(until_us);
        let pause = later(self.paused_until_us);
        let private_pause = later(self.private_paused_until_us);
        let closing = self.doors.iter().filter_map(Door::closes_at_us).min();
        // During a pause the queue of a closing door waits: the acceptor accepts it once the pause is over.
        let closing = closing.filter(|_| pause.is_none());
        let shed = self.have_accepted().then_some(self.shed_at_us);
        let all = [closing, pause, private_pause, shed];
        all.into_iter().flatten().min()
    }

    /// Stops accepting for [`PAUSE`] and closes connections that can be spared, after a body or an answer could not be spooled
    /// or a connection not be accepted: the clients that are connected come first.
    pub(crate) fn pause(&mut self, inside: &mut DoorContext<'_>) {
        self.paused_until_us = after(inside.requests.now_us, PAUSE);
        inside.clients.shed(inside.requests, inside.poller);
    }

    /// Accepts the connections that wait, as far as there is room. True if there is more to do at once.
    pub(crate) fn accept(&mut self, inside: &mut DoorContext<'_>) -> bool {
        let now_us = inside.requests.now_us;
        if inside.requests.storage.take_trouble() {
            self.pause(inside);
        }
        self.make_room(inside);
        let is_permitted = self.paused_until_us <= now_us && self.is_roomy(inside);
        self.accept_thread.permit(is_permitted);
        let mut more = !self.take_from_accept_thread();
        let mut doors = std::mem::take(&mut self.doors);
        for door in &mut doors {
            door.advance(inside.requests.serving.lifecycle, now_us);
            more |= self.accept_at(door, inside);
        }
        doors.retain(|door| {
            let is_gone = door.is_closed() && door.kind == DoorKind::Clients;
            // The listener may stay open in another process, so epoll(7) would go on watching it.
            if is_gone && let Err(error) = inside.poller.forget(&door.listener) {
                debug!("a closed listener is still watched: {error}");
            }
            !is_gone
        });
        self.doors = doors;
        inside.requests.serving.is_pressed = self.is_crowded(inside.clients);
        more
    }

    /// Moves the connections that the accept thread has accepted into the accepted queues of their doors. False if the accept thread holds the lock:
    /// the loop then asks again.
    fn take_from_accept_thread(&mut self) -> bool {
        let doors = &mut self.doors;
        self.accept_thread.take(|number, accepted| {
            if let Some(door) = doors.iter_mut().find(|door| door.number == number) {
                door.accepted_queue.push_back(accepted);
            }
        })
    }

    /// Whether there is room for all connections that loop and accept thread may accept before the loop looks again. Nearer to the
    /// limit the accept thread stays out: for each connection the loop decides which other one it closes.
    fn is_roomy(&self, inside: &DoorContext<'_>) -> bool {
        let in_queues: usize = self
            .doors
            .iter()
            .map(|door| door.accepted_queue.len())
            .sum();
        let doors = self.doors.iter();
        let doors = doors.filter(|door| door.kind == DoorKind::Clients);
        let of_a_turn = TURN_GUESTS_MAX * doors.count();
        let needed = in_queues + of_a_turn + self.accept_thread.places_needed();
        inside.clients.len() + needed <= self.connections_max
    }

    /// Whether a connection waits for a place.
    fn have_accepted(&self) -> bool {
        self.doors.iter().any(Door::has_accepted)
    }

    fn has_room(&self, clients: &Connections) -> bool {
        clients.len() < self.connections_max
    }

    /// Whether a connection waits for a place, and a place is free by now.
    pub(crate) fn can_welcome(&self, clients: &Connections) -> bool {
        self.have_accepted() && self.has_room(clients)
    }

    /// Whether a connection waits for a place, and no place is free.
    fn is_crowded(&self, clients: &Connections) -> bool {
        self.have_accepted() && !self.has_room(clients)
    }

    fn accept_at(&mut self, door: &mut Door, inside: &mut DoorContext<'_>) -> bool {
        for _ in 0..TURN_GUESTS_MAX {
            if let Some(accepted) = door.accepted_queue.pop_front() {
                if !door.is_last_call() && !self.has_room(inside.clients) {
                    door.accepted_queue.push_front(accepted);
                    return false;
                }
                self.welcome(accepted, door, inside);
                continue;
            }
            let paused_until_us = match door.kind {
                DoorKind::Clients => self.paused_until_us,
                DoorKind::Operators | DoorKind::Balancers => self.private_paused_until_us,
            };
            if !door.may_accept() || paused_until_us > inside.requests.now_us {
                return false;
            }
            match door.accept() {
                Ok(None) => return false,
                Ok(Some(accepted)) if door.kind == DoorKind::Operators => {
                    welcome_operator(accepted, door, inside);
                }
                Ok(Some(accepted)) if door.kind == DoorKind::Balancers => {
                    self.agent.answer(accepted.socket, inside.requests);
                }
                Ok(Some(accepted)) => {
                    if door.is_last_call() || self.has_room(inside.clients) {
                        self.welcome(accepted, door, inside);
                    } else {
                        inside.requests.common.tally.happened(Event::Waited);
                        self.shed_at_us = inside.requests.now_us;
                        door.accepted_queue.push_back(accepted);
                        self.make_room_for(inside);
                    }
                }
                Err(error) if door::is_of_one_connection(&error) => {
                    debug!("a connection was gone before it was accepted: {error}");
                }
                Err(error) if door.kind != DoorKind::Clients => {
                    let now_us = inside.requests.now_us;
                    self.private_unaccepted.failed(now_us, &error);
                    self.private_paused_until_us = after(now_us, PAUSE);
                    return false;
                }
                Err(error) => {
                    self.cannot_accept(&error, inside);
                    return false;
                }
            }
        }
        true
    }

    /// Closes a connection that can be spared, if another one waits for a place and none has left.
    fn make_room(&mut self, inside: &mut DoorContext<'_>) {
        if self.is_crowded(inside.clients) {
            self.make_room_for(inside);
        }
    }

    fn make_room_for(&mut self, inside: &mut DoorContext<'_>) {
        let now_us = inside.requests.now_us;
        if now_us >= self.shed_at_us {
            let wait = inside.clients.shed(inside.requests, inside.poller);
            self.shed_at_us = after(now_us, wait);
        }
    }

    fn welcome(&mut self, accepted: Accepted, door: &Door, inside: &mut DoorContext<'_>) {
        let settings = &inside.requests.common.settings;
        let paying = inside.clients.take_payer();
        let charged = paying.charged();
        let peer = door.peer_of(accepted.peer, settings);
        drop(charged);
        let (claim, is_turned_away) =
            match inside.requests.connection_shares.claim(peer.limited_ip()) {
                ConnectionAdmission::Unlimited => (None, false),
                ConnectionAdmission::Served(share) => (Some(share), false),
                ConnectionAdmission::ToBeTold(share) => (Some(share), true),
                ConnectionAdmission::TooMuch => {
                    inside.requests.common.tally.happened(Event::Accepted);
                    inside
                        .requests
                        .record
                        .turn_out(&peer.address, inside.requests.now_us);
                    accepted.reset();
                    inside.requests.common.tally.happened(Event::Closed);
                    return;
                }
            };
        let newcomer = Newcomer {
            socket: accepted.socket,
            peer,
            claim,
            is_turned_away,
            paying,
        };
        let added = inside.clients.add(newcomer, inside.requests, inside.poller);
        if let Err(error) = added {
            self.cannot_accept(&error, inside);
        }
    }

    fn cannot_accept(&mut self, error: &io::Error, inside: &mut DoorContext<'_>) {
        self.unaccepted.failed(inside.requests.now_us, error);
        inside.requests.common.tally.happened(Event::Paused);
        self.pause(inside);
    }

    /// Logs the end of shortages, and closes connections that balancers have left. The acceptor calls this every now and then.
    pub(crate) fn settle(&mut self, requests: &Requests) {
        let now_us = requests.now_us;
        self.unaccepted.settle(now_us);
        self.private_unaccepted.settle(now_us);
        if self
            .doors
            .iter()
            .any(|door| door.kind == DoorKind::Balancers)
        {
            self.agent.look(requests);
        }
    }

    /// Whether a connection waits for a place, and the acceptor can spare no other one for it.
    pub(crate) fn is_starved(&self, clients: &Connections) -> bool {
        self.is_crowded(clients) && clients.spare() == 0
    }
}

fn welcome_operator(accepted: Accepted, door: &Door, inside: &mut DoorContext<'_>) {
    while inside.operators.len() >= OPERATORS_MAX {
        if !inside.operators.send_one_away(inside.requests) {
            break;
        }
    }
    let peer = door.peer_of(accepted.peer, &inside.requests.common.settings);
    let newcomer = Newcomer {
        socket: accepted.socket,
        peer,
        claim: None,
        is_turned_away: false,
        paying: inside.operators.take_payer(),
    };
    let added = inside
        .operators
        .add(newcomer, inside.requests, inside.poller);
    if let Err(error) = added {
        error!(
            "the acceptor closes a connection to the admin listener, as it cannot watch it: {error}"
        );
    }
}
