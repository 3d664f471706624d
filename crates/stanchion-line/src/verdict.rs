//! The verdict: what is full, and so what would help, from where the time of recent requests went.
//!
//! Requests at seats that wait elsewhere leave their core and the interpreter's lock to others, so more seats help until one of these is
//! full. A worker has one lock: threads share it, workers do not. Nothing here looks at how long requests take: the same app is slow on a
//! full machine and fast on an empty one.

use std::fmt;

use crate::drain_rate::to_f64;
use crate::spent::Spent;

/// Seats are full if this share of them is busy.
const FULL_SEATS: f64 = 0.9;
/// Event loops are full if their threads have a core for this share of the time.
const FULL_LOOPS: f64 = 0.9;
/// Cores are full if requests use this share of them.
const FULL_CORES: f64 = 0.85;
/// Cores are full if requests at seats wait for one for this share of their time.
const CORE_WAIT: f64 = 0.25;
/// The lock is full if requests at seats wait for it for this share of their time,
const GIL_WAIT: f64 = 0.2;
/// or, if that is unknown, if a worker's threads have a core for this share of the time in all.
const FULL_WORKER: f64 = 0.85;
/// A shorter time than this says nothing.
const OVER_US_MIN: u64 = 1_000_000;
/// The most threads of a worker that a verdict names: beyond it memory and connections to databases are the limit.
const THREADS_MAX: f64 = 64.0;

/// The facts from which the verdict is found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizing {
    /// The time of the recent requests.
    pub spent: Spent,
    /// How long that is ago, in microseconds.
    pub over_us: u64,
    /// The share of the seats that was busy, from 0 to 1.
    pub utilization: f64,
    /// The time of event loops; `None` if workers run threads.
    pub loops: Option<LoopShares>,
    /// How many workers there are.
    pub workers: usize,
    /// How many threads each worker has for requests.
    pub threads: usize,
    /// How many cores this server may use.
    pub cores: usize,
    /// Whether the time is known that requests wait for the lock.
    pub knows_gil: bool,
    /// Where throughput stops growing, if that is known.
    pub plateau: Option<Plateau>,
}

/// The shares of their time that the threads of event loops had a core, and waited for one, as a mean over the loops: from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoopShares {
    /// They had a core.
    pub busy: f64,
    /// They were ready to run and waited for a core.
    pub waiting: f64,
}

/// More busy seats than this have given no more throughput.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plateau {
    /// Busy requests.
    pub busy: u64,
    /// Busy requests, and how many then were done in a second: for the text.
    pub seen: Vec<(u64, f64)>,
}

/// The answer to what is full, and what would help. Shares are from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// No request was measured.
    Unknown,
    /// Seats are free.
    SeatsFree {
        /// The share that is busy.
        busy: f64,
    },
    /// More requests at a time would only wait for cores.
    CoresFull {
        /// The share of their time at seats for which requests wait for a core.
        waiting: f64,
    },
    /// The threads of a worker wait for each other.
    GilFull {
        /// The share of their time at seats for which requests wait for the lock.
        waiting: f64,
    },
    /// Something that all requests use is full.
    ThroughputFull(Plateau),
    /// More threads help.
    MoreThreads {
        /// The share of their time at seats that requests are elsewhere.
        elsewhere: f64,
        /// Up to so many threads in each worker.
        threads: usize,
    },
    /// More workers help.
    MoreWorkers {
        /// The share of their time at seats for which requests have a core.
        cpu: f64,
        /// Up to so many workers.
        workers: usize,
    },
    /// The event loops have no time left.
    LoopsFull {
        /// The share of a core that they have.
        busy: f64,
        /// Up to so many workers.
        workers: usize,
    },
    /// The event loops have time left.
    LoopsFree {
        /// The share of a core that they have.
        busy: f64,
    },
}

impl Verdict {
    /// The verdict on these facts.
    pub fn of(sizing: &Sizing) -> Self {
        if let Some(loops) = sizing.loops {
            return Self::of_loops(sizing, loops);
        }
        let spent = &sizing.spent;
        let service_us = spent.service_us();
        if service_us == 0 || sizing.over_us < OVER_US_MIN {
            return Self::Unknown;
        }
        if sizing.utilization < FULL_SEATS {
            let busy = sizing.utilization;
            return Self::SeatsFree { busy };
        }
        let share = |us: u64| to_f64(us) / to_f64(service_us);
        let cores = to_f64(sizing.cores.max(1) as u64);
        let used = to_f64(spent.cpu_us) / to_f64(sizing.over_us);
        if share(spent.core_us) >= CORE_WAIT || used >= FULL_CORES * cores {
            let waiting = share(spent.core_us);
            return Self::CoresFull { waiting };
        }
        let workers = to_f64(sizing.workers.max(1) as u64);
        let is_lock_full = if sizing.knows_gil {
            share(spent.gil_us) >= GIL_WAIT
        } else {
            sizing.threads > 1 && used >= FULL_WORKER * workers
        };
        if is_lock_full {
            let waiting = share(spent.gil_us);
            return Self::GilFull { waiting };
        }
        let elsewhere = share(spent.elsewhere_us);
        // The throughput of an app that computes stops growing at its cores, or at its worker's lock.
        let is_elsewhere = spent.elsewhere_us >= spent.cpu_us;
        let plateau = sizing.plateau.as_ref().filter(|_| is_elsewhere);
        // Seats may be fewer by now than they were when it was seen.
        let next = sizing.workers * (sizing.threads + 1);
        match plateau {
            Some(plateau) if plateau.busy < next as u64 => Self::ThroughputFull(plateau.clone()),
            _ => Self::more(sizing, elsewhere, plateau),
        }
    }

    /// More threads help as long as a worker's lock and the cores have time left and throughput grows, more workers as long as the cores have.
    fn more(sizing: &Sizing, elsewhere: f64, plateau: Option<&Plateau>) -> Self {
        let spent = &sizing.spent;
        let own = spent.cpu_share().unwrap_or(0.0).max(1.0 / THREADS_MAX);
        let seats = to_f64(sizing.cores.max(1) as u64) / own;
        let workers = to_f64(sizing.workers.max(1) as u64);
        let by_lock = 1.0 / own;
        let by_plateau = plateau.map_or(THREADS_MAX, |plateau| to_f64(plateau.busy) / workers);
        let bounds = [seats / workers, by_lock, THREADS_MAX, by_plateau];
        let threads = whole(bounds.into_iter().fold(f64::INFINITY, f64::min));
        if threads > sizing.threads {
            return Self::MoreThreads { elsewhere, threads };
        }
        let workers = whole((seats / to_f64(sizing.threads.max(1) as u64)).round());
        if workers > sizing.workers {
            let cpu = to_f64(spent.cpu_us) / to_f64(spent.service_us().max(1));
            return Self::MoreWorkers { cpu, workers };
        }
        Self::CoresFull {
            waiting: to_f64(spent.core_us) / to_f64(spent.service_us().max(1)),
        }
    }

    /// A loop that waits for a core has no time left either.
    fn of_loops(sizing: &Sizing, LoopShares { busy, waiting }: LoopShares) -> Self {
        let cores = sizing.cores.max(1);
        if sizing.over_us < OVER_US_MIN {
            return Self::Unknown;
        }
        if busy + waiting < FULL_LOOPS {
            return Self::LoopsFree { busy };
        }
        if waiting >= CORE_WAIT || sizing.workers >= cores {
            return Self::CoresFull { waiting };
        }
        Self::LoopsFull {
            busy,
            workers: cores,
        }
    }

    /// One word for it, for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::SeatsFree { .. } => "seats_free",
            Self::CoresFull { .. } => "cores_full",
            Self::GilFull { .. } => "gil_full",
            Self::ThroughputFull(_) => "throughput_full",
            Self::MoreThreads { .. } => "more_threads",
            Self::MoreWorkers { .. } => "more_workers",
            Self::LoopsFull { .. } => "loops_full",
            Self::LoopsFree { .. } => "loops_free",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => write!(f, "unknown: no request was measured of late"),
            Self::SeatsFree { busy } => write!(
                f,
                "seats free, {} busy: neither threads nor workers are missing",
                Percent(*busy)
            ),
            Self::CoresFull { waiting } if *waiting < 0.01 => {
                write!(f, "cores full: neither threads nor workers help")
            }
            Self::CoresFull { waiting } => write!(
                f,
                "cores full, {} waiting for one: neither threads nor workers help",
                Percent(*waiting)
            ),
            Self::GilFull { waiting } if *waiting < 0.01 => {
                write!(f, "GIL full: workers help, threads do not")
            }
            Self::GilFull { waiting } => write!(
                f,
                "GIL full, {} waiting for it: workers help, threads do not",
                Percent(*waiting)
            ),
            Self::ThroughputFull(plateau) => write!(f, "{plateau}"),
            Self::MoreThreads { elsewhere, threads } => write!(
                f,
                "seats full, {} elsewhere: more threads help, to about {threads} a worker",
                Percent(*elsewhere)
            ),
            Self::MoreWorkers { cpu, workers } => write!(
                f,
                "seats full, {} own CPU: more workers help, to about {workers}",
                Percent(*cpu)
            ),
            Self::LoopsFull { busy, workers } => write!(
                f,
                "event loops full, {} of a core each: more workers help, to about {workers}",
                Percent(*busy)
            ),
            Self::LoopsFree { busy } => write!(
                f,
                "event loops free, {} of a core each: no workers are missing",
                Percent(*busy)
            ),
        }
    }
}

impl fmt::Display for Plateau {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "something that all requests use, such as a database: beyond {} busy seats throughput does not grow",
            self.busy
        )?;
        if self.seen.is_empty() {
            return Ok(());
        }
        let rates = self.seen.iter().map(|(_, per_s)| format!("{per_s:.0}"));
        let counts = self.seen.iter().map(|(busy, _)| busy.to_string());
        let list = |words: Vec<String>| words.join(", ");
        let (rates, counts) = (list(rates.collect()), list(counts.collect()));
        write!(f, " ({rates}/s at {counts})")
    }
}

/// A share, as people read it.
struct Percent(f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} %", self.0 * 100.0)
    }
}

/// The whole part of a number of threads or workers.
fn whole(number: f64) -> usize {
    number.max(0.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    /// Full seats of one worker with this many threads on two cores, for ten seconds: their time by percent.
    fn full(threads: usize, [core, gil, cpu, elsewhere]: [u64; 4]) -> Sizing {
        let of_all = |percent: u64| percent * threads as u64 * SECOND_US / 10;
        Sizing {
            spent: Spent {
                line_us: 77,
                core_us: of_all(core),
                gil_us: of_all(gil),
                cpu_us: of_all(cpu),
                elsewhere_us: of_all(elsewhere),
            },
            over_us: 10 * SECOND_US,
            utilization: 1.0,
            workers: 1,
            threads,
            cores: 2,
            knows_gil: true,
            ..Sizing::default()
        }
    }

    #[test]
    fn each_cause_has_its_verdict() {
        let two_workers = |sizing: Sizing| {
            let mut spent = sizing.spent;
            spent += sizing.spent;
            Sizing {
                spent,
                workers: 2,
                ..sizing
            }
        };
        let plateau = Some(Plateau {
            busy: 16,
            seen: vec![(8, 158.2), (16, 182.0), (32, 157.6)],
        });
        for (sizing, expected) in [
            (
                full(1, [0, 0, 0, 100]),
                "seats full, 100 % elsewhere: more threads help, to about 64 a worker",
            ),
            (
                full(4, [2, 3, 10, 85]),
                "seats full, 85 % elsewhere: more threads help, to about 9 a worker",
            ),
            (
                full(1, [1, 0, 97, 2]),
                "seats full, 97 % own CPU: more workers help, to about 2",
            ),
            (
                full(4, [0, 74, 25, 1]),
                "GIL full, 74 % waiting for it: workers help, threads do not",
            ),
            (
                full(8, [14, 44, 8, 34]),
                "GIL full, 44 % waiting for it: workers help, threads do not",
            ),
            (
                two_workers(full(1, [48, 0, 50, 2])),
                "cores full, 48 % waiting for one: neither threads nor workers help",
            ),
            // Other processes have the cores that another worker would want.
            (
                full(1, [48, 0, 50, 2]),
                "cores full, 48 % waiting for one: neither threads nor workers help",
            ),
            // Two workers have a core each: none waits for one, and none is left.
            (
                two_workers(full(1, [0, 0, 99, 1])),
                "cores full: neither threads nor workers help",
            ),
            (
                two_workers(full(4, [0, 74, 25, 1])),
                "cores full: neither threads nor workers help",
            ),
            (
                Sizing {
                    plateau: plateau.clone(),
                    ..full(16, [1, 1, 2, 96])
                },
                "something that all requests use, such as a database: beyond 16 busy seats throughput does not grow (158, 182, 158/s at 8, 16, 32)",
            ),
            // Fewer seats are left than throughput grows with.
            (
                Sizing {
                    plateau: plateau.clone(),
                    ..full(8, [1, 1, 2, 96])
                },
                "seats full, 96 % elsewhere: more threads help, to about 16 a worker",
            ),
            // The throughput of an app that only calculates grows no further than its cores.
            (
                Sizing {
                    plateau,
                    ..full(1, [1, 0, 97, 2])
                },
                "seats full, 97 % own CPU: more workers help, to about 2",
            ),
            (
                Sizing {
                    utilization: 0.4,
                    ..full(4, [0, 0, 50, 50])
                },
                "seats free, 40 % busy: neither threads nor workers are missing",
            ),
            (
                Sizing::default(),
                "unknown: no request was measured of late",
            ),
        ] {
            assert_eq!(Verdict::of(&sizing).to_string(), expected, "{sizing:?}");
        }
    }

    #[test]
    fn workers_have_a_lock_each_and_so_take_more_cores_than_threads_do() {
        let sizing = Sizing {
            cores: 8,
            ..full(2, [0, 0, 50, 50])
        };
        let expected = Verdict::MoreWorkers {
            cpu: 0.5,
            workers: 8,
        };
        assert_eq!(Verdict::of(&sizing), expected);
    }

    #[test]
    fn a_lock_of_which_nothing_is_known_is_full_when_the_threads_have_a_core_in_all() {
        let sizing = |threads: usize, cpu, elsewhere| Sizing {
            knows_gil: false,
            ..full(threads, [0, 0, cpu, elsewhere])
        };
        let verdict = Verdict::of(&sizing(4, 24, 76));
        let expected = "GIL full: workers help, threads do not";
        assert_eq!(verdict.to_string(), expected);
        assert_eq!(Verdict::of(&sizing(4, 10, 90)).name(), "more_threads");
        // One thread alone waits for no other.
        assert_eq!(Verdict::of(&sizing(1, 97, 3)).name(), "more_workers");
    }

    #[test]
    fn other_processes_on_the_cores_do_not_hide_what_requests_wait_for() {
        // Requests that sleep have the cores of others only when they wake up.
        let sleeping = Verdict::of(&full(4, [8, 0, 4, 88]));
        assert_eq!(sleeping.name(), "more_threads");
        let calculating = Verdict::of(&full(4, [13, 74, 12, 1]));
        assert_eq!(calculating.name(), "gil_full");
    }

    #[test]
    fn a_full_event_loop_wants_a_worker_as_long_as_a_core_is_left() {
        for (busy, waiting, workers, expected) in [
            (0.3, 0.0, 1, "loops_free"),
            (0.3, 0.3, 1, "loops_free"),
            (0.95, 0.02, 1, "loops_full"),
            (0.5, 0.48, 1, "cores_full"),
            (0.97, 0.0, 2, "cores_full"),
        ] {
            let sizing = Sizing {
                loops: Some(LoopShares { busy, waiting }),
                over_us: OVER_US_MIN,
                workers,
                cores: 2,
                ..Sizing::default()
            };
            assert_eq!(Verdict::of(&sizing).name(), expected, "{busy} {workers}");
        }
    }
}
