//! The access log: gunicorn's atoms, written here once an answer is out, never from Python.

mod user;

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use http::{HeaderMap, StatusCode, Version};
use stanchion_sys::clock::{LocalTime, monotonic_us};
use tracing::Level;

use super::request::target;
use super::ticket::Ticket;
use crate::log::{LogFile, Of, Outlet, Queue, Syslog, escape_into};
use crate::record::percent_decoded;
use crate::settings::Settings;
use user::user;

/// Lines gathered within one turn of the event loop before they go to the writing thread all the
/// same.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// An open access log.
pub(super) struct AccessLog {
    queues: Vec<Queue>,
    format: Vec<Piece>,
    pub(super) wants_answer_fields: bool,
    /// Those of this turn of the event loop.
    lines: RefCell<String>,
    /// The time as the log shows it, made once a second.
    time: RefCell<(i64, String)>,
}

/// What the log is told of an answer.
pub(super) struct Entry {
    pub(super) ticket: Rc<Ticket>,
    pub(super) status: StatusCode,
    /// Empty unless the format asks for them.
    pub(super) fields: HeaderMap,
    /// Bytes of the body that were given to the connection.
    pub(super) bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Atom(Atom),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Atom {
    Address,
    Dash,
    User,
    Time,
    RequestLine,
    Method,
    Path,
    Query,
    Protocol,
    Status,
    Bytes,
    Referer,
    Agent,
    Seconds,
    Milliseconds,
    Microseconds,
    DecimalSeconds,
    Worker,
    RequestField(String),
    AnswerField(String),
    Environ(String),
}

/// Reads a format. Python's `%(name)s` is all there is of Python's formatting; as in gunicorn, an
/// atom that does not exist shows as `-`.
fn parse(format: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            text.push('%');
            rest = after;
            continue;
        }
        let (name, after) = rest
            .strip_prefix('(')
            .and_then(|inner| inner.split_once(")s"))
            .ok_or_else(|| format!("access log format: '%{rest}' does not begin with %(name)s"))?;
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        pieces.push(Piece::Atom(atom(name)));
        rest = after;
    }
    text.push_str(rest);
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

fn atom(name: &str) -> Atom {
    if let Some((inner, kind)) = name.strip_prefix('{').and_then(|name| name.split_once('}')) {
        match kind {
            "i" => return Atom::RequestField(inner.to_ascii_lowercase()),
            "o" => return Atom::AnswerField(inner.to_ascii_lowercase()),
            "e" => return Atom::Environ(inner.to_ascii_lowercase()),
            _ => return Atom::Dash,
        }
    }
    match name {
        "h" => Atom::Address,
        "u" => Atom::User,
        "t" => Atom::Time,
        "r" => Atom::RequestLine,
        "m" => Atom::Method,
        "U" => Atom::Path,
        "q" => Atom::Query,
        "H" => Atom::Protocol,
        "s" => Atom::Status,
        "B" | "b" => Atom::Bytes,
        "f" => Atom::Referer,
        "a" => Atom::Agent,
        "T" => Atom::Seconds,
        "M" => Atom::Milliseconds,
        "D" => Atom::Microseconds,
        "L" => Atom::DecimalSeconds,
        "p" => Atom::Worker,
        _ => Atom::Dash,
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
        let format = parse(&settings.access_log_format).map_err(io::Error::other)?;
        let wants_answer_fields = format
            .iter()
            .any(|piece| matches!(piece, Piece::Atom(Atom::AnswerField(_))));
        let time = RefCell::new((i64::MIN, String::new()));
        Ok(Some(Self {
            queues,
            format,
            wants_answer_fields,
            lines: RefCell::default(),
            time,
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
        for piece in &self.format {
            match piece {
                Piece::Text(text) => lines.push_str(text),
                Piece::Atom(atom) => self.write(&mut lines, atom, entry),
            }
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

    fn write(&self, line: &mut String, atom: &Atom, entry: &Entry) {
        let request = &entry.ticket.request;
        let head = &request.head;
        let took_us = monotonic_us().saturating_sub(request.arrived_us);
        // Writing to a String cannot fail, hence the ignored results.
        let _ = match atom {
            Atom::Address if !request.peer.address.is_empty() => {
                line.push_str(&request.peer.address);
                Ok(())
            }
            Atom::Address | Atom::Dash => line.write_char('-'),
            Atom::User => {
                escaped(line, user(&head.headers).as_deref().map(str::as_bytes));
                Ok(())
            }
            Atom::Time => {
                self.write_time(line);
                Ok(())
            }
            Atom::RequestLine => {
                let _ = write!(line, "{} ", head.method);
                escaped(line, Some(target(&head.uri).as_bytes()));
                write!(line, " {}", protocol(head.version))
            }
            Atom::Method => write!(line, "{}", head.method),
            Atom::Path => {
                escaped(line, Some(&percent_decoded(head.uri.path().as_bytes())));
                Ok(())
            }
            Atom::Query => {
                escaped(line, Some(head.uri.query().unwrap_or_default().as_bytes()));
                Ok(())
            }
            Atom::Protocol => line.write_str(protocol(head.version)),
            Atom::Status => line.write_str(entry.status.as_str()),
            Atom::Bytes => write!(line, "{}", entry.bytes),
            Atom::Referer => {
                escaped(line, field(&head.headers, "referer"));
                Ok(())
            }
            Atom::Agent => {
                escaped(line, field(&head.headers, "user-agent"));
                Ok(())
            }
            Atom::Seconds => write!(line, "{}", took_us / 1_000_000),
            Atom::Milliseconds => write!(line, "{}", took_us / 1_000),
            Atom::Microseconds => write!(line, "{took_us}"),
            Atom::DecimalSeconds => {
                write!(line, "{}.{:06}", took_us / 1_000_000, took_us % 1_000_000)
            }
            Atom::Worker => write!(line, "<{}>", entry.ticket.worker_pid.get()),
            Atom::RequestField(name) => {
                escaped(line, field(&head.headers, name));
                Ok(())
            }
            Atom::AnswerField(name) => {
                escaped(line, field(&entry.fields, name));
                Ok(())
            }
            Atom::Environ(name) => environ(line, name, &entry.ticket),
        };
    }

    fn write_time(&self, line: &mut String) {
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        let now = LocalTime::now();
        let mut time = self.time.borrow_mut();
        if time.0 != now.epoch_s {
            let month = MONTHS[usize::from(now.month.clamp(1, 12)) - 1];
            let LocalTime {
                day,
                year,
                hour,
                minute,
                second,
                ..
            } = now;
            let offset = now.offset();
            let text =
                format!("[{day:02}/{month}/{year}:{hour:02}:{minute:02}:{second:02} {offset}]");
            *time = (now.epoch_s, text);
        }
        line.push_str(&time.1);
    }
}

fn protocol(version: Version) -> &'static str {
    if version == Version::HTTP_10 {
        "HTTP/1.0"
    } else {
        "HTTP/1.1"
    }
}

fn field<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h [u8]> {
    headers.get(name).map(http::HeaderValue::as_bytes)
}

/// What the acceptor knows of the environ.
fn environ(line: &mut String, name: &str, ticket: &Ticket) -> std::fmt::Result {
    let request = &ticket.request;
    let head = &request.head;
    if let Some(header) = name.strip_prefix("http_") {
        escaped(line, field(&head.headers, &header.replace('_', "-")));
        return Ok(());
    }
    match name {
        "stanchion.queue_wait" => match ticket.taken_us.get() {
            0 => line.write_char('-'),
            taken_us => {
                let wait_us = taken_us.saturating_sub(request.arrived_us);
                write!(line, "{}.{:06}", wait_us / 1_000_000, wait_us % 1_000_000)
            }
        },
        "request_method" => write!(line, "{}", head.method),
        "raw_uri" => {
            escaped(line, Some(target(&head.uri).as_bytes()));
            Ok(())
        }
        "path_info" => {
            escaped(line, Some(&percent_decoded(head.uri.path().as_bytes())));
            Ok(())
        }
        "query_string" => {
            escaped(line, Some(head.uri.query().unwrap_or_default().as_bytes()));
            Ok(())
        }
        "content_type" => {
            escaped(line, field(&head.headers, "content-type"));
            Ok(())
        }
        "content_length" => {
            escaped(line, field(&head.headers, "content-length"));
            Ok(())
        }
        "server_protocol" => line.write_str(protocol(head.version)),
        "remote_addr" => line.write_str(&request.peer.address),
        "remote_port" => write!(line, "{}", request.peer.port),
        "server_name" => line.write_str(&request.peer.server_name),
        "server_port" => line.write_str(&request.peer.server_port),
        _ => line.write_char('-'),
    }
}

/// One request is one line, and nobody writes another's.
fn escaped(line: &mut String, text: Option<&[u8]>) {
    match text {
        Some(text) => escape_into(line, text),
        None => line.push('-'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read_as_gunicorn_reads_them() {
        let pieces = parse("%(h)s 100%% \"%({X-Id}i)s\" %(nonsense)s").expect("a good format");
        let expected = [
            Piece::Atom(Atom::Address),
            Piece::Text(" 100% \"".to_owned()),
            Piece::Atom(Atom::RequestField("x-id".to_owned())),
            Piece::Text("\" ".to_owned()),
            Piece::Atom(Atom::Dash),
        ];
        assert_eq!(pieces, expected);
        assert!(parse("%h").is_err());
        assert!(parse("%(h)d").is_err());
    }

    #[test]
    fn what_a_client_sends_cannot_end_the_line() {
        let mut line = String::new();
        escaped(&mut line, Some(b"a\"b\\c\r\nd\xe9"));
        assert_eq!(line, "a\\\"b\\\\c\\x0d\\x0ad\\xe9");
    }
}
