//! Settings that are one of a few words.

use serde::Deserialize;

/// How important an event of the error log is, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// For people who change the server or its app.
    Debug,
    /// The normal life of the process tree.
    Info,
    /// Something to look at in working hours.
    Warning,
    /// A request or a process was lost.
    Error,
    /// The server cannot go on.
    Critical,
}

/// The meanings of QUIT, TERM and TTOU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignalStyle {
    /// TERM graceful, QUIT quick, TTOU down to one worker.
    Gunicorn,
    /// QUIT graceful, TERM quick, TTOU down to none.
    Unicorn,
}

/// In which order the line is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueOrder {
    /// First in, first out.
    Fifo,
    /// The same until the line is over its target, then newest first.
    Adaptive,
}
