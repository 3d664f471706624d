//! A server of 2 to 32 workers under loads whose answer is known.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::*;

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (to_f64((mixed ^ (mixed >> 31)) >> 11) + 0.5) / to_f64(1 << 53)
    }

    fn exponential_us(&mut self, mean_us: f64) -> u64 {
        (-self.unit().ln() * mean_us) as u64
    }

    /// Of this mean, and as varied as its mean.
    fn lognormal_us(&mut self, mean_us: f64) -> u64 {
        let (radius, turn) = (self.unit(), self.unit());
        let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * turn).cos();
        let sigma = std::f64::consts::LN_2.sqrt();
        (mean_us * (sigma * normal - sigma * sigma / 2.0).exp()) as u64
    }
}

/// A load on a server.
#[derive(Clone, Copy)]
struct Load {
    /// Requests a second, by the second.
    rate: fn(u64) -> f64,
    seconds: u64,
    /// How long a request has what it needs.
    service_us: fn(&mut Dice) -> u64,
    /// How many requests have that at once, if not all: cores, or connections to a database.
    servers: Option<usize>,
    boot_us: u64,
    keep_s: u64,
}

/// The result of a simulation.
#[derive(Debug)]
struct Outcome {
    wait_p99_ms: u64,
    latency_p99_ms: u64,
    /// A mean over the time.
    workers: f64,
    forks: u64,
    booted_at_once_max: usize,
}

/// 12 erlangs in the middle.
const STEP: Load = Load {
    rate: |second| {
        if (20..80).contains(&second) {
            240.0
        } else {
            20.0
        }
    },
    seconds: 180,
    service_us: |dice| dice.lognormal_us(50_000.0),
    servers: None,
    boot_us: 3 * MS,
    keep_s: 60,
};

/// A request at a seat, ordered by its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Seated {
    done_us: u64,
    arrived_us: u64,
    taken_us: u64,
    /// Seats that were busy when it got its own.
    busy: usize,
}

/// A server with one seat for each worker.
struct Simulation {
    load: Load,
    elastic: Elastic,
    curve: Curve,
    now_us: u64,
    /// When each request that waits arrived, and how long it needs.
    line: VecDeque<(u64, u64)>,
    seats: BinaryHeap<Reverse<Seated>>,
    /// When each of the servers behind the app is free again, if they are few.
    servers: BinaryHeap<Reverse<u64>>,
    booting: BinaryHeap<Reverse<u64>>,
    ready: u16,
    dice: Dice,
    waits_us: Vec<u64>,
    latencies_us: Vec<u64>,
    worker_us: u64,
    forks: u64,
    booted_at_once_max: usize,
}

impl Simulation {
    /// `fixed`: its number of workers does not change.
    fn new(load: Load, seed: u64, fixed: Option<u16>) -> Self {
        let limits = ElasticLimits {
            keep_us: load.keep_s * S,
            ..LIMITS
        };
        let mut elastic = Elastic::new(limits);
        if let Some(workers) = fixed {
            elastic.set(0, workers, true);
        }
        Self {
            ready: elastic.wanted(),
            load,
            elastic,
            curve: Curve::default(),
            now_us: 0,
            line: VecDeque::new(),
            seats: BinaryHeap::new(),
            servers: (0..load.servers.unwrap_or(0)).map(|_| Reverse(0)).collect(),
            booting: BinaryHeap::new(),
            dice: Dice(seed),
            waits_us: Vec::new(),
            latencies_us: Vec::new(),
            worker_us: 0,
            forks: 0,
            booted_at_once_max: 0,
        }
    }

    fn run(mut self) -> Outcome {
        let (mut arrival_us, mut look_us) = (self.next_arrival_us(), S);
        while self.now_us < self.load.seconds * S {
            let done_us = self.seats.peek().map(|Reverse(seated)| seated.done_us);
            let booted_us = self.booting.peek().map(|Reverse(booted_us)| *booted_us);
            let next = [
                Some(arrival_us),
                Some(look_us),
                done_us,
                booted_us,
                self.elastic.due_us(),
            ];
            self.go_on_to(next.into_iter().flatten().min().unwrap_or(look_us));
            let is_now = |at_us: Option<u64>| at_us.is_some_and(|at_us| at_us <= self.now_us);
            let decides = is_now(Some(look_us)) || is_now(self.elastic.due_us());
            if is_now(booted_us) {
                self.booting.pop();
                self.ready += 1;
            }
            if is_now(done_us) {
                self.leave();
            }
            if arrival_us <= self.now_us {
                let service_us = (self.load.service_us)(&mut self.dice).max(1);
                self.line.push_back((arrival_us, service_us));
                arrival_us = self.next_arrival_us();
            }
            self.sit_down();
            self.elastic
                .note(self.now_us, self.line.len() + self.seats.len(), self.ready);
            if decides {
                look_us = self.now_us + S;
                self.decide();
            }
        }
        Outcome {
            wait_p99_ms: p99_ms(self.waits_us),
            latency_p99_ms: p99_ms(self.latencies_us),
            workers: to_f64(self.worker_us) / to_f64(self.now_us),
            forks: self.forks,
            booted_at_once_max: self.booted_at_once_max,
        }
    }

    fn go_on_to(&mut self, next_us: u64) {
        let workers = u64::from(self.ready) + self.booting.len() as u64;
        self.worker_us += next_us.saturating_sub(self.now_us) * workers;
        self.now_us = self.now_us.max(next_us);
    }

    fn next_arrival_us(&mut self) -> u64 {
        let per_s = (self.load.rate)(self.now_us / S);
        // A change of the rate within a gap comes at its end.
        self.now_us + self.dice.exponential_us(1e6 / per_s).clamp(1, S)
    }

    fn leave(&mut self) {
        let Some(Reverse(Seated {
            done_us,
            arrived_us,
            taken_us,
            busy,
        })) = self.seats.pop()
        else {
            return;
        };
        self.latencies_us.push(done_us - arrived_us);
        let service_us = done_us - taken_us;
        self.elastic.served(done_us, service_us);
        self.curve.served(done_us, busy, service_us, 99);
    }

    fn sit_down(&mut self) {
        while self.ready > self.elastic.wanted() && self.seats.len() < usize::from(self.ready) {
            self.ready -= 1;
        }
        while self.seats.len() < usize::from(self.ready)
            && let Some((arrived_us, service_us)) = self.line.pop_front()
        {
            let free_us = self.servers.pop().map_or(0, |Reverse(free_us)| free_us);
            let done_us = free_us.max(self.now_us) + service_us;
            if self.load.servers.is_some() {
                self.servers.push(Reverse(done_us));
            }
            self.waits_us.push(self.now_us - arrived_us);
            self.seats.push(Reverse(Seated {
                done_us,
                arrived_us,
                taken_us: self.now_us,
                busy: self.seats.len() + 1,
            }));
        }
    }

    fn decide(&mut self) {
        let oldest_us = self
            .line
            .front()
            .map_or(0, |(arrived_us, _)| self.now_us - arrived_us);
        let seen = Seen { oldest_us, ..ROOMY };
        let wanted = self.elastic.step(self.now_us, &seen, &mut self.curve);
        if wanted.is_none() {
            return;
        }
        let there = usize::from(self.ready) + self.booting.len();
        for fork in there..usize::from(self.elastic.wanted()) {
            let before = (fork - there) as u64;
            self.booting
                .push(Reverse(self.now_us + self.load.boot_us * (before + 1)));
            self.forks += 1;
        }
        self.booted_at_once_max = self.booted_at_once_max.max(self.booting.len());
    }
}

fn p99_ms(mut times_us: Vec<u64>) -> u64 {
    times_us.sort_unstable();
    times_us[times_us.len() * 99 / 100] / MS
}

const SEEDS: [u64; 3] = [7, 11, 13];

#[track_caller]
fn assert_all(load: Load, is_well: impl Fn(&Outcome) -> bool) {
    for seed in SEEDS {
        let outcome = Simulation::new(load, seed, None).run();
        assert!(is_well(&outcome), "seed {seed}: {outcome:?}");
    }
}

#[test]
fn a_step_of_load_keeps_no_request_waiting() {
    assert_all(STEP, |it| {
        it.wait_p99_ms <= 30 && it.workers <= 20.0 && it.forks <= 30
    });
    let short = Load { keep_s: 10, ..STEP };
    assert_all(short, |it| {
        it.wait_p99_ms <= 30 && it.workers <= 15.0 && it.forks <= 90
    });
}

#[test]
fn load_that_comes_and_goes_finds_the_workers_there() {
    let on_off = Load {
        rate: |second| if second / 10 % 2 == 0 { 240.0 } else { 2.0 },
        seconds: 240,
        ..STEP
    };
    assert_all(on_off, |it| it.wait_p99_ms <= 30 && it.forks <= 30);
}

/// One request of ten is slow. That is no sign that more busy seats do not help.
#[test]
fn requests_of_two_kinds_get_the_workers_that_they_need() {
    let mixed = Load {
        rate: |_| 300.0,
        seconds: 120,
        service_us: |dice| if dice.unit() < 0.1 { 200 * MS } else { MS },
        ..STEP
    };
    assert_all(mixed, |it| it.wait_p99_ms <= 30);
}

/// More workers than cores, or than connections of a pool, have the same p99: their requests wait elsewhere.
#[test]
fn workers_that_bring_no_throughput_are_not_kept() {
    let cores = Load {
        rate: |second| {
            if (60..120).contains(&second) {
                50.0
            } else {
                20.0
            }
        },
        servers: Some(2),
        ..STEP
    };
    let pool = Load {
        rate: |second| {
            if (60..120).contains(&second) {
                190.0
            } else {
                60.0
            }
        },
        servers: Some(8),
        ..STEP
    };
    for (load, workers_max) in [(cores, 8.0), (pool, 14.0)] {
        for seed in SEEDS {
            let fixed = Simulation::new(load, seed, Some(32)).run();
            let elastic = Simulation::new(load, seed, None).run();
            assert!(elastic.workers <= workers_max, "seed {seed}: {elastic:?}");
            let limit_ms = fixed.latency_p99_ms * 51 / 50;
            assert!(
                elastic.latency_p99_ms <= limit_ms,
                "seed {seed}: {elastic:?}, {fixed:?}"
            );
        }
    }
}

#[test]
fn workers_that_boot_slowly_come_as_many_at_once_as_there_are_cores() {
    let slow = Load {
        boot_us: 2 * S,
        ..STEP
    };
    assert_all(slow, |it| it.booted_at_once_max <= 2 && it.forks <= 30);
}
