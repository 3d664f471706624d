//! The exchange: the shared memory through which the acceptor hands requests to workers and gets their answers back. It
//! is one memfd, mapped before any fork, so it is at the same address in every process. Nothing in it is locked.
//! `layout.rs` has a picture of it.
//!
//! ```text
//!           acceptor            any seat             that seat             acceptor
//! Free ──────▶ Filling ──────▶ Ready ──────▶ Taken ──────▶ Answering ──────▶ Done ──────▶ Free
//!                 ▲ withdraw    │              └───────── whole answer ──────▲
//!                 └─────────────┘
//! ```
//!
//! It has bytes, slots and seats; the crate of records knows what the bytes mean. Its promises:
//!
//! - one atomic word names a slot's only owner, at every moment;
//! - seats take requests in the order in which they were submitted, in the shared ring and in each worker's own ring;
//! - a process killed at any instruction strands no slot and blocks no other process;
//! - the acceptor believes nothing that it reads here: it copies bytes before it reads them, it checks each length
//!   before it uses it, and it puts damaged fields right from its own record ([`AcceptorSide::mend`]). The code makes
//!   no reference to bytes that other processes can write.
//!
//! The proof: `tests/loom/main.rs` explores the interleavings of `protocol.rs`, which is the code that runs, on loom's
//! atomics; `tests/model/main.rs` compares both sides with a plain model, including deaths; `tests/processes/main.rs`
//! kills real processes at random instants; and `tests/chaos` of the repository does so to the whole server under load.
//!
//! This crate may not know HTTP or Python, and may not log: it returns what it finds.

mod corrupt;
mod protocol;
mod ring;
mod sync;
mod word;

pub use corrupt::Corrupt;
pub use protocol::{Bell, BellWord, Flow, LoopLoad, Notices, Unwanted};
pub use ring::{Published, ReadyRing, RingEntry, SeatRings};
pub use word::{SlotPhase, Tenant, Word};

#[cfg(not(loom))]
mod acceptor;
#[cfg(not(loom))]
mod area;
#[cfg(not(loom))]
mod inbox;
#[cfg(not(loom))]
mod inflow;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod meter;
#[cfg(not(loom))]
mod part;
#[cfg(not(loom))]
mod seat;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod taken;

#[cfg(not(loom))]
pub use acceptor::{AcceptorSide, SlotState, Submitted};
#[cfg(not(loom))]
pub use area::Area;
#[cfg(not(loom))]
pub use inbox::{BEAT_US, Inbox, LoopLag};
#[cfg(not(loom))]
pub use inflow::Inflow;
#[cfg(not(loom))]
pub use layout::{Geometry, LAG_BOUNDS_US, SeatFigures, SeatState};
#[cfg(not(loom))]
pub use meter::{RunTimes, SeatMeter};
#[cfg(not(loom))]
pub use part::MaskedBytes;
#[cfg(not(loom))]
pub use seat::SeatSide;
#[cfg(not(loom))]
pub use shared::Exchange;
#[cfg(not(loom))]
pub use taken::{AnswerEnd, Gone, Taken};
