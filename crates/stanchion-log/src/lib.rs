//! The error log, shared by every process of the tree: one line an event, one write(2) a line. No process waits for a
//! slow reader of the log: the acceptor has threads that write ([`queue`]), and the other processes drop lines that
//! cannot be written at once ([`direct`]). The crate also has the rest of what a process says about itself: `StatsD`,
//! panics, exit codes, and cures, an operator's next steps after an error ([`cure`]). Recordings of arrivals go to their
//! files by the same threads.
//!
//! Text of clients or of the app is escaped where it is shown ([`escape`]), not where it is stored.
//!
//! This crate knows settings and the kernel, and nothing of requests, workers or the acceptor. It may not fork, have
//! listeners or use unsafe code.

#![forbid(unsafe_code)]

pub mod caught;
mod channels;
pub mod cure;
mod datagrams;
mod direct;
mod entry;
mod escape;
pub mod exit_code;
mod failing_logs;
mod file;
mod harmless;
mod levels;
mod line;
mod log_kind;
mod outlet;
pub mod panics;
mod queue;
mod recording;
pub mod statsd;
mod syslog;
mod trouble;

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use stanchion_sys::channel::Channel;
use stanchion_sys::clock::LocalTime;
use stanchion_sys::counts::SharedCounts;
use stanchion_sys::process;
use stanchion_sys::standard_streams::StandardStreams;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber, error, info, span};

pub use channels::{LogChannels, Readers};
use direct::Direct;
pub use entry::{ACCESS, ErrorEntry, LINE_BYTES_MAX, lines_of};
pub use escape::{describe, escape_into};
pub use failing_logs::failing_logs;
pub use file::{FileOwner, LogFile, belong_to, create};
pub use harmless::is_obeyed;
use levels::Levels;
pub use levels::{CRITICAL, EXCEPTION};
use line::line_of;
pub use log_kind::Of;
pub use outlet::Outlet;
pub use queue::{LogQueue, THREAD_NAME};
pub use recording::{RecordingFiles, create_directory};
use stanchion_settings::{LogLevel, Settings};
pub use syslog::Syslog;
pub use trouble::FailingLog;

/// The error log of every process; set once, before the first fork.
static ERROR_LOG: OnceLock<ErrorLog> = OnceLock::new();

#[derive(Debug)]
struct ErrorLog {
    level: LevelFilter,
    levels: Option<Levels>,
    /// The file first.
    outlets: Vec<Direct>,
    /// Lines of the server itself go there instead of to the file.
    scribe: RwLock<Option<Scribe>>,
    /// journald reads it, and takes levels.
    journal: bool,
    /// The standard streams of a daemon, which leaves them once it serves.
    streams: Option<StandardStreams>,
    /// Standard output and error of this process, or of one that it was forked from, lead to the log too.
    captures: AtomicBool,
    /// In the acceptor: what stands before each outlet.
    queues: OnceLock<Vec<LogQueue>>,
    /// Standard error as it was at the start, unless it is the log itself: a line about a log that cannot be written goes there.
    standard_error: Option<LogFile>,
    /// Lines that any process has dropped and no acceptor has counted yet.
    dropped: OnceLock<SharedCounts>,
}

/// The way to the scribe. A process changes it only while it has a single thread, so that no fork copies a lock that a change
/// holds.
#[derive(Clone, Debug)]
struct Scribe {
    direct: Arc<Direct>,
    /// Records of Python's logging go there too; where the app runs, its own handlers have had them.
    takes_records: bool,
}

/// Opens the error log (`-` is stderr), and syslog if that is asked for, and sends every event of
/// this process and of its later children there.
pub fn start(settings: &Settings) -> io::Result<()> {
    let named = |what: String| {
        move |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"))
    };
    let file = LogFile::open(&settings.log.errorlog, io::stderr().as_fd()).map_err(|error| {
        let problem = cure::told_of_file(&settings.log.errorlog, &error);
        io::Error::new(error.kind(), problem)
    })?;
    let journal = file.is_journal();
    let standard_error = match file.path() {
        // No line can go to a standard error that is closed.
        Some(_) => LogFile::open(Path::new("-"), io::stderr().as_fd()).ok(),
        None => None,
    };
    let mut outlets = vec![Direct::new(Outlet::File(file))];
    if settings.log.syslog {
        let syslog = Syslog::open(settings, "error")
            .map_err(named(format!("syslog_addr {}", settings.log.syslog_addr)))?;
        outlets.push(Direct::new(Outlet::Syslog(syslog)));
    }
    let level = filter(settings.log.loglevel);
    let levels = Levels::open(settings)?;
    let inherits = settings.process.enable_stdio_inheritance;
    let streams = settings
        .process
        .daemon
        .then(|| StandardStreams::to_leave(inherits));
    let streams = streams.transpose().map_err(named("-".to_owned()))?;
    ERROR_LOG.get_or_init(|| ErrorLog {
        level,
        levels,
        outlets,
        scribe: RwLock::new(None),
        journal,
        streams,
        captures: AtomicBool::new(false),
        queues: OnceLock::new(),
        standard_error,
        dropped: OnceLock::new(),
    });
    // Only a second start in one process can find one set; the first stays.
    let _ = tracing::subscriber::set_global_default(Events);
    Ok(())
}

/// From now on the lines that this process and its later children drop are counted. Errors are the kernel's.
pub fn count_what_is_dropped() -> io::Result<()> {
    let counts = SharedCounts::create("stanchion-log", 1)?;
    if let Some(log) = ERROR_LOG.get() {
        // Only a second start in one process can find one set; the first stays.
        log.dropped.get_or_init(|| counts);
    }
    Ok(())
}

/// From now on, the lines of this process go to the scribe instead of to the error log's file. To be called only while it has no thread beside its
/// own. `takes_records`: records of Python's logging too.
pub fn go_through(channel: Channel, takes_records: bool) {
    set_scribe(Some(Scribe {
        direct: Arc::new(Direct::new(Outlet::Scribe(channel))),
        takes_records,
    }));
}

/// From now on, the lines of this process go to the error log itself.
pub fn go_directly() {
    set_scribe(None);
}

fn set_scribe(scribe: Option<Scribe>) {
    let Some(log) = ERROR_LOG.get() else { return };
    let mut current = log.scribe.write().unwrap_or_else(PoisonError::into_inner);
    let before = std::mem::replace(&mut *current, scribe);
    drop(current);
    if let Some(before) = before {
        before.direct.finish();
    }
}

/// In a newborn process: forgets the lines that the parent has dropped, since the parent reports them.
pub fn begin_anew() {
    if let Some(log) = ERROR_LOG.get() {
        log.each_direct(Direct::begin_anew);
    }
}

/// Reports trouble with the scribe in the error log itself, as the scribe may never read its lines.
pub fn tell_beside_scribe(level: Level, text: &str) {
    if let Some(log) = ERROR_LOG.get()
        && level <= log.level
    {
        let line = log.line((level, ""), LocalTime::now(), process::pid(), text);
        log.outlets[0].write(line.as_bytes());
    }
}

/// The standard streams of a daemon, which it is to leave.
fn streams() -> Option<&'static StandardStreams> {
    ERROR_LOG.get()?.streams.as_ref()
}

/// From now on this process, which must not fork any more, leaves writing to threads.
pub fn write_by_thread() -> io::Result<()> {
    let Some(log) = ERROR_LOG.get() else {
        return Ok(());
    };
    let scribe = log.scribe();
    let first = scribe
        .as_ref()
        .map_or(&log.outlets[0], |scribe| &scribe.direct);
    let start = |direct: &Direct| {
        let (outlet, trouble) = (Arc::clone(&direct.outlet), Arc::clone(&direct.trouble));
        LogQueue::go_on(Of::ErrorLog, outlet, trouble)
    };
    let outlets = std::iter::once(first).chain(&log.outlets[1..]);
    let queues = outlets.map(start).collect::<io::Result<_>>()?;
    // A process calls this once.
    let _ = log.queues.set(queues);
    Ok(())
}

/// The last thing that a process does: writes the lines that wait, if it has threads for that, for a limited time, and
/// reports how many were dropped.
pub fn finish() {
    let Some(log) = ERROR_LOG.get() else { return };
    log.queues().for_each(LogQueue::finish);
    log.each_direct(Direct::finish);
}

/// The error log's file, which stays the same when a reload has another setting; `None` if it is a
/// standard stream.
pub fn path() -> Option<&'static Path> {
    let outlets = ERROR_LOG.get().map(|log| &log.outlets);
    outlets
        .into_iter()
        .flatten()
        .find_map(|direct| direct.outlet.path())
}

/// From now on, what this process and its children write to stdout and stderr goes to the error log, if that is a file.
pub fn capture_output() -> io::Result<()> {
    let Some(log) = ERROR_LOG.get() else {
        return Ok(());
    };
    log.captures.store(true, Ordering::Relaxed);
    let mut outlets = log.outlets.iter();
    outlets.try_for_each(|direct| direct.outlet.capture_output())
}

/// Reopens the error log of this process, after it was renamed. If that fails the old file stays in use, and gets a line about it. A daemon leaves
/// the standard streams that the shell gave it.
pub fn reopen() {
    let Some(log) = ERROR_LOG.get() else { return };
    let left = log.streams.as_ref().map_or(Ok(()), StandardStreams::leave);
    let stream = log.standard_error.as_ref();
    let left_by = stream.map_or(Ok(()), |stream| stream.reopen().map(drop));
    if let Err(error) = left.and(left_by) {
        error!("standard output and error cannot be left: {error}");
    }
    log.queues().for_each(LogQueue::reopen);
    for Direct { outlet, .. } in log.unqueued() {
        match outlet.reopen() {
            Ok(true) => {
                info!("the error log is reopened");
                if log.captures.load(Ordering::Relaxed)
                    && let Err(error) = outlet.capture_output()
                {
                    error!("the output of the app still goes to the old error log: {error}");
                }
            }
            Ok(false) => {}
            Err(error) => error!(
                "the error log cannot be reopened, the old file goes on: {}: {error}",
                outlet.shown()
            ),
        }
    }
}

/// Counts lines that this process has dropped.
fn count_dropped(lines: u64) {
    if let Some(dropped) = ERROR_LOG.get().and_then(|log| log.dropped.get()) {
        // Several processes and threads add, so it takes more than a load and a store.
        dropped.atomics()[0].fetch_add(lines, Ordering::Relaxed);
    }
}

/// Lines of this server's processes dropped since the last call, to be counted.
pub fn take_dropped() -> u64 {
    let dropped = ERROR_LOG.get().and_then(|log| log.dropped.get());
    dropped.map_or(0, |dropped| dropped.atomics()[0].swap(0, Ordering::Relaxed))
}

/// Writes text of the app's (`wsgi.errors`) as it is. It has no lines of ours, so only the file
/// gets it, as in gunicorn.
pub fn raw(text: &[u8]) {
    if let Some(log) = ERROR_LOG.get() {
        log.outlets[0].write(text);
    }
}

impl ErrorLog {
    /// The least important events that the log or a count takes.
    fn least(&self) -> LevelFilter {
        let counted = self
            .levels
            .as_ref()
            .map(|_| LevelFilter::from(Levels::LEAST));
        counted.map_or(self.level, |counted| self.level.max(counted))
    }

    fn count(&self, level: Level, target: &str) {
        if let Some(levels) = &self.levels {
            levels.count(level, target);
        }
    }

    /// The outlets to which this process writes without a thread. With a scribe the file is one of them in any process: only
    /// reports of trouble with the scribe go there.
    fn unqueued(&self) -> &[Direct] {
        match self.queues.get() {
            None => &self.outlets,
            Some(_) if self.scribe().is_some() => &self.outlets[..1],
            Some(_) => &[],
        }
    }

    fn queues(&self) -> impl Iterator<Item = &LogQueue> {
        self.queues.get().into_iter().flatten()
    }

    fn each_direct(&self, act: impl Fn(&Direct)) {
        if let Some(scribe) = self.scribe() {
            act(&scribe.direct);
        }
        self.outlets.iter().for_each(act);
    }

    fn scribe(&self) -> Option<Scribe> {
        let scribe = self.scribe.read().unwrap_or_else(PoisonError::into_inner);
        scribe.clone()
    }

    /// Writes a line to each outlet, and to the scribe instead of to the file if there is one for it. A text of several lines is a report for people
    /// (a traceback); it keeps them.
    fn tell(&self, level: Level, target: &str, text: &str, scribe: Option<&Scribe>) {
        for (index, direct) in self.outlets.iter().enumerate() {
            match (&*direct.outlet, scribe) {
                (Outlet::File(_), Some(scribe)) => {
                    let entry = ErrorEntry::now(level, target, text).into_line();
                    self.write(index, &scribe.direct, &entry);
                }
                (outlet, _) => {
                    self.write(index, direct, &self.line_for(outlet, (level, target), text));
                }
            }
        }
    }

    /// The line as an outlet other than the scribe has it.
    fn line_for(&self, outlet: &Outlet, (level, target): (Level, &str), text: &str) -> Vec<u8> {
        let mut line = String::with_capacity(64 + text.len());
        match outlet {
            Outlet::Syslog(syslog) => syslog.frame(&mut line, level, text),
            Outlet::File(_) | Outlet::Scribe(_) | Outlet::Recording(_) => {
                line = self.line((level, target), LocalTime::now(), process::pid(), text);
            }
        }
        line.into_bytes()
    }

    /// The line as the file has it.
    fn line(&self, event: (Level, &str), at: LocalTime, pid: i32, text: &str) -> String {
        line_of(self.journal, event, at, pid, text)
    }

    fn write(&self, outlet: usize, direct: &Direct, bytes: &[u8]) {
        match self.queues.get() {
            Some(queues) => queues[outlet].push(bytes),
            None => direct.write(bytes),
        }
    }
}

/// Writes a record of Python's logging, whose levels are numbers, higher is louder. The logger that it was given to
/// has let it pass: the level of the log has no say any more.
pub fn record(level: i32, text: &str) {
    let Some(log) = ERROR_LOG.get() else { return };
    let (level, target) = entry::severity(level);
    log.count(level, target);
    let scribe = log.scribe().filter(|scribe| scribe.takes_records);
    log.tell(level, target, &harmless::lines(text), scribe.as_ref());
}

/// Writes a line of another process to the file: `level` as for [`record`], `time_us` since the epoch. That process has counted the line, and sent it
/// to syslog.
pub fn write_for(pid: i32, time_us: u64, level: i32, text: &str) {
    let Some(log) = ERROR_LOG.get() else { return };
    let at = LocalTime::at((time_us / 1_000_000).cast_signed());
    let text = harmless::lines(text);
    let line = log.line(entry::severity(level), at, pid, &text);
    log.outlets[0].write(line.as_bytes());
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Error | LogLevel::Critical => LevelFilter::ERROR,
    }
}

/// Takes the events of this process; there are no spans.
struct Events;

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let Some(log) = ERROR_LOG.get() else {
            return false;
        };
        if is_ours(metadata.target()) {
            *metadata.level() <= log.least()
        } else {
            log.level == LevelFilter::DEBUG
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        ERROR_LOG.get().map(ErrorLog::least)
    }

    fn event(&self, event: &Event<'_>) {
        let Some(log) = ERROR_LOG.get() else { return };
        let target = event.metadata().target();
        let level = if is_ours(target) {
            *event.metadata().level()
        } else {
            Level::DEBUG
        };
        log.count(level, target);
        if level > log.level {
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        let text = text.message + &text.fields;
        log.tell(level, target, &text, log.scribe().as_ref());
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Whether an event is this server's and not a library's. A client decides how often a library reports what that client does (h2 warns of
/// each PING that acknowledges none), so their lines are details: the log has them at the level `debug`.
fn is_ours(target: &str) -> bool {
    // The extension module of Python is `_stanchion`.
    let is_module = target.trim_start_matches('_').starts_with("stanchion");
    is_module || [CRITICAL, EXCEPTION].contains(&target)
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    /// Every field of an event passes here, and apps have written much of it: only a message keeps its lines.
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            harmless::push(&mut self.message, &format!("{value:?}"), true);
        } else {
            let text = format!(" {}={value:?}", field.name());
            harmless::push(&mut self.fields, &text, false);
        }
    }
}
