//! Parts of the master's state.

/// How far the server is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunState {
    Running,
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
    /// A house of this master.
    Generation(u32),
    /// Another master.
    Heir { pid: i32 },
}

/// A house that is made in place of one that was made for the other interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Second {
    pub(crate) generation: u32,
    /// Workers wanted of the first one.
    pub(crate) target: u16,
}
