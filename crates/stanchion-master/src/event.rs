//! The events that go into the step and the actions that come out of it.

use stanchion_settings::BesideOneWorker;
use stanchion_sys::process::Exit;

use stanchion_generation::figures::Cause;
use stanchion_generation::messages::{
    FromAcceptor, FromScribe, FromTemplate, FromWorker, ToAcceptor, ToScribe, ToTemplate, WorkerRef,
};

/// A client of the control socket that asked for something, and that gets the outcome. Never given twice.
pub type ClientId = u64;

/// The settings of a generation that concern the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationPlan {
    /// Workers to keep; the fewest, if the number is elastic.
    pub workers: u16,
    /// The most that the acceptor may want, if the number is elastic.
    pub elastic_max: Option<u16>,
    /// Workers there are seats for.
    pub workers_max: u16,
    /// `graceful_timeout` in milliseconds.
    pub graceful_ms: u64,
    /// `drain_delay` in milliseconds.
    pub drain_delay_ms: u64,
    /// Past so many bytes a worker is replaced; 0 = never.
    pub memory_max: u64,
    /// Past so many bytes it is killed; 0 = never.
    pub memory_hard_max: u64,
    /// After so long it is replaced; 0 = never.
    pub lifetime_ms: u64,
    /// At most so much is added to that, by the worker's pid.
    pub lifetime_jitter_ms: u64,
    /// Whether there is to be a scribe.
    pub has_scribe: bool,
    /// Whether a template stays also beside a single worker.
    pub beside_one: BesideOneWorker,
    /// Whether it is made for an app that is called by ASGI, in event loops.
    pub is_event_loop: bool,
    /// Whether that is for the app to say.
    pub is_guess: bool,
    /// Whether a worker may become the template.
    pub refork: ReforkPlan,
}

/// Whether a worker may become the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReforkPlan {
    /// None may, for this reason.
    Never(&'static str),
    /// One may, by command.
    ByCommand,
    /// One may by command, and the first that has answered `refork_after` requests.
    AfterRequests,
}

impl GenerationPlan {
    /// The fewest and the most workers by the setting.
    pub fn range(&self) -> (u16, u16) {
        (self.workers, self.elastic_max.unwrap_or(self.workers))
    }
}

/// A child that the master forks itself. A generation has one of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildKind {
    /// Owns clients' connections.
    Acceptor,
    /// Imports the app and forks workers.
    Template {
        /// It may import the app, if the settings say so.
        may_preload: bool,
    },
    /// Runs the host's own logging.
    Scribe,
}

impl ChildKind {
    /// For the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Acceptor => "acceptor",
            Self::Template { .. } => "template",
            Self::Scribe => "scribe",
        }
    }
}

/// A command to the tree, by a signal or over the control socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the text of a variant says what its fields are"
)]
pub enum Command {
    /// Serve the clients that are here, then leave.
    Drain,
    /// Leave now.
    Quit,
    /// Read the configuration and the code again.
    Reload,
    /// Reopen the logs.
    Reopen,
    /// Hand over to the stanchion that is installed now.
    Upgrade,
    /// Have all workers leave; requests wait in the line.
    Pause,
    /// One worker more.
    More,
    /// One worker fewer, but not fewer than this.
    Fewer { least: u16 },
    /// So many workers.
    Scale(u16),
    /// As many workers as the acceptor wants.
    ScaleAuto,
    /// Show the stacks of all workers.
    Dump,
    /// Have the worker of this index become the template: the one that has answered the most requests.
    Refork { worker: Option<u16> },
}

/// An event: something that happened.
#[derive(Clone, Debug)]
#[expect(
    missing_docs,
    reason = "the text of a variant says what its fields are"
)]
pub enum MasterEvent {
    /// The first of all; generation 1 is built already. If there is a master before us (`is_heir`) it goes on unless all is well with
    /// this one, and it may have kept another number of workers than its setting said (`scaled_to`), by an operator's command (`is_pinned`). That setting
    /// is `range_before`, unless a version that does not say it has handed over.
    Started {
        plan: GenerationPlan,
        is_heir: bool,
        scaled_to: Option<u16>,
        is_pinned: bool,
        range_before: Option<(u16, u16)>,
    },
    /// Time has passed. All that children had sent by `heard_ms` has been read.
    Tick { heard_ms: u64 },
    /// A command was given: `by` is the log's word for its source, such as the name of a signal or `ctl`; `client` waits for the outcome.
    Commanded {
        command: Command,
        by: &'static str,
        client: Option<ClientId>,
    },
    /// A child has ended.
    Reaped(i32, Exit),
    /// `BuildGeneration` or `RebuildGeneration` was performed: gives the plan of the new settings, or why there is none, for the log. The template that was to
    /// come along is there, or was killed.
    GenerationBuilt {
        generation_number: u32,
        plan: Result<GenerationPlan, String>,
        template: Option<i32>,
    },
    /// The master cannot fork an acceptor for this generation, now or later.
    Childless { generation_number: u32 },
    /// It happened to this generation.
    OfGeneration(u32, GenerationEvent),
    /// `StartHeir` was performed; `None`: it could not be, and why is in the log.
    HeirStarted(Option<i32>),
    /// The new master serves.
    HeirReady,
    /// The new master has ended, as the next event says, for this reason.
    HeirLeaves(String),
    /// The new master has ended. Only its parent learns how, and this master is not its parent.
    HeirEnded(i32),
    /// The master before this one is gone.
    PredecessorGone,
}

impl MasterEvent {
    /// The master has seen this of the worker with this index.
    pub fn seen(generation_number: u32, worker: u16, seen: Observation) -> Self {
        Self::OfGeneration(generation_number, GenerationEvent::WorkerSeen(worker, seen))
    }

    /// Whether the process has been reaped, as this event reports.
    pub fn is_end_of(&self, pid: i32) -> bool {
        matches!(self, Self::Reaped(dead, _) if *dead == pid)
    }
}

/// Something that happened to one generation.
#[derive(Clone, Debug)]
#[expect(
    missing_docs,
    reason = "the text of a variant says what its fields are"
)]
pub enum GenerationEvent {
    /// `Fork` was performed; `None`: the kernel refused.
    Forked { child: ChildKind, pid: Option<i32> },
    /// The acceptor reports.
    AcceptorSaid(FromAcceptor),
    /// The template reports.
    TemplateSaid(FromTemplate),
    /// A process reports that has the other channel of a template: the next one, or the one before.
    OtherTemplateSaid { pid: i32, said: FromTemplate },
    /// The scribe reports.
    ScribeSaid(FromScribe),
    /// A worker that was asked for is there, and this is its process.
    WorkerHere { worker: WorkerRef, pid: i32 },
    /// A worker reports.
    WorkerSaid { worker: WorkerRef, said: FromWorker },
    /// No process has the worker's end of its channel any more: the worker has ended, was never forked, or has closed the descriptors that it was
    /// given.
    WorkerSilent(WorkerRef),
    /// The master has seen this of the worker with this index.
    WorkerSeen(u16, Observation),
}

/// Something that the master sees of a worker without a report of it.
#[derive(Clone, Copy, Debug)]
#[expect(
    missing_docs,
    reason = "the text of a variant says what its fields are"
)]
pub enum Observation {
    /// The request of this seat has run for so long, past its deadline; whether other seats of its
    /// worker are busy.
    Overdue {
        seat: u16,
        ran_ms: u64,
        others: bool,
    },
    /// The event loop does not turn any more, or turns again; `silent_ms` is how long it had not.
    Beat { state: LoopState, silent_ms: u64 },
    /// A worker in threads takes no request though one waits and it has an idle seat, or does again.
    Idles(Idleness),
    /// It takes so many bytes; `is_unused`: and has taken no request yet.
    Memory {
        bytes: u64,
        is_unused: bool,
        others: bool,
    },
}

/// Whether a worker in threads takes what waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the text of a variant says what its fields are"
)]
pub enum Idleness {
    /// It has taken nothing for so long.
    Lasts {
        idle_ms: u64,
        /// Its process's, by its letter in proc(5).
        state: Option<char>,
        /// For longer than `timeout`.
        is_too_long: bool,
    },
    /// It takes requests again, or none waits for it.
    Over,
}

/// The state of an event loop that does not turn as it should, or did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopState {
    /// Something in it has not let go for longer than `loop_timeout`.
    Late,
    /// For longer than `timeout`.
    Stuck,
    /// Its process is stopped, by a signal or a debugger.
    Stopped,
    /// It turns again.
    Turns,
}

/// An action that the loop is to perform.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the text of a variant says what its fields are"
)]
pub enum Action {
    /// Read the configuration and make all that this generation needs before its first
    /// fork.
    BuildGeneration { generation_number: u32 },
    /// Make, with the settings of the generation `first`, all that a generation needs whose app is called by the other interface. The template of `first`,
    /// which has imported the app, comes along if it can, and is killed otherwise.
    RebuildGeneration {
        generation_number: u32,
        first: u32,
        template: Option<i32>,
    },
    /// Nothing of this generation is left: free what it needed.
    DropGeneration { generation_number: u32 },
    /// Fork this child.
    Fork {
        generation_number: u32,
        child: ChildKind,
    },
    /// Send to the acceptor.
    TellAcceptor {
        generation_number: u32,
        message: ToAcceptor,
    },
    /// Send to the template.
    TellTemplate {
        generation_number: u32,
        message: ToTemplate,
    },
    /// Order the worker to become the template, and give it a channel for that.
    OfferTemplate {
        generation_number: u32,
        worker: WorkerRef,
        pid: i32,
    },
    /// The channel that was offered, or the one before it, is the template's from now on.
    SwapTemplates { generation_number: u32 },
    /// Close the channel that is not the template's.
    DropOtherTemplate { generation_number: u32 },
    /// Send to the scribe.
    TellScribe {
        generation_number: u32,
        message: ToScribe,
    },
    /// Send a signal.
    Kill(i32, i32),
    /// Mark the seats of a worker as empty.
    Vacate { generation_number: u32, worker: u16 },
    /// Tell the master before us why this one is going to leave.
    LeaveBecause(String),
    /// Have a worker write down its stacks.
    Dump { generation_number: u32, pid: i32 },
    /// Show what it wrote to the client that asked; without one, in the log.
    ShowDump {
        generation_number: u32,
        number: u16,
        pid: i32,
        client: Option<ClientId>,
    },
    /// Reopen the logs of this process.
    Reopen,
    /// Start the new master.
    StartHeir,
    /// Have the new master leave.
    EndHeir,
    /// Nothing of the new master is left.
    DropHeir,
    /// Send the outcome to the client that asked.
    Reply {
        client: ClientId,
        outcome: Result<String, String>,
    },
    /// Something that the operator's hooks and the service manager may want to know.
    Announce(News),
    /// Write to the log.
    Log(Severity, String),
    /// Leave with this code.
    Exit(i32),
}

/// News for the world outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the text of a variant says what its fields are"
)]
pub enum News {
    /// The server is ready for the first time.
    Ready { workers: usize },
    /// A reload begins.
    Reloading,
    /// This generation has the door.
    Promoted { generation_number: u32 },
    /// A reload has ended well: the generation before this one accepts no more clients.
    Reloaded { generation_number: u32 },
    /// A reload has failed, and this generation goes on serving.
    NotReloaded { generation_number: u32 },
    /// The server accepts no more clients, and leaves.
    Stopping,
    /// The worker of this number has ended, and why if it was to stay.
    WorkerGone {
        number: u16,
        pid: i32,
        cause: Option<Cause>,
    },
    /// So many workers are wanted, where it was so many before.
    Target { new: u16, old: u16 },
    /// This process is the service now.
    Heir { pid: i32 },
}

/// How loud a line of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The normal life of the tree.
    Info,
    /// The operator should know.
    Warning,
    /// A process or a request was lost.
    Error,
}

impl Action {
    /// A message to the acceptor of this generation.
    pub(crate) fn tell_acceptor(generation_number: u32, message: ToAcceptor) -> Self {
        Self::TellAcceptor {
            generation_number,
            message,
        }
    }

    /// A message to the template of this generation.
    pub(crate) fn tell_template(generation_number: u32, message: ToTemplate) -> Self {
        Self::TellTemplate {
            generation_number,
            message,
        }
    }

    /// A log line of the normal life of the tree.
    pub(crate) fn info(message: impl Into<String>) -> Self {
        Self::Log(Severity::Info, message.into())
    }

    /// A log line that the operator should know.
    pub(crate) fn warning(message: impl Into<String>) -> Self {
        Self::Log(Severity::Warning, message.into())
    }

    /// A log line on a process or a request that was lost.
    pub(crate) fn error(message: impl Into<String>) -> Self {
        Self::Log(Severity::Error, message.into())
    }
}
