//! Listening sockets: made, adopted, and closed to newcomers without losing who already waits.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

/// A listening stream socket.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: ListenerAddress,
}

/// Where a listener listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerAddress {
    /// An IP address and the port in force.
    Tcp(SocketAddr),
    /// A path in the file system.
    Unix(PathBuf),
    /// A name in the abstract namespace (unix(7)).
    Abstract(String),
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
    /// Listens on a host and port; port 0 lets the kernel choose. Of a host with several
    /// addresses the first that can be bound is taken.
    pub fn tcp(host: &str, port: u16, backlog: u32) -> io::Result<Self> {
        let mut refused = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in (host, port).to_socket_addrs()? {
            match Self::tcp_at(address, backlog) {
                Ok(listener) => return Ok(listener),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    fn tcp_at(address: SocketAddr, backlog: u32) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        if matches!(address.ip(), IpAddr::V6(_)) {
            socket.set_only_v6(true)?;
        }
        // Accepted sockets inherit these from the listener (tcp(7)): one call here spares one a
        // connection.
        socket.set_tcp_nodelay(true)?;
        socket.set_keepalive(true)?;
        socket.bind(&address.into())?;
        Self::listening(socket, backlog)
    }

    /// Listens on a path. A socket file that nobody listens on is replaced; one that somebody
    /// does listen on is `AddrInUse`. The file gets mode 0777 as gunicorn's has by its umask of
    /// 0, because the proxy in front commonly runs as another user.
    pub fn unix(path: &Path, backlog: u32) -> io::Result<Self> {
        remove_if_stale(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?;
        Self::listening(socket, backlog)
    }

    /// Listens on a name in the abstract namespace, given without its leading zero byte.
    pub fn unix_abstract(name: &str, backlog: u32) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(format!("\0{name}"))?)?;
        Self::listening(socket, backlog)
    }

    /// Takes over a listening socket somebody else made and left open at `fd`, such as systemd.
    /// The backlog is applied anew.
    pub fn adopt(fd: RawFd, backlog: u32) -> io::Result<Self> {
        // fcntl(2) answers EBADF for a number that is not an open descriptor.
        // SAFETY: F_DUPFD_CLOEXEC takes any number and gives a new descriptor or an error.
        let duplicate = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
        if duplicate == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above just made `duplicate`; nobody else owns it.
        let socket = Socket::from(unsafe { OwnedFd::from_raw_fd(duplicate) });
        if socket.r#type()? != Type::STREAM {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a stream socket",
            ));
        }
        Self::listening(socket, backlog)
    }

    /// Takes over a listening socket that a process before us kept open at `fd` over its execve(2),
    /// which is closed here. What it was set to, it stays.
    pub fn inherit(fd: RawFd) -> io::Result<Self> {
        let socket = Socket::from(crate::process::inherited_fd(fd)?);
        if socket.r#type()? != Type::STREAM || !socket.is_listener()? {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a listening stream socket",
            ));
        }
        socket.set_nonblocking(true)?;
        let address = address_of(&socket)?;
        Ok(Self { socket, address })
    }

    /// The same socket a second time.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            socket: self.socket.try_clone()?,
            address: self.address.clone(),
        })
    }

    fn listening(socket: Socket, backlog: u32) -> io::Result<Self> {
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        socket.set_nonblocking(true)?;
        let address = address_of(&socket)?;
        Ok(Self { socket, address })
    }

    /// Where it listens, with the port in force.
    pub fn address(&self) -> &ListenerAddress {
        &self.address
    }

    /// A second descriptor of the same socket.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }

    /// Closes the door behind those who wait already: they can still be accepted, and nobody can
    /// join them, so that a shutdown may empty the kernel's queue and then close the socket
    /// without resetting anybody.
    ///
    /// Unix sockets know this as shutdown(2) of the reading side (a later connect(2) is refused).
    /// For TCP that call would reset the queue; instead a filter on the listener drops the
    /// SYN of whoever comes later, while handshakes under way still complete. The kernel of such
    /// a client tries again within a second and is then refused by the closed port.
    pub fn close_door(&self) -> io::Result<()> {
        match self.address {
            ListenerAddress::Tcp(_) => drop_new_syns(self.socket.as_raw_fd()),
            ListenerAddress::Unix(_) | ListenerAddress::Abstract(_) => {
                self.socket.shutdown(std::net::Shutdown::Read)
            }
        }
    }

    /// Removes the socket file of a unix listener; the socket itself lives on.
    pub fn remove_file(&self) -> io::Result<()> {
        match &self.address {
            ListenerAddress::Unix(path) => std::fs::remove_file(path),
            ListenerAddress::Tcp(_) | ListenerAddress::Abstract(_) => Ok(()),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn address_of(socket: &Socket) -> io::Result<ListenerAddress> {
    let address = socket.local_addr()?;
    if let Some(address) = address.as_socket() {
        Ok(ListenerAddress::Tcp(address))
    } else if let Some(path) = address.as_pathname() {
        Ok(ListenerAddress::Unix(path.to_owned()))
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

/// Whether somebody listens is asked by connecting, as Unicorn does: only a refusal proves that
/// nobody does.
pub(crate) fn remove_if_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file that is not a socket is in the way",
            ));
        }
        Ok(_) => {}
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        // Connected, or EAGAIN: a listener with a full queue is a listener.
        _ => Err(io::Error::from(io::ErrorKind::AddrInUse)),
    }
}

/// A classic BPF program (socket(7), `SO_ATTACH_FILTER`) over the TCP header: a segment with SYN
/// and without ACK is dropped, all else passes.
fn drop_new_syns(fd: RawFd) -> io::Result<()> {
    const FLAGS_OFFSET: u32 = 13; // RFC 9293 section 3.1
    const SYN: u32 = 0x02;
    const SYN_ACK_MASK: u32 = 0x12;
    let code = |code: u32| u16::try_from(code).expect("classic BPF opcodes are 16 bits");
    let mut program = [
        libc::sock_filter {
            code: code(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS),
            jt: 0,
            jf: 0,
            k: FLAGS_OFFSET,
        },
        libc::sock_filter {
            code: code(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K),
            jt: 0,
            jf: 0,
            k: SYN_ACK_MASK,
        },
        libc::sock_filter {
            code: code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K),
            jt: 0,
            jf: 1,
            k: SYN,
        },
        libc::sock_filter {
            code: code(libc::BPF_RET | libc::BPF_K),
            jt: 0,
            jf: 0,
            k: 0,
        },
        libc::sock_filter {
            code: code(libc::BPF_RET | libc::BPF_K),
            jt: 0,
            jf: 0,
            k: u32::MAX,
        },
    ];
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: `program` and the instructions it points to live through the call; the kernel
    // copies and checks them.
    let status = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if status == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

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

    #[test]
    fn a_closed_tcp_door_keeps_those_inside_and_drops_newcomers() {
        let listener = Listener::tcp("127.0.0.1", 0, 16).expect("bound");
        let address = tcp_port(&listener);
        let mut inside = TcpStream::connect(address).expect("connected before the door closed");
        listener.close_door().expect("filter attached");
        let late = TcpStream::connect_timeout(&address, Duration::from_millis(100));
        assert!(late.is_err(), "a newcomer got in after the door was closed");
        let mut accepted = accept_all(&listener);
        assert_eq!(accepted.len(), 1);
        inside.write_all(b"x").expect("data passes the filter");
        let mut byte = [0];
        accepted[0].set_nonblocking(false).expect("set");
        accepted[0].read_exact(&mut byte).expect("read");
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn a_closed_unix_door_keeps_those_inside_and_refuses_newcomers() {
        let name = format!("stanchion-test-{}", crate::process::pid());
        let listener = Listener::unix_abstract(&name, 16).expect("bound");
        let connect = || {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
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
        let live = Listener::unix(&path, 16).expect("bound");
        let taken = Listener::unix(&path, 16).expect_err("somebody listens there");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(live);
        let second = Listener::unix(&path, 16).expect("nobody listens there any more");
        second.remove_file().expect("removed");
        std::fs::write(&path, "not a socket").expect("written");
        let in_the_way = Listener::unix(&path, 16).expect_err("a plain file is left alone");
        assert_eq!(in_the_way.kind(), io::ErrorKind::AlreadyExists);
        std::fs::remove_file(&path).expect("removed");
    }
}
