//! A request's place in a trace, for those that have one.

use std::cell::Cell;

/// Its place; whoever gives it and sends it is an observer.
pub(crate) struct Trace {
    pub(crate) trace_id: [u8; 16],
    /// The sender's span, unless the trace begins here.
    pub(crate) parent_id: Option<[u8; 8]>,
    pub(crate) flags: u8,
    /// The span of the request, and of its run at a worker.
    pub(crate) server_id: [u8; 8],
    pub(crate) run_id: [u8; 8],
    /// When its head had been read.
    pub(crate) started_us: u64,
    /// When the head of its answer was there; 0 = not yet.
    pub(crate) answered_us: Cell<u64>,
}
