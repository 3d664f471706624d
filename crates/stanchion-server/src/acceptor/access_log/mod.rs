//! The access log: a line for each request once its answer is out, in gunicorn's atoms or as JSON,
//! never from Python.

mod atom;
mod json;
mod user;

use std::cell::{OnceCell, RefCell};
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use stanchion_sys::clock::{LocalTime, monotonic_us, wall_s};
use tracing::Level;

use super::ticket::Ticket;
use crate::log::{LogFile, Of, Outlet, Queue, Syslog};
use crate::settings::Settings;
use crate::tally::Outcome;
use atom::{Atom, Piece, parse};

/// Lines gathered within one turn of the event loop before they go to the writing thread all the
/// same.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// An open access log.
pub(super) struct AccessLog {
    queues: Vec<Queue>,
    form: Form,
    pub(super) wants_answer_fields: bool,
    /// Names of the lanes.
    lanes: Vec<String>,
    /// Those of this turn of the event loop.
    lines: RefCell<String>,
    time: RefCell<Time>,
}

/// How a line is written.
enum Form {
    Text(Vec<Piece>),
    Json,
}

/// The time as the log shows it, made once a second.
struct Time {
    epoch_s: u64,
    text: String,
}

/// What the log is told of an answer.
pub(super) struct Entry {
    pub(super) ticket: Rc<Ticket>,
    pub(super) status: StatusCode,
    pub(super) outcome: Outcome,
    /// Empty unless the format asks for them.
    pub(super) fields: HeaderMap,
    /// Bytes of the body that were given to the connection.
    pub(super) bytes: u64,
}

/// An entry at the moment when its line is written.
struct Line<'e> {
    entry: &'e Entry,
    time: &'e str,
    lane: &'e str,
    /// Looked up once, if a format asks for it: most do not.
    now_us: OnceCell<u64>,
}

impl Line<'_> {
    fn now_us(&self) -> u64 {
        *self.now_us.get_or_init(monotonic_us)
    }

    /// Since it had arrived.
    fn took_us(&self) -> u64 {
        let arrived_us = self.entry.ticket.request.arrived_us;
        self.now_us().saturating_sub(arrived_us)
    }

    /// In the line.
    fn wait_us(&self) -> u64 {
        self.entry.ticket.wait_us(self.now_us())
    }

    /// At a seat, if it came to one.
    fn service_us(&self) -> Option<u64> {
        self.entry.ticket.service_us(self.now_us())
    }
}

/// Says what is wrong with a format, if anything is.
pub(super) fn check(format: &str) -> Result<(), String> {
    parse(format).map(drop)
}

impl AccessLog {
    /// Opens what the settings ask for, if anything; `-` is standard output.
    pub(super) fn open(settings: &Settings) -> io::Result<Option<Self>> {
        let mut outlets = Vec::new();
        if let Some(path) = &settings.accesslog {
            outlets.push(Outlet::File(LogFile::open(path, io::stdout().as_fd())?));
        }
        if settings.syslog && !settings.disable_redirect_access_to_syslog {
            outlets.push(Outlet::Syslog(Syslog::open(settings, "access")?));
        }
        if outlets.is_empty() {
            return Ok(None);
        }
        let start = |outlet| Queue::start(Of::AccessLog, Arc::new(outlet));
        let queues = outlets.into_iter().map(start).collect::<io::Result<_>>()?;
        let form = if settings.access_log_json {
            Form::Json
        } else {
            Form::Text(parse(&settings.access_log_format).map_err(io::Error::other)?)
        };
        let is_answer_field = |piece: &Piece| matches!(piece, Piece::Atom(Atom::AnswerField(_)));
        let wants_answer_fields = match &form {
            Form::Text(pieces) => pieces.iter().any(is_answer_field),
            Form::Json => false,
        };
        Ok(Some(Self {
            queues,
            form,
            wants_answer_fields,
            lanes: settings.lanes().into_iter().map(|lane| lane.name).collect(),
            lines: RefCell::default(),
            time: RefCell::new(Time {
                epoch_s: u64::MAX,
                text: String::new(),
            }),
        }))
    }

    /// Opens it anew, after it was renamed. If that fails the old file goes on, and the error log
    /// says so.
    pub(super) fn reopen(&self) {
        // What was added belongs to the old one.
        self.flush();
        self.queues.iter().for_each(Queue::reopen);
    }

    /// Adds a line.
    pub(super) fn add(&self, entry: &Entry) {
        let mut lines = self.lines.borrow_mut();
        let mut time = self.time.borrow_mut();
        // A turn of the event loop is short.
        if lines.is_empty() {
            time.pass(wall_s(), &self.form);
        }
        let line = Line {
            entry,
            time: &time.text,
            lane: &self.lanes[entry.ticket.lane.get().index()],
            now_us: OnceCell::new(),
        };
        match &self.form {
            Form::Text(pieces) => {
                for piece in pieces {
                    match piece {
                        Piece::Text(text) => lines.push_str(text),
                        Piece::Atom(atom) => atom.write(&mut lines, &line),
                    }
                }
            }
            Form::Json => json::write(&mut lines, &line),
        }
        lines.push('\n');
        let is_full = lines.len() >= BUFFER_BYTES_MAX;
        drop(lines);
        if is_full {
            self.flush();
        }
    }

    /// Passes what has been added on to the threads that write.
    pub(super) fn flush(&self) {
        let mut lines = self.lines.borrow_mut();
        if lines.is_empty() {
            return;
        }
        for queue in &self.queues {
            match queue.outlet() {
                Outlet::File(_) => queue.push(lines.as_bytes()),
                Outlet::Syslog(syslog) => {
                    let mut messages = String::with_capacity(2 * lines.len());
                    for line in lines.lines() {
                        syslog.frame(&mut messages, Level::INFO, line);
                    }
                    queue.push(messages.as_bytes());
                }
            }
        }
        lines.clear();
    }

    /// Writes all there is, within a bound, and ends.
    pub(super) fn finish(&self) {
        self.flush();
        self.queues.iter().for_each(Queue::finish);
    }
}

impl Time {
    /// Makes the text anew if it is another second.
    fn pass(&mut self, epoch_s: u64, form: &Form) {
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        if self.epoch_s == epoch_s {
            return;
        }
        self.epoch_s = epoch_s;
        let now = LocalTime::at(epoch_s.cast_signed());
        let LocalTime {
            year,
            month,
            day,
            hour,
            minute,
            second,
            ..
        } = now;
        let offset = now.offset();
        self.text = match form {
            Form::Text(_) => {
                let month = MONTHS[usize::from(month.clamp(1, 12)) - 1];
                format!("[{day:02}/{month}/{year}:{hour:02}:{minute:02}:{second:02} {offset}]")
            }
            // RFC 3339 section 5.6 has a colon in the offset.
            Form::Json => {
                let (hours, minutes) = offset.split_at(3);
                format!(
                    "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{hours}:{minutes}"
                )
            }
        };
    }
}
