//! Real processes, killed with SIGKILL at random instants, and every request accounted for.
//!
//! Not a libtest test: it forks, so it must have a single thread. `STANCHION_SEED` repeats a
//! run's decisions (though not the kernel's), `STANCHION_KILL_S` lengthens it.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
#![allow(clippy::print_stdout)] // it is its own test runner

#[cfg(loom)]
fn main() {}

#[cfg(not(loom))]
#[path = "processes/accounts.rs"]
mod accounts;
#[cfg(not(loom))]
#[path = "processes/crew.rs"]
mod crew;
#[cfg(not(loom))]
#[path = "processes/scenarios.rs"]
mod scenarios;

#[cfg(not(loom))]
fn main() {
    let variable = |name: &str| std::env::var(name).ok().map(|value| value.parse().unwrap());
    let seed = variable("STANCHION_SEED").unwrap_or_else(stanchion_sys::clock::monotonic_us);
    let time = std::time::Duration::from_secs(variable("STANCHION_KILL_S").unwrap_or(8));
    println!("STANCHION_SEED={seed}");
    scenarios::workers_die_at_each_stage();
    scenarios::workers_are_killed_at_random(seed, time);
    scenarios::acceptors_are_killed_at_random(seed, time / 2);
}
