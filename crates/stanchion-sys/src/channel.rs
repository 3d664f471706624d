//! Whole messages between related processes, with descriptors beside them.
//!
//! `SOCK_SEQPACKET` pairs (unix(7)): a message arrives whole or not at all, also with several
//! writers on one end, and the reader sees the end when the last writer has gone.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};

/// The longest message, in bytes. A longer one is refused by the sender and dropped by the reader.
pub const MESSAGE_BYTES_MAX: usize = 4096;

/// One end of a message socket.
#[derive(Debug)]
pub struct Channel(OwnedFd);

/// What a read gave.
#[derive(Debug)]
pub enum Received {
    /// A message, and the descriptor that came with it.
    Message(Vec<u8>, Option<OwnedFd>),
    /// Nothing is waiting.
    Nothing,
    /// Every writer has closed its end.
    Closed,
}

impl Channel {
    /// Both ends, non-blocking, closed on exec.
    pub fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(one), Self(other)))
    }

    /// The end that a process before us kept open at `fd` over its execve(2).
    pub fn inherit(fd: RawFd) -> io::Result<Self> {
        crate::process::inherited_fd(fd).map(Self)
    }

    /// Sends one message, with `fd` beside it. `WouldBlock` when the reader is far behind,
    /// `BrokenPipe` when it has gone.
    pub fn send(&self, message: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a message of {} bytes is over the limit of {MESSAGE_BYTES_MAX}",
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
            &self.0,
            &[IoSlice::new(message)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }

    /// Takes the next message without waiting. A message that was cut, for being over the limit,
    /// is an error.
    pub fn receive(&self) -> io::Result<Received> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let read = recvmsg(
            &self.0,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        );
        let read = match read {
            Ok(read) => read,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                return Ok(Received::Nothing);
            }
            Err(rustix::io::Errno::CONNRESET) => return Ok(Received::Closed),
            Err(error) => return Err(error.into()),
        };
        if read.bytes == 0 {
            return Ok(Received::Closed);
        }
        if read.flags.contains(ReturnFlags::TRUNC) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a message was over the limit",
            ));
        }
        let fd = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        bytes.truncate(read.bytes);
        Ok(Received::Message(bytes, fd))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Waits until one of `fds` can be read or has ended, at most `timeout_ms` (-1 = for ever, which
/// no caller of ours asks for). Gives one flag per descriptor; a signal ends the wait early.
pub fn poll_readable(fds: &[BorrowedFd<'_>], timeout_ms: i32) -> io::Result<Vec<bool>> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut polled: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    let timeout = Timespec {
        tv_sec: i64::from(timeout_ms.max(0)) / 1000,
        tv_nsec: i64::from(timeout_ms.max(0)) % 1000 * 1_000_000,
    };
    match poll(&mut polled, (timeout_ms >= 0).then_some(&timeout)) {
        Ok(_) => Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect()),
        Err(rustix::io::Errno::INTR) => Ok(vec![false; fds.len()]),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_edges_and_the_end_is_seen() {
        let (one, other) = Channel::pair().expect("a pair");
        one.send(b"first", None).expect("sent");
        one.send(b"second", Some(one.as_fd()))
            .expect("sent with a descriptor");
        drop(one);
        assert!(matches!(other.receive(), Ok(Received::Message(m, None)) if m == b"first"));
        let Ok(Received::Message(message, Some(fd))) = other.receive() else {
            panic!("the second message came without its descriptor");
        };
        assert_eq!(message, b"second");
        assert!(
            matches!(other.receive(), Ok(Received::Nothing)),
            "the descriptor keeps it open"
        );
        drop(fd);
        assert!(matches!(other.receive(), Ok(Received::Closed)));
    }

    #[test]
    fn an_oversized_message_is_refused() {
        let (one, _other) = Channel::pair().expect("a pair");
        assert!(one.send(&[0; MESSAGE_BYTES_MAX + 1], None).is_err());
    }
}
