//! The server: settings, the process tree, the acceptor, the worker loop. It runs any app that
//! implements [`Host`] and knows no Python.

#![forbid(unsafe_code)]

mod acceptor;
mod common;
mod control;
mod credentials;
mod expiry;
mod figures;
mod handover;
mod heartbeat;
mod heirloom;
mod host;
mod identities;
mod last_words;
mod launcher;
mod leftovers;
mod listeners;
mod master;
mod messages;
pub mod network;
mod pidfile;
pub mod privileges;
mod scribe;
mod signals;
mod sound_threads;
mod spool;
mod tally;
mod template;
mod threads;
mod ticket_keys;
mod title;
mod tree;
mod worker;

/// Entries for `fuzz/`.
#[cfg(fuzzing)]
pub mod fuzzing {
    use crate::acceptor::connections::conversation::play;

    /// Plays a script on a server, and panics if something does not add up.
    pub fn conversation(script: &[u8]) {
        play(script);
    }
}

pub use credentials::check_credentials;
pub use host::{Hook, Host, LoadError, Logging, NotLoaded, StartedAs};
pub use launcher::Launcher;
pub use stanchion_exchange::{BEAT_US, Ending, Gone, Inbox, Inflow, Taken};
pub use stanchion_sys::process::Fork;
pub use threads::refuse_at_start;
pub use tree::serve;
pub use worker::{Seat, Worker};
