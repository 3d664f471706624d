//! Dispatch: the line and the exchange together. A request joins the line (`lines.rs`), goes to a seat in its turn
//! ([`slots`]), and comes back with an answer ([`collect`]); `dispatch/` puts these together. A few requests are for
//! one worker alone (`ports.rs`), and the answers of a few meet slow clients (`slow_clients.rs`). [`storage`] has the
//! memory and the files that hold requests and answers meanwhile, and each client's share of both.
//!
//! A request has arrived when its last byte is read, or, if uploads stream, with the start of its body. In the line it
//! can be refused, expire, or leave because its client hung up; then the app never runs for it. The dispatch moves the
//! oldest requests into the exchange, but only a few: for each seat the one that runs and one more (several while
//! requests take microseconds, `stanchion_line::Ahead`). So a busy worker finds its next request without a system call,
//! and the line's policy rules all others. A request in the exchange that no seat has taken yet can be withdrawn for
//! the same reasons.
//!
//! If a slot contains something impossible, the client gets 502, the master is asked to replace the worker that has the
//! slot, and the slot is not used again until that worker is dead. The descriptor of a file counts only if the kernel
//! says that it comes from the worker that has the slot, and only the acceptor has the end at which it can be received.
//!
//! This crate knows workers by the exchange and the master by its messages. It may not name sockets of clients, read a
//! clock, fork or use unsafe code: a [`ticket::Ticket`] carries what the crates above need to know of a request, and
//! callers pass the time as `now_us`. The threads of [`storage::disk`] are the only ones, because files may keep the
//! caller waiting.

#![forbid(unsafe_code)]

mod admission;
pub mod causes;
pub mod collect;
mod culprits;
pub mod demand;
mod dispatch;
pub mod durations;
pub mod hints;
pub mod judge;
mod lines;
pub mod outflow;
pub mod over;
mod ports;
pub mod random;
pub mod refusal;
pub mod reply;
pub mod request;
pub mod request_id;
#[cfg(debug_assertions)]
pub mod rig;
mod seats_taken;
pub mod service_times;
pub mod sessions;
pub mod slots;
mod slow_clients;
pub mod spare_buffers;
pub mod staffing;
mod stage;
mod standstill;
pub mod status;
pub mod storage;
mod streamed_body;
pub mod ticket;
pub mod trace;
pub(crate) mod trailers;
pub mod view;
mod wakeups;
mod worker_files;
pub mod workers;

pub use dispatch::Dispatch;
pub use request::PortNumber;
