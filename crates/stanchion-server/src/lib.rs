//! The server: the process tree from its first moment to its last, the master, the template and the workers. It runs
//! any app that implements [`Host`].
//!
//! The master gathers signals, reports, commands and dead children, asks its step what follows, and performs that. The
//! step (`stanchion-master/src/step.rs`) is pure: no system call, no clock, tested as a table. A signal handler of the master's
//! writes one byte to a pipe. The master sends signals only to processes that are its children according to the kernel
//! (`stanchion_sys::child`), and logs a message that it refuses as a warning with the reason, at most once in 10 s for
//! each child.
//!
//! This crate may not know HTTP or Python, name sockets of clients, or use unsafe code: the acceptor serves clients,
//! and the host runs the app.

#![forbid(unsafe_code)]

mod auto_workers;
mod control;
mod gil_watch;
mod handover;
mod hook;
mod hook_run;
mod host;
mod inherited_listener;
mod last_words;
mod launcher;
mod leftovers;
mod load_error;
mod master;
pub mod network;
mod next_template;
mod pidfile;
pub mod privileges;
#[cfg(debug_assertions)]
pub mod rig;
mod scribe;
mod signals;
mod sound_threads;
mod template;
mod threads;
mod title;
mod tree;
mod worker;
mod worker_process;

pub use auto_workers::{cores, heed_machine};
pub use hook::Hook;
pub use host::{Host, Logging, StartedAs};
pub use launcher::Launcher;
pub use load_error::{LoadError, NotLoaded};
pub use stanchion_acceptor::{PAGE, PAGE_POLICY};
pub use stanchion_exchange::{AnswerEnd, BEAT_US, Gone, Inbox, Inflow, Taken};
pub use stanchion_generation::credentials::check_credentials;
pub use stanchion_sys::process::Fork;
pub use threads::refuse_at_start;
pub use tree::serve;
pub use worker::{Seat, Worker};
