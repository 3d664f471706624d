//! One epoll(7) for all that the acceptor watches.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use stanchion_sys::call::{InCall, named};
use stanchion_sys::clock;

/// How many events one wait reports. The kernel reports the others at the next one.
const EVENTS_MAX: usize = 256;

/// A descriptor that the acceptor watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// A worker rings, or a helper thread has done something. Each turn looks at both anyway.
    Bell,
    /// The channel to the master.
    Master,
    /// A listener, by the number of its door.
    Door(u32),
    /// A client's connection.
    Client(u32),
    /// A connection of the admin listener.
    Operator(u32),
}

impl Token {
    const SHIFT: u32 = 32;

    fn key(self) -> u64 {
        let (kind, number) = match self {
            Self::Bell => (0_u64, 0),
            Self::Master => (1, 0),
            Self::Door(number) => (2, number),
            Self::Client(number) => (3, number),
            Self::Operator(number) => (4, number),
        };
        kind << Self::SHIFT | u64::from(number)
    }

    fn of(key: u64) -> Self {
        let number = key as u32;
        match key >> Self::SHIFT {
            0 => Self::Bell,
            1 => Self::Master,
            2 => Self::Door(number),
            3 => Self::Client(number),
            _ => Self::Operator(number),
        }
    }
}

/// The state of a descriptor, as epoll(7) reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "flags of epoll(7), of which any may be set"
)]
pub struct Ready {
    /// There is something to read, or the end of it.
    pub readable: bool,
    /// The socket may take bytes.
    pub writable: bool,
    /// The peer sends no more.
    pub ended: bool,
    /// Both directions are closed, or it is reset.
    pub hung_up: bool,
}

/// Watches descriptors, all of them edge-triggered: the kernel reports news once, and again only when there is more.
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Poller {
    /// Makes an epoll(7) that watches nothing.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).in_call("epoll_create1")?,
            events: Vec::with_capacity(EVENTS_MAX),
        })
    }

    /// From now on the kernel reports when there is something to read, until the descriptor is closed.
    pub fn watch(&self, source: Token, fd: impl AsFd) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(source.key());
        epoll::add(&self.epoll, fd, data, flags).in_call("epoll_ctl")
    }

    /// Sets whether the kernel also reports room to write. Not always, since a unix socket has news of that whenever its
    /// peer reads.
    pub(crate) fn watch_room(&self, source: Token, fd: impl AsFd, wanted: bool) -> io::Result<()> {
        let mut flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        flags.set(epoll::EventFlags::OUT, wanted);
        let data = epoll::EventData::new_u64(source.key());
        epoll::modify(&self.epoll, fd, data, flags).in_call("epoll_ctl")
    }

    /// Watches a descriptor no more, though it stays open elsewhere.
    pub fn forget(&self, fd: impl AsFd) -> io::Result<()> {
        epoll::delete(&self.epoll, fd).in_call("epoll_ctl")
    }

    /// Waits for events, at most so long; with a `timeout` of zero it only looks. A signal ends the wait.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.events.clear();
        let timeout = clock::kernel_wait(timeout);
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // For whole milliseconds rustix makes the older call.
        let call = match timeout.tv_nsec % 1_000_000 {
            0 => "epoll_pwait",
            _ => "epoll_pwait2",
        };
        match epoll::wait(
            &self.epoll,
            spare_capacity(&mut self.events),
            Some(&timeout),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(named(call, error)),
        }
    }

    /// How many events the last wait has reported.
    pub fn news(&self) -> usize {
        self.events.len()
    }

    /// An event that the last wait has reported.
    pub fn get(&self, index: usize) -> (Token, Ready) {
        let event = self.events[index];
        let flags = event.flags;
        let failed = epoll::EventFlags::ERR | epoll::EventFlags::HUP;
        let ready = Ready {
            readable: flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP | failed),
            writable: flags.intersects(epoll::EventFlags::OUT | failed),
            ended: flags.intersects(epoll::EventFlags::RDHUP | failed),
            hung_up: flags.intersects(failed),
        };
        (Token::of(event.data.u64()), ready)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_source_comes_back_as_it_was_given() {
        for source in [
            Token::Bell,
            Token::Master,
            Token::Door(7),
            Token::Client(0),
            Token::Client(u32::MAX),
            Token::Operator(3),
        ] {
            assert_eq!(Token::of(source.key()), source);
        }
    }

    /// The events that the kernel reports now.
    fn told(poller: &mut Poller) -> Vec<(Token, Ready)> {
        poller.wait(Duration::ZERO).unwrap();
        (0..poller.news()).map(|index| poller.get(index)).collect()
    }

    #[test]
    fn what_is_told_once_is_told_again_when_there_is_more() {
        let mut poller = Poller::new().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        poller.watch(Token::Client(7), &ours).unwrap();
        let readable = Ready {
            readable: true,
            ..Ready::default()
        };
        assert_eq!(told(&mut poller), []);
        for _ in 0..2 {
            theirs.write_all(b"x").unwrap();
            assert_eq!(told(&mut poller), [(Token::Client(7), readable)]);
            assert_eq!(told(&mut poller), []);
        }
        theirs.shutdown(Shutdown::Write).unwrap();
        let ended = Ready {
            ended: true,
            ..readable
        };
        assert_eq!(told(&mut poller), [(Token::Client(7), ended)]);
        drop(theirs);
        let [(_, gone)] = told(&mut poller)[..] else {
            panic!("one thing is told");
        };
        assert!(gone.hung_up && gone.ended && gone.readable);
        drop(ours);
        assert_eq!(told(&mut poller), []);
    }

    #[test]
    fn room_is_told_of_while_somebody_wants_it() {
        let mut poller = Poller::new().unwrap();
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        poller.watch(Token::Client(0), &ours).unwrap();
        while ours.write(&[0; 1 << 14]).is_ok() {}
        assert_eq!(told(&mut poller), []);
        poller.watch_room(Token::Client(0), &ours, true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        while theirs.read(&mut [0; 1 << 14]).is_ok() {}
        let writable = Ready {
            writable: true,
            ..Ready::default()
        };
        assert_eq!(told(&mut poller), [(Token::Client(0), writable)]);
        poller.watch_room(Token::Client(0), &ours, false).unwrap();
        while ours.write(&[0; 1 << 14]).is_ok() {}
        while theirs.read(&mut [0; 1 << 14]).is_ok() {}
        assert_eq!(told(&mut poller), []);
    }
}
