//! The template: imports the app once, then forks workers when the master says so.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use stanchion_sys::channel::{Channel, poll_readable};
use stanchion_sys::process::{self, Fork};
use stanchion_sys::{code, heap, signal};
use tracing::{error, info, warn};

use crate::hook::Hook;
use crate::hook_run::run_hook;
use crate::host::Host;
use crate::leftovers::{Leftovers, OpenBefore};
use crate::load_error::NotLoaded;
use crate::title;
use crate::worker_process::{self, Assignment, WorkerEnd};
use stanchion_generation::common::Common;
use stanchion_generation::messages::{self, Envelope, FromTemplate, Incoming, ToTemplate};
use stanchion_log as log;
use stanchion_log::cure;
use stanchion_log::exit_code;
use stanchion_settings::Settings;

/// How often watched files are looked at, with `--reload`.
const WATCH: Duration = Duration::from_millis(500);
/// The longest sleep of the template without an order.
const IDLE: Duration = Duration::from_secs(60);

/// The role of this process when [`run`] returns, and its exit code.
pub(crate) enum Ended {
    /// The template itself.
    Template(i32),
    /// A worker that was forked from it, at the end of its life.
    Worker(i32),
}

/// The life of a template process, or that of a worker forked from it.
pub(crate) fn run(
    (mut common, other): (&'static Common, Option<Rc<Common>>),
    mut master: Channel,
    may_preload: bool,
    host: &mut dyn Host,
) -> Ended {
    let mut prepared = match prepare(&mut common, other, &master, may_preload, host) {
        Ok(prepared) => prepared,
        Err(code) => return Ended::Template(code),
    };
    loop {
        let assignment = match serve_orders(common, &master, prepared, host) {
            Ok(assignment) => assignment,
            Err(code) => return Ended::Template(code),
        };
        // A worker has one of its own.
        drop(master);
        match worker_process::run(common, assignment, host) {
            WorkerEnd::Left(code) => return Ended::Worker(code),
            WorkerEnd::IsTemplate(orders) => {
                master = orders;
                prepared = TemplateApp::WithApp;
            }
        }
    }
}

/// The use of a template once it is prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TemplateApp {
    /// Fork workers that have the app.
    WithApp,
    /// Fork workers that import it.
    WithoutApp,
    /// Be a worker itself: it has the app, and no fork of it has all that the app needs.
    ForItself,
}

/// Up to where workers can be forked, or the template can be one; or the template's exit code. `common` is `other` then if the app
/// is called as that is made for it.
fn prepare(
    common: &mut &'static Common,
    other: Option<Rc<Common>>,
    master: &Channel,
    may_preload: bool,
    host: &mut dyn Host,
) -> Result<TemplateApp, i32> {
    process::set_name(c"stanchion-tmpl");
    title::show("template", &common.settings);
    match process::die_with(common.master_pid, signal::SIGKILL) {
        Ok(false) => {}
        Ok(true) => return Err(exit_code::FINE),
        Err(error) => {
            error!(
                "template cannot tie itself to the master: {}",
                cure::told(&error)
            );
            return Err(exit_code::INTERNAL);
        }
    }
    if common.settings.log.capture_output
        && let Err(error) = log::capture_output()
    {
        error!(
            "the template ends, as the app's output cannot go to the error log (capture_output): {error}"
        );
        return Err(exit_code::INTERNAL);
    }
    let mut prepared = TemplateApp::WithoutApp;
    if common.settings.may_preload() && may_preload {
        prepared = preload(common, other, master, host)?;
    } else if common.settings.workers.preload_app && common.settings.is_gevent() {
        info!(
            "the app is not preloaded: each worker has gevent change Python's modules, and then imports the app"
        );
    }
    match host.write_stacks_to(common.dumps.as_fd()) {
        Ok(()) => Ok(prepared),
        Err(problem) => {
            error!("the template ends, as workers could not show their stacks: {problem}");
            Err(exit_code::INTERNAL)
        }
    }
}

/// Imports the app for all workers; for this process alone if it has left what they cannot have, and the operator has not asked
/// for this.
fn preload(
    common: &mut &'static Common,
    other: Option<Rc<Common>>,
    master: &Channel,
    host: &mut dyn Host,
) -> Result<TemplateApp, i32> {
    let before = OpenBefore::now();
    let mut loaded = host.load(&common.settings);
    if let (Err(NotLoaded::OtherInterface), Some(other)) = (&loaded, other) {
        report(master, &FromTemplate::OtherInterface)?;
        wait_to_go_over(master, host)?;
        // For the rest of this process's life.
        *common = Box::leak(Box::new(other));
        loaded = host.load(&common.settings);
    }
    if let Err(why) = loaded {
        let cannot_load = |reason| FromTemplate::CannotLoad { reason };
        let said = why.report(cannot_load, FromTemplate::OtherInterface);
        report(master, &said)?;
        return Err(exit_code::APP_LOAD);
    }
    let settings = &common.settings;
    let mut not_for_workers = log_leftovers(before, PreloadStep::Import, &[], settings, host);
    let is_for_itself = |left: &[String]| !left.is_empty() && !settings.facts.is_preload_asked_for;
    if !settings.workers.warm_up.is_empty() {
        if is_for_itself(&not_for_workers) {
            warn!("warm_up has no effect, as the app is not preloaded");
        } else {
            let before = OpenBefore::now();
            host.warm_up(settings);
            let left = log_leftovers(
                before,
                PreloadStep::WarmUp,
                &not_for_workers,
                settings,
                host,
            );
            not_for_workers.extend(left);
        }
    }
    host.settle(settings);
    if is_for_itself(&not_for_workers) {
        return Ok(TemplateApp::ForItself);
    }
    Ok(TemplateApp::WithApp)
}

/// A step in which the app may leave something open.
#[derive(Clone, Copy, Debug)]
enum PreloadStep {
    Import,
    WarmUp,
}

impl PreloadStep {
    fn name(self) -> &'static str {
        match self {
            Self::Import => "import",
            Self::WarmUp => "warm-up",
        }
    }

    /// Advice to an operator: so the step leaves nothing.
    fn cure(self) -> &'static str {
        match self {
            Self::Import => {
                "start threads and connections of the app's own in post_fork, and what a library starts when it is first used"
            }
            Self::WarmUp => {
                "leave out of warm_up the paths that start them, or have the app close them where its environ has \
                 stanchion.warm_up"
            }
        }
    }
}

/// Logs what a step has left besides what is `known`. Gives what workers cannot have.
fn log_leftovers(
    before: io::Result<OpenBefore>,
    step: PreloadStep,
    known: &[String],
    settings: &Settings,
    host: &mut dyn Host,
) -> Vec<String> {
    let left = before.and_then(|before| before.leftovers(host));
    let Leftovers {
        mut not_for_workers,
        shared,
        // A known limit (docs/what-survives-a-fork.md).
        databases: _,
    } = left.unwrap_or_else(|error| {
        let step = step.name();
        warn!("what the {step} of the app has left open cannot be seen: {error}");
        Leftovers::default()
    });
    // Threads of the step before are still there.
    not_for_workers.retain(|one| !known.contains(one));
    warn_of_leftovers(step, &not_for_workers, &shared, settings);
    not_for_workers
}

/// Logs a warning on what a step has left, and on what follows.
fn warn_of_leftovers(
    step: PreloadStep,
    not_for_workers: &[String],
    shared: &[String],
    settings: &Settings,
) {
    let of_workers = not_for_workers.join("; ");
    let (step, cure) = (step.name(), step.cure());
    if !not_for_workers.is_empty() && !settings.facts.is_preload_asked_for {
        warn!(
            "the app is not preloaded, as its {step} left {of_workers}: workers would be forked without the \
             threads, and would share the rest. Each imports the app for itself, as with --no-preload, and one that dies \
             is missing for as long as that takes. To preload, {cure}; if all of these survive a fork, say --preload \
             (docs/what-survives-a-fork.md)"
        );
        return;
    }
    if !not_for_workers.is_empty() {
        warn!(
            "the app is preloaded, as preload_app says, though its {step} left {of_workers}: workers are \
             forked without the threads, and share the rest. If these do not survive that, {cure}, or say --no-preload \
             (docs/what-survives-a-fork.md)"
        );
    }
    if !shared.is_empty() {
        warn!(
            "the {step} of the app left {}: workers share it, and each takes what comes \
             (docs/what-survives-a-fork.md)",
            shared.join("; ")
        );
    }
}

/// Gives the worker we have become, or the template's exit code.
fn serve_orders(
    common: &'static Common,
    master: &Channel,
    prepared: TemplateApp,
    host: &mut dyn Host,
) -> Result<Assignment, i32> {
    let said = match prepared {
        TemplateApp::ForItself => FromTemplate::NotForWorkers,
        TemplateApp::WithApp | TemplateApp::WithoutApp => FromTemplate::Ready,
    };
    let mut is_prepared = false;
    // A worker that becomes the template compares with these; if they cannot be seen, it does not.
    let before = (prepared == TemplateApp::WithApp).then(OpenBefore::now);
    let mut watch = common
        .settings
        .app
        .reload
        .then(|| Watch::new(host.watched_files()));
    report(master, &said)?;
    loop {
        let timeout = if watch.is_some() { WATCH } else { IDLE };
        let order = next_order(master, timeout)?;
        if let Some(path) = watch.as_mut().and_then(|watch| watch.changed(host)) {
            tell_of_change(master, &path);
        }
        let Some((order, fd)) = order else { continue };
        let (worker, number, is_canary, is_known, reports) = match order {
            ToTemplate::Fork {
                worker,
                number,
                is_canary,
            } => {
                // Not before: one that becomes a worker puts what it allocates into the gaps of its heap.
                if !is_prepared {
                    heap::fill_gaps();
                    code::let_go_alone();
                    is_prepared = true;
                }
                match forked(host, number, fd) {
                    Ok(Some(reports)) => (worker, number, is_canary, false, reports),
                    Ok(None) => continue,
                    Err(error) => {
                        error!("worker {number} cannot be forked: {}", cure::told(&error));
                        report(master, &FromTemplate::NotForked(worker))?;
                        continue;
                    }
                }
            }
            ToTemplate::Become { worker, number } => {
                let reports = become_worker(host, number, fd)?;
                if prepared == TemplateApp::ForItself {
                    info!("the process that has imported the app becomes worker {number}");
                }
                (worker, number, false, true, reports)
            }
            // Not to one that has the app as its generation is made for it.
            ToTemplate::GoOver => continue,
            ToTemplate::Reopen => {
                reopen(host);
                continue;
            }
        };
        return Ok(Assignment {
            worker,
            number,
            has_app: prepared != TemplateApp::WithoutApp,
            is_known,
            is_canary,
            open_before: before.and_then(Result::ok),
            reports,
        });
    }
}

/// Makes this process the worker of this number. Gives the channel by which it is to report, or its exit code.
fn become_worker(host: &mut dyn Host, number: u16, fd: Option<OwnedFd>) -> Result<Channel, i32> {
    // An order without a channel leaves it nothing to report by.
    let fd = fd.ok_or(exit_code::INTERNAL)?;
    // The log has what the hook raised. The exit code is not the one of an app that cannot boot: another try may go well.
    run_hook(host, Hook::PreFork { number }).map_err(|_| exit_code::INTERNAL)?;
    heap::trim();
    code::let_go_alone();
    Ok(Channel::received(fd))
}

/// Waits until the template is to go over to the other generation; or gives its exit code.
fn wait_to_go_over(master: &Channel, host: &mut dyn Host) -> Result<(), i32> {
    loop {
        match next_order(master, IDLE)? {
            Some((ToTemplate::GoOver, _)) => return Ok(()),
            Some((ToTemplate::Reopen, _)) => reopen(host),
            Some((ToTemplate::Fork { .. } | ToTemplate::Become { .. }, _)) | None => {}
        }
    }
}

/// The next order, with what came beside it, if one comes in this time; or the template's exit code.
fn next_order(
    master: &Channel,
    timeout: Duration,
) -> Result<Option<(ToTemplate, Option<OwnedFd>)>, i32> {
    if let Err(error) = poll_readable(&[master.as_fd()], timeout) {
        error!("template cannot wait for orders: {}", cure::told(&error));
        return Err(exit_code::INTERNAL);
    }
    match messages::receive_from(master) {
        Ok(Incoming::Message(Envelope { message, fd, .. })) => Ok(Some((message, fd))),
        Ok(Incoming::Nothing) => Ok(None),
        Ok(Incoming::Closed) => Err(exit_code::FINE),
        Err(error) => {
            error!("template cannot read its orders: {}", cure::told(&error));
            Err(exit_code::INTERNAL)
        }
    }
}

fn reopen(host: &mut dyn Host) {
    log::reopen();
    host.reopen_logs();
}

/// Without a master to hear it there is nothing left to do: it has ended, or has given a re-fork up.
fn report(master: &Channel, said: &FromTemplate) -> Result<(), i32> {
    messages::report(master, said).map_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return exit_code::FINE;
        }
        error!("template cannot report to the master: {error}");
        exit_code::INTERNAL
    })
}

fn tell_of_change(master: &Channel, path: &Path) {
    info!("{} has changed: reload", path.display());
    let path = path.display().to_string();
    if let Err(error) = messages::report(master, &FromTemplate::Changed { path }) {
        error!("template cannot report a changed file: {error}");
    }
}

/// Forks a worker; in there, gives the channel by which it is to report. The master knows it by that
/// alone, and sees its end when the worker's copy is closed: ours is by then.
fn forked(host: &mut dyn Host, number: u16, fd: Option<OwnedFd>) -> io::Result<Option<Channel>> {
    let fd = fd.ok_or_else(|| io::Error::other("the order came without a channel"))?;
    run_hook(host, Hook::PreFork { number }).map_err(|_| io::Error::other("pre_fork failed"))?;
    Ok(match host.fork_worker()? {
        Fork::Child => Some(Channel::received(fd)),
        Fork::Parent(_) => None,
    })
}

/// The files whose change asks for a reload, and when each was last changed.
struct Watch {
    seen: HashMap<PathBuf, Option<SystemTime>>,
}

impl Watch {
    fn new(files: Vec<PathBuf>) -> Self {
        let seen = files.into_iter().map(|file| {
            let time = changed_at(&file);
            (file, time)
        });
        Self {
            seen: seen.collect(),
        }
    }

    /// A file that has changed, appeared or gone since the last call.
    fn changed(&mut self, host: &mut dyn Host) -> Option<PathBuf> {
        // The list is asked for each time, since files are made while the app runs; a new file has changed.
        for file in host.watched_files() {
            self.seen.entry(file).or_insert(None);
        }
        let mut changed = None;
        for (file, seen) in &mut self.seen {
            let now = changed_at(file);
            if *seen != now {
                *seen = now;
                changed = Some(file.clone());
            }
        }
        changed
    }
}

fn changed_at(file: &Path) -> Option<SystemTime> {
    file.metadata()
        .and_then(|metadata| metadata.modified())
        .ok()
}
