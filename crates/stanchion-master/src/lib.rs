//! The master's decisions: which children to fork, to order, to signal and to kill, when a generation gets the listeners, and when
//! the server ends. [`Master::step`] takes an event and gives actions; the master's loop in `stanchion-server` gathers the events
//! and performs the actions.
//!
//! This crate may not do I/O, read a clock, have threads or use unsafe code: the time is an argument, a log line is an
//! action, and of `stanchion-sys` it uses how processes end and the numbers of signals.

#![forbid(unsafe_code)]

mod acceptor;
mod backoff;
mod child;
mod commands;
mod decision;
mod departed;
mod dumps;
mod elastic;
mod event;
mod first_worker;
mod generation;
mod generation_error;
mod heir;
mod interface;
mod looks;
mod pause;
mod phase;
mod recycling;
mod refork;
mod run_state;
mod scribe;
mod sentence;
mod silent;
mod stage;
mod standing;
mod step;
mod succession;
mod template;
#[cfg(test)]
mod tests;

mod worker;
mod workers;

pub use commands::command_of;
pub use event::{
    Action, ChildKind, ClientId, Command, GenerationEvent, GenerationPlan, Idleness, LoopState,
    MasterEvent, News, Observation, ReforkPlan, Severity,
};
pub use generation::Generation;
pub use looks::{Looks, ProcessLook, is_stopped, way_on, why_it_stands};
pub use pause::Pause;
pub use phase::ServerPhase;
pub use stage::WorkerStage;
pub use step::Master;
pub use worker::{PresentWorker, called, counted};
pub use workers::{Listed, Workers};
