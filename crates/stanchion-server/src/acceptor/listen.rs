//! Accepting: as fast as connections come, so that the kernel's queue stays near empty whatever
//! its limit is. [`doors`](super::doors) has it done before everything else.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use stanchion_sys::listener::{Listener, ListenerAddress};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::{Instant, timeout_at};
use tracing::{debug, info, warn};

use super::clients::{Client, Share, TooMuch};
use super::connection::Connection;
use super::conversation;
use super::dispatch::PortNumber;
use super::metered::Metered;
use super::request::Peer;
use super::{Shared, first_of};
use crate::tally::Event;

/// After the door was closed, how long handshakes under way have to complete: more than a round
/// trip in most networks one runs this server in.
const LAST_HANDSHAKES: Duration = Duration::from_millis(100);

/// A door that clients come in by.
pub(super) struct OpenDoor {
    pub(super) listener: Rc<Listener>,
    /// If it is a single worker's.
    pub(super) port: Option<PortNumber>,
    closing: Rc<Cell<Closing>>,
}

/// Whether one door is to be closed, whatever the others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    No,
    /// It is ours alone: whoever is in its queue is let in.
    AfterTheLast,
    /// Whoever is in its queue is another acceptor's.
    AtOnce,
}

impl OpenDoor {
    pub(super) fn close(&self, how: Closing) {
        self.closing.set(how);
    }
}

/// Accepts on a listener until the door is closed and nobody is left in the kernel's queue.
pub(super) fn open(
    shared: &Rc<Shared>,
    listener: &Listener,
    port: Option<PortNumber>,
) -> io::Result<()> {
    let listener = Rc::new(listener.try_clone()?);
    let closing = Rc::new(Cell::new(Closing::No));
    let door = Door {
        socket: DoorSocket::of(&listener)?,
        port,
        listener: Rc::clone(&listener),
    };
    let believed = &shared.common.settings.forwarded_allow_ips;
    if matches!(door.socket, DoorSocket::Unix { .. }) && !believed.allows(None) {
        info!(
            "what peers on {} forward is not believed (X-Forwarded-Proto and the like): \
             forwarded_allow_ips does not list unix",
            listener.address()
        );
    }
    let opened = OpenDoor {
        listener,
        port,
        closing: Rc::clone(&closing),
    };
    shared.doors.borrow_mut().push(opened);
    let accepting = accept_all(Rc::clone(shared), door, closing);
    shared.at_the_doors.add(Box::pin(accepting));
    Ok(())
}

struct Door {
    socket: DoorSocket,
    port: Option<PortNumber>,
    listener: Rc<Listener>,
}

pub(super) enum DoorSocket {
    Tcp(TcpListener, SocketAddr),
    Unix {
        listener: UnixListener,
        /// The same socket for the last ones: once the door is closed epoll(7) reports a hang-up
        /// for ever, so the event loop can no longer tell whether somebody waits.
        queue: std::os::unix::net::UnixListener,
        /// For `SERVER_NAME`, when a request has no Host field.
        name: String,
    },
}

pub(super) enum Guest {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl DoorSocket {
    pub(super) fn of(listener: &Listener) -> io::Result<Self> {
        let fd = listener.try_clone_fd()?;
        Ok(match listener.address() {
            ListenerAddress::Tcp(address) => {
                let listener = TcpListener::from_std(std::net::TcpListener::from(fd))?;
                Self::Tcp(listener, *address)
            }
            ListenerAddress::Unix(path) => Self::unix(fd, path.display().to_string())?,
            ListenerAddress::Abstract(name) => Self::unix(fd, format!("@{name}"))?,
        })
    }

    fn unix(fd: OwnedFd, name: String) -> io::Result<Self> {
        let listener = std::os::unix::net::UnixListener::from(fd);
        let queue = listener.try_clone()?;
        Ok(Self::Unix {
            listener: UnixListener::from_std(listener)?,
            queue,
            name,
        })
    }

    /// The next one. `poll_accept`, and not `accept`: of a unix socket that somebody else has shut, epoll(7)
    /// says for ever that it is readable while accept(2) says EAGAIN, and tokio's `accept` then goes round
    /// without ever letting another task run, such as the one that hears that we drain.
    pub(super) async fn accept(&self) -> io::Result<Guest> {
        poll_fn(|context| match self {
            Self::Tcp(listener, _) => listener
                .poll_accept(context)
                .map_ok(|(stream, peer)| Guest::Tcp(stream, peer)),
            Self::Unix { listener, .. } => listener
                .poll_accept(context)
                .map_ok(|(stream, _)| Guest::Unix(stream)),
        })
        .await
    }
}

impl Door {
    /// Closes it to newcomers, and lets in those who came before.
    async fn close(&self, shared: &Rc<Shared>) {
        if let Err(error) = self.listener.close_door() {
            warn!(
                "{} cannot be closed to newcomers only, and some may be reset: {error}",
                self.listener.address()
            );
        }
        let until = Instant::now() + LAST_HANDSHAKES;
        while let Some(accepted) = self.accept_last(until).await {
            if let Some(guest) = shared.admit(accepted).await {
                shared.welcome(guest, self);
            }
        }
    }

    /// The next one of those who came before the door was closed; `None` after the last. Nobody can join
    /// them any more, so there is one; and if the door could not be closed, the first moment without
    /// anybody counts as the end.
    async fn accept_last(&self, until: Instant) -> Option<io::Result<Guest>> {
        match &self.socket {
            DoorSocket::Tcp(..) => {
                let accepted = timeout_at(until, self.socket.accept()).await.ok()?;
                Some(accepted.and_then(|guest| {
                    if let Guest::Tcp(stream, _) = &guest {
                        self.listener.let_through(stream)?;
                    }
                    Ok(guest)
                }))
            }
            DoorSocket::Unix { queue, .. } => match queue.accept() {
                Ok((stream, _)) => {
                    let stream = stream
                        .set_nonblocking(true)
                        .and_then(|()| UnixStream::from_std(stream));
                    Some(stream.map(Guest::Unix))
                }
                // EINVAL: of one that was shut, once its queue is empty.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::InvalidInput
                    ) =>
                {
                    None
                }
                Err(error) => Some(Err(error)),
            },
        }
    }
}

async fn accept_all(shared: Rc<Shared>, door: Door, closing: Rc<Cell<Closing>>) {
    shared.door_opens(&closing).await;
    // Somebody for whom there was no room yet. To be accepted first is what shows that somebody
    // is there, so that nobody who idles is closed for nobody.
    let mut in_hall = None;
    while !shared.draining.get() && closing.get() == Closing::No {
        let closed = shared.door.notified();
        let next = async {
            if in_hall.is_none() {
                in_hall = shared.admit(door.socket.accept().await).await;
            }
            shared.wait_for_room().await;
            if let Some(guest) = in_hall.take() {
                shared.welcome(guest, &door);
            }
        };
        first_of(closed, next).await;
    }
    if let Some(guest) = in_hall {
        shared.welcome(guest, &door);
    }
    let is_anothers = door.listener.is_passed()
        || match closing.get() {
            Closing::No => shared.retiring.get() || !shared.open.get(),
            Closing::AfterTheLast => false,
            Closing::AtOnce => true,
        };
    if !is_anothers {
        door.close(&shared).await;
    }
}

/// accept(2) passes on what went wrong with the connection it would have given, and says which
/// errors are of that kind.
fn is_of_one_connection(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let of_the_network = [
        Errno::NETDOWN,
        Errno::PROTO,
        Errno::NOPROTOOPT,
        Errno::HOSTDOWN,
        Errno::NONET,
        Errno::HOSTUNREACH,
        Errno::OPNOTSUPP,
        Errno::NETUNREACH,
        // A firewall's.
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

impl Shared {
    async fn admit(&self, accepted: io::Result<Guest>) -> Option<Guest> {
        match accepted {
            Ok(guest) => return Some(guest),
            Err(error) if is_of_one_connection(&error) => {
                debug!("a connection was gone before it was accepted: {error}");
            }
            Err(error) => self.cannot_accept(&error).await,
        }
        None
    }

    /// Waits until clients are to be let in, or never will be.
    pub(super) async fn door_opens(&self, closing: &Cell<Closing>) {
        loop {
            let changed = self.door.notified();
            if self.open.get() || self.draining.get() || closing.get() != Closing::No {
                return;
            }
            changed.await;
        }
    }

    fn welcome(self: &Rc<Self>, guest: Guest, door: &Door) {
        match guest {
            Guest::Tcp(stream, peer) => self.seat(stream, Some(peer), door),
            Guest::Unix(stream) => self.seat(stream, None, door),
        }
    }

    fn seat<S>(self: &Rc<Self>, stream: S, peer: Option<SocketAddr>, door: &Door)
    where
        S: AsyncRead + AsyncWrite + AsFd + Unpin + 'static,
    {
        let (server_name, server_port) = match &door.socket {
            DoorSocket::Tcp(_, address) => (address.ip().to_string(), address.port().to_string()),
            DoorSocket::Unix { name, .. } => (name.clone(), String::new()),
        };
        let ip = peer.map(|peer| peer.ip());
        let trusted = self.common.settings.forwarded_allow_ips.allows(ip);
        // Behind a trusted proxy are many clients.
        let limited = ip.filter(|_| !trusted).zip(self.connections_max_each);
        let claim = limited.map_or(Ok(Claim::Unlimited), |(ip, most)| {
            self.claim(Client::at(ip), most)
        });
        let connection = self.enroll(Peer {
            trusted,
            ip,
            address: ip
                .map(|ip| ip.to_canonical().to_string())
                .unwrap_or_default(),
            port: peer.map_or(0, |peer| peer.port()),
            server_name,
            server_port,
            only_worker: door.port,
        });
        let place = Place {
            shared: Rc::clone(self),
            number: connection.number(),
        };
        self.common.tally.happened(Event::Accepted);
        let Ok(claim) = claim else {
            conversation::turn_out(self, &connection, &stream);
            return;
        };
        let stream = Metered::new(stream, &self.common.tally);
        let shared = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let (_place, claim) = (place, claim);
            if let Claim::ToBeTold(_) = claim {
                conversation::turn_away(shared, connection, stream).await;
            } else {
                conversation::serve(shared, connection, stream).await;
            }
        });
    }

    /// One more connection of a client that may have `most`.
    fn claim(&self, client: Client, most: u64) -> Result<Claim, TooMuch> {
        let served = self.shares.take(client, 1, most).map(Claim::Served);
        served.or_else(|TooMuch| {
            let told = self.turned_away.take(client, 1, self.turned_away_max_each);
            told.map(Claim::ToBeTold)
        })
    }

    fn enroll(&self, peer: Peer) -> Rc<Connection> {
        let mut connections = self.connections.borrow_mut();
        let connection = connections.add(|number| Rc::new(Connection::new(number, peer)));
        let connection = Rc::clone(connection);
        // Nothing is asked yet.
        connections.set_spare(connection.number(), true);
        connection
    }
}

/// As what a connection counts among its client's.
enum Claim {
    Unlimited,
    Served(#[expect(dead_code, reason = "held until the connection ends")] Share),
    /// It is one too many.
    ToBeTold(#[expect(dead_code, reason = "the same")] Share),
}

/// A connection's place among those there may be; given back however its task ends.
struct Place {
    shared: Rc<Shared>,
    number: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.connections.borrow_mut().remove(self.number);
        self.shared.common.tally.happened(Event::Closed);
        // All who wait: the listeners for room, the shutdown for the last to go.
        self.shared.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It would hang, and not fail, if it did not hold.
    #[test]
    fn a_door_that_is_shut_leaves_the_other_tasks_their_turns() {
        let path = std::env::temp_dir().join(format!("stanchion-shut-{}", std::process::id()));
        let listener = Listener::unix(&path, 5).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let door = DoorSocket::of(&listener).unwrap();
            listener.close_door().unwrap();
            let accepted = tokio::time::timeout(Duration::from_millis(50), door.accept()).await;
            assert!(!matches!(accepted, Ok(Ok(_))), "nobody came");
        });
        listener.remove_file().unwrap();
    }
}
