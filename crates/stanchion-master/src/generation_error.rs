//! Why a generation is not served.

/// Why a generation could not be made ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GenerationError {
    /// The reason, for the log and the client that asked for the generation.
    pub(crate) why: String,
    /// The exit code of the server, if the server ends of it.
    pub(crate) code: i32,
}
