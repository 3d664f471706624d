//! Refusals: the answers that the server itself gives to requests that the app does not answer, and whose fault each
//! is.

use stanchion_http::{Fault, canonical_reason};

use super::reply::Reply;
use stanchion_generation::tally::Outcome;

/// After how long clients of an app that does not start are to try again. A service manager's next attempt is about a
/// second away, but it serves only once the app is mended, and clients that come meanwhile wait in the socket.
const APP_RETRY_S: u64 = 5;

/// The field of a refusal by which a balancer knows that it may send the request to another host, whatever its method.
const NOT_RUN: &str = "Stanchion-Not-Run";

/// Why the app did not answer a request. The acceptor logs the reason, and sends it to the client in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The client's: something in the head is not HTTP.
    BadRequest(&'static str),
    /// The client's: it may not say this here.
    Forbidden(&'static str),
    /// The client's: something of HTTP that we do not have.
    Unimplemented(&'static str),
    /// The client's: a version of WebSocket other than 13.
    UnknownWebSocket,
    /// The client's: a version of HTTP that we do not have.
    UnknownVersion,
    /// The client's: the head is larger than a slot of the exchange.
    HeadTooLarge,
    /// The client's: the head took longer than `header_timeout`.
    HeadTimeout,
    /// The client's: an Expect field we cannot fulfil.
    UnknownExpectation,
    /// The client's: the request line is over `limit_request_line`.
    LineTooLong,
    /// The client's: a field is over `limit_request_field_size`.
    FieldTooLarge,
    /// The client's: the body is over `limit_request_body`.
    BodyTooLarge,
    /// The client's: the connection ended, or its sending side did, before the body was whole. Only a client that still
    /// reads gets this.
    BodyCutShort,
    /// The client's: the body stopped coming for longer than `body_timeout`.
    BodyTimeout,
    /// The client's: the body came more slowly than `min_body_rate`.
    BodyTooSlow,
    /// The client's: it has `max_connections_per_client` connections.
    TooManyConnections,
    /// The operator's, or just too many clients: `max_waiting` are in the line.
    LineFull {
        /// When to try again, in seconds.
        retry_after_s: u64,
    },
    /// The operator's, or just too many clients: it waited longer than `queue_timeout`.
    WaitedTooLong {
        /// When to try again, in seconds.
        retry_after_s: u64,
    },
    /// The operator's, or just too many clients: the line was over its target, and the oldest made way (`queue_order`).
    Shed {
        /// When to try again, in seconds.
        retry_after_s: u64,
    },
    /// The operator's, or just too many clients: there are as many sessions as `worker_sessions` allows.
    SessionsFull,
    /// The client's, or just one with much to ask: `max_waiting_per_client` of its requests wait.
    TooManyOfClient {
        /// When to try again, in seconds.
        retry_after_s: u64,
    },
    /// The operator's: it waited longer than `queue_timeout` at a port that is one worker's
    /// (`worker_port_base`), and the worker was not there all that time.
    WorkerAbsent {
        /// When to try again, in seconds.
        retry_after_s: u64,
    },
    /// The operator's: the server is going away.
    ShuttingDown,
    /// The app's: it cannot be started, and the server leaves without having served.
    AppNotStarted,
    /// The app's, or the kernel's: the worker died over this request.
    WorkerDied,
    /// The app's: the request ran longer than `timeout`.
    WorkerTimedOut {
        /// How long it has run, in milliseconds.
        ran_ms: u64,
    },
    /// The app's, or ours: the worker gave no answer, or one that makes no sense.
    NoAnswer,
    /// The operator's: the body could not be spooled.
    SpoolFailed,
    /// The operator's, or just too many clients: `max_spool` is reached.
    SpoolFull,
    /// The client's, or just one with much to send: it has as much of `max_spool` as is left for others.
    SpoolShareFull,
}

impl Refusal {
    /// Refuses a body for its framing: it announces more than any limit, or is not as announced.
    pub fn of_body(fault: Fault) -> Self {
        match fault {
            Fault::ChunkTooLarge => Self::BodyTooLarge,
            _ => Self::BadRequest(fault.reason()),
        }
    }

    /// RFC 9110 section 15; 429 and 431 are RFC 6585 sections 4 and 5.
    pub fn status(self) -> u16 {
        match self {
            Self::BadRequest(_) | Self::BodyCutShort => 400,
            Self::Forbidden(_) => 403,
            Self::HeadTimeout | Self::BodyTimeout | Self::BodyTooSlow => 408,
            Self::BodyTooLarge => 413,
            Self::LineTooLong => 414,
            Self::UnknownExpectation => 417,
            Self::TooManyConnections | Self::TooManyOfClient { .. } | Self::SpoolShareFull => 429,
            Self::UnknownWebSocket => 426,
            Self::FieldTooLarge | Self::HeadTooLarge => 431,
            Self::Unimplemented(_) => 501,
            Self::WorkerDied | Self::NoAnswer => 502,
            Self::LineFull { .. }
            | Self::WaitedTooLong { .. }
            | Self::Shed { .. }
            | Self::WorkerAbsent { .. }
            | Self::SessionsFull
            | Self::ShuttingDown
            | Self::AppNotStarted
            | Self::SpoolFailed
            | Self::SpoolFull => 503,
            Self::WorkerTimedOut { .. } => 504,
            Self::UnknownVersion => 505,
        }
    }

    /// The reason, for the log and for the client.
    pub fn reason(self) -> &'static str {
        match self {
            Self::BadRequest(reason) | Self::Forbidden(reason) | Self::Unimplemented(reason) => {
                reason
            }
            Self::UnknownWebSocket => "a version of WebSocket other than 13",
            Self::UnknownVersion => "a version of HTTP other than 1.0 and 1.1",
            Self::HeadTooLarge => "the head is too large",
            Self::HeadTimeout => "the head did not arrive in time",
            Self::UnknownExpectation => "an expectation other than 100-continue",
            Self::LineTooLong => "the request line is too long",
            Self::FieldTooLarge => "a header field is too large",
            Self::BodyTooLarge => "the body is too large",
            Self::BodyCutShort => "the body is shorter than announced",
            Self::BodyTimeout => "the body did not arrive in time",
            Self::BodyTooSlow => "the body came too slowly",
            Self::TooManyConnections => "too many connections from this client",
            Self::LineFull { .. } => "the line is full",
            Self::SessionsFull => {
                "as many WebSockets are open as worker_sessions allows, or as one client may have"
            }
            Self::WaitedTooLong { .. } => "the request waited too long in the line",
            Self::Shed { .. } => {
                "the line is over its target, and the request was the oldest in it"
            }
            Self::TooManyOfClient { .. } => "too many requests of this client wait",
            Self::WorkerAbsent { .. } => "the worker of this port is not there",
            Self::ShuttingDown => "the server is shutting down",
            Self::AppNotStarted => "the application does not start",
            Self::WorkerDied => "the worker died while it answered",
            Self::WorkerTimedOut { .. } => "the request took too long",
            Self::NoAnswer => "the worker gave no answer",
            Self::SpoolFailed => "the body could not be stored",
            Self::SpoolFull => "there is no room for the body in the spool",
            Self::SpoolShareFull => "too much of this client is in the spool",
        }
    }

    /// The outcome that the acceptor counts.
    pub fn outcome(self) -> Outcome {
        match self {
            Self::BadRequest(_) | Self::Forbidden(_) | Self::UnknownWebSocket => {
                Outcome::BadRequest
            }
            Self::Unimplemented(_) | Self::UnknownVersion => Outcome::Unimplemented,
            Self::HeadTooLarge => Outcome::HeadTooLarge,
            Self::HeadTimeout => Outcome::HeadTimeout,
            Self::UnknownExpectation => Outcome::UnknownExpectation,
            Self::LineTooLong => Outcome::LineTooLong,
            Self::FieldTooLarge => Outcome::FieldTooLarge,
            Self::BodyTooLarge => Outcome::BodyTooLarge,
            Self::BodyCutShort => Outcome::AbandonedReading,
            Self::BodyTimeout => Outcome::BodyTimeout,
            Self::BodyTooSlow => Outcome::BodyTooSlow,
            Self::TooManyConnections => Outcome::TooManyConnections,
            Self::LineFull { .. } => Outcome::LineFull,
            Self::SessionsFull => Outcome::SessionsFull,
            Self::WaitedTooLong { .. } => Outcome::WaitedTooLong,
            Self::Shed { .. } => Outcome::Shed,
            Self::TooManyOfClient { .. } => Outcome::TooManyOfClient,
            Self::WorkerAbsent { .. } => Outcome::WorkerAbsent,
            Self::ShuttingDown => Outcome::ShuttingDown,
            Self::AppNotStarted => Outcome::AppNotStarted,
            Self::WorkerDied => Outcome::WorkerDied,
            Self::WorkerTimedOut { .. } => Outcome::WorkerTimedOut,
            Self::NoAnswer => Outcome::NoAnswer,
            Self::SpoolFailed => Outcome::SpoolFailed,
            Self::SpoolFull => Outcome::SpoolFull,
            Self::SpoolShareFull => Outcome::SpoolShareFull,
        }
    }

    /// Whether the client made the mistake; such refusals are common on the open internet and
    /// are logged quietly.
    pub fn is_clients(self) -> bool {
        matches!(self.status(), 400..=499 | 501 | 505)
    }

    /// Whether the connection cannot go on, because what follows on it is not known to be a request, or because the
    /// server leaves.
    pub(crate) fn closes(self) -> bool {
        match self {
            // The acceptor has read all of the request.
            Self::TooManyOfClient { .. } => false,
            Self::ShuttingDown | Self::AppNotStarted | Self::SpoolFailed | Self::SpoolFull => true,
            _ => self.is_clients(),
        }
    }

    /// When it is worth while to try again, in seconds, where that is known.
    fn retry_after_s(self) -> Option<u64> {
        match self {
            Self::LineFull { retry_after_s }
            | Self::WaitedTooLong { retry_after_s }
            | Self::Shed { retry_after_s }
            | Self::TooManyOfClient { retry_after_s }
            | Self::WorkerAbsent { retry_after_s } => Some(retry_after_s),
            // The client may come again as soon as another connection, session or upload of its own has ended, which it
            // knows better than the server.
            Self::TooManyConnections | Self::SpoolShareFull | Self::SessionsFull => Some(1),
            Self::AppNotStarted => Some(APP_RETRY_S),
            _ => None,
        }
    }

    /// Whether it may be this host alone that refuses the request. The limits of one client are the same on all hosts.
    fn is_of_this_host(self) -> bool {
        matches!(
            self,
            Self::LineFull { .. }
                | Self::WaitedTooLong { .. }
                | Self::Shed { .. }
                | Self::WorkerAbsent { .. }
                | Self::SessionsFull
                | Self::ShuttingDown
                | Self::AppNotStarted
        )
    }

    /// The answer, `text/plain`; whether a worker has begun with the request.
    pub fn reply(self, has_run: bool) -> Reply {
        let (status, reason) = (self.status(), self.reason());
        let body = format!("{status} {}: {reason}\n", canonical_reason(status));
        let mut reply = Reply::text(status, body);
        if let Some(retry_after_s) = self.retry_after_s() {
            reply = reply.with("Retry-After", retry_after_s.to_string());
        }
        if !has_run && self.is_of_this_host() {
            reply = reply.with(NOT_RUN, "1".to_owned());
        }
        if self == Self::UnknownWebSocket {
            // RFC 6455 section 4.4, and RFC 9110 section 15.5.22.
            reply = reply.with("Sec-WebSocket-Version", "13");
            reply = reply.with("Upgrade", "websocket");
        }
        reply.closes = self.closes();
        reply
    }
}

impl From<Fault> for Refusal {
    /// The refusal of a head with this fault.
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::BadRequest(reason) => Self::BadRequest(reason),
            Fault::Unimplemented(what) => Self::Unimplemented(what),
            Fault::Version => Self::UnknownVersion,
            Fault::LineTooLong => Self::LineTooLong,
            Fault::FieldTooLarge => Self::FieldTooLarge,
            Fault::HeadTooLarge => Self::HeadTooLarge,
            Fault::UnknownExpectation => Self::UnknownExpectation,
            Fault::ChunkTooLarge => Self::BodyTooLarge,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_head_keeps_its_status() {
        for (fault, status) in [
            (Fault::BadRequest("a space"), 400),
            (Fault::Unimplemented("CONNECT"), 501),
            (Fault::Version, 505),
            (Fault::LineTooLong, 414),
            (Fault::FieldTooLarge, 431),
            (Fault::HeadTooLarge, 431),
            (Fault::UnknownExpectation, 417),
        ] {
            let refusal = Refusal::from(fault);
            assert_eq!((refusal.status(), fault.status()), (status, status));
            assert!(refusal.is_clients() && refusal.closes(), "{fault:?}");
            assert_eq!(Refusal::of_body(fault).status(), 400, "{fault:?}");
        }
        let too_large = Fault::ChunkTooLarge;
        let refusals = [Refusal::from(too_large), Refusal::of_body(too_large)];
        let statuses = refusals.map(Refusal::status);
        assert_eq!((statuses, too_large.status()), ([413, 413], 413));
    }

    #[test]
    fn a_balancer_hears_that_another_host_may_run_what_this_one_has_not_begun() {
        let retry_after_s = 7;
        for (refusal, is_of_this_host) in [
            (Refusal::LineFull { retry_after_s }, true),
            (Refusal::WaitedTooLong { retry_after_s }, true),
            (Refusal::Shed { retry_after_s }, true),
            (Refusal::WorkerAbsent { retry_after_s }, true),
            (Refusal::SessionsFull, true),
            (Refusal::ShuttingDown, true),
            (Refusal::AppNotStarted, true),
            (Refusal::TooManyOfClient { retry_after_s }, false),
            (Refusal::TooManyConnections, false),
            (Refusal::WorkerDied, false),
            (Refusal::WorkerTimedOut { ran_ms: 9 }, false),
            (Refusal::NoAnswer, false),
            // The app may have begun with a body that still comes.
            (Refusal::SpoolFull, false),
            (Refusal::BadRequest("no Host"), false),
        ] {
            for has_run in [false, true] {
                let fields = refusal.reply(has_run).fields;
                let says_so = fields.contains(&(NOT_RUN.into(), "1".to_owned()));
                assert_eq!(
                    says_so,
                    is_of_this_host && !has_run,
                    "{refusal:?} {has_run}"
                );
            }
        }
    }

    #[test]
    fn a_client_is_told_what_was_wrong_and_when_to_come_again() {
        let full = Refusal::LineFull { retry_after_s: 7 }.reply(true);
        assert_eq!(full.status, 503);
        assert_eq!(full.body, "503 Service Unavailable: the line is full\n");
        assert_eq!(full.fields, [("Retry-After".into(), "7".to_owned())]);
        assert!(!full.closes, "what follows on the connection is a request");
        let bad = Refusal::BadRequest("no Host").reply(false);
        assert_eq!(bad.body, "400 Bad Request: no Host\n");
        assert!(bad.fields.is_empty() && bad.closes);
        assert!(Refusal::ShuttingDown.reply(false).closes);
        let broken = Refusal::AppNotStarted.reply(true);
        assert_eq!(
            broken.body,
            "503 Service Unavailable: the application does not start\n"
        );
        assert_eq!(broken.fields, [("Retry-After".into(), "5".to_owned())]);
        assert!(broken.closes);
    }
}
