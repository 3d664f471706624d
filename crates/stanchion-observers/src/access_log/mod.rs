//! The acceptor writes the access log without Python: a line for each request once its answer is out, in gunicorn's
//! atoms or as JSON. If there is a scribe, it gets records, and leaves the lines to Python.

mod atom;
mod format;
mod json;
mod object;
mod record;
mod text;
mod time;
mod user;

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use stanchion_http::Head;
use stanchion_sys::channel::Channel;
use stanchion_sys::clock::wall_us;
use tracing::Level;

use format::{Atom, FormatPiece, parse};
use stanchion_dispatch::over::Over;
use stanchion_log::cure;
use stanchion_log::{LogFile, LogQueue, Of, Outlet, Syslog};
use stanchion_settings::{Believed, Settings};
use time::Time;

/// Once there are so many bytes of lines, the lines go to the writing thread before the turn of the event loop ends.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// An open access log.
pub(super) struct AccessLog {
    queues: Vec<LogQueue>,
    form: LogFormat,
    pub(super) wants_answer_head: bool,
    /// Names of the lanes.
    lanes: Vec<String>,
    /// Proxies that the server believes about the client's address.
    believed: Believed,
    gathered: Gathered,
}

/// How a line is written.
enum LogFormat {
    Text(Vec<FormatPiece>),
    Json,
    /// For the scribe; with a line as for [`LogFormat::Json`] if that is what the log is to hold.
    Record {
        json: bool,
    },
}

/// The same, without the pieces.
#[derive(Clone, Copy)]
enum LogFormatKind {
    Text,
    Json,
}

/// The parts of the log that change from line to line.
#[derive(Default)]
struct Gathered {
    /// Lines of this turn of the event loop.
    lines: Vec<u8>,
    time: Time,
    /// The pieces of the form, with the time in them.
    pieces: Vec<FormatPiece>,
}

/// The facts that a line is written from.
struct LogLine<'o> {
    over: &'o Over,
    /// When the monotonic clock was 0, in microseconds since 1970.
    epoch_us: u64,
    time: &'o str,
    ms: u64,
    lane: &'o str,
    believed: &'o Believed,
    known: CommonFields<'o>,
}

/// Fields that nearly every format has, found in one pass over all.
#[derive(Default)]
struct CommonFields<'h> {
    authorization: Option<&'h [u8]>,
    referer: Option<&'h [u8]>,
    user_agent: Option<&'h [u8]>,
}

impl<'h> CommonFields<'h> {
    /// The first of each name.
    fn of(head: &'h Head) -> Self {
        let mut known = Self::default();
        for (name, value) in head.fields() {
            let (one, its_name) = match name.len() {
                7 => (&mut known.referer, "referer"),
                10 => (&mut known.user_agent, "user-agent"),
                13 => (&mut known.authorization, "authorization"),
                _ => continue,
            };
            if one.is_none() && name.eq_ignore_ascii_case(its_name.as_bytes()) {
                *one = Some(value);
            }
        }
        known
    }
}

impl LogLine<'_> {
    /// How long the request took since it had arrived.
    fn took_us(&self) -> u64 {
        let arrived_us = self.over.ticket.request.arrived_us;
        self.over.now_us.saturating_sub(arrived_us)
    }

    /// When the request had arrived, in microseconds since 1970.
    fn arrived_us(&self) -> u64 {
        let arrived_us = self.over.ticket.request.arrived_us;
        self.epoch_us.wrapping_add(arrived_us)
    }

    /// How long the request was in the line.
    fn wait_us(&self) -> u64 {
        self.over.ticket.wait_us(self.over.now_us)
    }

    /// The client's address: the peer's, or the address that the proxies in front name, as far as they are believed.
    fn client(&self) -> Option<IpAddr> {
        let request = &self.over.ticket.request;
        let said = request.peer.said(&request.head);
        self.believed.client(request.peer.ip, said)
    }

    /// How long a seat had the request, if any had.
    fn service_us(&self) -> Option<u64> {
        self.over.ticket.service_us(self.over.now_us)
    }
}

/// Checks a format; an error says what is wrong with it.
pub(crate) fn check(format: &str) -> Result<(), String> {
    parse(format).map(drop)
}

impl AccessLog {
    /// Opens the access log that the settings ask for, if any; `-` is standard output. If there is a scribe, the scribe
    /// has the file.
    pub(super) fn open(settings: &Settings, has_scribe: bool) -> io::Result<Option<Self>> {
        let mut outlets = Vec::new();
        let file = settings.log.accesslog.as_ref().filter(|_| !has_scribe);
        if let Some(path) = file {
            let file = LogFile::open(path, io::stdout().as_fd()).map_err(|error| {
                let problem = format!("the access log {}", cure::told_of_file(path, &error));
                io::Error::new(error.kind(), problem)
            })?;
            outlets.push(Outlet::File(file));
        }
        if settings.log.syslog && !settings.log.disable_redirect_access_to_syslog {
            outlets.push(Outlet::Syslog(Syslog::open(settings, "access")?));
        }
        if outlets.is_empty() {
            return Ok(None);
        }
        let form = if settings.log.access_log_json {
            LogFormat::Json
        } else {
            LogFormat::Text(parse(&settings.log.access_log_format).map_err(io::Error::other)?)
        };
        Self::start(settings, outlets, form).map(Some)
    }

    /// Opens a log that sends all facts of each request to the scribe at the other end of a channel.
    pub(super) fn for_scribe(settings: &Settings, scribe: Channel) -> io::Result<Self> {
        let json = settings.log.access_log_json;
        let outlets = vec![Outlet::Scribe(scribe)];
        Self::start(settings, outlets, LogFormat::Record { json })
    }

    fn start(settings: &Settings, outlets: Vec<Outlet>, form: LogFormat) -> io::Result<Self> {
        let is_answer_field =
            |piece: &FormatPiece| matches!(piece, FormatPiece::Atom(Atom::AnswerField(_)));
        let start = |outlet| LogQueue::start(Of::AccessLog, Arc::new(outlet));
        let queues = outlets.into_iter().map(start).collect::<io::Result<_>>()?;
        Ok(Self {
            queues,
            wants_answer_head: match &form {
                LogFormat::Text(pieces) => pieces.iter().any(is_answer_field),
                LogFormat::Json => false,
                LogFormat::Record { .. } => true,
            },
            form,
            lanes: settings.lanes().into_iter().map(|lane| lane.name).collect(),
            believed: settings.believed(),
            gathered: Gathered::default(),
        })
    }

    /// Opens the file again, after it was renamed. If that fails the log goes on in the old file, and the error log
    /// says so.
    pub(super) fn reopen(&self) {
        self.queues.iter().for_each(LogQueue::reopen);
    }

    /// Adds a line. `epoch_us` is when the monotonic clock was 0, in microseconds since 1970.
    pub(super) fn add(&mut self, over: &Over, epoch_us: u64) {
        let Gathered {
            lines,
            time,
            pieces,
        } = &mut self.gathered;
        if time.pass(over.now_us, wall_us, self.form.kind())
            && let LogFormat::Text(format) = &self.form
        {
            *pieces = format::at(format, &time.text);
        }
        let line = LogLine {
            over,
            epoch_us,
            time: &time.text,
            ms: time.ms(over.now_us),
            lane: &self.lanes[over.ticket.lane.get().index()],
            believed: &self.believed,
            known: CommonFields::of(&over.ticket.request.head),
        };
        match self.form {
            LogFormat::Text(_) => {
                for piece in &*pieces {
                    match piece {
                        FormatPiece::Text(text) => lines.extend_from_slice(text.as_bytes()),
                        FormatPiece::Atom(atom) => atom.write(lines, &line),
                    }
                }
            }
            LogFormat::Json => json::write(lines, &line),
            LogFormat::Record { json } => record::write(lines, &line, json),
        }
        lines.push(b'\n');
        if lines.len() >= BUFFER_BYTES_MAX {
            self.flush();
        }
    }

    /// Passes what has been added on to the threads that write.
    pub(super) fn flush(&mut self) {
        let lines = &mut self.gathered.lines;
        if lines.is_empty() {
            return;
        }
        for queue in &self.queues {
            match queue.outlet() {
                Outlet::File(_) | Outlet::Scribe(_) | Outlet::Recording(_) => queue.push(lines),
                Outlet::Syslog(syslog) => {
                    let mut messages = String::with_capacity(2 * lines.len());
                    for line in String::from_utf8_lossy(lines).lines() {
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
        self.queues.iter().for_each(LogQueue::finish);
    }
}

impl LogFormat {
    fn kind(&self) -> LogFormatKind {
        match self {
            Self::Text(_) | Self::Record { json: false } => LogFormatKind::Text,
            Self::Json | Self::Record { json: true } => LogFormatKind::Json,
        }
    }
}
