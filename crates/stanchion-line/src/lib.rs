//! The waiting line: which requests wait, in which order and for how long, and which clients are asked to come back
//! later. The line consists of lanes, by default of one.
//!
//! This crate is policy only. It may not do I/O, read a clock, have threads or use unsafe code: time is an argument, in
//! microseconds of one monotonic clock whose zero does not matter. So the same code runs in the acceptor, in a table
//! test and in a simulator, and gives the same answers. It links no other crate.
//!
//! ```
//! use stanchion_line::{Discipline, Expiry, Full, LaneId, Line, LineLimits};
//!
//! let lane = LaneId::DEFAULT; // there may be more
//! let mut line = Line::new(LineLimits {
//!     waiting_max: 2,
//!     queue_timeout_us: 1_000_000,
//!     discipline: Discipline::Fifo,
//! });
//! line.join(0, lane, "first").unwrap();
//! line.join(10, lane, "second").unwrap();
//!
//! // A limit that is reached is an answer, not an accident.
//! let (item, Full { retry_after_s }) = line.join(20, lane, "third").unwrap_err();
//! assert_eq!((item, retry_after_s), ("third", 1));
//!
//! let head = line.pull(500).unwrap();
//! assert_eq!((head.item, head.wait_us), ("first", 500));
//!
//! // "second" joined at 10 µs and may wait for one second.
//! let (expiry, late) = line.expire(1_000_010).unwrap();
//! assert_eq!((expiry, late.item), (Expiry::TimedOut, "second"));
//! assert!(line.is_empty());
//! ```

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod ahead;
mod because;
mod clients;
mod curve;
mod demand;
mod discipline;
mod drain_rate;
mod elastic;
mod headroom;
mod lane;
mod line;
mod reserve;
mod spent;
mod verdict;

pub use ahead::Ahead;
pub use because::{Because, HeldBack};
pub use clients::Clients;
pub use curve::{Ceiling, Curve, CurvePoint};
pub use demand::{Demand, DemandNow, DemandSecond};
pub use discipline::Discipline;
pub use elastic::{Elastic, ElasticLimits, Seen, Wanted};
pub use headroom::{Headroom, Left};
pub use lane::{Expiry, LaneView};
pub use line::{Full, LaneId, LaneLimits, Line, LineLimits, Place, Pulled};
pub use reserve::{LaneSeats, Reserve};
pub use spent::{LaneSpent, Measured, Spent};
pub use verdict::{LoopShares, Plateau, Sizing, Verdict};
