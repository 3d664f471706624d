//! The answers the server itself gives, and whose fault each is.

use std::io;

use bytes::Bytes;
use http::StatusCode;

use crate::tally::Outcome;

/// Why a request was not answered by the app. Each is logged, and tells the client in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The client's: something in the head is not HTTP.
    BadRequest(&'static str),
    /// The client's: something of HTTP that we do not have.
    Unimplemented(&'static str),
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
    /// The client's: the connection ended, or its sending side did, before the body was whole. Only
    /// who still reads hears this.
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
    /// Likewise: it waited longer than `queue_timeout`.
    WaitedTooLong {
        /// When to try again, in seconds.
        retry_after_s: u64,
    },
    /// Likewise: the line stood, and the oldest made way (`queue_order`).
    Shed {
        /// When to try again, in seconds.
        retry_after_s: u64,
    },
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
    /// Why a body could not be read whole. hyper passes on what reading gave, and finds out itself
    /// where the bytes are no chunks.
    pub(super) fn of_body(error: &hyper::Error) -> Self {
        let cause = std::error::Error::source(error);
        let kind = cause
            .and_then(|cause| cause.downcast_ref::<io::Error>())
            .map(io::Error::kind);
        match kind {
            None | Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
                Self::BadRequest("the body is not as announced")
            }
            Some(_) => Self::BodyCutShort,
        }
    }

    /// RFC 9110 section 15; 429 and 431 are RFC 6585 sections 4 and 5.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::BadRequest(_) | Self::BodyCutShort => StatusCode::BAD_REQUEST,
            Self::Unimplemented(_) => StatusCode::NOT_IMPLEMENTED,
            Self::UnknownExpectation => StatusCode::EXPECTATION_FAILED,
            Self::LineTooLong => StatusCode::URI_TOO_LONG,
            Self::FieldTooLarge | Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::HeadTimeout | Self::BodyTimeout | Self::BodyTooSlow => {
                StatusCode::REQUEST_TIMEOUT
            }
            Self::TooManyConnections | Self::TooManyOfClient { .. } | Self::SpoolShareFull => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::LineFull { .. }
            | Self::WaitedTooLong { .. }
            | Self::Shed { .. }
            | Self::WorkerAbsent { .. }
            | Self::ShuttingDown
            | Self::SpoolFailed
            | Self::SpoolFull => StatusCode::SERVICE_UNAVAILABLE,
            Self::WorkerDied | Self::NoAnswer => StatusCode::BAD_GATEWAY,
            Self::WorkerTimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// For the log and for the client.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::BadRequest(reason) | Self::Unimplemented(reason) => reason,
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
            Self::WaitedTooLong { .. } => "the request waited too long in the line",
            Self::Shed { .. } => "the line stands still, and the request was the oldest in it",
            Self::TooManyOfClient { .. } => "too many requests of this client wait",
            Self::WorkerAbsent { .. } => "the worker of this port is not there",
            Self::ShuttingDown => "the server is shutting down",
            Self::WorkerDied => "the worker died while it answered",
            Self::WorkerTimedOut { .. } => "the request took too long",
            Self::NoAnswer => "the worker gave no answer",
            Self::SpoolFailed => "the body could not be stored",
            Self::SpoolFull => "there is no room for the body in the spool",
            Self::SpoolShareFull => "too much of this client is in the spool",
        }
    }

    /// What it is counted as.
    pub(super) fn outcome(self) -> Outcome {
        match self {
            Self::BadRequest(_) => Outcome::BadRequest,
            Self::Unimplemented(_) => Outcome::Unimplemented,
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
            Self::WaitedTooLong { .. } => Outcome::WaitedTooLong,
            Self::Shed { .. } => Outcome::Shed,
            Self::TooManyOfClient { .. } => Outcome::TooManyOfClient,
            Self::WorkerAbsent { .. } => Outcome::WorkerAbsent,
            Self::ShuttingDown => Outcome::ShuttingDown,
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
    pub(super) fn is_clients(self) -> bool {
        self.status().is_client_error() || matches!(self, Self::Unimplemented(_))
    }

    /// Whether the connection cannot go on, because what follows on it is not known to be a
    /// request, or because we are leaving.
    pub(super) fn closes(self) -> bool {
        match self {
            // All of it was read.
            Self::TooManyOfClient { .. } => false,
            Self::ShuttingDown | Self::SpoolFailed | Self::SpoolFull => true,
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
            // As soon as another connection or upload of it has ended, which the client knows better than we.
            Self::TooManyConnections | Self::SpoolShareFull => Some(1),
            _ => None,
        }
    }

    /// The answer, `text/plain`.
    pub(super) fn response(self) -> http::Response<Bytes> {
        let status = self.status();
        let name = status.canonical_reason().unwrap_or("");
        let body = Bytes::from(format!("{} {name}: {}\n", status.as_str(), self.reason()));
        let mut response = http::Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let text = http::HeaderValue::from_static("text/plain; charset=utf-8");
        headers.insert(http::header::CONTENT_TYPE, text);
        if let Some(retry_after_s) = self.retry_after_s() {
            headers.insert(http::header::RETRY_AFTER, retry_after_s.into());
        }
        if self.closes() {
            headers.insert(
                http::header::CONNECTION,
                http::HeaderValue::from_static("close"),
            );
        }
        response
    }

    /// The answer as it is sent, for a client with whom hyper does not speak.
    pub(super) fn message(self) -> Bytes {
        let (head, body) = self.response().into_parts();
        let mut message = format!("HTTP/1.1 {}\r\n", head.status).into_bytes();
        for (name, value) in &head.headers {
            message.extend_from_slice(name.as_str().as_bytes());
            message.extend_from_slice(b": ");
            message.extend_from_slice(value.as_bytes());
            message.extend_from_slice(b"\r\n");
        }
        message.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        message.extend_from_slice(&body);
        message.into()
    }
}
