//! One door: a listener for clients, operators or balancers, in one acceptor.
//!
//! On TERM the acceptor empties the kernel's queue before it closes a listener. `close_door` in
//! `stanchion_sys::listener::door` stops newcomers first: on a unix socket by shutdown(2), on TCP by a least TTL of
//! 255. Then the acceptor accepts and serves the clients in the queue. It does so when the master orders it to leave,
//! when it finds its master dead, and at a listener that a reload or an upgrade drops, for which the master sends an
//! order. It leaves a socket alone that another process uses too (a socket that was passed to the server, or that
//! another master shares), since shutdown(2) and options act on all descriptors of a socket. Closing at once resets
//! clients in the middle of their handshake.
//!
//! A door is shut (not open yet), open, at its last call (closed to new connections, while the acceptor serves its
//! queue), or closed.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SocketFlags, acceptfrom_with};
use stanchion_sys::listener::{Listener, ListenerAddress};
use tracing::{debug, warn};

use super::accept_thread::AcceptThread;
use stanchion_connections::after;
use stanchion_connections::poller::{Poller, Token};
use stanchion_dispatch::PortNumber;
use stanchion_dispatch::request::Peer;
use stanchion_requests::lifecycle::Lifecycle;
use stanchion_settings::{Protocol, Settings};

/// How long handshakes under way have to complete after the acceptor closed a door: more than a round trip in most networks
/// that this server runs in.
const LAST_HANDSHAKES: Duration = Duration::from_millis(100);

/// The side to which a door is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DoorKind {
    /// Clients of the app.
    Clients,
    /// Operators at the listener of `admin`.
    Operators,
    /// Balancers at the listener of `agent`.
    Balancers,
}

/// A listener, and how far the acceptor has opened it.
pub(super) struct Door {
    pub(super) number: u32,
    pub(super) listener: Listener,
    pub(super) kind: DoorKind,
    /// The port of a single worker (`worker.listen`), if the listener is one.
    pub(super) port: Option<PortNumber>,
    /// The kernel's queue may hold a connection.
    pub(super) is_ready: bool,
    /// Accepted connections that are not added yet: all that the accept thread has accepted here, and after them at most one that
    /// the loop accepted while there was no room. The door accepts before there is room because only accept(2) shows that a
    /// client waits: else the acceptor might close an idle connection although no client needs its place.
    pub(super) accepted_queue: VecDeque<Accepted>,
    state: DoorState,
    /// While the door is open, the accept thread accepts here too.
    accept_thread: Rc<AcceptThread>,
    /// Set if this door closes although the acceptor goes on with the others.
    closing: Option<Closing>,
    server_name: Rc<str>,
    server_port: Rc<str>,
    speaks_tls: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DoorState {
    /// The acceptor does not accept here yet.
    Shut,
    Open,
    /// No new connection can join the kernel's queue. The acceptor accepts those in it, until `until_us` at most.
    LastCall {
        until_us: u64,
    },
    Closed,
}

/// How a single door closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// No other acceptor has the listener: this one accepts every connection in the queue.
    AfterTheLast,
    /// The connections in the queue belong to another acceptor.
    AtOnce,
}

/// An accepted connection that is not added to the acceptor's connections yet.
pub(super) struct Accepted {
    pub(super) socket: OwnedFd,
    /// `None` on a unix socket.
    pub(super) peer: Option<SocketAddr>,
}

impl Accepted {
    /// Has close(2) reset the connection instead of ending it (tcp(7), `SO_LINGER` of zero in socket(7)).
    pub(super) fn reset(&self) {
        if let Err(error) = set_socket_linger(&self.socket, Some(Duration::ZERO)) {
            debug!("a connection is closed and not reset: {error}");
        }
    }
}

impl Door {
    pub(super) fn new(
        number: u32,
        listener: &Listener,
        kind: DoorKind,
        port: Option<PortNumber>,
        speaks_tls: bool,
        accept_thread: &Rc<AcceptThread>,
        poller: &Poller,
    ) -> io::Result<Self> {
        let listener = listener.try_clone()?;
        poller.watch(Token::Door(number), &listener)?;
        let (name, server_port) = match listener.address() {
            ListenerAddress::Tcp(address) => (address.ip().to_string(), address.port().to_string()),
            ListenerAddress::Unix(path) => (path.display().to_string(), String::new()),
            ListenerAddress::Abstract(name) => (format!("@{name}"), String::new()),
        };
        Ok(Self {
            number,
            listener,
            kind,
            port,
            // Clients may have connected before epoll(7) watched the listener.
            is_ready: true,
            accepted_queue: VecDeque::new(),
            state: DoorState::Shut,
            accept_thread: Rc::clone(accept_thread),
            closing: None,
            server_name: name.into(),
            server_port: server_port.into(),
            speaks_tls,
        })
    }

    pub(super) fn is_unix(&self) -> bool {
        !matches!(self.listener.address(), ListenerAddress::Tcp(_))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state == DoorState::Closed && self.accepted_queue.is_empty()
    }

    /// Whether the door is closed to new connections. The acceptor then admits the rest of the queue even beyond the limit.
    pub(super) fn is_last_call(&self) -> bool {
        matches!(self.state, DoorState::LastCall { .. } | DoorState::Closed)
    }

    pub(super) fn has_accepted(&self) -> bool {
        !self.accepted_queue.is_empty()
    }

    pub(super) fn closes_at_us(&self) -> Option<u64> {
        match self.state {
            DoorState::LastCall { until_us } => Some(until_us),
            _ => None,
        }
    }

    pub(super) fn may_accept(&self) -> bool {
        self.is_ready && matches!(self.state, DoorState::Open | DoorState::LastCall { .. })
    }

    pub(super) fn close(&mut self, how: Closing) {
        self.closing = Some(how);
    }

    /// Moves the door to the state that the acceptor's lifecycle asks for.
    pub(super) fn advance(&mut self, lifecycle: Lifecycle, now_us: u64) {
        let was_open = self.state == DoorState::Open;
        match self.state {
            DoorState::Shut | DoorState::Open => {}
            // A TCP door also stays open while its queue may hold a connection.
            DoorState::LastCall { until_us } if now_us >= until_us && !self.is_ready => {
                self.state = DoorState::Closed;
                return;
            }
            DoorState::LastCall { .. } | DoorState::Closed => return,
        }
        if self.kind != DoorKind::Clients {
            // This listener stays open until the acceptor ends; once the acceptor retires, though, its successor answers
            // there.
            self.state = match lifecycle {
                Lifecycle::Starting => DoorState::Shut,
                Lifecycle::Retiring => DoorState::Closed,
                Lifecycle::Announced
                | Lifecycle::Open
                | Lifecycle::LameDuck
                | Lifecycle::Draining
                | Lifecycle::Refusing
                | Lifecycle::TurningAway => DoorState::Open,
            };
            return;
        }
        if was_open && (self.closing.is_some() || lifecycle > Lifecycle::LameDuck) {
            // The door withdraws from the accept thread before its state changes: a connection that the accept thread accepted later would
            // skip `let_through`, or belong to another acceptor.
            self.accepted_queue
                .extend(self.accept_thread.withdraw(self.number));
        }
        match (self.closing, lifecycle) {
            (None, Lifecycle::Starting | Lifecycle::Announced) => {}
            (None, Lifecycle::Open | Lifecycle::LameDuck) => self.open(was_open),
            (Some(Closing::AtOnce), _) | (None, Lifecycle::Retiring) => {
                self.state = DoorState::Closed;
            }
            // A door that this acceptor never opened is not its own, and neither is the queue.
            (None, Lifecycle::Draining | Lifecycle::Refusing | Lifecycle::TurningAway)
                if !was_open =>
            {
                self.state = DoorState::Closed;
            }
            (Some(Closing::AfterTheLast), _)
            | (None, Lifecycle::Draining | Lifecycle::Refusing | Lifecycle::TurningAway) => {
                self.last_call(now_us);
            }
        }
    }

    fn open(&mut self, was_open: bool) {
        self.state = DoorState::Open;
        if !was_open && let Err(error) = self.accept_thread.watch(self.number, &self.listener) {
            warn!(
                "the accept thread cannot watch {}, so connections there may be refused when all cores are busy: {error}",
                self.listener.address()
            );
        }
    }

    /// Closes the listener to new connections, and goes on accepting those that are in its queue.
    fn last_call(&mut self, now_us: u64) {
        if self.listener.is_passed() {
            self.state = DoorState::Closed;
            return;
        }
        if let Err(error) = self.listener.close_door() {
            warn!(
                "{} cannot be closed to new connections only, and some that wait may be reset: {error}",
                self.listener.address()
            );
        }
        self.is_ready = true;
        let until_us = if self.is_unix() {
            // After shutdown(2) epoll(7) reports a unix socket no more, so the door closes when `accept` finds the queue
            // empty.
            u64::MAX
        } else {
            after(now_us, LAST_HANDSHAKES)
        };
        self.state = DoorState::LastCall { until_us };
    }

    /// Accepts the next connection in the queue, if there is one.
    pub(super) fn accept(&mut self) -> io::Result<Option<Accepted>> {
        let accepted = match accept_at(&self.listener) {
            // After shutdown(2), accept(2) on a unix socket fails with EINVAL once the queue is empty.
            Err(error) if self.is_unix() && error.kind() == io::ErrorKind::InvalidInput => None,
            accepted => accepted?,
        };
        let Some(accepted) = accepted else {
            self.is_ready = false;
            if self.is_unix() && self.is_last_call() {
                self.state = DoorState::Closed;
            }
            return Ok(None);
        };
        self.accept_thread.accepted_by_loop();
        if matches!(self.state, DoorState::LastCall { .. }) {
            self.listener.let_through(&accepted.socket)?;
        }
        Ok(Some(accepted))
    }

    /// Describes the peer of a connection that this door accepted.
    pub(super) fn peer_of(&self, peer: Option<SocketAddr>, settings: &Settings) -> Peer {
        let ip = peer.map(|peer| peer.ip());
        Peer {
            trusted: settings.proxies.forwarded_allow_ips.allows(ip),
            scheme: if self.speaks_tls { "https" } else { "http" },
            speaks_tls: self.speaks_tls,
            tls: [].into(),
            sends_packets: self.kind == DoorKind::Clients
                && settings.proxies.protocol == Protocol::Uwsgi
                && settings.proxies.uwsgi_allow_ips.allows(ip),
            sends_proxy_header: self.kind == DoorKind::Clients
                && settings.proxies.proxy_protocol.is_some()
                && settings.proxies.proxy_allow_ips.allows(ip),
            ip,
            address: ip
                .map(|ip| ip.to_canonical().to_string())
                .unwrap_or_default(),
            port: peer.map_or(0, |peer| peer.port()),
            server_name: Rc::clone(&self.server_name),
            server_port: Rc::clone(&self.server_port),
            only_worker: self.port,
        }
    }
}

/// Accepts the next connection in a listener's queue, if there is one.
pub(super) fn accept_at(listener: impl AsFd) -> io::Result<Option<Accepted>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match acceptfrom_with(listener, flags) {
        Ok((socket, peer)) => {
            let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
            Ok(Some(Accepted { socket, peer }))
        }
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether accept(2) failed because of the one connection that it was about to return. The list is from accept(2), which
/// passes on pending network errors of the new socket.
pub(super) fn is_of_one_connection(error: &io::Error) -> bool {
    let of_the_network = [
        Errno::NETDOWN,
        Errno::PROTO,
        Errno::NOPROTOOPT,
        Errno::HOSTDOWN,
        Errno::NONET,
        Errno::HOSTUNREACH,
        Errno::OPNOTSUPP,
        Errno::NETUNREACH,
        // A firewall rule refused the connection.
        Errno::PERM,
    ];
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    ) || Errno::from_io_error(error).is_some_and(|errno| of_the_network.contains(&errno))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net as unix;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use stanchion_sys::listener::SocketOptions;

    use super::*;

    const NOW_US: u64 = 1_000_000;

    /// An accept thread that accepts at no door yet.
    fn accept_thread() -> Rc<AcceptThread> {
        Rc::new(AcceptThread::start(4_000).unwrap())
    }

    /// A door on a port of its own, and the clients that have connected to it.
    fn door(kind: DoorKind, accepted: usize) -> (Door, Vec<TcpStream>) {
        let listener = Listener::tcp("127.0.0.1", 0, &SocketOptions::with_backlog(16)).unwrap();
        let poller = Poller::new().unwrap();
        let ListenerAddress::Tcp(address) = *listener.address() else {
            panic!("it is TCP");
        };
        let accepted = (0..accepted).map(|_| TcpStream::connect(address).unwrap());
        let accepted = accepted.collect();
        let door = Door::new(0, &listener, kind, None, false, &accept_thread(), &poller).unwrap();
        (door, accepted)
    }

    fn comes_in(door: &mut Door) -> bool {
        matches!(door.accept(), Ok(Some(_)))
    }

    #[test]
    fn a_door_follows_what_the_acceptor_does() {
        use Lifecycle::{Announced, Draining, LameDuck, Open, Refusing, Retiring, Starting};
        let last_call = DoorState::LastCall {
            until_us: after(NOW_US, LAST_HANDSHAKES),
        };
        let table: [(DoorKind, &[Lifecycle], Option<Closing>, DoorState); 20] = [
            (DoorKind::Clients, &[Starting], None, DoorState::Shut),
            (DoorKind::Clients, &[Starting, Open], None, DoorState::Open),
            (DoorKind::Clients, &[Announced], None, DoorState::Shut),
            (DoorKind::Clients, &[Announced, Open], None, DoorState::Open),
            (
                DoorKind::Clients,
                &[Announced, Draining],
                None,
                DoorState::Closed,
            ),
            (DoorKind::Clients, &[Open, Draining], None, last_call),
            (DoorKind::Clients, &[Open, LameDuck], None, DoorState::Open),
            (
                DoorKind::Clients,
                &[Open, LameDuck, Draining],
                None,
                last_call,
            ),
            (
                DoorKind::Operators,
                &[Open, LameDuck],
                None,
                DoorState::Open,
            ),
            (DoorKind::Clients, &[Open, Refusing], None, last_call),
            (
                DoorKind::Clients,
                &[Open, Retiring],
                None,
                DoorState::Closed,
            ),
            // An acceptor that never opened the door has no client in its queue.
            (
                DoorKind::Clients,
                &[Starting, Draining],
                None,
                DoorState::Closed,
            ),
            (
                DoorKind::Clients,
                &[Open, Retiring, Draining],
                None,
                DoorState::Closed,
            ),
            // A door that a single worker gives back closes whatever the other doors do.
            (
                DoorKind::Clients,
                &[Open],
                Some(Closing::AtOnce),
                DoorState::Closed,
            ),
            (
                DoorKind::Clients,
                &[Open],
                Some(Closing::AfterTheLast),
                last_call,
            ),
            (DoorKind::Operators, &[Starting], None, DoorState::Shut),
            (DoorKind::Operators, &[Announced], None, DoorState::Open),
            (
                DoorKind::Operators,
                &[Open, Draining],
                None,
                DoorState::Open,
            ),
            (
                DoorKind::Operators,
                &[Open, Refusing],
                None,
                DoorState::Open,
            ),
            (
                DoorKind::Operators,
                &[Open, Retiring],
                None,
                DoorState::Closed,
            ),
        ];
        for (kind, lifecycles, closing, expected) in table {
            let (mut door, _) = door(kind, 0);
            for lifecycle in lifecycles {
                door.advance(*lifecycle, NOW_US);
            }
            if let Some(closing) = closing {
                door.close(closing);
                door.advance(Open, NOW_US);
            }
            assert_eq!(door.state, expected, "{kind:?} {lifecycles:?} {closing:?}");
        }
    }

    #[test]
    fn a_door_for_balancers_is_open_when_one_for_operators_is() {
        for last in [
            Lifecycle::Starting,
            Lifecycle::Announced,
            Lifecycle::Open,
            Lifecycle::LameDuck,
            Lifecycle::Retiring,
            Lifecycle::Draining,
            Lifecycle::Refusing,
            Lifecycle::TurningAway,
        ] {
            let states = [DoorKind::Operators, DoorKind::Balancers].map(|kind| {
                let (mut door, _) = door(kind, 0);
                door.advance(Lifecycle::Starting, NOW_US);
                door.advance(last, NOW_US);
                door.state
            });
            assert_eq!(states[0], states[1], "{last:?}");
        }
    }

    #[test]
    fn nobody_comes_in_before_it_is_open_and_all_who_wait_after() {
        let (mut door, _clients) = door(DoorKind::Clients, 2);
        door.advance(Lifecycle::Starting, NOW_US);
        assert!(!door.may_accept());
        door.advance(Lifecycle::Open, NOW_US);
        for _ in 0..2 {
            assert!(door.may_accept() && comes_in(&mut door));
        }
        assert!(!comes_in(&mut door));
        // The door waits until the kernel reports another connection.
        assert!(!door.may_accept());
    }

    #[test]
    fn those_in_the_queue_are_let_in_after_the_door_was_closed() {
        let (mut door, _clients) = door(DoorKind::Clients, 1);
        door.advance(Lifecycle::Open, NOW_US);
        door.is_ready = false;
        door.advance(Lifecycle::Draining, NOW_US);
        assert!(door.is_last_call() && !door.is_closed() && door.may_accept());
        let until_us = door.closes_at_us().unwrap();
        let Ok(Some(accepted)) = door.accept() else {
            panic!("somebody is in the queue");
        };
        door.advance(Lifecycle::Draining, until_us - 1);
        assert!(!door.is_closed());
        // The queue may hold more, however late this turn is.
        door.advance(Lifecycle::Draining, until_us);
        assert!(door.may_accept() && matches!(door.accept(), Ok(None)));
        // The loop had no room for this connection yet.
        door.accepted_queue.push_back(accepted);
        door.advance(Lifecycle::Draining, until_us);
        assert!(!door.is_closed() && !door.may_accept());
        door.accepted_queue.clear();
        assert!(door.is_closed());
    }

    #[test]
    fn connections_that_the_accept_thread_has_accepted_are_in_the_queue_of_a_door_that_closes() {
        // A quarter of the places in the accept thread's queue: fewer are left to the loop.
        let (mut door, mut accepted) = door(DoorKind::Clients, 4);
        door.advance(Lifecycle::Open, NOW_US);
        door.accept_thread.permit(true);
        let mut bell = [PollFd::new(door.accept_thread.bell(), PollFlags::IN)];
        let patience = Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        assert_eq!(poll(&mut bell, Some(&patience)), Ok(1));
        door.advance(Lifecycle::Draining, NOW_US);
        while comes_in(&mut door) {
            // The loop accepted this client, which came after those in the accepted queue.
            accepted.pop();
        }
        assert!(!accepted.is_empty());
        assert_eq!(door.accepted_queue.len(), accepted.len());
        door.advance(Lifecycle::Draining, door.closes_at_us().unwrap());
        assert!(!door.is_closed());
    }

    #[test]
    fn of_a_unix_socket_the_last_call_ends_with_its_queue() {
        let name = format!("stanchion-door-{}", std::process::id());
        let listener = Listener::unix_abstract(&name, &SocketOptions::with_backlog(16)).unwrap();
        let address = unix::SocketAddr::from_abstract_name(&name).unwrap();
        let connect = || unix::UnixStream::connect_addr(&address);
        let poller = Poller::new().unwrap();
        let mut door = Door::new(
            0,
            &listener,
            DoorKind::Clients,
            None,
            false,
            &accept_thread(),
            &poller,
        )
        .unwrap();
        let _client = connect().unwrap();
        door.advance(Lifecycle::Open, NOW_US);
        door.advance(Lifecycle::Draining, NOW_US);
        assert!(connect().is_err());
        assert!(comes_in(&mut door) && !door.is_closed());
        assert!(!comes_in(&mut door) && door.is_closed());
    }

    #[test]
    fn what_is_wrong_with_one_connection_is_nothing_to_the_next_one() {
        for (errno, is_its) in [
            (Errno::CONNABORTED, true),
            (Errno::PROTO, true),
            (Errno::PERM, true),
            (Errno::MFILE, false),
            (Errno::NOBUFS, false),
            (Errno::INVAL, false),
        ] {
            assert_eq!(is_of_one_connection(&errno.into()), is_its, "{errno:?}");
        }
    }
}
