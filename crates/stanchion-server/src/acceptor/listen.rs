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
use tracing::{debug, info};

use super::clients::{Counted, TooMany};
use super::connection::Connection;
use super::conversation;
use super::dispatch::PortNumber;
use super::metered::Metered;
use super::refusal::Refusal;
use super::request::Peer;
use super::{Shared, first_of};
use crate::tally::Event;

/// After the door was closed, how long handshakes under way have to complete: more than a round
/// trip in any network one runs this server in.
const LAST_HANDSHAKES: Duration = Duration::from_millis(100);

/// A door that clients come in by.
pub(super) struct OpenDoor {
    pub(super) listener: Listener,
    /// If it is a single worker's.
    pub(super) port: Option<PortNumber>,
    closing: Rc<Cell<Closing>>,
}

/// Whether one door is to be closed, whatever the others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    No,
    /// Whoever is in its queue is let in.
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
    let door = Door {
        socket: DoorSocket::of(listener)?,
        port,
        is_passed: listener.is_passed(),
    };
    let believed = &shared.common.settings.forwarded_allow_ips;
    if matches!(door.socket, DoorSocket::Unix { .. }) && !believed.allows(None) {
        info!(
            "what peers on {} forward is not believed (X-Forwarded-Proto and the like): \
             forwarded_allow_ips does not list unix",
            listener.address()
        );
    }
    let closing = Rc::new(Cell::new(Closing::No));
    let opened = OpenDoor {
        listener: listener.try_clone()?,
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
    /// Whoever started us has it too, and gives it to the next server.
    is_passed: bool,
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

    /// The next one. `poll_accept`, and not `accept`: once the master has closed a unix socket, epoll(7)
    /// calls it readable for ever while accept(2) says EAGAIN, and tokio's `accept` then goes round without
    /// ever letting another task run, such as the one that hears that we drain.
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

    /// Whether the master has closed the door, and nobody is left in the kernel's queue: accept(2) on a
    /// unix socket then fails with EINVAL.
    fn is_shut(&self, error: &io::Error) -> bool {
        matches!(self, Self::Unix { .. }) && error.kind() == io::ErrorKind::InvalidInput
    }

    /// The next one of those who came before the door was closed; `None` after the last.
    async fn accept_last(&self) -> Option<io::Result<Guest>> {
        match self {
            Self::Tcp(..) => tokio::time::timeout(LAST_HANDSHAKES, self.accept())
                .await
                .ok(),
            Self::Unix { queue, .. } => match queue.accept() {
                Ok((stream, _)) => {
                    let stream = stream
                        .set_nonblocking(true)
                        .and_then(|()| UnixStream::from_std(stream));
                    Some(stream.map(Guest::Unix))
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
                Err(error) if self.is_shut(&error) => None,
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
                in_hall = match door.socket.accept().await {
                    Err(error) if door.socket.is_shut(&error) => {
                        closing.set(Closing::AfterTheLast);
                        return;
                    }
                    accepted => shared.admit(accepted).await,
                };
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
    let is_anothers = door.is_passed
        || match closing.get() {
            Closing::No => shared.retiring.get() || !shared.open.get(),
            Closing::AfterTheLast => false,
            Closing::AtOnce => true,
        };
    if is_anothers {
        return;
    }
    // Nobody can join them any more, so this ends.
    while let Some(accepted) = door.socket.accept_last().await {
        if let Some(guest) = shared.admit(accepted).await {
            shared.welcome(guest, &door);
        }
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
        let counted = match ip.filter(|_| !trusted) {
            Some(ip) => self.clients.borrow_mut().enter(ip),
            None => Ok(None),
        };
        let connection = self.enroll(Peer {
            trusted,
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
            client: counted.unwrap_or_default(),
        };
        self.common.tally.happened(Event::Accepted);
        let stream = Metered::new(stream, &self.common.tally);
        let shared = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let _place = place;
            match counted {
                Ok(_) => conversation::serve(shared, connection, stream).await,
                Err(TooMany) => {
                    conversation::turn_away(
                        shared,
                        connection,
                        stream,
                        Refusal::TooManyConnections,
                    )
                    .await;
                }
            }
        });
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

/// A connection's place among those there may be; given back however its task ends.
struct Place {
    shared: Rc<Shared>,
    number: u32,
    /// Whose connection it is, where that counts.
    client: Option<Counted>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.connections.borrow_mut().remove(self.number);
        self.shared.common.tally.happened(Event::Closed);
        if let Some(client) = self.client {
            self.shared.clients.borrow_mut().leave(client);
        }
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
