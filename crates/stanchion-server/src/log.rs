//! The error log: one line an event, one write(2) a line, shared by every process of the tree.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use stanchion_sys::clock::LocalTime;
use stanchion_sys::identity::{Identity, effective_uid};
use stanchion_sys::{plain_file, process};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber, error, info};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::settings::LogLevel;

/// What every process writes to; set once, before the first fork.
static ERROR_LOG: OnceLock<LogFile> = OnceLock::new();

/// Opens the error log (`-` is stderr) and sends every event of this process and of its later
/// children there.
pub fn start(path: &Path, level: LogLevel) -> io::Result<()> {
    let log = LogFile::open(path, io::stderr().as_fd())?;
    let file = &ERROR_LOG.get_or_init(|| log).file;
    let subscriber = tracing_subscriber::fmt()
        .event_format(Line)
        .with_max_level(filter(level))
        .with_writer(move || file)
        .finish();
    // Only a second start in one process can find one set; the first stays.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}

/// Opens the error log of this process anew, after it was renamed. If that fails the old file
/// goes on, and says so.
pub fn reopen() {
    let Some(log) = ERROR_LOG.get() else { return };
    match log.reopen() {
        Ok(true) => info!("the error log is opened anew"),
        Ok(false) => {}
        Err(error) => error!(
            "the error log cannot be opened anew, the old file goes on: {}: {error}",
            log.shown()
        ),
    }
}

/// A log that is appended to, and that can be opened anew beneath whoever writes to it.
#[derive(Debug)]
pub(crate) struct LogFile {
    pub(crate) file: File,
    /// `None` for a standard stream. Absolute, since an app may change its directory.
    path: Option<PathBuf>,
}

impl LogFile {
    /// Opens it; `-` is `standard`.
    pub(crate) fn open(path: &Path, standard: std::os::fd::BorrowedFd<'_>) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            let file = File::from(standard.try_clone_to_owned()?);
            return Ok(Self { file, path: None });
        }
        let path = std::path::absolute(path)?;
        Ok(Self {
            file: append_to(&path)?,
            path: Some(path),
        })
    }

    /// Opens its path anew; false if it has none. The descriptor's number stays and never
    /// dangles, so that nobody who writes meanwhile, in whichever thread, needs to know, and no
    /// lock can be held by a thread that a fork leaves behind.
    pub(crate) fn reopen(&self) -> io::Result<bool> {
        let Some(path) = &self.path else {
            return Ok(false);
        };
        process::replace_file(self.file.as_fd(), append_to(path)?.as_fd())?;
        Ok(true)
    }

    /// For messages.
    pub(crate) fn shown(&self) -> String {
        let path = self.path.as_deref();
        path.map_or("-".to_owned(), |path| path.display().to_string())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true);
    if let Some((uid, gid)) = owner() {
        // Only a file that we have just made is given away: what is there already might be a link
        // that somebody has put there, to get what it leads to.
        match options.clone().create_new(true).open(path) {
            Ok(file) => {
                std::os::unix::fs::fchown(&file, Some(uid), Some(gid))?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        if !plain_file::is_directory_roots_alone(path.parent().unwrap_or(path))? {
            return plain_file::append_to(path);
        }
    }
    options.create(true).open(path)
}

/// User and group of log files that root makes: `uid << 32 | gid`, or [`NOBODY`].
static OWNER: AtomicU64 = AtomicU64::new(NOBODY);
/// No process has -1 for its user (credentials(7)).
const NOBODY: u64 = u64::MAX;

/// From now on, log files that are made are this one's, so that it can open them itself.
pub(crate) fn belong_to(identity: Option<&Identity>) {
    let owner = identity.map_or(NOBODY, |identity| {
        u64::from(identity.uid()) << 32 | u64::from(identity.gid())
    });
    OWNER.store(owner, Ordering::Relaxed);
}

fn owner() -> Option<(u32, u32)> {
    let owner = OWNER.load(Ordering::Relaxed);
    (owner != NOBODY && effective_uid() == 0).then_some(((owner >> 32) as u32, owner as u32))
}

/// Makes a log file that another process is going to open.
pub(crate) fn create(path: Option<&Path>) -> io::Result<()> {
    match path {
        Some(path) if path.as_os_str() != "-" => append_to(path)
            .map(drop)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
        _ => Ok(()),
    }
}

/// Writes text of the app's (`wsgi.errors`, tracebacks) as it is. A log that cannot be written
/// has nowhere to say so.
pub fn raw(text: &[u8]) {
    if let Some(log) = ERROR_LOG.get() {
        let _ = (&log.file).write_all(text);
    }
}

/// Appends what a client sent so that it stays on its line and harmless to a terminal: anything
/// but visible ASCII, and what quotes or escapes, is escaped.
pub fn escape_into(line: &mut String, text: &[u8]) {
    for &byte in text {
        match byte {
            b'"' | b'\\' => {
                line.push('\\');
                line.push(char::from(byte));
            }
            0x20..=0x7e => line.push(char::from(byte)),
            // Writing to a String cannot fail.
            _ => {
                let _ = write!(line, "\\x{byte:02x}");
            }
        }
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Error | LogLevel::Critical => LevelFilter::ERROR,
    }
}

/// gunicorn's line: `[2026-11-21 05:26:41 +0000] [1234] [INFO] message key=value`.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let now = LocalTime::now();
        let level = match *event.metadata().level() {
            Level::ERROR => "ERROR",
            Level::WARN => "WARNING",
            Level::INFO => "INFO",
            Level::DEBUG | Level::TRACE => "DEBUG",
        };
        write!(
            writer,
            "[{:04}-{:02}-{:02} {:02}:{:02}:{:02} {}] [{}] [{level}] ",
            now.year,
            now.month,
            now.day,
            now.hour,
            now.minute,
            now.second,
            now.offset(),
            process::pid(),
        )?;
        let mut text = Text::default();
        event.record(&mut text);
        // A message of several lines is a report for people (a traceback); it keeps its lines.
        writeln!(writer, "{}{}", text.message, text.fields)
    }
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a String cannot fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_log_is_opened_anew_and_one_that_cannot_be_goes_on() {
        let directory = std::env::temp_dir().join(format!("stanchion-log-{}", process::pid()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let (path, renamed) = (directory.join("log"), directory.join("log.1"));
        let log = LogFile::open(&path, io::stderr().as_fd()).expect("opened");
        let write = |text: &str| (&log.file).write_all(text.as_bytes()).expect("written");
        let read = |path: &Path| std::fs::read_to_string(path).expect("read");

        write("one\n");
        std::fs::rename(&path, &renamed).expect("renamed");
        write("two\n");
        assert!(log.reopen().expect("opened anew"));
        write("three\n");
        assert_eq!(read(&renamed), "one\ntwo\n");
        assert_eq!(read(&path), "three\n");

        std::fs::rename(&path, &renamed).expect("renamed");
        std::fs::create_dir(&path).expect("something in the way");
        assert!(log.reopen().is_err());
        write("four\n");
        assert_eq!(read(&renamed), "three\nfour\n");
        std::fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn a_standard_stream_is_left_alone() {
        let log = LogFile::open(Path::new("-"), io::stderr().as_fd()).expect("a copy");
        assert!(!log.reopen().expect("nothing to do"));
    }
}
