//! How far the end of a condemned worker is.

/// How far the end of a condemned worker is.
#[derive(Debug)]
pub(super) struct Sentence {
    /// For the log.
    pub(super) why: String,
    /// Other seats of the worker are busy, with requests that may still end.
    pub(super) others: bool,
    /// Its stacks are written down.
    pub(super) dumped: bool,
    /// Whether its hooks run first.
    pub(super) abort: Abort,
}

/// Whether a condemned worker is sent ABRT before it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Abort {
    Never,
    Due,
    /// From then on the worker has its time for the hook, whatever else the master sees of it.
    Sent,
}
