//! Real processes, killed with SIGKILL at random instants, and every request accounted for.
//!
//! Its own runner, since libtest has threads and this forks. `STANCHION_SEED` repeats a run's
//! decisions (not the kernel's); `STANCHION_KILL_S` says how long the killing goes on.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
#![allow(clippy::print_stdout)] // it is its own test runner

#[cfg(not(loom))]
mod crew;
#[cfg(not(loom))]
mod desk;
#[cfg(not(loom))]
mod request;
#[cfg(not(loom))]
mod scenarios;

#[cfg(loom)]
fn main() {}

#[cfg(not(loom))]
fn main() {
    let variable = |name: &str| std::env::var(name).ok().map(|value| value.parse().unwrap());
    let seed = variable("STANCHION_SEED").unwrap_or_else(stanchion_sys::clock::monotonic_us);
    let time_us = 1_000_000 * variable("STANCHION_KILL_S").unwrap_or(9);
    println!("STANCHION_SEED={seed}");
    let mut random = request::Random(seed);
    scenarios::workers_die_at_each_stage(&mut random);
    scenarios::workers_are_killed_at_random(&mut random, time_us * 2 / 3);
    scenarios::acceptors_are_killed_at_random(&mut random, time_us / 3);
}
