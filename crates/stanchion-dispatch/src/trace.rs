//! The place of a request in a trace, if the request is traced.

use std::cell::Cell;

/// The place of a request in a trace. An observer gives the place, and sends it to a collector.
pub struct Trace {
    /// The id of the trace.
    pub trace_id: [u8; 16],
    /// The sender's span, unless the trace begins here.
    pub parent_id: Option<[u8; 8]>,
    /// The flags that the sender gave the trace.
    pub flags: u8,
    /// The span of the request.
    pub server_id: [u8; 8],
    /// The span of the request's run at a worker.
    pub run_id: [u8; 8],
    /// When the acceptor had read the head of the request.
    pub started_us: u64,
    /// When the head of the answer was there; 0 = not yet.
    pub answered_us: Cell<u64>,
}
