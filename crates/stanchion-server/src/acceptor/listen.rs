//! Accepting: as fast as connections come, so that the kernel's queue stays near empty whatever
//! its limit is.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use stanchion_sys::listener::{Listener, ListenerAddress};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tracing::{debug, error};

use super::connection::{self, Connection};
use super::request::Peer;
use super::{Shared, first_of};
use crate::settings::Settings;

/// Without descriptors or memory for another connection, how long accepting pauses.
const PAUSE: Duration = Duration::from_millis(100);
/// After the door was closed, how long handshakes under way have to complete: more than a round
/// trip in any network one runs this server in.
const LAST_HANDSHAKES: Duration = Duration::from_millis(100);

/// Accepts on a listener until the door is closed and nobody is left in the kernel's queue.
pub(super) fn spawn(shared: &Rc<Shared>, listener: &Listener) -> io::Result<JoinHandle<()>> {
    let fd = listener.try_clone_fd()?;
    let address = listener.address().clone();
    let shared = Rc::clone(shared);
    Ok(match address {
        ListenerAddress::Tcp(address) => {
            let listener = TcpListener::from_std(std::net::TcpListener::from(fd))?;
            spawn_accepting(shared, Door::Tcp(listener, address))
        }
        ListenerAddress::Unix(path) => {
            unix_door(fd, path.display().to_string()).map(|door| spawn_accepting(shared, door))?
        }
        ListenerAddress::Abstract(name) => {
            unix_door(fd, format!("@{name}")).map(|door| spawn_accepting(shared, door))?
        }
    })
}

fn spawn_accepting(shared: Rc<Shared>, door: Door) -> JoinHandle<()> {
    tokio::task::spawn_local(accept_all(shared, door))
}

fn unix_door(fd: OwnedFd, name: String) -> io::Result<Door> {
    let listener = std::os::unix::net::UnixListener::from(fd);
    let queue = listener.try_clone()?;
    Ok(Door::Unix {
        listener: UnixListener::from_std(listener)?,
        queue,
        name,
    })
}

enum Door {
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

enum Guest {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Door {
    /// The worker that alone serves who comes in here, if it is not for all.
    fn only_worker(&self, settings: &Settings) -> Option<u16> {
        match self {
            Self::Tcp(_, address) => settings.worker_of(&ListenerAddress::Tcp(*address)),
            Self::Unix { .. } => None,
        }
    }

    async fn accept(&self) -> io::Result<Guest> {
        match self {
            Self::Tcp(listener, _) => listener
                .accept()
                .await
                .map(|(stream, peer)| Guest::Tcp(stream, peer)),
            Self::Unix { listener, .. } => listener
                .accept()
                .await
                .map(|(stream, _)| Guest::Unix(stream)),
        }
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
                Err(error) => Some(Err(error)),
            },
        }
    }
}

async fn accept_all(shared: Rc<Shared>, door: Door) {
    shared.door_opens().await;
    while !shared.draining.get() {
        let closed = shared.door.notified();
        let next = async {
            shared.wait_for_room().await;
            shared.admit(door.accept().await, &door).await;
        };
        first_of(closed, next).await;
    }
    if shared.retiring.get() || !shared.open.get() {
        // Whoever is in the queue is another acceptor's.
        return;
    }
    // Nobody can join them any more, so this ends.
    while let Some(accepted) = door.accept_last().await {
        shared.admit(accepted, &door).await;
    }
}

/// accept(2) passes on what went wrong with the connection it would have given.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

impl Shared {
    async fn admit(self: &Rc<Self>, accepted: io::Result<Guest>, door: &Door) {
        match accepted {
            Ok(Guest::Tcp(stream, peer)) => self.welcome(stream, Some(peer), door),
            Ok(Guest::Unix(stream)) => self.welcome(stream, None, door),
            Err(error) if is_of_one_connection(&error) => {
                debug!("a connection was gone before it was accepted: {error}");
            }
            Err(error) => {
                error!(
                    "cannot accept a connection, trying again in {PAUSE:?} (open files? memory?): {error}"
                );
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Waits until clients are to be let in, or never will be.
    async fn door_opens(&self) {
        loop {
            let changed = self.door.notified();
            if self.open.get() || self.draining.get() {
                return;
            }
            changed.await;
        }
    }

    async fn wait_for_room(&self) {
        loop {
            let ended = self.room.notified();
            if self.connections.borrow().len() < self.connections_max {
                return;
            }
            ended.await;
        }
    }

    fn welcome<S>(self: &Rc<Self>, stream: S, peer: Option<SocketAddr>, door: &Door)
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let (server_name, server_port) = match door {
            Door::Tcp(_, address) => (address.ip().to_string(), address.port().to_string()),
            Door::Unix { name, .. } => (name.clone(), String::new()),
        };
        let peer = Peer {
            trusted: self
                .common
                .settings
                .forwarded_allow_ips
                .allows(peer.map(|peer| peer.ip())),
            address: peer
                .map(|peer| peer.ip().to_canonical().to_string())
                .unwrap_or_default(),
            port: peer.map_or(0, |peer| peer.port()),
            server_name,
            server_port,
            only_worker: door.only_worker(&self.common.settings),
        };
        let connection = Rc::new(Connection::new(peer));
        let number = self.next_connection.get();
        self.next_connection.set(number + 1);
        self.connections
            .borrow_mut()
            .insert(number, Rc::clone(&connection));
        let shared = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let _place = Place {
                shared: Rc::clone(&shared),
                number,
            };
            connection::serve(shared, connection, stream).await;
        });
    }
}

/// A connection's place among those there may be; given back however its task ends.
struct Place {
    shared: Rc<Shared>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.connections.borrow_mut().remove(&self.number);
        // All who wait: the listeners for room, the shutdown for the last to go.
        self.shared.room.notify_waiters();
    }
}
