//! Accepting: as fast as connections come, so that the kernel's queue stays near empty whatever
//! its limit is.

use std::io;
use std::net::SocketAddr;
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
            tokio::task::spawn_local(accept_all(shared, Door::Tcp(listener, address)))
        }
        ListenerAddress::Unix(path) => {
            let listener = UnixListener::from_std(std::os::unix::net::UnixListener::from(fd))?;
            let name = path.display().to_string();
            tokio::task::spawn_local(accept_all(shared, Door::Unix(listener, name)))
        }
        ListenerAddress::Abstract(name) => {
            let listener = UnixListener::from_std(std::os::unix::net::UnixListener::from(fd))?;
            tokio::task::spawn_local(accept_all(shared, Door::Unix(listener, format!("@{name}"))))
        }
    })
}

enum Door {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, String),
}

enum Guest {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Door {
    async fn accept(&self) -> io::Result<Guest> {
        match self {
            Self::Tcp(listener, _) => {
                listener.accept().await.map(|(stream, peer)| Guest::Tcp(stream, peer))
            }
            Self::Unix(listener, _) => listener.accept().await.map(|(stream, _)| Guest::Unix(stream)),
        }
    }
}

async fn accept_all(shared: Rc<Shared>, door: Door) {
    loop {
        shared.wait_for_room().await;
        let mut accepted = None;
        if shared.draining.get() {
            accepted = tokio::time::timeout(LAST_HANDSHAKES, door.accept()).await.ok();
            if accepted.is_none() {
                return;
            }
        } else {
            let closed = shared.door.notified();
            first_of(async { accepted = Some(door.accept().await) }, closed).await;
        }
        match accepted {
            Some(Ok(Guest::Tcp(stream, peer))) => shared.welcome(stream, Some(peer), &door),
            Some(Ok(Guest::Unix(stream))) => shared.welcome(stream, None, &door),
            // accept(2) on a unix socket whose door is closed, once its queue is empty.
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => return,
            Some(Err(error)) if is_of_one_connection(&error) => {
                debug!("a connection was gone before it was accepted: {error}");
            }
            Some(Err(error)) => {
                error!("cannot accept a connection, trying again in {PAUSE:?} (open files? memory?): {error}");
                tokio::time::sleep(PAUSE).await;
            }
            None => {}
        }
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
            Door::Unix(_, name) => (name.clone(), String::new()),
        };
        let peer = Peer {
            trusted: self.common.settings.forwarded_allow_ips.allows(peer.map(|peer| peer.ip())),
            address: peer.map(|peer| peer.ip().to_canonical().to_string()).unwrap_or_default(),
            port: peer.map_or(0, |peer| peer.port()),
            server_name,
            server_port,
        };
        let connection = Rc::new(Connection::new(peer));
        let number = self.next_connection.get();
        self.next_connection.set(number + 1);
        self.connections.borrow_mut().insert(number, Rc::clone(&connection));
        let shared = Rc::clone(self);
        tokio::task::spawn_local(async move {
            connection::serve(Rc::clone(&shared), connection, stream).await;
            shared.connections.borrow_mut().remove(&number);
            // All who wait: the acceptors for room, the shutdown for the last to go.
            shared.room.notify_waiters();
        });
    }
}
