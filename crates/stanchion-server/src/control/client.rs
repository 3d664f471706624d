//! A connection to the control socket: one request, one reply, and so on. The master never waits for it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::reply::{CtlReply, Data, WorkerStacks};
use super::request::{CtlRequest, REQUEST_BYTES_MAX};

/// The time that a client has for its request, from when it has connected or got its last answer.
const REQUEST_MS_MAX: u64 = 5_000;
/// The time that a client has to read a reply.
const REPLY_MS_MAX: u64 = 5_000;
/// How soon the master tries again to send what did not fit into the socket.
const SEND_AGAIN_MS: u64 = 10;
/// Bytes of stacks kept for a client; the rest is left out, and the reply says so.
const STACKS_BYTES_MAX: usize = 3 * 1024 * 1024;

/// A client, and how far it is.
#[derive(Debug)]
pub(super) struct ControlClient {
    socket: OwnedFd,
    received: Vec<u8>,
    stage: ClientStage,
    /// The client has closed its sending side.
    has_ended: bool,
    stacks: Vec<WorkerStacks>,
}

#[derive(Debug)]
enum ClientStage {
    /// The client may send a request until the deadline.
    Asking { deadline_ms: u64 },
    /// Its request is being handled.
    Waiting,
    /// The client is to read this until the deadline; `last` if the connection is closed afterwards.
    Answering {
        unsent: Vec<u8>,
        sent: usize,
        tried_ms: u64,
        deadline_ms: u64,
        last: bool,
    },
}

/// The state of a client after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientTurn {
    /// Nothing new.
    Stays,
    /// The client has sent a request, and waits for the answer.
    Asks(CtlRequest),
    /// The client has left, or must leave.
    Leaves,
}

impl ControlClient {
    pub(super) fn new(socket: OwnedFd, now_ms: u64) -> Self {
        Self {
            socket,
            received: Vec::new(),
            stage: asking(now_ms),
            has_ended: false,
            stacks: Vec::new(),
        }
    }

    /// The descriptor to wait for: a client that waits for us is not worth waking up for.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        let is_asking = matches!(self.stage, ClientStage::Asking { .. });
        (is_asking && !self.has_ended).then(|| self.socket.as_fd())
    }

    /// When [`Self::turn`] has something to do, whatever the client does.
    pub(super) fn due_ms(&self) -> Option<u64> {
        match &self.stage {
            // Sent together with the request before.
            ClientStage::Asking { .. } if self.received.contains(&b'\n') => Some(0),
            ClientStage::Asking { deadline_ms } => Some(*deadline_ms),
            ClientStage::Waiting => None,
            ClientStage::Answering {
                tried_ms,
                deadline_ms,
                ..
            } => Some((tried_ms + SEND_AGAIN_MS).min(*deadline_ms)),
        }
    }

    /// Goes as far as it can without waiting.
    pub(super) fn turn(&mut self, now_ms: u64) -> ClientTurn {
        match self.stage {
            ClientStage::Asking { deadline_ms } => self.ask(now_ms, deadline_ms),
            ClientStage::Waiting if self.has_hung_up() => ClientTurn::Leaves,
            ClientStage::Waiting => ClientTurn::Stays,
            ClientStage::Answering { .. } => self.flush(now_ms),
        }
    }

    fn ask(&mut self, now_ms: u64, deadline_ms: u64) -> ClientTurn {
        if !self.received.contains(&b'\n')
            && !self.has_ended
            && let Err(error) = self.receive()
        {
            return match error {
                Errno::AGAIN | Errno::INTR => self.ask_in_time(now_ms, deadline_ms),
                _ => ClientTurn::Leaves,
            };
        }
        let Some(end) = self.received.iter().position(|&byte| byte == b'\n') else {
            return match (self.has_ended, self.received.len()) {
                (true, 0) => ClientTurn::Leaves,
                (true, _) => self.refuse(now_ms, "the request ends without an end of line"),
                (false, REQUEST_BYTES_MAX..) => {
                    let why = format!("the request is over the limit of {REQUEST_BYTES_MAX} bytes");
                    self.refuse(now_ms, &why)
                }
                (false, _) => self.ask_in_time(now_ms, deadline_ms),
            };
        };
        let line: Vec<u8> = self.received.drain(..=end).collect();
        match CtlRequest::parse(&line[..end]) {
            Ok(request) => {
                self.stage = ClientStage::Waiting;
                ClientTurn::Asks(request)
            }
            Err(problem) => self.refuse(now_ms, &problem),
        }
    }

    fn receive(&mut self) -> rustix::io::Result<()> {
        let mut bytes = [0; REQUEST_BYTES_MAX];
        let room = REQUEST_BYTES_MAX - self.received.len();
        let (_, count) = recv(&self.socket, &mut bytes[..room], RecvFlags::empty())?;
        self.has_ended = count == 0;
        self.received.extend_from_slice(&bytes[..count]);
        Ok(())
    }

    fn ask_in_time(&mut self, now_ms: u64, deadline_ms: u64) -> ClientTurn {
        if now_ms < deadline_ms {
            return ClientTurn::Stays;
        }
        let why = format!("no whole request has come within {REQUEST_MS_MAX} ms");
        self.refuse(now_ms, &why)
    }

    /// Sends it the reason, and closes the connection.
    pub(super) fn refuse(&mut self, now_ms: u64, why: &str) -> ClientTurn {
        self.answer(now_ms, &CtlReply::refused(why), true)
    }

    /// Keeps what is to go with the reply.
    pub(super) fn add_stacks(&mut self, mut stacks: WorkerStacks) {
        let kept_bytes: usize = self.stacks.iter().map(|one| one.stacks.len()).sum();
        if kept_bytes + stacks.stacks.len() > STACKS_BYTES_MAX {
            "(left out: the answer would be too long)".clone_into(&mut stacks.stacks);
        }
        self.stacks.push(stacks);
    }

    /// Its request has been handled.
    pub(super) fn reply(&mut self, now_ms: u64, reply: &CtlReply) -> ClientTurn {
        if !matches!(self.stage, ClientStage::Waiting) {
            return ClientTurn::Stays;
        }
        if self.stacks.is_empty() {
            return self.answer(now_ms, reply, self.has_ended);
        }
        let data = Data::Stacks(std::mem::take(&mut self.stacks));
        let with_stacks = CtlReply {
            data: Some(data),
            ..reply.clone()
        };
        self.answer(now_ms, &with_stacks, self.has_ended)
    }

    fn answer(&mut self, now_ms: u64, reply: &CtlReply, last: bool) -> ClientTurn {
        self.stage = ClientStage::Answering {
            unsent: reply.line(),
            sent: 0,
            tried_ms: now_ms,
            deadline_ms: now_ms + REPLY_MS_MAX,
            last,
        };
        self.flush(now_ms)
    }

    fn flush(&mut self, now_ms: u64) -> ClientTurn {
        let ClientStage::Answering {
            unsent,
            sent,
            tried_ms,
            deadline_ms,
            last,
        } = &mut self.stage
        else {
            return ClientTurn::Stays;
        };
        *tried_ms = now_ms;
        while *sent < unsent.len() {
            match send(&self.socket, &unsent[*sent..], SendFlags::NOSIGNAL) {
                Ok(count) => *sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if now_ms < *deadline_ms => return ClientTurn::Stays,
                Err(_) => return ClientTurn::Leaves,
            }
        }
        if *last {
            return ClientTurn::Leaves;
        }
        self.stage = asking(now_ms);
        ClientTurn::Stays
    }

    /// Whether the client has closed the connection altogether. A client that has only stopped sending (shutdown(2)) still wants its answer; poll(2)
    /// tells the two apart by `POLLHUP`.
    fn has_hung_up(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::empty())];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().intersects(PollFlags::HUP)
    }
}

fn asking(now_ms: u64) -> ClientStage {
    ClientStage::Asking {
        deadline_ms: now_ms + REQUEST_MS_MAX,
    }
}

/// Sends the reason to a client that is refused; no process waits for whether that arrives.
pub(super) fn turn_away(socket: &OwnedFd, why: &str) -> io::Result<()> {
    send(socket, &CtlReply::refused(why).line(), SendFlags::NOSIGNAL)?;
    Ok(())
}
