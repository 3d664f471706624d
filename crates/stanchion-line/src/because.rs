//! Why another number of workers is wanted, or is not though requests wait.

use std::fmt;

use crate::curve::Ceiling;
use crate::drain_rate::to_f64;

/// Why another number of workers is wanted. Its text follows a colon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Because {
    /// So many requests wait, the oldest of them for so long.
    Waiting {
        /// The requests.
        requests: usize,
        /// Microseconds.
        oldest_us: u64,
    },
    /// The worker of this rank was last needed so long ago.
    Unneeded {
        /// The rank, counted from 1.
        rank: u16,
        /// Microseconds.
        since_us: u64,
    },
    /// More busy seats bring no more.
    NoGain(Ceiling),
    /// Threads have waited for memory, all that had work at once, for this percentage of the last ten seconds.
    Stalls {
        /// Percent.
        full_percent: u16,
    },
    /// Control groups leave so little memory.
    Memory {
        /// Bytes.
        left_bytes: u64,
    },
}

/// A bound that keeps the number of workers from growing though requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBack {
    /// There are as many as there may be.
    Max,
    /// More busy seats bring no more throughput.
    Throughput,
    /// There are as many as keep the cores busy.
    Cores,
    /// No request has left its seat since the number doubled: all of them are stuck.
    Stall,
    /// Too many workers were forked of late.
    Forks,
    /// Workers boot slowly, and as many boot as there are cores. Or the last one could not be forked, or did not boot.
    Boot,
    /// There is no memory for more, or it is not known yet whether there is.
    Memory,
    /// There is no room for more processes.
    Pids,
}

impl HeldBack {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Max,
        Self::Throughput,
        Self::Cores,
        Self::Stall,
        Self::Forks,
        Self::Boot,
        Self::Memory,
        Self::Pids,
    ];

    /// Its name in metrics and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::Throughput => "throughput",
            Self::Cores => "cores",
            Self::Stall => "stall",
            Self::Forks => "forks",
            Self::Boot => "boot",
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }
}

impl fmt::Display for Because {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Waiting {
                requests,
                oldest_us,
            } => {
                let oldest_ms = oldest_us / 1_000;
                match requests {
                    1 => write!(out, "a request waits ({oldest_ms} ms by now)"),
                    _ => write!(out, "{requests} requests wait, the oldest {oldest_ms} ms"),
                }
            }
            Self::Unneeded { rank, since_us } => {
                let since_s = to_f64(since_us / 100_000) / 10.0;
                write!(out, "number {rank} was last needed {since_s} s ago")
            }
            Self::Memory { left_bytes } => {
                write!(out, "{} MiB of memory are left", left_bytes >> 20)
            }
            Self::Stalls { full_percent } => write!(
                out,
                "all threads waited for memory for {full_percent} % of the last 10 s"
            ),
            Self::NoGain(Ceiling {
                busy,
                beyond,
                beyond_per_s,
                per_s,
                ..
            }) => write!(
                out,
                "more than {busy} busy seats bring no more requests a second ({per_s:.0} with up to {busy}, {beyond_per_s:.0} \
                 with {beyond:.0})"
            ),
        }
    }
}
