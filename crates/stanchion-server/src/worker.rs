//! A worker: seats that pull requests and answer them. What happens to a request is the host's
//! business; when to stop is decided here.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stanchion_exchange::{Exchange, SeatSide, Taken, Tenant};
use stanchion_sys::{futex, process, signal};
use tracing::{debug, error};

use crate::exit_code;
use crate::host::Host;
use crate::messages::{self, ToMaster};
use crate::settings::Settings;
use crate::tree::Common;

/// How long a new worker waits to become the master's child; it takes microseconds.
const ADOPTION_MS_MAX: u64 = 5_000;
/// How long a leaving worker's supervisor sleeps between looks, should a wake-up be lost.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// One worker process, as its host sees it.
pub struct Worker {
    common: &'static Common,
    index: u16,
    tenure: u16,
    /// Requests after which it is to be replaced; `u64::MAX` = never.
    requests_max: u64,
    served: AtomicU64,
}

impl Worker {
    /// How many seats it has: the `threads` setting.
    pub fn seats(&self) -> usize {
        self.common.settings.threads as usize
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.common.settings
    }

    /// Sits down at seat `thread` of this worker's, counted from 0.
    pub fn seat(&self, thread: usize) -> Seat<'_> {
        let exchange: &Exchange = &self.common.exchange;
        let tenant = Tenant {
            seat: seat_index(self.index, thread, self.seats()),
            tenure: self.tenure,
        };
        let timeout = self.common.settings.timeout.as_duration();
        let side = SeatSide::new(exchange, tenant, process::pid().cast_unsigned(), timeout);
        Seat { worker: self, side }
    }

    /// Makes the worker leave once the requests its seats have are answered.
    pub fn leave(&self) {
        signal::leave_flag().store(1, Ordering::Release);
        futex::wake(signal::leave_flag(), u32::MAX);
        self.common.exchange.ready_bell().rouse(u32::MAX);
    }

    /// Whether no further request should be taken: the master said so, it is gone, or nobody is
    /// left of the house.
    pub fn should_leave(&self) -> bool {
        signal::leave_flag().load(Ordering::Acquire) != 0 || self.common.exchange.is_closed()
    }

    fn report_due(&self, served: u64) {
        let due = ToMaster::Due {
            worker: self.index,
            tenure: self.tenure,
            served,
        };
        if let Err(error) = messages::send(&self.common.reports.child_end, &due) {
            error!("the master could not be told that max_requests is reached: {error}");
        }
    }

    /// For the main thread of a worker with several seats: sleeps until the worker should leave,
    /// then sees to it that the seats of this worker notice.
    pub fn wait_until_leaving(&self) {
        while !self.should_leave() {
            futex::wait(signal::leave_flag(), 0, LOOK_AGAIN);
        }
        self.common.exchange.ready_bell().rouse(u32::MAX);
    }
}

fn seat_index(worker: u16, thread: usize, threads: usize) -> u16 {
    (usize::from(worker) * threads + thread) as u16
}

/// A seat of a worker.
pub struct Seat<'w> {
    worker: &'w Worker,
    side: SeatSide<'w>,
}

impl<'w> Seat<'w> {
    /// The next request if one is ready, without waiting; `None` also when it is time to leave.
    pub fn take(&self) -> Option<Taken<'w>> {
        if self.worker.should_leave() {
            return None;
        }
        self.side.take()
    }

    /// Waits for the next request; `None` when it is time to leave.
    pub fn wait(&self) -> Option<Taken<'w>> {
        self.side.wait(|| self.worker.should_leave())
    }

    /// To be called after each request: counts it, and tells the master once it is enough for one
    /// life. The worker goes on until its successor is there.
    pub fn served(&self) {
        self.side.rest();
        let served = self.worker.served.fetch_add(1, Ordering::Relaxed) + 1;
        if served == self.worker.requests_max {
            self.worker.report_due(served);
        }
    }

    /// Sends a file's descriptor to the acceptor, ahead of the answer that names it. False if the
    /// acceptor does not take it in time; the bytes must then go through the exchange.
    pub fn send_file(&self, taken: &Taken<'_>, file: BorrowedFd<'_>) -> bool {
        let (slot, turn) = taken.ticket();
        let mut message = [0; 8];
        message[..4].copy_from_slice(&slot.to_le_bytes());
        message[4..].copy_from_slice(&turn.to_le_bytes());
        match self
            .worker
            .common
            .files
            .worker_end
            .send(&message, Some(file))
        {
            Ok(()) => true,
            Err(error) => {
                debug!("the acceptor did not take a file, its bytes are sent instead: {error}");
                false
            }
        }
    }
}

/// The life of a worker process, from right after its fork until its exit code.
pub(crate) fn run(common: &'static Common, index: u16, tenure: u16, host: &mut dyn Host) -> i32 {
    process::set_name(c"stanchion-work");
    let settings = &common.settings;
    let bell = common.exchange.ready_bell().word();
    // Until it is the master's child, the death of the process in between must not end it.
    if let Err(error) = signal::ignore(&[signal::SIGTERM]).and_then(|()| adopted(common)) {
        error!("worker cannot start: {error}");
        return exit_code::WORKER_BOOT;
    }
    let leaving = [signal::SIGTERM, signal::SIGINT, signal::SIGQUIT];
    let ignored = [
        signal::SIGHUP,
        signal::SIGUSR1,
        signal::SIGUSR2,
        signal::SIGWINCH,
    ];
    let caught = signal::leave_on(&leaving, bell)
        .and_then(|()| signal::ignore(&ignored))
        .and_then(|()| signal::reset(&[signal::SIGCHLD, signal::SIGTTIN, signal::SIGTTOU]));
    if let Err(error) = caught {
        error!("worker cannot catch signals: {error}");
        return exit_code::WORKER_BOOT;
    }
    if !settings.preload_app
        && let Err(error) = host.load()
    {
        error!("{}", error.report);
        return exit_code::APP_LOAD;
    }
    let worker = Worker {
        requests_max: requests_max(settings),
        served: AtomicU64::new(0),
        common,
        index,
        tenure,
    };
    let ready = ToMaster::WorkerReady {
        worker: index,
        tenure,
        pid: process::pid(),
    };
    if let Err(error) = messages::send(&common.reports.child_end, &ready) {
        error!("worker cannot report to the master: {error}");
        return exit_code::WORKER_BOOT;
    }
    debug!("worker ready");
    if let Err(problem) = host.serve(Box::leak(Box::new(worker))) {
        error!("worker cannot go on: {problem}");
        return exit_code::INTERNAL;
    }
    debug!("worker leaves");
    exit_code::FINE
}

/// Waits until the process between template and worker has gone and the master is our parent,
/// whose death will then be a SIGTERM (prctl(2), `PR_SET_PDEATHSIG`).
fn adopted(common: &Common) -> std::io::Result<()> {
    let start_us = stanchion_sys::clock::monotonic_us();
    while process::die_with(common.master_pid, signal::SIGTERM)? {
        if stanchion_sys::clock::monotonic_us() - start_us > ADOPTION_MS_MAX * 1_000 {
            return Err(std::io::Error::other("the master is gone"));
        }
        // The end of the process in between cannot be waited for by its child; it is a matter of
        // its exit(2) being scheduled.
        std::thread::yield_now();
    }
    Ok(())
}

/// `max_requests` plus the jitter, which is drawn from the pid so that workers differ.
fn requests_max(settings: &Settings) -> u64 {
    if settings.max_requests == 0 {
        return u64::MAX;
    }
    let jitter = if settings.max_requests_jitter == 0 {
        0
    } else {
        // Fibonacci hashing spreads neighbouring pids.
        let pid = u64::from(process::pid().cast_unsigned());
        (pid.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % (settings.max_requests_jitter + 1)
    };
    settings.max_requests + jitter
}
