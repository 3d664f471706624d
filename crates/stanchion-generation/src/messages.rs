//! Messages between the processes of the tree: one closed enum for each kind of sender. Here only their form is checked; the receiver asks the
//! kernel whether the sender may send them.
//!
//! They travel as JSON in whole messages ([`stanchion_sys::channel`]); they are rare (a worker
//! comes or goes), so they are made to be read by people, not to be fast.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use stanchion_sys::channel::{Channel, ChannelMessage, Received};

/// The master gets so much of the reason why an app cannot be loaded. A message has room for it even if each character takes six bytes there, as
/// control characters do in JSON.
pub const REASON_CHARS_MAX: usize = 512;

/// A worker of a generation, as processes name it to each other: by its seats, and by the epoch that tells it from the other workers that had these
/// seats. People know it by its number, which a successor takes over; the successor cannot take the seats over while its predecessor sits there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerRef {
    /// Its index, which gives its seats.
    pub index: u16,
    /// Its epoch of them.
    pub epoch: u16,
}

/// Master to acceptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAcceptor {
    /// Let operators in, to the admin listener: clients wait outside.
    AcceptOperators,
    /// Let clients in.
    Accept,
    /// A worker has sat down at its seats.
    WorkerReady {
        /// Which.
        worker: WorkerRef,
        /// Its number among the workers that are wanted, by which people know it.
        number: u16,
        /// It is the n-th that has this number.
        nth: u32,
        /// Its process.
        pid: i32,
    },
    /// A worker is dead; whatever it held is to be cleared up.
    WorkerGone(WorkerRef),
    /// So many workers are wanted, if the settings say a range; also the answer to each [`FromAcceptor::Want`].
    Workers {
        /// How many.
        wanted: u16,
        /// The number stays as it is, by an operator's command.
        is_pinned: bool,
    },
    /// The machine has this headroom: the answer to [`FromAcceptor::Weigh`].
    Headroom(HeadroomRead),
    /// A worker is to serve, alone, the clients of this door (`worker.listen`), unless a worker that got the door before does. The listener comes
    /// beside it; without one another process has the address, and the acceptor tries it again.
    Listen {
        /// Number of the door.
        door: u32,
        /// The worker.
        worker: WorkerRef,
        /// Its number among the workers that are wanted: it may ask before it is ready.
        number: u16,
        /// The address and its options, as `bind` spells them.
        bind: String,
    },
    /// This door is no worker's any more.
    CloseDoor {
        /// Number of the door.
        door: u32,
        /// Whether another acceptor has it too: the clients in its queue are then for that acceptor.
        is_shared: bool,
    },
    /// The request of this seat has run past its deadline: the acceptor answers its client, and the master will kill its worker.
    Overdue {
        /// Number of the seat.
        seat: u16,
        /// Its worker's epoch.
        epoch: u16,
        /// How long it has run.
        ran_ms: u64,
    },
    /// The event loop of this worker has not turned for too long: the acceptor answers the clients of its requests, and the master will kill it.
    LoopStuck(WorkerRef),
    /// No other acceptor has the listener at this address any more: close it, and let in the clients in its queue.
    LastOnes {
        /// As the listener shows it.
        address: String,
    },
    /// Whether another master has the same listeners: if ours dies they are not ours to close.
    Shared(bool),
    /// Reopen the access log.
    Reopen,
    /// Go on serving and accepting, and have balancers and clients go elsewhere: the server is about to leave.
    LameDuck,
    /// Close the door and let in the clients in its queue, serve the clients that are here for at most this long, then leave.
    Drain {
        /// Milliseconds.
        timeout_ms: u64,
    },
    /// Leave the door to another acceptor: serve the clients that are here for at most this long, then leave.
    Retire {
        /// Milliseconds.
        timeout_ms: u64,
    },
    /// The app cannot be started: let in the clients that wait, for [`Self::Quit`] to answer them so.
    TurnAway,
    /// Answer all clients 503 and leave.
    Quit,
}

/// The memory and the processes that the machine leaves for more workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadroomRead {
    /// So many workers there are, with those that boot.
    pub workers: u16,
    /// The bytes of memory that control groups leave, and their limit, if there is one.
    pub memory: Option<(u64, u64)>,
    /// Private memory of a worker in bytes: nine of ten have no more. 0 if that is not known, or memory is not limited.
    pub private_bytes: u64,
    /// For how much of the last ten seconds some thread has waited for memory, in percent.
    pub some_percent: u16,
    /// The same, of all threads that had work.
    pub full_percent: u16,
    /// The processes and threads that control groups leave, and their limit, if there is one.
    pub tasks: Option<(u64, u64)>,
    /// The processes and threads of a worker. 0 if that is not known, or they are not limited.
    pub tasks_each: u64,
    /// A worker could not be forked, or did not boot, so the next has to wait.
    pub is_boot_failing: bool,
}

/// Master to template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToTemplate {
    /// Fork a worker, and give it the channel that comes beside this.
    Fork {
        /// The seats that it gets, and the epoch that it starts.
        worker: WorkerRef,
        /// Its number among the workers that are wanted: in its title, and `worker.nr` for hooks.
        number: u16,
        /// The app has to answer a request in it before it takes any.
        is_canary: bool,
    },
    /// Be this worker, with the channel that comes beside this: the only one, or the one that has the app which workers cannot have
    /// from a fork.
    Become {
        /// The seats that it gets, and the epoch that it starts.
        worker: WorkerRef,
        /// Its number among the workers that are wanted, as in `Fork`.
        number: u16,
    },
    /// Be the template of the generation that is made for the interface which the app turned out to have.
    GoOver,
    /// Reopen the error log.
    Reopen,
}

/// Master to worker, over the channel by which that reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum WorkerOrder {
    /// Be the template once it has left its seats, with the channel that comes beside this. It reads this when it leaves.
    BecomeTemplate,
}

/// Master to scribe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToScribe {
    /// Reopen the files of the handlers, and the error log.
    Reopen,
    /// No process logs anything more: write what is left, and leave.
    Finish,
}

/// Acceptor to master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum FromAcceptor {
    /// It accepts.
    Ready,
    /// It cannot use a certificate or key that it was given, or the directory for a recording of arrivals, and leaves.
    CannotServe {
        /// Why, on one line.
        reason: String,
    },
    /// It has read the order to retire: from now on it accepts no more clients.
    Retired,
    /// A worker has written where it should not and must not go on.
    Replace(WorkerRef),
    /// It wants so many workers, if the settings say a range.
    Want {
        /// How many.
        workers: u16,
        /// Why, on one line, for the log.
        why: String,
    },
    /// It asks for [`ToAcceptor::Headroom`]. The kernel does not show an acceptor the memory of other processes (landlock(7)).
    Weigh,
    /// An address that a worker wanted for itself is free now: the listener comes beside it.
    Listen {
        /// The worker.
        worker: WorkerRef,
        /// The address and its options, as `bind` spells them.
        bind: String,
    },
}

/// Template to master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum FromTemplate {
    /// It can fork workers.
    Ready,
    /// It cannot, and why is in the log: the import of the app has left what workers cannot have from a
    /// fork. Each worker is to import the app for itself, and this process, which has, can be one of them: it waits
    /// for `Become`.
    NotForWorkers,
    /// The app decides by which interface it is called, and this generation was made for the other one. The template leaves, or waits for `GoOver` if it
    /// has what a template of the other generation needs.
    OtherInterface,
    /// It could not fork this one, and why is in the log. A worker that was forked speaks for itself.
    NotForked(WorkerRef),
    /// It was a worker, it cannot be a template, and leaves.
    Unfit {
        /// Why, on one line.
        reason: String,
    },
    /// It cannot load the app, and leaves.
    CannotLoad {
        /// Why, on one line; all of it is in the log.
        reason: String,
    },
    /// A watched file has changed (`--reload`).
    Changed {
        /// Its path.
        path: String,
    },
}

/// Scribe to master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum FromScribe {
    /// Logging is set up, and it writes.
    Ready,
    /// Logging cannot be set up as the settings say, and it leaves.
    CannotSetUp {
        /// Why, on one line; all of it is in the log.
        reason: String,
    },
}

/// Worker to master, over the channel that was made for it: that says which worker it is, and the
/// kernel which process. So nothing in here names a worker or a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum FromWorker {
    /// It is there: the first that it says.
    Here,
    /// It is about to take requests.
    Ready,
    /// It listens at an address that it alone serves (`worker.listen`): the listener comes beside
    /// it. Without one the address is in use, perhaps by its own predecessor.
    Listen {
        /// The address and its options, as `bind` spells them.
        bind: String,
    },
    /// It has had enough (`max_requests`): it is to be replaced, and goes on until then.
    Due {
        /// Requests it has answered.
        requests: u64,
        /// Messages that its app has received over a WebSocket, each of which counts like a request.
        messages: u64,
    },
    /// It has answered so many requests that it may become the template (`refork_after`).
    Warm {
        /// Requests it has answered.
        requests: u64,
    },
    /// Another process than the master has sent it TERM: it is to be replaced, and goes on until then.
    Terminated,
    /// It cannot load the app, and leaves.
    CannotLoad {
        /// Why, on one line; all of it is in the log.
        reason: String,
    },
    /// The app decides by which interface it is called, and this generation was made for the other one. The worker leaves.
    OtherInterface,
    /// It has written its stacks where the master asked it to.
    Dumped,
}

/// A message as it travels, for a sender that cannot make it: a signal handler.
pub fn prepare<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(message)?)
}

/// Sends a message; `WouldBlock` if the other side is far behind.
pub fn send<T: Serialize>(channel: &Channel, message: &T) -> io::Result<()> {
    send_with(channel, message, None)
}

/// The same, with a descriptor beside it.
pub fn send_with<T: Serialize>(
    channel: &Channel,
    message: &T,
    fd: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    channel.send(&prepare(message)?, fd)
}

/// How long a child waits for a master that is behind with its reading, as while a hook of the
/// operator's runs in it.
const REPORT_WITHIN_MS: u64 = 60_000;

/// Sends a message that must not be lost: as [`send`], but waits for a master that is behind.
pub fn report<T: Serialize>(channel: &Channel, message: &T) -> io::Result<()> {
    report_with(channel, message, None)
}

/// The same, with a descriptor beside it.
pub fn report_with<T: Serialize>(
    channel: &Channel,
    message: &T,
    fd: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    channel.send_within(&prepare(message)?, fd, REPORT_WITHIN_MS)
}

/// The result of [`receive`].
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming<T> {
    /// A message.
    Message(T),
    /// None is waiting.
    Nothing,
    /// The other side is gone.
    Closed,
}

/// A message, and what the kernel says of it.
#[derive(Debug)]
pub struct Envelope<T> {
    /// The message.
    pub message: T,
    /// The descriptor that came beside it.
    pub fd: Option<OwnedFd>,
    /// The process that sent it.
    pub sender: i32,
}

/// Takes the next message, without waiting. A message that makes no sense is an error: both sides are of one build, so it is our fault, or the fault
/// of a worker that writes where it should not.
pub fn receive<T: DeserializeOwned>(channel: &Channel) -> io::Result<Incoming<T>> {
    Ok(match receive_from(channel)? {
        Incoming::Message(said) => Incoming::Message(said.message),
        Incoming::Nothing => Incoming::Nothing,
        Incoming::Closed => Incoming::Closed,
    })
}

/// The same, with all that is known of it.
pub fn receive_from<T: DeserializeOwned>(channel: &Channel) -> io::Result<Incoming<Envelope<T>>> {
    Ok(match channel.receive()? {
        Received::Message(ChannelMessage { bytes, fd, sender }) => Incoming::Message(Envelope {
            message: serde_json::from_slice(&bytes)?,
            fd,
            sender,
        }),
        Received::Nothing => Incoming::Nothing,
        Received::Closed => Incoming::Closed,
    })
}
