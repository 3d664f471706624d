//! The listening sockets of a network namespace and how full their queues are: `sock_diag(7)`.
//!
//! `ss -ltx` shows the same, but not the drops of TCP. It takes no privilege.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::{self, ExtensionFlags, InetRequest, SocketId};
use netlink_packet_sock_diag::unix::nlas::UnixDiagName;
use netlink_packet_sock_diag::unix::{self, ShowFlags, UnixRequest};
use netlink_sys::{Socket, protocols::NETLINK_SOCK_DIAG};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::call::{checked, number};
use crate::listener::ListenerAddress;

/// The kernel answers at once; this is only a bound.
const ANSWER_MS_MAX: u64 = 5_000;
/// A netlink datagram is at most this long (`NLMSG_GOODSIZE` of the kernel is half of it).
const DATAGRAM_BYTES: usize = 32 << 10;

/// A socket that listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListeningSocket {
    /// `None` for a unix socket that was never bound, which listen(2) allows.
    pub address: Option<ListenerAddress>,
    /// Its inode, as `/proc/PID/fd` names it: `socket:[inode]`.
    pub inode: u64,
    /// How full its queue is.
    pub queue: AcceptQueue,
}

/// The queue of connections that no process has accepted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptQueue {
    /// How many connections wait in it.
    pub waiting: u32,
    /// The backlog in force: the smaller of the number given to listen(2) and `net.core.somaxconn` at that moment. The
    /// queue holds one more than this (`sk_acceptq_is_full`).
    pub backlog: u32,
    /// How many connection attempts the kernel has dropped here since the socket began to listen; `None` if the kernel
    /// does not count them (unix), or the caller did not ask for them.
    pub drops: Option<u32>,
}

/// All listening sockets of this process's network namespace.
pub fn listening() -> io::Result<Vec<ListeningSocket>> {
    let mut found = Vec::new();
    let mut keep = |answer| found.extend(listening_socket(answer));
    for family in [AF_INET, AF_INET6] {
        ask(tcp_request(family, inet::StateFlags::LISTEN), &mut keep)?;
    }
    ask(unix_request(), &mut keep)?;
    Ok(found)
}

/// The local address of each half-open TCP connection of this network namespace: the kernel has answered its SYN, and
/// nothing has come back or been let in yet.
pub fn half_open() -> io::Result<Vec<SocketAddr>> {
    let mut found = Vec::new();
    let mut keep = |answer| {
        if let SockDiagMessage::InetResponse(answer) = answer {
            found.push(local_address(&answer.header.socket_id));
        }
    };
    for family in [AF_INET, AF_INET6] {
        ask(tcp_request(family, inet::StateFlags::SYN_RECV), &mut keep)?;
    }
    Ok(found)
}

/// The queue of one listening socket; `None` if the kernel does not find the socket, such as one that was made in
/// another network namespace.
pub fn queue_of(listener: &impl AsFd) -> io::Result<Option<AcceptQueue>> {
    let inode = rustix::fs::fstat(listener)?.st_ino;
    Ok(listening()?
        .into_iter()
        .find(|socket| socket.inode == inode)
        .map(|socket| socket.queue))
}

/// How full the queue of a TCP listener is, for the price of one system call; `None` for any other socket, and for one
/// that does not listen. For a listener, `TCP_INFO` (tcp(7)) has the queue in the fields where a connection has its
/// unacknowledged data (`tcp_get_info` of the kernel).
pub fn tcp_queue(listener: BorrowedFd<'_>) -> io::Result<Option<AcceptQueue>> {
    /// The value of `tcpi_state` for a listener (`TCP_LISTEN` of the kernel).
    const LISTENS: u8 = 10;

    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` to `info`, which is zeroed and consists of integers only, so any bytes
    // in it are valid.
    let (asked, info) = unsafe {
        let asked = libc::getsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut bytes,
        );
        (checked("getsockopt", asked), info.assume_init())
    };
    match asked {
        Err(error) if matches!(number(&error), Some(libc::EOPNOTSUPP | libc::ENOPROTOOPT)) => {
            Ok(None)
        }
        Err(error) => Err(error),
        Ok(_) => Ok((info.tcpi_state == LISTENS).then_some(AcceptQueue {
            waiting: info.tcpi_unacked,
            backlog: info.tcpi_sacked,
            drops: None,
        })),
    }
}

fn tcp_request(family: u8, states: inet::StateFlags) -> SockDiagMessage {
    SockDiagMessage::InetRequest(InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::SKMEMINFO,
        states,
        socket_id: if family == AF_INET {
            SocketId::new_v4()
        } else {
            SocketId::new_v6()
        },
    })
}

fn unix_request() -> SockDiagMessage {
    SockDiagMessage::UnixRequest(UnixRequest {
        state_flags: unix::StateFlags::LISTEN,
        inode: 0,
        show_flags: ShowFlags::NAME | ShowFlags::RQLEN,
        cookie: [0xff; 8],
    })
}

fn ask(request: SockDiagMessage, keep: &mut impl FnMut(SockDiagMessage)) -> io::Result<()> {
    let socket = Socket::new(NETLINK_SOCK_DIAG)?;
    let timeout = Some(Duration::from_millis(ANSWER_MS_MAX));
    set_socket_timeout(&socket, Timeout::Recv, timeout)?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;

    let mut datagram = Vec::with_capacity(DATAGRAM_BYTES);
    loop {
        datagram.clear();
        socket.recv(&mut datagram, 0)?;
        let mut rest = datagram.as_slice();
        while let Some(length) = rest.first_chunk() {
            // A message begins with its length, and is aligned to 4 bytes (netlink(7)).
            let length = (u32::from_ne_bytes(*length) as usize).next_multiple_of(4);
            // A message that cannot be read concerns one socket only: a unix socket may have a name of the full 108
            // bytes without a final zero (unix(7)), which the parser does not take.
            if let Ok(message) = NetlinkMessage::<SockDiagMessage>::deserialize(rest) {
                match message.payload {
                    NetlinkPayload::InnerMessage(answer) => keep(answer),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::Done(_) => return Ok(()),
                    _ => {}
                }
            }
            rest = rest.get(length.max(4)..).unwrap_or_default();
        }
    }
}

fn listening_socket(answer: SockDiagMessage) -> Option<ListeningSocket> {
    match answer {
        SockDiagMessage::InetResponse(answer) => {
            let drops = answer.nlas.iter().find_map(|nla| match nla {
                inet::nlas::Nla::MemInfo(memory) => Some(memory.drops),
                _ => None,
            });
            Some(ListeningSocket {
                address: Some(ListenerAddress::Tcp(local_address(
                    &answer.header.socket_id,
                ))),
                inode: answer.header.inode.into(),
                queue: AcceptQueue {
                    waiting: answer.header.recv_queue,
                    backlog: answer.header.send_queue,
                    drops,
                },
            })
        }
        SockDiagMessage::UnixResponse(answer) => Some(ListeningSocket {
            address: answer.name().map(unix_address),
            inode: answer.header.inode.into(),
            queue: AcceptQueue {
                waiting: answer.number_of_pending_connection()?,
                backlog: answer.max_number_of_pending_connection()?,
                drops: None,
            },
        }),
        _ => None,
    }
}

fn local_address(socket: &SocketId) -> SocketAddr {
    SocketAddr::new(socket.source_address, socket.source_port)
}

fn unix_address(name: &UnixDiagName) -> ListenerAddress {
    match name {
        UnixDiagName::Pathname(path) => ListenerAddress::Unix(PathBuf::from(path)),
        UnixDiagName::Abstract(name) => {
            ListenerAddress::Abstract(String::from_utf8_lossy(name).into_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::listener::{Listener, SocketOptions};

    #[test]
    fn a_tcp_listener_is_found_by_its_descriptor_with_those_who_wait() {
        let listener = Listener::tcp("127.0.0.1", 0, &SocketOptions::with_backlog(7)).unwrap();
        let fd = listener.try_clone_fd().unwrap();
        let empty = AcceptQueue {
            waiting: 0,
            backlog: 7,
            drops: Some(0),
        };
        assert_eq!(queue_of(&fd).unwrap(), Some(empty));
        let ListenerAddress::Tcp(address) = listener.address() else {
            panic!("not TCP")
        };
        let _guests = [0; 3].map(|_| TcpStream::connect(address).unwrap());
        assert_eq!(queue_of(&fd).unwrap().unwrap().waiting, 3);
    }

    #[test]
    fn unix_listeners_are_found_by_path_and_by_name() {
        let directory = std::env::temp_dir();
        let path = directory.join(format!("stanchion-sock-diag-{}", std::process::id()));
        let name = format!("stanchion-sock-diag-{}", std::process::id());
        let listeners = [
            Listener::unix(&path, &SocketOptions::with_backlog(5)).unwrap(),
            Listener::unix_abstract(&name, &SocketOptions::with_backlog(6)).unwrap(),
        ];
        let _guest = UnixStream::connect(&path).unwrap();
        for (listener, waiting, backlog) in [(&listeners[0], 1, 5), (&listeners[1], 0, 6)] {
            let found = listening().unwrap();
            let mut same = found
                .iter()
                .filter(|socket| socket.address.as_ref() == Some(listener.address()));
            let expected = AcceptQueue {
                waiting,
                backlog,
                drops: None,
            };
            assert_eq!(same.next().unwrap().queue, expected);
            let fd = listener.try_clone_fd().unwrap();
            assert_eq!(queue_of(&fd).unwrap(), Some(expected));
        }
        listeners[0].remove_file().unwrap();
    }

    #[test]
    fn a_connection_is_half_open_until_the_kernel_lets_it_in() {
        let mut options = SocketOptions::with_backlog(5);
        // With this option the kernel waits for the first byte (tcp(7)), so the test can hold a connection half open.
        options.tcp.defer_accept_s = 60;
        let listener = Listener::tcp("127.0.0.1", 0, &options).unwrap();
        let ListenerAddress::Tcp(address) = *listener.address() else {
            panic!("not TCP")
        };
        let here = || {
            half_open()
                .unwrap()
                .iter()
                .filter(|at| **at == address)
                .count()
        };
        assert_eq!(here(), 0);
        let mut guests = [0; 3].map(|_| TcpStream::connect(address).unwrap());
        assert_eq!(here(), 3);
        guests[0].write_all(b"x").unwrap();
        assert_eq!(here(), 2);
    }

    #[test]
    fn a_socket_that_does_not_listen_has_no_queue() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(queue_of(&stream).unwrap(), None);
        assert_eq!(tcp_queue(stream.as_fd()).unwrap(), None);
    }

    #[test]
    fn a_tcp_listener_tells_by_itself_how_full_it_is() {
        let options = SocketOptions::with_backlog(5);
        let listener = Listener::tcp("127.0.0.1", 0, &options).unwrap();
        let ListenerAddress::Tcp(address) = *listener.address() else {
            panic!("not TCP")
        };
        let _guests = [0; 3].map(|_| TcpStream::connect(address).unwrap());
        let queue = tcp_queue(listener.as_fd()).unwrap().expect("it listens");
        assert_eq!((queue.waiting, queue.backlog), (3, 5));
        let unix =
            Listener::unix_abstract("stanchion-sock-diag-none", &SocketOptions::with_backlog(5))
                .unwrap();
        assert_eq!(tcp_queue(unix.as_fd()).unwrap(), None);
    }
}
