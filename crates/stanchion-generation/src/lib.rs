//! A generation is a set of processes that serve one version of app and settings: an acceptor, a template and workers.
//! This crate has the things that they share: memory, listeners, messages to and from the master, counts.
//!
//! It does no process's work: no code here serves or decides. It may not fork, have threads or use unsafe code.

#![forbid(unsafe_code)]

pub mod common;
pub mod credentials;
pub mod demand_seconds;
pub mod expiry;
pub mod figures;
pub mod heartbeat;
pub mod identities;
pub mod jitter;
pub mod listeners;
pub mod messages;
pub mod named_counts;
#[cfg(debug_assertions)]
pub mod rig;
pub mod seat_status;
pub mod spool;
pub mod tally;
pub mod ticket_keys;
