//! A generation is the processes that serve one version of app and settings: an acceptor, a template and workers. This crate is
//! what they share: memory, listeners, messages to and from the master, counts.
//!
//! It knows no process's work: nothing here accepts, serves, forks or decides.

#![forbid(unsafe_code)]

pub mod common;
pub mod credentials;
pub mod expiry;
pub mod figures;
pub mod heartbeat;
pub mod identities;
pub mod listeners;
pub mod messages;
pub mod spool;
pub mod tally;
pub mod ticket_keys;
