//! The open descriptors of this process, and the addresses of its sockets (proc(5), getpeername(2)).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::net::sockopt::{socket_acceptconn, socket_type};
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketType};

/// The directory in which [`open`] looks.
const DESCRIPTORS: &str = "/proc/self/fd";

/// The first bytes of a database (sqlite.org/fileformat2.html, section 1.3).
const SQLITE: &[u8; 16] = b"SQLite format 3\0";

/// The kernel's name for each descriptor of this process: a path, `socket:[INODE]`, `anon_inode:[eventpoll]`. A descriptor
/// that is closed meanwhile may be missing.
pub fn open() -> io::Result<BTreeMap<RawFd, String>> {
    let mut open = BTreeMap::new();
    for entry in std::fs::read_dir(DESCRIPTORS)? {
        let entry = entry?;
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let Some(number) = number
            && let Ok(target) = std::fs::read_link(entry.path())
        {
            open.insert(number, target.to_string_lossy().into_owned());
        }
    }
    Ok(open)
}

/// The use of a stream socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamSocket {
    /// It is connected to this address.
    To(String),
    /// It listens at this address.
    At(String),
}

/// The use of a stream socket that is connected or listens; `None` for any other descriptor, and if it was closed meanwhile.
pub fn stream(number: RawFd) -> Option<StreamSocket> {
    // SAFETY: the call only asks about the descriptor. If another thread has closed it, or has opened another file in its
    // place, the answer is an error or concerns that file; nothing is read, written or closed.
    let socket = unsafe { BorrowedFd::borrow_raw(number) };
    if !matches!(
        socket_type(socket).ok()?,
        SocketType::STREAM | SocketType::SEQPACKET
    ) {
        return None;
    }
    if socket_acceptconn(socket).ok()? {
        return Some(StreamSocket::At(shown(
            &rustix::net::getsockname(socket).ok()?,
        )));
    }
    Some(StreamSocket::To(shown(
        &rustix::net::getpeername(socket).ok()??,
    )))
}

/// Whether a descriptor is a database of `SQLite`, which a connection must not carry over a fork.
pub fn is_sqlite(number: RawFd) -> bool {
    // SAFETY: as in `stream`. It closes no descriptor of the file, which would give up the locks of the connection (fcntl_locking(2)).
    let file = unsafe { BorrowedFd::borrow_raw(number) };
    let is_regular = rustix::fs::fstat(file)
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file());
    let mut head = [0; SQLITE.len()];
    is_regular && rustix::io::pread(file, &mut head, 0) == Ok(SQLITE.len()) && head == *SQLITE
}

/// An address in words, such as `10.0.0.5:5432 (tcp)` or `/run/postgresql/.s.PGSQL.5432 (unix)`.
fn shown(address: &SocketAddrAny) -> String {
    let family = address.address_family();
    if family == AddressFamily::UNIX {
        let unix = SocketAddrUnix::try_from(address.clone()).ok();
        let abstract_name = |unix: &SocketAddrUnix| {
            let name = unix.abstract_name().filter(|name| !name.is_empty())?;
            Some(format!("@{}", String::from_utf8_lossy(name)))
        };
        let name = unix.as_ref().and_then(|unix| match unix.path_bytes() {
            Some(path) => Some(String::from_utf8_lossy(path).into_owned()),
            None => abstract_name(unix),
        });
        return format!(
            "{} (unix)",
            name.unwrap_or_else(|| "a socket without a name".to_owned())
        );
    }
    match std::net::SocketAddr::try_from(address.clone()) {
        Ok(address) => format!("{address} (tcp)"),
        Err(_) => format!("an address of family {}", family.as_raw()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;

    #[test]
    fn what_is_open_is_named_by_the_kernel() {
        let epoll =
            rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
        let open = open().unwrap();
        assert_eq!(open[&epoll.as_raw_fd()], "anon_inode:[eventpoll]");
    }

    #[test]
    fn a_stream_has_the_address_that_it_is_connected_to_or_listens_at() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        assert_eq!(
            stream(listener.as_raw_fd()),
            Some(StreamSocket::At(format!("{address} (tcp)")))
        );
        assert_eq!(
            stream(client.as_raw_fd()),
            Some(StreamSocket::To(format!("{address} (tcp)")))
        );
        let (one, _other) = UnixStream::pair().unwrap();
        let nameless = StreamSocket::To("a socket without a name (unix)".to_owned());
        assert_eq!(stream(one.as_raw_fd()), Some(nameless));
    }

    #[test]
    fn datagrams_unconnected_sockets_and_files_are_no_streams() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.connect(udp.local_addr().unwrap()).unwrap();
        let (unix, _other) = UnixDatagram::pair().unwrap();
        let idle = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        for number in [
            udp.as_raw_fd(),
            unix.as_raw_fd(),
            idle.as_raw_fd(),
            file.as_raw_fd(),
        ] {
            assert_eq!(stream(number), None);
            assert!(!is_sqlite(number));
        }
    }

    #[test]
    fn a_database_of_sqlite_is_known_by_its_first_bytes() {
        let file = rustix::fs::memfd_create("database", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        for (bytes, expected) in [
            (&b""[..], false),
            (b"SQLite format 3", false),
            (b"SQLite format 3\0\x10\0", true),
            (b"SQLite format 2\0\x10\0", false),
        ] {
            rustix::fs::ftruncate(&file, 0).unwrap();
            rustix::io::pwrite(&file, bytes, 0).unwrap();
            assert_eq!(is_sqlite(file.as_raw_fd()), expected, "{bytes:?}");
        }
    }
}
