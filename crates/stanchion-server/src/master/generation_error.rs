//! Why a generation is not served.

/// Why a house could not be made ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GenerationError {
    /// The reason, for the log and the client that asked for the house.
    pub(super) why: String,
    /// The exit code of the server, if the server ends of it.
    pub(super) code: i32,
}
