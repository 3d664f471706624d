//! The error log: one line an event, one write(2) a line, shared by every process of the tree.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::OnceLock;

use stanchion_sys::clock::LocalTime;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::settings::LogLevel;

/// The descriptor every process writes to; set once, before the first fork.
static ERROR_LOG: OnceLock<File> = OnceLock::new();

/// Opens the error log (`-` is stderr) and sends every event of this process and of its later
/// children there.
pub fn start(path: &Path, level: LogLevel) -> io::Result<()> {
    let file = open(path, io::stderr().as_fd())?;
    let file = ERROR_LOG.get_or_init(|| file);
    let subscriber = tracing_subscriber::fmt()
        .event_format(Line)
        .with_max_level(filter(level))
        .with_writer(move || file)
        .finish();
    // Only a second start in one process can find one set; the first stays.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}

/// Opens a log for appending; `-` is `standard`.
pub(crate) fn open(path: &Path, standard: std::os::fd::BorrowedFd<'_>) -> io::Result<File> {
    if path.as_os_str() == "-" {
        Ok(File::from(standard.try_clone_to_owned()?))
    } else {
        OpenOptions::new().append(true).create(true).open(path)
    }
}

/// Writes text of the app's (`wsgi.errors`, tracebacks) as it is. A log that cannot be written
/// has nowhere to say so.
pub fn raw(text: &[u8]) {
    if let Some(mut file) = ERROR_LOG.get() {
        let _ = file.write_all(text);
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
            stanchion_sys::process::pid(),
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
