//! Parts of the master's state.

use crate::event::ClientId;

/// How far the server is from its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RunState {
    #[default]
    Running,
    /// The server goes on as it is, accepts no command that changes it, and drains from `until_ms` on (`drain_delay`).
    LameDuck {
        until_ms: u64,
    },
    /// The clients that are here are served; then all processes go.
    Draining,
    /// All processes are to go.
    Stopping {
        code: i32,
    },
    Gone,
}

/// The new owner of the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Successor {
    /// A generation of this master.
    Generation(u32),
    /// Another master.
    Heir { pid: i32 },
}

/// A generation that is made in place of one that was made for the other interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Second {
    pub(crate) generation_number: u32,
    /// Workers wanted of the first one.
    pub(crate) target: u16,
}

/// Reloads: the one that is under way, and the next one.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    /// The number of the generation that was made last.
    pub(crate) last_number: u32,
    /// The generation that was made last in place of one that was made for the other interface.
    pub(crate) second: Option<Second>,
    /// Another reload was asked for while one was under way: what that one loads may be older
    /// than what is meant.
    pub(crate) again: bool,
    /// Clients that wait for the end of the reload that is under way,
    pub(crate) waiting: Vec<ClientId>,
    /// and of the one that follows it.
    pub(crate) waiting_next: Vec<ClientId>,
}
