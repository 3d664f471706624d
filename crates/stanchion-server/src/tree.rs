//! The process tree from its first moment to its last: sockets and memory before any fork, then
//! the master, and each child on its own way.

use std::io;
use std::path::{Path, PathBuf};

use stanchion_exchange::{Exchange, Geometry, Word};
use stanchion_sys::channel::Channel;
use stanchion_sys::listener::Listener;
use stanchion_sys::{process, signal};
use tracing::{error, info, warn};

use crate::acceptor;
use crate::exit_code;
use crate::host::Host;
use crate::log;
use crate::master::{self, Role};
use crate::record::{REQUEST_HEAD_BYTES_MAX, REQUEST_RECORD_EXTRA_BYTES, RESPONSE_RING_BYTES};
use crate::settings::{BindAddress, Settings};
use crate::spool::SpoolDir;
use crate::template::{self, Ended};

/// Workers there are seats for beyond those asked for, so that TTIN has somewhere to go. Seats
/// that are never used cost no memory.
const WORKERS_SPARE: usize = 32;
/// How many requests may be handed out ahead of each seat while they are short; beyond this a
/// bigger batch saves little (hello: 11.0 µs with one, 10.1 with three, 9.6 with seven).
const AHEAD_PER_SEAT_MAX: usize = 7;

/// What every process of the tree shares from its birth.
pub(crate) struct Common {
    pub(crate) settings: Settings,
    pub(crate) exchange: &'static Exchange,
    pub(crate) workers_max: u16,
    pub(crate) master_pid: i32,
    pub(crate) reports: Reports,
    pub(crate) files: Files,
    pub(crate) spool: PathBuf,
}

/// What children say to the master.
pub(crate) struct Reports {
    pub(crate) master_end: Channel,
    pub(crate) child_end: Channel,
}

/// Descriptors of files on their way from workers to the acceptor.
pub(crate) struct Files {
    pub(crate) acceptor_end: Channel,
    pub(crate) worker_end: Channel,
}

/// Runs the server. Returns in the master and in each worker, with that process's exit code, so
/// that its runtime can end as it should; the other children end inside.
pub fn serve(settings: Settings, host: &mut dyn Host) -> i32 {
    if let Err(error) = log::start(&settings.errorlog, settings.loglevel) {
        // There is no log to say it in.
        let line = format!(
            "cannot open the error log {}: {error}\n",
            settings.errorlog.display()
        );
        let _ = io::Write::write_all(&mut io::stderr(), line.as_bytes());
        return exit_code::USAGE;
    }
    if let Err(problem) = acceptor::check_settings(&settings) {
        error!("{problem}");
        return exit_code::USAGE;
    }
    info!(
        "stanchion {} starts pid={}",
        env!("CARGO_PKG_VERSION"),
        process::pid()
    );
    let listeners = match listen(&settings) {
        Ok(listeners) => listeners,
        Err(problem) => {
            error!("{problem}");
            return exit_code::BIND;
        }
    };
    let pidfile = match PidFile::create(settings.pidfile.as_deref()) {
        Ok(pidfile) => pidfile,
        Err(problem) => {
            error!("{problem}");
            remove_files(&listeners);
            return exit_code::USAGE;
        }
    };
    match tree(settings, listeners, pidfile, host) {
        Ok(code) => code,
        Err(error) => {
            error!("the kernel refused what the server needs: {error}");
            exit_code::INTERNAL
        }
    }
}

fn listen(settings: &Settings) -> Result<Vec<Listener>, String> {
    let backlog = settings.backlog.cast_unsigned();
    let mut listeners = Vec::new();
    for bind in &settings.bind {
        let listener = match bind {
            BindAddress::Tcp { host, port } => Listener::tcp(host, *port, backlog),
            BindAddress::Unix(path) => Listener::unix(path, backlog),
            BindAddress::Abstract(name) => Listener::unix_abstract(name, backlog),
            BindAddress::Fd(fd) => Listener::adopt(*fd, backlog),
        };
        match listener {
            Ok(listener) => listeners.push(listener),
            Err(error) => {
                remove_files(&listeners);
                let advice = match error.kind() {
                    io::ErrorKind::AddrInUse => " (another server listens there; see `ss -lntxp`)",
                    io::ErrorKind::PermissionDenied => {
                        " (a port below 1024, or a directory that is not yours?)"
                    }
                    _ => "",
                };
                return Err(format!("cannot listen on {bind}: {error}{advice}"));
            }
        }
    }
    for listener in &listeners {
        info!("listening at {}", listener.address());
    }
    Ok(listeners)
}

fn remove_files(listeners: &[Listener]) {
    for listener in listeners {
        if let Err(error) = listener.remove_file() {
            warn!("the socket file of {} stays: {error}", listener.address());
        }
    }
}

fn tree(
    settings: Settings,
    listeners: Vec<Listener>,
    pidfile: PidFile,
    host: &mut dyn Host,
) -> io::Result<i32> {
    let spool = SpoolDir::create(settings.tmp_upload_dir.as_deref())?;
    let threads = settings.threads as usize;
    let workers_max = (settings.workers as usize + WORKERS_SPARE).min(Word::SEATS_MAX / threads);
    if workers_max < settings.workers as usize {
        return Err(io::Error::other(format!(
            "workers times threads is more than {} seats",
            Word::SEATS_MAX
        )));
    }
    let exchange = Exchange::create(Geometry {
        seats: workers_max * threads,
        ahead_per_seat: AHEAD_PER_SEAT_MAX,
        request_bytes: REQUEST_HEAD_BYTES_MAX + REQUEST_RECORD_EXTRA_BYTES + settings.body_memory,
        response_bytes: RESPONSE_RING_BYTES,
    })?;
    let (master_end, child_end) = Channel::pair()?;
    let (acceptor_end, worker_end) = Channel::pair()?;
    // For the life of the process: workers hold on to it from several threads.
    let common: &'static Common = Box::leak(Box::new(Common {
        exchange: Box::leak(Box::new(exchange)),
        workers_max: workers_max as u16,
        master_pid: process::pid(),
        reports: Reports {
            master_end,
            child_end,
        },
        files: Files {
            acceptor_end,
            worker_end,
        },
        spool: spool.path().to_owned(),
        settings,
    }));
    match master::run(common, host)? {
        Role::Master(code) => {
            remove_files(&listeners);
            drop(pidfile);
            drop(spool);
            info!("stanchion leaves");
            Ok(code)
        }
        Role::Acceptor(orders) => {
            pidfile.leave();
            spool.leave();
            leave_signals_to_master()?;
            let code = acceptor::run(common, &listeners, orders);
            process::exit_now(code)
        }
        Role::Template { generation, orders } => {
            pidfile.leave();
            spool.leave();
            drop(listeners);
            leave_signals_to_master()?;
            match template::run(common, generation, orders, host) {
                Ended::Template(code) => process::exit_now(code),
                Ended::Worker(code) => Ok(code),
            }
        }
    }
}

/// For acceptor and template: the master decides when they leave, and a signal to the whole process
/// group, such as Ctrl-C, is for it alone.
fn leave_signals_to_master() -> io::Result<()> {
    signal::ignore(&[
        signal::SIGTERM,
        signal::SIGINT,
        signal::SIGQUIT,
        signal::SIGHUP,
        signal::SIGUSR1,
        signal::SIGUSR2,
        signal::SIGWINCH,
    ])?;
    signal::reset(&[signal::SIGCHLD, signal::SIGTTIN, signal::SIGTTOU])
}

/// The file with the master's pid, removed when it ends.
struct PidFile(Option<PathBuf>);

impl PidFile {
    fn create(path: Option<&Path>) -> Result<Self, String> {
        let Some(path) = path else {
            return Ok(Self(None));
        };
        let shown = path.display();
        let earlier = std::fs::read_to_string(path)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        if let Some(pid) = earlier.filter(|&pid| pid != process::pid() && process::is_alive(pid)) {
            return Err(format!(
                "the pid file {shown} names process {pid}, which is alive: is this server running already?"
            ));
        }
        std::fs::write(path, format!("{}\n", process::pid()))
            .map_err(|error| format!("cannot write the pid file {shown}: {error}"))?;
        Ok(Self(Some(path.to_owned())))
    }

    fn leave(mut self) {
        self.0 = None;
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0
            && let Err(error) = std::fs::remove_file(path)
        {
            warn!("the pid file {} stays: {error}", path.display());
        }
    }
}
