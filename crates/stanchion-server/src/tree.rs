//! The process tree from its first moment to its last: sockets and memory before any fork, then
//! the master, and each child on its own way.
//!
//! It opens the listeners and maps the shared memory before any fork; each process of the tree returns to this file
//! when it is born.

use std::path::Path;
use std::rc::Rc;
use std::{env, io};

use stanchion_sys::channel::Channel;
use stanchion_sys::listener::{Listener, ListenerAddress};
use stanchion_sys::{clock, heap, process, scheduling};
use tracing::{error, info, warn};

use crate::control::Control;
use crate::handover::{HandedOver, Handover};
use crate::hook::Hook;
use crate::hook_run::run_hook;
use crate::host::Host;
use crate::last_words;
use crate::launcher::Launcher;
use crate::master::{self, CarriedOver, GenerationResources, ProcessRole, Succession};
use crate::privileges;
use crate::scribe;
use crate::template::{self, Ended};
use crate::threads;
use crate::title;
use stanchion_acceptor as acceptor;
use stanchion_generation::common::Common;
use stanchion_generation::credentials::KeyFiles;
use stanchion_generation::demand_seconds::DemandSeconds;
use stanchion_generation::figures::Figures;
use stanchion_generation::identities;
use stanchion_generation::listeners::{self, ListenError};
use stanchion_generation::ticket_keys::TicketKeys;
use stanchion_log::cure;
use stanchion_log::exit_code;
use stanchion_log::panics;
use stanchion_log::{self as log, LogChannels};
use stanchion_settings::Settings;

/// Runs the server. Returns in the master and in each worker, with that process's exit code, so that its runtime can end as it should; the other
/// children end inside. `launcher` gets the outcome of the start.
#[allow(clippy::needless_pass_by_value)] // the launcher gets nothing after this
pub fn serve(settings: Settings, host: &mut dyn Host, launcher: Launcher) -> i32 {
    let code = start(settings, host, &launcher);
    // In a worker no launcher waits any more. A server that was asked to leave before it served has not failed, but does not serve either, as 0 would
    // say.
    if code != exit_code::FINE {
        launcher.tell(code);
    }
    log::finish();
    code
}

fn start(settings: Settings, host: &mut dyn Host, launcher: &Launcher) -> i32 {
    let went_back = Handover::go_back_to_standard_error();
    // If a user is not found, `prepare` says so once there is a log to say it in.
    let found = identities::find(&settings).ok();
    log::belong_to(found.and_then(|found| found.of_error_log()));
    if let Err(error) = log::start(&settings) {
        // There is no log to say it in.
        let line = format!("cannot open the error log {error}\n");
        let _ = io::Write::write_all(&mut io::stderr(), line.as_bytes());
        return exit_code::USAGE;
    }
    // Before the first line that may be dropped. A log is there now in which its error can stand.
    let counted = log::count_what_is_dropped().map_err(|error| of_kernel(&error));
    panics::tell();
    if let Err(error) = went_back {
        error!("the standard error of the old master cannot be taken over: {error}");
    }
    info!(
        "stanchion {} starts pid={}",
        env!("CARGO_PKG_VERSION"),
        process::pid()
    );
    match counted
        .and_then(|()| follow_clock())
        .and_then(|()| prepare(settings, host))
        .and_then(|prepared| tree(prepared, host, launcher).map_err(|error| of_kernel(&error)))
        .inspect_err(|_| log::go_directly())
    {
        Ok(code) => code,
        Err((reason, exit_code::FINE)) => {
            info!("{reason}");
            exit_code::FINE
        }
        Err((problem, code)) => {
            last_words::leave_because(&problem);
            error!("{problem}");
            code
        }
    }
}

/// A problem, and the exit code that goes with it.
type Problem = (String, i32);

fn of_kernel(error: &io::Error) -> Problem {
    let problem = format!(
        "the kernel refused what the server needs: {}",
        cure::told(error)
    );
    (problem, exit_code::INTERNAL)
}

/// Lets a test set the clock of the whole tree forward, if it has named a file for that.
fn follow_clock() -> Result<(), Problem> {
    let Some(file) = env::var_os(clock::FILE_VARIABLE) else {
        return Ok(());
    };
    let (variable, file) = (clock::FILE_VARIABLE, Path::new(&file));
    clock::follow(file).map_err(|error| {
        let problem = format!(
            "cannot follow the clock in {}, which {variable} names for tests: {error}",
            file.display()
        );
        (problem, exit_code::USAGE)
    })?;
    warn!(
        "a write to {} sets the clock of all deadlines forward: {variable} is for tests only",
        file.display()
    );
    Ok(())
}

/// Makes all that is needed before the first fork.
fn prepare(settings: Settings, host: &mut dyn Host) -> Result<PreparedTree, Problem> {
    let of_usage = |problem| (problem, exit_code::USAGE);
    let of_bind = |problem| (problem, exit_code::BIND);
    threads::refuse_at_start(host).map_err(of_usage)?;
    acceptor::check_settings(&settings).map_err(of_usage)?;
    // Before anything else is done; the generation makes its own copies.
    drop(KeyFiles::copy(&settings).map_err(of_usage)?);
    let identities = identities::find(&settings).map_err(of_usage)?;
    privileges::say_what_is_root(&identities);
    let mut handed_over = Handover::take().map_err(of_usage)?;
    let inherited = handed_over
        .as_mut()
        .map(|taken| std::mem::take(&mut taken.listeners));
    let before = inherited.as_deref().map(listeners::clones).transpose();
    let before = before.map_err(|error| of_bind(error.to_string()))?;
    let settings = as_before(settings, handed_over.as_ref());
    let listeners = listen(&settings, inherited)?;
    let before = before.unwrap_or_default();
    let theirs: Vec<_> = before.iter().map(|one| one.address().clone()).collect();
    let made = listeners::clones(&listeners).map_err(|error| of_bind(error.to_string()))?;
    // Listeners that an heir has from its predecessor are still the predecessor's if the heir fails.
    let made = listeners::not_at(made, &theirs);
    let leftover = listeners::not_among(before, &listeners);
    furnish(settings, listeners, handed_over, (leftover, theirs), host)
        .inspect_err(|_| listeners::remove_files(&made))
}

/// For an app that is to decide its interface itself, and that most likely has the one that it had for the master before us.
fn as_before(settings: Settings, handed_over: Option<&HandedOver>) -> Settings {
    match handed_over {
        // If these settings do not allow an asynchronous app, the server says so only if the app is still one.
        Some(taken) if taken.is_asgi => settings.clone().taken_for(true).unwrap_or(settings),
        _ => settings,
    }
}

/// The rest of it, once there are listeners: if it fails, so does the start, and their files go.
fn furnish(
    settings: Settings,
    listeners: Vec<Listener>,
    mut handed_over: Option<HandedOver>,
    of_predecessor: (Vec<Listener>, Vec<ListenerAddress>),
    host: &mut dyn Host,
) -> Result<PreparedTree, Problem> {
    let is_heir = handed_over.is_some();
    let ticket_keys = handed_over
        .as_mut()
        .and_then(|taken| taken.ticket_keys.take());
    let demand = handed_over.as_mut().and_then(|taken| taken.demand.take());
    let succession = Succession::begin(
        settings.process.pidfile.as_deref(),
        settings.process.signals,
        handed_over,
        of_predecessor,
    );
    let succession = succession.map_err(|problem| (problem, exit_code::USAGE))?;
    let control = match &settings.process.control {
        // An heir's is its predecessor's until it serves.
        Some(control) if !is_heir => Control::open(control.path()).map(Some),
        _ => Ok(None),
    };
    let control = control.map_err(|error| {
        let problem = format!(
            "cannot listen for commands at --control: {}",
            cure::told(&error)
        );
        (problem, exit_code::BIND)
    })?;
    run_hook(host, Hook::Starting).map_err(|error| (error.report, exit_code::WORKER_BOOT))?;
    threads::refuse(host).map_err(|threads| {
        let problem = format!(
            "the hook on_starting has left {threads} in the master, which cannot fork with them: start \
             them in post_fork or post_worker_init"
        );
        (problem, exit_code::WORKER_BOOT)
    })?;
    let demand = demand.map_or_else(DemandSeconds::create, Ok);
    let figures = demand
        .and_then(Figures::create)
        .map_err(|error| of_kernel(&error))?;
    let has_scribe = host.has_scribe();
    let ticket_keys = ticket_keys.map_or_else(TicketKeys::create, Ok);
    let ticket_keys = ticket_keys.map_err(|error| of_kernel(&error))?;
    let before = CarriedOver::nothing(figures, ticket_keys);
    let first = GenerationResources::build(1, (settings, has_scribe), listeners, &before)
        .map_err(|(error, _)| of_kernel(&error))?;
    Ok(PreparedTree {
        first,
        succession,
        control,
    })
}

/// Opens the door, or takes it over from another master.
fn listen(settings: &Settings, inherited: Option<Vec<Listener>>) -> Result<Vec<Listener>, Problem> {
    let of_bind = |problem| (problem, exit_code::BIND);
    if let Some(inherited) = inherited {
        return listeners::open(settings, inherited).map_err(of_bind);
    }
    listeners::boot(settings).map_err(|error| match error {
        ListenError::Failed(problem) => of_bind(problem),
        ListenError::Interrupted(signal) => (
            format!("signal {signal} came before there was a place to listen"),
            exit_code::FINE,
        ),
    })
}

/// All that there is before the first fork.
struct PreparedTree {
    first: GenerationResources,
    succession: Succession,
    control: Option<Control>,
}

fn tree(prepared: PreparedTree, host: &mut dyn Host, launcher: &Launcher) -> io::Result<i32> {
    let PreparedTree {
        first,
        succession,
        control,
    } = prepared;
    heap::fill_gaps();
    let role = master::run(
        first,
        succession,
        control,
        host,
        launcher,
        acceptor::check_settings,
    )?;
    if !matches!(role, ProcessRole::Master { .. }) {
        launcher.forget();
        log::begin_anew();
        last_words::say_no_more();
    }
    match role {
        ProcessRole::Master { code, listeners } => {
            listeners::remove_files(&listeners);
            info!("stanchion leaves");
            Ok(code)
        }
        ProcessRole::Acceptor {
            common,
            listeners,
            orders,
        } => process::exit_now(be_acceptor(common, &listeners, orders)),
        ProcessRole::Template {
            common,
            orders,
            may_preload,
            other,
        } => match be_template((common, other), orders, may_preload, host) {
            Ended::Template(code) => process::exit_now(code),
            Ended::Worker(code) => Ok(code),
        },
        ProcessRole::Scribe { common, orders } => {
            process::exit_now(be_scribe(common, orders, host))
        }
    }
}

/// The life of an acceptor. Gives its exit code.
fn be_acceptor(common: &'static Common, listeners: &[Listener], orders: Channel) -> i32 {
    log_to_scribe(common, |channels| {
        channels.keep_writers_of_server();
        channels.writer()
    });
    // The filter of system calls forbids to show another title later.
    title::show("acceptor", &common.settings);
    // This takes rights that are given up next. The effect stays (sched(7)).
    let prompt = scheduling::be_prompt();
    match privileges::confine_acceptor(common) {
        Ok(()) => acceptor::run(common, listeners, orders, prompt),
        Err(code) => code,
    }
}

/// The life of a template, and of a worker that it becomes. Gives the exit code.
fn be_template(
    (common, other): (&'static Common, Option<Rc<Common>>),
    orders: Channel,
    may_preload: bool,
    host: &mut dyn Host,
) -> Ended {
    common.leave_to_acceptor();
    if let Some(other) = &other {
        other.leave_to_acceptor();
    }
    log_to_scribe(common, |channels| {
        let writer = channels.take_writer_of_app();
        writer.ok_or_else(|| io::ErrorKind::NotConnected.into())
    });
    if let Err(code) = privileges::confine_app(common, "the template") {
        return Ended::Template(code);
    }
    let ended = template::run((common, other), orders, may_preload, host);
    if let Ended::Template(_) = ended {
        log::finish();
    }
    ended
}

/// The life of a scribe. Gives its exit code.
fn be_scribe(common: &'static Common, orders: Channel, host: &mut dyn Host) -> i32 {
    common.leave_to_acceptor();
    // Its own lines must not come back to it.
    log::go_directly();
    match privileges::confine_app(common, "the scribe") {
        Ok(()) => scribe::run(common, orders, host),
        Err(code) => code,
    }
}

/// Sets where a newborn child logs: the master's way to a scribe is not the child's.
fn log_to_scribe(common: &Common, writer: impl FnOnce(&LogChannels) -> io::Result<Channel>) {
    log::go_directly();
    match common.log_channels.as_ref().map(writer) {
        Some(Ok(writer)) => log::go_through(writer, false),
        Some(Err(error)) => error!("the scribe cannot be written to: {error}"),
        None => {}
    }
}
