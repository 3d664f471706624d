//! How far the server is, for the status that operators ask for.

use serde::Serialize;

/// How far the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerPhase {
    /// No generation has served yet.
    Starting,
    /// It lets clients in.
    Serving,
    /// It serves, and makes another generation ready.
    Reloading,
    /// It serves, and a new master is being made ready.
    Upgrading,
    /// It serves the clients that are here, then leaves.
    Draining,
    /// It leaves.
    Stopping,
}
