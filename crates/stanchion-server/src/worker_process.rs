//! The life of a worker process, from right after its fork until its exit code.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use stanchion_sys::channel::Channel;
use stanchion_sys::signal::{self, asked, orphan};
use stanchion_sys::{code, heap, process};
use tracing::{debug, error, info};

use crate::hook::Hook;
use crate::hook_run::run_hook;
use crate::host::Host;
use crate::leftovers::OpenBefore;
use crate::next_template;
use crate::title;
use crate::worker::Worker;
use stanchion_generation::common::Common;
use stanchion_generation::messages::{self, FromWorker, WorkerRef};
use stanchion_log::{self as log, cure, exit_code};

/// How long the app may take to answer the request of a canary, if `timeout` is not shorter.
const CANARY_LIMIT: Duration = Duration::from_secs(30);
/// How long a new worker waits to become the master's child; it takes microseconds.
const ADOPTION_MS_MAX: u64 = 5_000;

/// The assignment that a worker gets when it is forked.
#[derive(Debug)]
pub(crate) struct Assignment {
    /// The worker, and so the seats that it has.
    pub(crate) worker: WorkerRef,
    /// Its number among the workers that are wanted, for hooks: `worker.nr`.
    pub(crate) number: u16,
    /// Whether it has the app: from the template, or since it was one.
    pub(crate) has_app: bool,
    /// Whether the master knows its process, as that of a template.
    pub(crate) is_known: bool,
    /// The app has to answer a request in it before it takes any.
    pub(crate) is_canary: bool,
    /// The descriptors of the template that forked it, if it was forked with the app.
    pub(crate) open_before: Option<OpenBefore>,
    /// Where it reports.
    pub(crate) reports: Channel,
}

/// The end of the life of a worker.
pub(crate) enum WorkerEnd {
    /// Its process is to end with this exit code.
    Left(i32),
    /// Its process is a template, which gets its orders here.
    IsTemplate(Channel),
}

/// The life of a worker process, from right after its fork until its exit code, or until it is the template.
pub(crate) fn run(
    common: &'static Common,
    assignment: Assignment,
    host: &mut dyn Host,
) -> WorkerEnd {
    process::set_name(c"stanchion-work");
    log::begin_anew();
    title::show(&format!("worker {}", assignment.number), &common.settings);
    let introduced = adopted(common).and_then(|()| {
        if assignment.is_known {
            return Ok(());
        }
        messages::report(&assignment.reports, &FromWorker::Here)
    });
    if let Err(error) = introduced {
        error!("worker {} cannot start: {error}", assignment.number);
        return WorkerEnd::Left(exit_code::WORKER_BOOT);
    }
    let Assignment {
        number,
        has_app,
        is_canary,
        open_before,
        ..
    } = assignment;
    let worker: &'static Worker = Box::leak(Box::new(Worker::new(
        common,
        assignment.worker,
        assignment.reports,
    )));
    if let Err(problem) = host.enter(worker).and_then(|()| {
        catch_signals(worker)
            .map_err(|error| format!("it cannot catch signals: {}", cure::told(&error)))
    }) {
        error!("worker {number} cannot start: {problem}");
        return WorkerEnd::Left(exit_code::WORKER_BOOT);
    }
    let code = live(worker, number, (has_app, is_canary), host);
    if worker.is_forsaken() {
        debug!("a process that the app has forked ends as its parent would, and runs no hook");
        return WorkerEnd::Left(code);
    }
    if let Some(code) = worker.depart(|hook| run_hook(host, hook)) {
        debug!("worker leaves");
        return WorkerEnd::Left(code);
    }
    // The log has what the hook raises.
    let _ = run_hook(host, Hook::WorkerExit);
    if code == exit_code::FINE
        && let Some(open_before) = open_before
        && let Some(orders) = worker.offered_template()
        && next_template::prepare(worker, &orders, open_before, host)
    {
        return WorkerEnd::IsTemplate(orders);
    }
    debug!("worker leaves");
    WorkerEnd::Left(code)
}

/// Runs from the first hook until it leaves; gives the exit code.
fn live(
    worker: &'static Worker,
    number: u16,
    (has_app, is_canary): (bool, bool),
    host: &mut dyn Host,
) -> i32 {
    if run_hook(host, Hook::PostFork { number }).is_err() {
        return exit_code::WORKER_BOOT;
    }
    if !has_app && let Err(code) = load(worker, host) {
        return code;
    }
    if run_hook(host, Hook::PostWorkerInit).is_err() {
        return exit_code::WORKER_BOOT;
    }
    match host.start_up(worker) {
        Ok(true) => {}
        Ok(false) => {
            info!("the worker leaves before its app has started up: it was asked to leave");
            return exit_code::FINE;
        }
        Err(problem) => {
            error!("the app does not start up: {problem}");
            return exit_code::WORKER_BOOT;
        }
    }
    let limit = worker.settings().workers.timeout.as_duration();
    let limit = limit.unwrap_or(CANARY_LIMIT).min(CANARY_LIMIT);
    if is_canary && let Err(problem) = host.answer_one(worker.settings(), limit) {
        error!("worker {number}, the first of a re-fork, does not serve: {problem}");
        return exit_code::WORKER_BOOT;
    }
    if let Err(error) = messages::report(&worker.reports, &FromWorker::Ready) {
        error!("worker {number} cannot report to the master: {error}");
        return exit_code::WORKER_BOOT;
    }
    debug!("worker ready");
    if let Err(problem) = host.serve(worker) {
        error!("worker {number} cannot go on, and the master replaces it: {problem}");
        return exit_code::INTERNAL;
    }
    if worker.is_broken() {
        return exit_code::INTERNAL;
    }
    exit_code::FINE
}

/// Imports the app, and gives back the memory that only the import needed; or the exit code.
fn load(worker: &'static Worker, host: &mut dyn Host) -> Result<(), i32> {
    let Err(why) = host.load(worker.settings()) else {
        host.settle(worker.settings());
        heap::trim();
        code::let_go_alone();
        return Ok(());
    };
    let cannot_load = |reason| FromWorker::CannotLoad { reason };
    let said = why.report(cannot_load, FromWorker::OtherInterface);
    if let Err(error) = messages::report(&worker.reports, &said) {
        error!("worker cannot report to the master: {error}");
    }
    Err(exit_code::APP_LOAD)
}

fn catch_signals(worker: &'static Worker) -> io::Result<()> {
    let common = worker.common;
    let wake = worker.inbox().map(|inbox| inbox.fd());
    asked::catch(common.exchange.ready_bell().word(), wake)?;
    let terminated = messages::prepare(&FromWorker::Terminated)?;
    asked::pass_on_terms(common.master_pid, worker.reports.as_fd(), &terminated)?;
    let dumped = messages::prepare(&FromWorker::Dumped)?;
    let reports = worker.reports.as_fd();
    signal::dump::answer(common.dumps.as_fd(), reports, &dumped)?;
    signal::ignore(&[signal::SIGHUP, signal::SIGUSR2, signal::SIGWINCH])?;
    signal::reset(&[signal::SIGCHLD, signal::SIGTTIN, signal::SIGTTOU])
}

/// Waits until the process between template and worker has gone and the master is our parent, whose death SIGCONT will then report.
fn adopted(common: &Common) -> io::Result<()> {
    let start_us = stanchion_sys::clock::monotonic_us();
    while orphan::go_on_after(common.master_pid)? {
        if stanchion_sys::clock::monotonic_us() - start_us > ADOPTION_MS_MAX * 1_000 {
            return Err(io::Error::other("the master is gone"));
        }
        // The end of the process in between cannot be waited for by its child; it is a matter of
        // its exit(2) being scheduled.
        std::thread::yield_now();
    }
    Ok(())
}
