//! What goes into the step and what comes out of it.

use stanchion_sys::process::Exit;

use crate::messages::{ToAcceptor, ToMaster, ToTemplate};

/// What of the settings concerns the master.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Workers to keep.
    pub(super) workers: u16,
    /// Workers there are seats for.
    pub(super) workers_max: u16,
    /// `graceful_timeout` in milliseconds.
    pub(super) graceful_ms: u64,
}

/// What happened.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// The first of all.
    Started,
    /// Time has passed.
    Tick,
    /// A signal came, other than SIGCHLD.
    Signal(i32),
    /// A child has ended.
    Reaped(i32, Exit),
    /// `ForkAcceptor` was performed; `None`: the kernel refused.
    AcceptorForked(Option<i32>),
    /// `ForkTemplate` was performed; `None`: the kernel refused.
    TemplateForked { generation: u32, pid: Option<i32> },
    /// A child reports.
    Report(ToMaster),
    /// A request of this worker has run for so long, past its timeout.
    Overdue { worker: u16, ran_ms: u64 },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Fork the acceptor.
    ForkAcceptor,
    /// Fork a template, which loads this generation of the code.
    ForkTemplate { generation: u32 },
    /// Send to the acceptor.
    TellAcceptor(ToAcceptor),
    /// Send to the template of this generation.
    TellTemplate {
        generation: u32,
        message: ToTemplate,
    },
    /// Close the channel to the template of this generation: it is no longer needed.
    DropTemplate { generation: u32 },
    /// Send a signal.
    Kill(i32, i32),
    /// Mark the seats of a worker as empty.
    Vacate(u16),
    /// Write to the log.
    Log(Severity, String),
    /// Leave with this code.
    Exit(i32),
}

/// How loud a line of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    /// The normal life of the tree.
    Info,
    /// Somebody should know.
    Warning,
    /// A process or a request was lost.
    Error,
}

impl Action {
    pub(super) fn info(message: impl Into<String>) -> Self {
        Self::Log(Severity::Info, message.into())
    }

    pub(super) fn warning(message: impl Into<String>) -> Self {
        Self::Log(Severity::Warning, message.into())
    }

    pub(super) fn error(message: impl Into<String>) -> Self {
        Self::Log(Severity::Error, message.into())
    }
}
