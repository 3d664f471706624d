//! Heads of answers, as they are sent.

use std::time::{Duration, UNIX_EPOCH};

use stanchion_http::{AnswerFacts, put_field, put_status};
use stanchion_sys::charge;
use stanchion_sys::clock::wall_s;

use stanchion_dispatch::reply::Reply;
use stanchion_dispatch::ticket::Ticket;
use stanchion_settings::{LoadReporting, Settings};

use crate::load_report::{LoadReport, SeatsNow};

/// The acceptor keeps a buffer for the next answers up to this size, and gives a larger one back.
const SPARE_BYTES_MAX: usize = 32 << 10;
/// Where in a status line the minor version stands.
const MINOR_VERSION_AT: usize = b"HTTP/1.".len();

/// How the client finds the end of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// The head says so already, or there is no body, or it ends with the connection.
    Told,
    /// So many bytes, which the head does not say yet.
    Length(u64),
    /// The body goes in chunks.
    Chunked,
}

/// The fields that the server adds to the head of an answer.
pub(crate) struct Extras {
    /// Facts about the head, if the app has written it.
    pub facts: Option<AnswerFacts>,
    /// How the client finds the end of the body.
    pub ending: BodyEnd,
    /// The connection goes on.
    pub keeps: bool,
    /// The client speaks HTTP/1.0.
    pub is_old: bool,
    /// What the peer may know besides.
    pub told: Told,
}

/// What the peer of a request may know besides the answer; nothing by default.
#[derive(Default)]
pub struct Told {
    /// The value of a `Server-Timing` field.
    timing: Option<String>,
    /// How busy the server is.
    load: bool,
}

/// The time as answers say it (RFC 9110 section 5.6.7), made once a second.
#[derive(Default)]
struct Date {
    epoch_s: u64,
    line: Vec<u8>,
}

impl Date {
    fn line(&mut self) -> &[u8] {
        let epoch_s = wall_s();
        if epoch_s != self.epoch_s || self.line.is_empty() {
            self.epoch_s = epoch_s;
            // All clients share the line, so no single one pays for it.
            let _charged = charge::to_nobody();
            let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(epoch_s));
            self.line.clear();
            put_field(&mut self.line, b"Date", date.as_bytes());
        }
        &self.line
    }
}

/// Puts the heads of answers together.
pub struct AnswerHeads {
    date: Date,
    /// Clients may know where the time went (`server_timing`).
    tells_timing: bool,
    /// How busy the server is, if balancers may know (`load_report`).
    load: Option<LoadReport>,
    out: Vec<u8>,
}

impl AnswerHeads {
    pub(crate) fn new(settings: &Settings, now_us: u64) -> Self {
        let reports = settings.answers.load_report == LoadReporting::Orca;
        Self {
            date: Date::default(),
            tells_timing: settings.answers.server_timing,
            load: reports.then(|| LoadReport::new(now_us)),
            out: Vec::new(),
        }
    }

    /// The buffer in which answers are put together.
    pub fn take_out(&mut self) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        charge::take_over(&mut out);
        out
    }

    /// Keeps a buffer from [`Self::take_out`] for the next answer, unless it is large.
    pub fn give_out(&mut self, mut out: Vec<u8>) {
        if out.capacity() <= SPARE_BYTES_MAX {
            charge::give_back(&mut out);
            self.out = out;
        }
    }

    /// Puts a head together: the fields of the answer, and those that the server adds.
    pub(crate) fn compose(&mut self, out: &mut Vec<u8>, head: &[u8], extras: &Extras) {
        let start = out.len();
        out.extend_from_slice(head);
        if extras.is_old
            && let Some(version) = out.get_mut(start + MINOR_VERSION_AT)
        {
            *version = b'0';
        }
        if !extras.facts.is_some_and(|facts| facts.has_date) {
            out.extend_from_slice(self.date.line());
        }
        if !extras.facts.is_some_and(|facts| facts.has_server) {
            out.extend_from_slice(b"Server: stanchion\r\n");
        }
        match extras.ending {
            BodyEnd::Told => {}
            BodyEnd::Length(len) => {
                let mut digits = itoa::Buffer::new();
                put_field(out, b"Content-Length", digits.format(len).as_bytes());
            }
            BodyEnd::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        }
        if let Some(timing) = &extras.told.timing {
            put_field(out, b"Server-Timing", timing.as_bytes());
        }
        if let Some(load) = self.load.as_ref().filter(|_| extras.told.load) {
            out.extend_from_slice(load.line());
        }
        if !extras.keeps {
            out.extend_from_slice(b"Connection: close\r\n");
        } else if extras.is_old {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The head of a reply of the server.
    pub fn compose_reply(
        &mut self,
        out: &mut Vec<u8>,
        reply: &Reply,
        is_old: bool,
        keeps: bool,
        told: Told,
    ) {
        let mut head = Vec::with_capacity(256);
        put_status(&mut head, reply.status, b"");
        put_field(&mut head, b"Content-Type", reply.content_type.as_bytes());
        for (name, value) in &reply.fields {
            put_field(&mut head, name.as_bytes(), value.as_bytes());
        }
        let ending = BodyEnd::Length(reply.body.len() as u64);
        self.compose(
            out,
            &head,
            &Extras {
                facts: None,
                ending,
                keeps,
                is_old,
                told,
            },
        );
    }

    /// What the peer of a request may know besides the answer, which has this status. To be asked once for each answer, as it
    /// counts them. How busy the server is, is for proxies that the server believes.
    pub fn told_of(&mut self, ticket: &Ticket, status: u16, now_us: u64) -> Told {
        if let Some(load) = &mut self.load {
            load.answers(status, ticket.taken_us() != 0);
        }
        Told {
            timing: self.timing_of(ticket, now_us),
            load: ticket.request.peer.trusted,
        }
    }

    /// Counts the load of a turn, if it is reported.
    pub(crate) fn count_load(
        &mut self,
        now_us: u64,
        in_flight: impl FnOnce() -> usize,
        seats: impl FnOnce() -> SeatsNow,
    ) {
        if let Some(load) = &mut self.load {
            load.turn(now_us, in_flight() as u64, seats);
        }
    }

    /// The value of `Server-Timing`, which says where the time went, in milliseconds (W3C Server Timing section 2), if
    /// clients may know (`server_timing`).
    fn timing_of(&self, ticket: &Ticket, now_us: u64) -> Option<String> {
        if !self.tells_timing {
            return None;
        }
        let spans = [
            ("wait", Some(ticket.wait_us(now_us))),
            ("run", ticket.service_us(now_us)),
            ("proxy", ticket.request.proxy_us),
        ];
        let known = spans
            .iter()
            .filter_map(|(name, us)| us.map(|us| (name, us)));
        let text = known
            .map(|(name, us)| format!("{name};dur={}.{:03}", us / 1_000, us % 1_000))
            .collect::<Vec<_>>()
            .join(", ");
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use stanchion_http::check;

    use super::*;
    use crate::rig::undated;

    fn heads() -> AnswerHeads {
        AnswerHeads::new(&Settings::from_json("{}").expect("settings"), 0)
    }

    fn composed(head: &str, ending: BodyEnd, keeps: bool, is_old: bool) -> String {
        let facts = check(head.as_bytes(), false).expect("an answer's head");
        let mut out = Vec::new();
        heads().compose(
            &mut out,
            head.as_bytes(),
            &Extras {
                facts: Some(facts),
                ending,
                keeps,
                is_old,
                told: Told::default(),
            },
        );
        assert_eq!(out.windows(4).filter(|four| four == b"\r\n\r\n").count(), 1);
        undated(&out)
    }

    #[test]
    fn an_answer_says_how_it_ends_and_whether_the_connection_goes_on() {
        const OURS: &str = "Server: stanchion\r\n";
        // (how it ends, whether the connection goes on, to HTTP/1.0, what stands behind the app's fields)
        for (ending, keeps, is_old, ours) in [
            (BodyEnd::Told, true, false, "\r\n"),
            (BodyEnd::Told, false, false, "Connection: close\r\n\r\n"),
            (BodyEnd::Told, false, true, "Connection: close\r\n\r\n"),
            (BodyEnd::Told, true, true, "Connection: keep-alive\r\n\r\n"),
            (BodyEnd::Length(0), true, false, "Content-Length: 0\r\n\r\n"),
            (
                BodyEnd::Length(7),
                true,
                true,
                "Content-Length: 7\r\nConnection: keep-alive\r\n\r\n",
            ),
            (
                BodyEnd::Chunked,
                true,
                false,
                "Transfer-Encoding: chunked\r\n\r\n",
            ),
            (
                BodyEnd::Chunked,
                false,
                false,
                "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
            ),
        ] {
            let version = if is_old { "HTTP/1.0" } else { "HTTP/1.1" };
            let said = composed("HTTP/1.1 200 OK\r\nA: b\r\n", ending, keeps, is_old);
            let expected = format!("{version} 200 OK\r\nA: b\r\n{OURS}{ours}");
            assert_eq!(said, expected, "{ending:?} {keeps} {is_old}");
        }
    }

    #[test]
    fn what_the_app_says_of_itself_is_said_once() {
        let said = composed(
            "HTTP/1.1 404 None\r\nserver: mine\r\ndate: then\r\n",
            BodyEnd::Told,
            true,
            false,
        );
        let expected = "HTTP/1.1 404 None\r\nserver: mine\r\ndate: then\r\n\r\n";
        assert_eq!(said, expected);
        let mut out = Vec::new();
        let reply = Reply::text(503, "no\n").with("Retry-After", "7");
        heads().compose_reply(&mut out, &reply, false, false, Told::default());
        let expected = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n\
            Retry-After: 7\r\nServer: stanchion\r\nContent-Length: 3\r\nConnection: close\r\n\r\n";
        assert_eq!(undated(&out), expected);
        // A reply of the server always has the time, as RFC 9110 section 5.6.7 has it.
        let date = String::from_utf8_lossy(&out);
        let date = date.lines().find_map(|line| line.strip_prefix("Date: "));
        assert!(date.is_some_and(|date| httpdate::parse_http_date(date).is_ok()));
    }
}
