//! The workers, from their master's side.

use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;

use stanchion_exchange::{Exchange, SeatSide, Tenant};
use stanchion_sys::channel::poll_readable;
use stanchion_sys::clock::monotonic_us;
use stanchion_sys::process::{self, Exit, Fork};
use stanchion_sys::signal::{self, SIGCHLD, SIGKILL, SIGTERM, SignalPipe, asked};

use crate::desk::STALL_US;
use crate::request::answer;

/// Forks a child that runs `work`. The child dies with this process, and exits with 101 if it panics.
pub(crate) fn fork(work: impl FnOnce() -> i32) -> i32 {
    let parent = process::pid();
    match process::fork_single_threaded().unwrap() {
        Fork::Parent(pid) => pid,
        Fork::Child => {
            let run = || {
                signal::reset(&[SIGCHLD]).unwrap();
                let orphaned = process::die_with(parent, SIGKILL).unwrap();
                if orphaned { 0 } else { work() }
            };
            process::exit_now(catch_unwind(AssertUnwindSafe(run)).unwrap_or(101))
        }
    }
}

pub(crate) struct Crew {
    exchange: &'static Exchange,
    /// Each seat's worker and its epoch.
    workers: Vec<(i32, Tenant)>,
    deaths: SignalPipe,
}

impl Crew {
    pub(crate) fn hire(exchange: &'static Exchange) -> Self {
        let deaths = SignalPipe::install(&[SIGCHLD]).unwrap();
        let seats = exchange.geometry().seats as u16;
        let workers = (0..seats).map(|seat| hire(exchange, Tenant { seat, epoch: 1 }));
        Self {
            exchange,
            workers: workers.collect(),
            deaths,
        }
    }

    pub(crate) fn kill(&self, seat: usize) {
        process::kill(self.workers[seat].0, SIGKILL).unwrap();
    }

    /// A descriptor that is readable when a child has died.
    pub(crate) fn deaths(&self) -> BorrowedFd<'_> {
        self.deaths.as_fd()
    }

    /// Collects a dead child: its pid, how it ended, and its seat if it was a worker.
    pub(crate) fn bury(&self) -> Option<(i32, Exit, Option<Tenant>)> {
        self.deaths.take();
        let (pid, exit) = process::reap().unwrap()?;
        let worker = self.workers.iter().find(|worker| worker.0 == pid);
        Some((pid, exit, worker.map(|worker| worker.1)))
    }

    pub(crate) fn replace(&mut self, dead: Tenant) {
        let heir = Tenant {
            epoch: dead.epoch.wrapping_add(1),
            ..dead
        };
        self.exchange.vacate(dead.seat);
        self.workers[usize::from(dead.seat)] = hire(self.exchange, heir);
    }

    /// Asks all workers to leave; they must do so by themselves, and at once.
    pub(crate) fn dismiss(self) {
        for (pid, tenant) in &self.workers {
            // A seated worker has installed its handler for the signal.
            while self.exchange.seat(tenant.seat).pid.load(Ordering::Acquire) != pid.cast_unsigned()
            {
                std::thread::yield_now();
            }
            process::kill(*pid, SIGTERM).unwrap();
        }
        let begun_us = monotonic_us();
        let mut left = 0;
        while left < self.workers.len() {
            assert!(
                monotonic_us() < begun_us + STALL_US,
                "a worker does not leave"
            );
            poll_readable(&[self.deaths()], Duration::from_millis(100)).unwrap();
            while let Some((_, exit, _)) = self.bury() {
                assert_eq!(exit, Exit::Code(0));
                left += 1;
            }
        }
    }
}

fn hire(exchange: &'static Exchange, tenant: Tenant) -> (i32, Tenant) {
    let work = || {
        asked::catch(exchange.ready_bell().word(), None).unwrap();
        let pid = process::pid().cast_unsigned();
        let seat = SeatSide::new(exchange, tenant, pid, None);
        while let Some(taken) = seat.wait(|| asked::word().load(Ordering::Acquire) != 0) {
            answer(taken);
            seat.rest();
        }
        0
    };
    (fork(work), tenant)
}
