//! Channels: processes of the tree send each other whole messages, with descriptors beside them.
//!
//! `SOCK_SEQPACKET` pairs (unix(7)): a message arrives whole or not at all, also with several writers on one end, and the
//! reader sees the end when the last writer has closed it. The kernel names the process that sent each message
//! (`SO_PASSCRED`), so the reader need not believe what a sender says of itself.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair, sockopt::set_socket_passcred,
};

use crate::call::{InCall, checked, named, number};
use crate::clock;

/// The default for the longest message, in bytes. The sender refuses a longer one, and the reader drops it.
pub const MESSAGE_BYTES_MAX: usize = 4096;

/// One end of a message socket.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    /// The longest message, in bytes.
    message_bytes_max: usize,
}

/// A message with its descriptor and sender.
#[derive(Debug)]
pub struct ChannelMessage {
    /// The content.
    pub bytes: Vec<u8>,
    /// The descriptor beside it, if one was sent.
    pub fd: Option<OwnedFd>,
    /// The pid of the sender at that moment, according to the kernel; 0 if it is outside our pid namespace. Only root can
    /// name another pid.
    pub sender: i32,
}

/// The result of a read.
#[derive(Debug)]
pub enum Received {
    /// A message.
    Message(ChannelMessage),
    /// Nothing is waiting.
    Nothing,
    /// Every writer has closed its end.
    Closed,
}

impl Channel {
    /// Makes both ends, non-blocking, closed on exec.
    pub fn pair() -> io::Result<(Self, Self)> {
        Self::pair_for(MESSAGE_BYTES_MAX)
    }

    /// As [`Self::pair`], for messages of up to so many bytes.
    pub fn pair_for(message_bytes_max: usize) -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .in_call("socketpair")?;
        set_socket_passcred(&one, true).in_call("setsockopt")?;
        set_socket_passcred(&other, true).in_call("setsockopt")?;
        let end = |socket| Self {
            socket,
            message_bytes_max,
        };
        Ok((end(one), end(other)))
    }

    /// Another descriptor of the same end.
    pub fn another(&self) -> io::Result<Self> {
        Ok(Self {
            socket: self.socket.try_clone().in_call("fcntl")?,
            message_bytes_max: self.message_bytes_max,
        })
    }

    /// Takes over the end that the old master kept open at `fd` over its execve(2).
    pub fn inherit(fd: RawFd) -> io::Result<Self> {
        let inherited = crate::process::inherited_fd(fd)?;
        // An older version of stanchion may have made it without this option.
        set_socket_passcred(&inherited, true).in_call("setsockopt")?;
        Ok(Self::received(inherited))
    }

    /// Takes an end that came beside a message.
    pub fn received(fd: OwnedFd) -> Self {
        Self {
            socket: fd,
            message_bytes_max: MESSAGE_BYTES_MAX,
        }
    }

    /// Sends one message, with `fd` beside it. `WouldBlock` when the reader is far behind,
    /// `BrokenPipe` when it has gone.
    pub fn send(&self, message: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let most = self.message_bytes_max;
        if message.len() > most {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a message of {} bytes is over the limit of {most}",
                    message.len()
                ),
            ));
        }
        let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
        if !fds.is_empty() {
            let fits = ancillary.push(SendAncillaryMessage::ScmRights(&fds));
            debug_assert!(fits, "the buffer was made for one descriptor");
        }
        sendmsg(
            &self.socket,
            &[IoSlice::new(message)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )
        .in_call("sendmsg")?;
        Ok(())
    }

    /// As [`Self::send`], but waits at most `timeout_ms` for a reader that is behind.
    pub fn send_within(
        &self,
        message: &[u8],
        fd: Option<BorrowedFd<'_>>,
        timeout_ms: u64,
    ) -> io::Result<()> {
        let deadline_us = clock::monotonic_us() + timeout_ms * 1_000;
        loop {
            match self.send(message, fd) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left_us = deadline_us.saturating_sub(clock::monotonic_us());
                    if left_us == 0 {
                        return Err(error);
                    }
                    poll_writable(self.as_fd(), Duration::from_micros(left_us))?;
                }
                other => return other,
            }
        }
    }

    /// Takes the next message without waiting. A message over the limit, which the kernel has cut, is an error.
    pub fn receive(&self) -> io::Result<Received> {
        let mut bytes = vec![0_u8; self.message_bytes_max];
        let mut ancillary = Ancillary::default();
        let mut part = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        // SAFETY: msghdr is plain data, for which zeroes are valid; on some systems it has padding
        // that cannot be named.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut ancillary).cast();
        header.msg_controllen = size_of::<Ancillary>();
        // An app that closed all descriptors may have a socket of its own there, which blocks.
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        // SAFETY: the header points to `bytes` and `ancillary`, with their sizes; both live through the call, and no other
        // reference to them is in use.
        let read = unsafe { libc::recvmsg(self.as_raw_fd(), &raw mut header, flags) };
        if let Err(error) = checked("recvmsg", read) {
            return match number(&error) {
                Some(libc::EAGAIN | libc::EINTR) => Ok(Received::Nothing),
                Some(libc::ECONNRESET) => Ok(Received::Closed),
                _ => Err(error),
            };
        }
        // Read the ancillary data before anything else, so that no descriptor is lost.
        // SAFETY: the kernel has just filled in the header's control messages.
        let (fd, sender) = unsafe { read_ancillary(&header) };
        // The end has no sender; an empty message has one.
        let Some(sender) = sender else {
            return Ok(Received::Closed);
        };
        if header.msg_flags & libc::MSG_TRUNC != 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a message was over the limit",
            ));
        }
        bytes.truncate(read.cast_unsigned());
        Ok(Received::Message(ChannelMessage { bytes, fd, sender }))
    }
}

/// The most descriptors that the kernel passes at once (`SCM_MAX_FD` in unix(7)).
const DESCRIPTORS_MAX: usize = 253;

/// Room for the sender's credentials and as many descriptors as there can be, aligned as cmsg(3) wants it. The kernel closes
/// descriptors that do not fit, however long that takes.
#[repr(C, align(8))]
struct Ancillary([u8; ANCILLARY_BYTES]);

// SAFETY: CMSG_SPACE only computes.
const ANCILLARY_BYTES: usize = unsafe {
    libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) as usize
        + libc::CMSG_SPACE((DESCRIPTORS_MAX * size_of::<RawFd>()) as u32) as usize
};

impl Default for Ancillary {
    fn default() -> Self {
        Self([0; ANCILLARY_BYTES])
    }
}

/// Makes sure that closing `fd` does not wait: if the sender has set `SO_LINGER` on a socket (socket(7)), close(2) blocks
/// until the peer has read everything.
fn close_at_once(fd: &OwnedFd) {
    // A descriptor that is not a socket does not linger.
    let _ = rustix::net::sockopt::set_socket_linger(fd, None);
}

/// The first descriptor and the sender's pid, if a process sent anything. Closes other descriptors.
///
/// # Safety
///
/// recvmsg(2) must have filled in the control messages of `header`, and the caller must read them only this once, because
/// this takes the descriptors over.
unsafe fn read_ancillary(header: &libc::msghdr) -> (Option<OwnedFd>, Option<i32>) {
    let mut first = None;
    let mut sender = None;
    // SAFETY: the caller gives a header that the kernel filled in, and whose buffer is alive; the macros of cmsg(3) stay
    // within it. Credentials and descriptors are read unaligned, and only as many as the length says.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(header);
        while let Some(control) = next.as_ref() {
            let data = libc::CMSG_DATA(next);
            let bytes = control.cmsg_len - libc::CMSG_LEN(0) as usize;
            match (control.cmsg_level, control.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    for index in 0..bytes / size_of::<RawFd>() {
                        let at = data.add(index * size_of::<RawFd>());
                        let fd = OwnedFd::from_raw_fd(at.cast::<RawFd>().read_unaligned());
                        close_at_once(&fd);
                        first.get_or_insert(fd);
                    }
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if bytes == size_of::<libc::ucred>() => {
                    sender = Some(data.cast::<libc::ucred>().read_unaligned().pid);
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(header, next);
        }
    }
    (first, sender)
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.socket
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Waits until one of `fds` can be read or has ended, at most for `timeout`. Returns one flag per descriptor; a signal ends
/// the wait early.
pub fn poll_readable(fds: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<Vec<bool>> {
    let polled = fds
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
    let mut polled: Vec<_> = polled.collect();
    poll_for(&mut polled, clock::kernel_wait(timeout))?;
    Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect())
}

/// Waits until `fd` can be written to, at most for `timeout`; false if it cannot. An error counts as room: the next write
/// says which error it is. A signal ends the wait early.
pub fn poll_writable(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    poll_for(&mut polled, timeout)?;
    Ok(!polled[0].revents().is_empty())
}

fn poll_for(polled: &mut [PollFd<'_>], timeout: Duration) -> io::Result<()> {
    // A time that does not fit is longer than any.
    match poll(polled, Timespec::try_from(timeout).ok().as_ref()) {
        // After a signal no descriptor is marked.
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(named("ppoll", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{self, Fork};

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Waits for the end: a child that another test forks has a copy of every descriptor for a moment.
    fn ends(channel: &Channel) -> bool {
        poll_readable(&[channel.as_fd()], PATIENCE).expect("polled");
        matches!(channel.receive(), Ok(Received::Closed))
    }

    fn message(channel: &Channel) -> ChannelMessage {
        match channel.receive() {
            Ok(Received::Message(message)) => message,
            other => panic!("no message: {other:?}"),
        }
    }

    #[test]
    fn the_kernel_says_who_sent_a_message_whoever_has_the_channel() {
        let (ours, theirs) = Channel::pair().expect("a pair");
        theirs.send(b"mine", None).expect("sent");
        // SAFETY: the child makes system calls only.
        let child = match unsafe { process::fork() }.expect("forked") {
            Fork::Child => {
                let sent = theirs.send(b"a child's", None).is_ok();
                process::exit_now(i32::from(!sent));
            }
            Fork::Parent(pid) => pid,
        };
        poll_readable(&[ours.as_fd()], PATIENCE).expect("polled");
        let first = message(&ours);
        assert_eq!(
            (first.bytes.as_slice(), first.sender),
            (&b"mine"[..], process::pid())
        );
        poll_readable(&[ours.as_fd()], PATIENCE).expect("polled");
        assert_eq!(message(&ours).sender, child);
    }

    #[test]
    fn an_empty_message_is_not_the_end() {
        let (ours, theirs) = Channel::pair().expect("a pair");
        theirs.send(b"", None).expect("sent");
        let empty = message(&ours);
        assert_eq!(
            (empty.bytes.as_slice(), empty.sender),
            (&b""[..], process::pid())
        );
        assert!(matches!(ours.receive(), Ok(Received::Nothing)));
        drop(theirs);
        assert!(ends(&ours));
    }

    #[test]
    fn a_socket_that_was_passed_does_not_linger() {
        let (ours, theirs) = Channel::pair().expect("a pair");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound");
        let socket = std::net::TcpStream::connect(address).expect("connected");
        let an_hour = Duration::from_secs(3_600);
        rustix::net::sockopt::set_socket_linger(&socket, Some(an_hour)).expect("set");
        theirs.send(b"here", Some(socket.as_fd())).expect("sent");
        drop(socket);
        let fd = message(&ours).fd.expect("it came");
        assert_eq!(rustix::net::sockopt::socket_linger(&fd), Ok(None));
    }

    #[test]
    fn descriptors_beyond_the_first_are_closed() {
        use rustix::net::SendAncillaryMessage::ScmRights;
        let (ours, theirs) = Channel::pair().expect("a pair");
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        let fds = [write.as_fd(); 3];
        let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(ScmRights(&fds)));
        let words = [IoSlice::new(b"three")];
        sendmsg(&theirs.socket, &words, &mut ancillary, SendFlags::NOSIGNAL).expect("sent");
        drop(write);
        let got = message(&ours);
        assert_eq!(got.sender, process::pid());
        drop(got);
        // The pipe ends once the last copy of its write end is closed.
        let mut byte = [0];
        assert_eq!(rustix::io::read(&read, &mut byte), Ok(0));
    }

    #[test]
    fn who_waits_for_room_waits_so_long_and_no_longer() {
        let (ours, theirs) = Channel::pair().expect("a pair");
        while theirs.send(b"more", None).is_ok() {}
        let full = theirs.send_within(b"more", None, 1).expect_err("no room");
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        std::thread::scope(|scope| {
            scope.spawn(|| while let Ok(Received::Message(_)) = ours.receive() {});
            theirs.send_within(b"more", None, 60_000).expect("room");
        });
    }

    #[test]
    fn messages_keep_their_edges_and_the_end_is_seen() {
        let (one, other) = Channel::pair().expect("a pair");
        one.send(b"first", None).expect("sent");
        one.send(b"second", Some(one.as_fd()))
            .expect("sent with a descriptor");
        drop(one);
        let first = message(&other);
        assert!(first.bytes == b"first" && first.fd.is_none());
        let second = message(&other);
        assert_eq!(second.bytes, b"second");
        let fd = second.fd.expect("it came with a descriptor");
        assert!(
            matches!(other.receive(), Ok(Received::Nothing)),
            "the descriptor keeps it open"
        );
        drop(fd);
        assert!(ends(&other));
    }

    #[test]
    fn an_oversized_message_is_refused() {
        let (one, _other) = Channel::pair().expect("a pair");
        assert!(one.send(&[0; MESSAGE_BYTES_MAX + 1], None).is_err());
    }

    #[test]
    fn a_pair_may_be_made_for_longer_ones() {
        let (one, other) = Channel::pair_for(3 * MESSAGE_BYTES_MAX).expect("a pair");
        let another = one.another().expect("a copy");
        let long = [7; 3 * MESSAGE_BYTES_MAX];
        another.send(&long, None).expect("sent");
        assert_eq!(message(&other).bytes, long);
        assert!(one.send(&[0; 3 * MESSAGE_BYTES_MAX + 1], None).is_err());
    }
}
