//! Listening sockets: how they are made, taken over, and closed to new connections without losing those in the queue.

mod door;
mod file;
mod options;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::call::{InCall, checked};
use crate::peer::peer_of;
use crate::pinned_path::{FileId, PinnedFile, PinnedPath};
use crate::process::inherited_fd;
pub use file::FileOptions;
pub(crate) use file::remove_if_stale;
use file::socket_at;
pub use options::{SocketOptions, TcpOptions};

/// A listening stream socket.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: ListenerAddress,
    provenance: Provenance,
}

/// The origin of a listener, which the kernel does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// The maker of the socket.
    pub origin: SocketOrigin,
    /// The address as the settings spell it; it may leave the port open. For a service manager's socket, the manager's
    /// name for it, if it has one (`FileDescriptorName=`).
    pub asked: String,
    /// The file of a unix socket that this server made, and removes.
    pub file: Option<FileId>,
}

/// The maker of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOrigin {
    /// This master, or a master before it.
    Bound,
    /// The process that started us; an `fd://N` names the socket.
    Passed,
    /// The service manager, by the protocol of `sd_listen_fds(3)`.
    Activated,
}

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerAddress {
    /// An IP address and the port in force.
    Tcp(SocketAddr),
    /// A path in the file system.
    Unix(PathBuf),
    /// A name in the abstract namespace (unix(7)).
    Abstract(String),
}

impl ListenerAddress {
    /// Whether other hosts can reach it: false for loopback and unix sockets.
    pub fn is_open_to_other_hosts(&self) -> bool {
        matches!(self, Self::Tcp(address) if !address.ip().is_loopback())
    }
}

impl std::fmt::Display for ListenerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Abstract(name) => write!(f, "unix:@{name}"),
        }
    }
}

impl Listener {
    /// Listens on a host and port; port 0 lets the kernel choose. If a host has several addresses, this takes the first
    /// that can be bound.
    pub fn tcp(host: &str, port: u16, options: &SocketOptions) -> io::Result<Self> {
        let mut refused = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in (host, port).to_socket_addrs()? {
            match Self::tcp_at(address, options) {
                Ok(listener) => return Ok(listener),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    fn tcp_at(address: SocketAddr, options: &SocketOptions) -> io::Result<Self> {
        let socket =
            Socket::new(Domain::for_address(address), Type::STREAM, None).in_call("socket")?;
        socket.set_reuse_address(true).in_call("setsockopt")?;
        socket
            .set_reuse_port(options.tcp.reuse_port)
            .in_call("setsockopt")?;
        if address.is_ipv6() {
            socket
                .set_only_v6(options.tcp.only_v6)
                .in_call("setsockopt")?;
        }
        // The receive buffer decides on the window that the kernel offers (tcp(7)), so set it before listen(2).
        options.apply(&socket, true)?;
        socket.bind(&address.into()).in_call("bind")?;
        Self::listening(socket, options, SocketOrigin::Bound)
    }

    /// Listens on a path. If no process listens on a socket file that is there, replaces it; if a process does, the
    /// error is `AddrInUse`.
    pub fn unix(path: &Path, options: &SocketOptions) -> io::Result<Self> {
        let pinned = PinnedPath::of(path)?;
        remove_if_stale(&pinned)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).in_call("socket")?;
        options.apply(&socket, false)?;
        socket.bind(&SockAddr::unix(path)?).in_call("bind")?;
        let file = pinned.made(PinnedFile::is_socket)?;
        // No client can connect before listen(2), so a too wide mode that the umask left does no harm.
        let listening = options
            .file
            .apply(&file)
            .and_then(|()| Self::listening(socket, options, SocketOrigin::Bound));
        let mut listener = listening.inspect_err(|_| {
            // The file is of no use. Return the first error, not one about the file.
            let _ = pinned.remove();
        })?;
        listener.provenance.file = Some(file.id());
        Ok(listener)
    }

    /// Listens on a name in the abstract namespace, given without its leading zero byte.
    pub fn unix_abstract(name: &str, options: &SocketOptions) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).in_call("socket")?;
        options.apply(&socket, false)?;
        socket
            .bind(&SockAddr::unix(format!("\0{name}"))?)
            .in_call("bind")?;
        Self::listening(socket, options, SocketOrigin::Bound)
    }

    /// Takes over a socket that the process that started us made and left open at `fd`. This closes `fd`, and applies
    /// the options again.
    ///
    /// `EBADF` if there is no such descriptor, `InvalidInput` if it is not a stream socket.
    pub fn adopt(fd: RawFd, options: &SocketOptions, origin: SocketOrigin) -> io::Result<Self> {
        let socket = stream_socket(fd)?;
        let is_tcp = matches!(address_of(&socket)?, ListenerAddress::Tcp(_));
        options.apply(&socket, is_tcp)?;
        Self::listening(socket, options, origin)
    }

    /// Takes over a listening socket that an old master kept open at `fd` over its execve(2), and closes `fd`. The
    /// socket keeps its options.
    pub fn inherit(fd: RawFd) -> io::Result<Self> {
        stream_socket(fd).and_then(Self::taken_over)
    }

    /// Takes over a listening socket that another process has sent. The socket keeps its options.
    pub fn received(fd: OwnedFd) -> io::Result<Self> {
        if !is_stream_socket(fd.as_raw_fd())? {
            return Err(not_one("a stream socket"));
        }
        Self::taken_over(Socket::from(fd))
    }

    fn taken_over(socket: Socket) -> io::Result<Self> {
        if !socket.is_listener()? {
            return Err(not_one("a listening socket"));
        }
        let mut listener = Self::of(socket, SocketOrigin::Bound)?;
        // The maker of the socket may have changed since where the path leads. The kernel knows the user that called
        // listen(2) (`SO_PEERCRED` in unix(7)), and only a file of that user can be the socket's file.
        if let ListenerAddress::Unix(path) = &listener.address {
            let maker = peer_of(listener.as_fd())?.uid;
            let found = socket_at(path).ok().flatten().map(|(_, file)| file);
            let own = found.filter(|file| file.uid() == maker);
            listener.provenance.file = own.map(|file| file.id());
        }
        Ok(listener)
    }

    /// A second listener with the same socket.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            socket: self.socket.try_clone()?,
            address: self.address.clone(),
            provenance: self.provenance.clone(),
        })
    }

    fn listening(
        socket: Socket,
        options: &SocketOptions,
        origin: SocketOrigin,
    ) -> io::Result<Self> {
        listen(&socket, options.backlog)?;
        Self::of(socket, origin)
    }

    fn of(socket: Socket, origin: SocketOrigin) -> io::Result<Self> {
        socket.set_nonblocking(true).in_call("fcntl")?;
        let address = address_of(&socket)?;
        let provenance = Provenance {
            origin,
            asked: address.to_string(),
            file: None,
        };
        Ok(Self {
            socket,
            address,
            provenance,
        })
    }

    /// Applies options again, the backlog too: listen(2) on a socket that listens changes it.
    pub fn apply(&self, options: &SocketOptions) -> io::Result<()> {
        let is_tcp = matches!(self.address, ListenerAddress::Tcp(_));
        options.apply(&self.socket, is_tcp)?;
        if let Some((_, file)) = self.own_file()? {
            options.file.apply(&file)?;
        }
        listen(&self.socket, options.backlog)
    }

    /// The names of the options that cannot be applied any more, because the kernel reads them when the address is
    /// bound.
    pub fn out_of_reach(&self, options: &SocketOptions) -> io::Result<Vec<&'static str>> {
        let mut names = Vec::new();
        if let (ListenerAddress::Tcp(address), SocketOrigin::Bound) =
            (&self.address, self.provenance.origin)
        {
            if address.is_ipv6() && self.socket.only_v6()? != options.tcp.only_v6 {
                names.push("ipv6only");
            }
            if self.socket.reuse_port()? != options.tcp.reuse_port {
                names.push("reuseport");
            }
        }
        Ok(names)
    }

    /// The origin of the listener.
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// Whether another process holds the socket too, and may give it to the next server. Then the connections in its
    /// queue belong to that server, and this one must not make any lasting change to the socket.
    pub fn is_passed(&self) -> bool {
        self.provenance.origin != SocketOrigin::Bound
    }

    /// Sets the origin, if the caller knows it better.
    #[must_use]
    pub fn with_provenance(self, provenance: Provenance) -> Self {
        Self { provenance, ..self }
    }

    /// Notes how the settings spell the address.
    #[must_use]
    pub fn asked_as(mut self, asked: String) -> Self {
        self.provenance.asked = asked;
        self
    }

    /// The address of the listener, with the port in force.
    pub fn address(&self) -> &ListenerAddress {
        &self.address
    }

    /// A second descriptor of the same socket.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    /// Whether clients find this listener by its address: false for a unix socket whose file was removed, or replaced
    /// by another file.
    pub fn has_its_file(&self) -> bool {
        match &self.address {
            ListenerAddress::Unix(path) => {
                let found = socket_at(path).ok().flatten().map(|(_, file)| file.id());
                found.is_some() && (self.provenance.file.is_none() || found == self.provenance.file)
            }
            ListenerAddress::Tcp(_) | ListenerAddress::Abstract(_) => true,
        }
    }

    /// Removes the socket file of a unix listener, if this server made it and it is still there; the socket itself
    /// lives on. A file that another server has put in its place stays.
    pub fn remove_file(&self) -> io::Result<()> {
        match self.own_file()? {
            Some((pinned, _)) if !self.is_passed() => pinned.remove(),
            _ => Ok(()),
        }
    }

    /// The file that this server made, if it is still at its path.
    fn own_file(&self) -> io::Result<Option<(PinnedPath, PinnedFile)>> {
        let (ListenerAddress::Unix(path), Some(id)) = (&self.address, self.provenance.file) else {
            return Ok(None);
        };
        Ok(socket_at(path)?.filter(|(_, file)| file.id() == id))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Closes `fd` and returns another descriptor of its stream socket. A descriptor that is not a stream socket, such as a
/// log that an operator named by mistake, stays open.
fn stream_socket(fd: RawFd) -> io::Result<Socket> {
    if is_stream_socket(fd)? {
        inherited_fd(fd).map(Socket::from)
    } else {
        Err(not_one("a stream socket"))
    }
}

fn not_one(of: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("not {of}"))
}

fn is_stream_socket(fd: RawFd) -> io::Result<bool> {
    let mut kind: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: getsockopt(2) takes any number for a descriptor, and writes at most `len` bytes to `kind`, which has that
    // many.
    let asked = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_TYPE,
            (&raw mut kind).cast(),
            &raw mut len,
        )
    };
    checked("getsockopt", asked).map(|_| kind == libc::SOCK_STREAM)
}

fn listen(socket: &Socket, backlog: Option<u32>) -> io::Result<()> {
    match backlog {
        Some(backlog) => socket
            .listen(i32::try_from(backlog).unwrap_or(i32::MAX))
            .in_call("listen"),
        None if socket.is_listener()? => Ok(()),
        None => socket.listen(libc::SOMAXCONN).in_call("listen"),
    }
}

fn address_of(socket: &Socket) -> io::Result<ListenerAddress> {
    let address = socket.local_addr().in_call("getsockname")?;
    if let Some(address) = address.as_socket() {
        Ok(ListenerAddress::Tcp(address))
    } else if let Some(path) = address.as_pathname() {
        // The working directory may change, and the file stays where it is, so keep an absolute path.
        Ok(ListenerAddress::Unix(std::path::absolute(path)?))
    } else if let Some(name) = address.as_abstract_namespace() {
        Ok(ListenerAddress::Abstract(
            String::from_utf8_lossy(name).into_owned(),
        ))
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "neither a TCP nor a unix socket",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::number;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[test]
    fn the_file_of_a_received_one_is_its_makers() {
        if crate::identity::effective_uid() != 0 {
            return; // it takes two users
        }
        let path = std::env::temp_dir().join(format!("stanchion-sent-{}", crate::process::pid()));
        let made = Listener::unix(&path, &SocketOptions::with_backlog(1)).expect("made");
        let send = || Listener::received(made.try_clone_fd().expect("a copy")).expect("received");
        assert_eq!(send().provenance().file, made.provenance().file);
        std::os::unix::fs::chown(&path, Some(65534), None).expect("given");
        let received = send();
        assert_eq!(received.provenance().file, None);
        received.remove_file().expect("there is none of its own");
        assert!(path.exists());
        made.remove_file().expect("removed");
        assert!(!path.exists());
    }

    fn tcp_port(listener: &Listener) -> SocketAddr {
        match listener.address() {
            ListenerAddress::Tcp(address) => *address,
            other => panic!("not TCP: {other}"),
        }
    }

    fn accept_all(listener: &Listener) -> Vec<Socket> {
        std::iter::from_fn(|| listener.socket.accept().ok())
            .map(|(socket, _)| socket)
            .collect()
    }

    /// Listeners on IPv4, on IPv6 if the host has it, and on IPv6 with a client on IPv4: each with the address at which
    /// a client reaches it.
    fn tcp_listeners() -> Vec<(Listener, SocketAddr)> {
        let mut both = SocketOptions::with_backlog(16);
        both.tcp.only_v6 = false;
        let wanted = [
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "::1"),
            ("::", "127.0.0.1"),
        ];
        let made = wanted.into_iter().filter_map(|(host, reached)| {
            let listener = Listener::tcp(host, 0, &both).ok()?;
            let port = tcp_port(&listener).port();
            Some((listener, SocketAddr::new(reached.parse().unwrap(), port)))
        });
        made.collect()
    }

    #[test]
    fn a_closed_tcp_door_keeps_those_inside_and_drops_newcomers() {
        for (listener, address) in tcp_listeners() {
            let mut inside = TcpStream::connect(address).expect("connected before the door closed");
            listener.close_door().expect("closed");
            let late = TcpStream::connect_timeout(&address, Duration::from_millis(100));
            assert!(late.is_err(), "a newcomer got in after the door was closed");
            let mut accepted = accept_all(&listener);
            assert_eq!(accepted.len(), 1);
            inside.write_all(b"x").expect("written");
            let mut byte = [0];
            accepted[0].set_nonblocking(false).expect("set");
            accepted[0].read_exact(&mut byte).expect("read");
            assert_eq!(&byte, b"x");
        }
    }

    #[test]
    fn who_came_through_a_closing_door_is_heard_once_let_through() {
        for (listener, address) in tcp_listeners() {
            listener.close_door().expect("closed");
            // This is the only way to complete a handshake at a closed door on loopback, where a handshake takes no
            // time.
            let client = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
            let set_ttl = |ttl| match address {
                SocketAddr::V4(_) => client.set_ttl_v4(ttl),
                SocketAddr::V6(_) => client.set_unicast_hops_v6(ttl),
            };
            set_ttl(255).expect("set");
            client.connect(&address.into()).expect("connected");
            set_ttl(64).expect("set");
            let mut accepted = accept_all(&listener).pop().expect("accepted");
            accepted.set_nonblocking(false).expect("set");
            (&client).write_all(b"x").expect("written");
            accepted
                .set_read_timeout(Some(Duration::from_millis(50)))
                .expect("set");
            let mut byte = [0];
            assert!(
                accepted.read_exact(&mut byte).is_err(),
                "it was let through already"
            );
            listener.let_through(&accepted).expect("let through");
            accepted
                .set_read_timeout(Some(Duration::from_secs(10)))
                .expect("set");
            accepted.read_exact(&mut byte).expect("sent again");
        }
    }

    #[test]
    fn a_closed_unix_door_keeps_those_inside_and_refuses_newcomers() {
        let name = format!("stanchion-test-{}", crate::process::pid());
        let listener =
            Listener::unix_abstract(&name, &SocketOptions::with_backlog(16)).expect("bound");
        let connect = || {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None).in_call("socket")?;
            socket.connect(&SockAddr::unix(format!("\0{name}"))?)?;
            io::Result::Ok(UnixStream::from(OwnedFd::from(socket)))
        };
        let _inside = connect().expect("connected before the door closed");
        listener.close_door().expect("shut");
        assert_eq!(
            connect().expect_err("refused").kind(),
            io::ErrorKind::ConnectionRefused
        );
        assert_eq!(accept_all(&listener).len(), 1);
    }

    #[test]
    fn a_stale_socket_file_is_replaced_and_a_live_one_is_not() {
        let path = std::env::temp_dir().join(format!("stanchion-{}.sock", crate::process::pid()));
        let live = Listener::unix(&path, &SocketOptions::with_backlog(16)).expect("bound");
        let taken = Listener::unix(&path, &SocketOptions::with_backlog(16))
            .expect_err("somebody listens there");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(live);
        let second = Listener::unix(&path, &SocketOptions::with_backlog(16))
            .expect("nobody listens there any more");
        second.remove_file().expect("removed");
        std::fs::write(&path, "not a socket").expect("written");
        let in_the_way = Listener::unix(&path, &SocketOptions::with_backlog(16))
            .expect_err("a plain file is left alone");
        assert_eq!(in_the_way.kind(), io::ErrorKind::AlreadyExists);
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn options_reach_the_kernel_at_first_and_again() {
        let mut options = SocketOptions::with_backlog(16);
        options.tcp.nodelay = false;
        options.tcp.reuse_port = true;
        options.receive_bytes = Some(20_000);
        let first = Listener::tcp("127.0.0.1", 0, &options).expect("bound");
        let port = tcp_port(&first).port();
        assert!(!first.socket.tcp_nodelay().expect("asked"));
        // The kernel doubles it (socket(7)).
        assert_eq!(first.socket.recv_buffer_size().expect("asked"), 40_000);
        let second = Listener::tcp("127.0.0.1", port, &options).expect("SO_REUSEPORT");
        drop(second);
        options.tcp.nodelay = true;
        options.tcp.keepalive = false;
        first.apply(&options).expect("applied");
        assert!(first.socket.tcp_nodelay().expect("asked"));
        assert!(!first.socket.keepalive().expect("asked"));
        options.tcp.reuse_port = false;
        let refused = Listener::tcp("127.0.0.1", port, &options).expect_err("taken");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn who_may_connect_is_the_mode_of_the_file() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("stanchion-mode-{}", crate::process::pid()));
        let mut options = SocketOptions::with_backlog(16);
        options.file.mode = 0o640;
        let listener = Listener::unix(&path, &options).expect("bound");
        let mode = || {
            std::fs::metadata(&path)
                .expect("there")
                .permissions()
                .mode()
                & 0o777
        };
        assert_eq!(mode(), 0o640);
        options.file.mode = 0o600;
        listener.apply(&options).expect("applied");
        assert_eq!(mode(), 0o600);
        listener.remove_file().expect("removed");
    }

    #[test]
    fn only_the_file_that_is_ours_is_removed() {
        use std::os::fd::IntoRawFd;
        let path = std::env::temp_dir().join(format!("stanchion-file-{}", crate::process::pid()));
        let first = Listener::unix(&path, &SocketOptions::with_backlog(16)).expect("bound");
        std::fs::remove_file(&path).expect("removed behind its back");
        assert!(!first.has_its_file());
        let second = Listener::unix(&path, &SocketOptions::with_backlog(16)).expect("bound");
        assert!(second.has_its_file() && !first.has_its_file());
        first.remove_file().expect("nothing to do");
        assert!(path.exists(), "the file of another listener was removed");
        let fd = second.try_clone_fd().expect("cloned").into_raw_fd();
        let adopted =
            Listener::adopt(fd, &SocketOptions::adopted(), SocketOrigin::Passed).expect("adopted");
        assert_eq!(adopted.address(), second.address());
        adopted.remove_file().expect("nothing to do");
        assert!(adopted.is_passed() && !second.is_passed());
        assert!(adopted.close_door().is_err(), "other processes may use it");
        std::os::unix::net::UnixStream::connect(&path).expect("the door is open");
        assert!(
            path.exists(),
            "the file of the process that passed the socket was removed"
        );
        second.remove_file().expect("removed");
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_listener_is_not_adopted() {
        use std::os::fd::IntoRawFd;
        let adopt = |socket: Socket| {
            let fd = OwnedFd::from(socket).into_raw_fd();
            Listener::adopt(fd, &SocketOptions::adopted(), SocketOrigin::Passed)
        };
        let datagrams = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("made");
        assert!(adopt(datagrams).is_err());
        let datagrams = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("made");
        assert!(Listener::received(OwnedFd::from(datagrams)).is_err());
        let mute = Socket::new(Domain::IPV4, Type::STREAM, None).expect("made");
        assert!(Listener::received(OwnedFd::from(mute)).is_err());
        let (one, _other) = Socket::pair(Domain::UNIX, Type::STREAM, None).expect("made");
        assert!(adopt(one).is_err());
        let nothing = Listener::adopt(1_000_000, &SocketOptions::adopted(), SocketOrigin::Passed);
        assert_eq!(number(&nothing.expect_err("none")), Some(libc::EBADF));
    }
}
