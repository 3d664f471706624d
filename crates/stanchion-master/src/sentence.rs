//! How far the end of a condemned worker is.

/// How far the end of a condemned worker is.
#[derive(Debug)]
pub(crate) struct Sentence {
    /// For the log.
    pub(crate) why: String,
    /// Other seats of the worker are busy, with requests that may still end.
    pub(crate) others: bool,
    /// Its stacks are written down.
    pub(crate) dumped: bool,
    /// Whether its hooks run first.
    pub(crate) abort: Abort,
}

/// Whether a condemned worker is sent ABRT before it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abort {
    Never,
    Due,
    /// From then on the worker has its time for the hook, whatever else the master sees of it.
    Sent,
}
