//! One request through the acceptor: checked, read whole, sent through the line, answered.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use stanchion_sys::clock::monotonic_us;
use tracing::{info, warn};

use super::Shared;
use super::access_log::Entry;
use super::answer::AnswerBody;
use super::connection::Connection;
use super::refusal::Refusal;
use super::request::{Arrived, ArrivedBody, check_head, read_body};
use super::ticket::{Answer, Start, Ticket};
use crate::tally::Outcome;

/// What the access log shows for a client that left before it was answered: nginx's number.
const CLIENT_GONE: u16 = 499;

/// Not among the names that `http` knows.
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// One request, from its head to the head of its answer.
pub(super) async fn answer(
    shared: Rc<Shared>,
    connection: Rc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Infallible> {
    connection.busy(&shared);
    let started_us = shared.spans.as_ref().map(|_| monotonic_us());
    let account = Account::open(&shared);
    let (mut head, body) = request.into_parts();
    let version = head.version;
    let outcome = match check_head(&head, &shared.common.settings) {
        Ok(()) => {
            let reading = read_body(&shared, &connection, &mut head, body);
            unless_called_off(&shared, &connection, reading).await
        }
        Err(refusal) => Err(refusal),
    };
    connection.set_pace(None);
    // Whatever of the body was not read is still on its way.
    connection.leave_unread(outcome.is_err());
    let (body, refused) = match outcome {
        Ok(body) => (body, None),
        Err(refusal) => (ArrivedBody::none(&shared), Some(refusal)),
    };
    let spans = shared.spans.as_ref().zip(started_us);
    let trace = spans.and_then(|(spans, started_us)| spans.begin(&mut head.headers, started_us));
    let (arrived, contradiction) = Arrived::new(
        head,
        body,
        Rc::clone(&connection.peer),
        shared.request_ids.as_ref(),
    );
    let refused = refused.or(contradiction);
    let ticket = Rc::new(Ticket::new(arrived, trace));
    let outcome = if let Some(refusal) = refused {
        Answer::Refused(refusal)
    } else if let Some(verdict) = shared.probed(&ticket.request.head) {
        Answer::Probed(verdict)
    } else {
        Pending::join(&account, &ticket).await
    };
    if let Some(trace) = &ticket.trace {
        trace.answered();
    }
    let (mut head, body, outcome) = match outcome {
        Answer::App(app) => {
            let body = match app.body {
                Start::Whole(bytes) => AnswerBody::whole(&shared, &connection, bytes),
                Start::Streamed => AnswerBody::streamed(&shared, &connection, Rc::clone(&ticket)),
                Start::File(file, part) => AnswerBody::file(&shared, &connection, file, part),
            };
            let body = body.counted(account, app.head.body);
            (app.head.parts, body, Outcome::Answered)
        }
        Answer::Probed(verdict) => {
            account.close(Outcome::Probed);
            let (head, bytes) = verdict.response().into_parts();
            let body = AnswerBody::whole(&shared, &connection, bytes);
            (head, body, Outcome::Probed)
        }
        Answer::Refused(refusal) => {
            account.close(refusal.outcome());
            log_refusal(&shared, &ticket, refusal);
            let (mut head, bytes) = refusal.response().into_parts();
            name(&shared, &ticket, &mut head.headers);
            let body = AnswerBody::whole(&shared, &connection, bytes);
            (head, body, refusal.outcome())
        }
    };
    if shared.common.settings.server_timing {
        let timing = server_timing(&ticket, monotonic_us());
        head.headers.append(SERVER_TIMING, timing);
    }
    let requests_max = shared.common.settings.keepalive_requests;
    if shared.draining.get() || shared.is_pressed() || connection.is_closing(requests_max) {
        head.headers
            .insert(CONNECTION, HeaderValue::from_static("close"));
        if version == Version::HTTP_10 {
            // To an answer of 1.1 hyper would add keep-alive, if the client asked for it.
            head.version = version;
        }
    }
    let body = body.recorded(entry(&shared, &ticket, &head, outcome));
    Ok(Response::from_parts(head, body))
}

/// Has an answer of ours say what its request is called, for whoever asks us about it. In the
/// app's answers that is the app's to say.
fn name(shared: &Shared, ticket: &Ticket, headers: &mut HeaderMap) {
    if let (Some(ids), Some(id)) = (&shared.request_ids, ticket.request.id())
        && let Ok(id) = HeaderValue::from_str(id)
    {
        headers.insert(ids.header(), id);
    }
}

/// Where the time went, in milliseconds (W3C Server Timing section 2).
fn server_timing(ticket: &Ticket, now_us: u64) -> HeaderValue {
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
    HeaderValue::try_from(text).expect("letters, digits and punctuation")
}

fn entry(
    shared: &Shared,
    ticket: &Rc<Ticket>,
    head: &http::response::Parts,
    outcome: Outcome,
) -> Option<Box<Entry>> {
    if !shared.wants_entries() && ticket.trace.is_none() {
        return None;
    }
    let fields = match &shared.access_log {
        Some(log) if log.wants_answer_fields => head.headers.clone(),
        Some(_) | None => HeaderMap::new(),
    };
    let ticket = Rc::clone(ticket);
    Some(Box::new(Entry {
        ticket,
        status: head.status,
        outcome,
        fields,
        bytes: 0,
    }))
}

fn log_refusal(shared: &Shared, ticket: &Ticket, refusal: Refusal) {
    if !shared.repeats.shows(refusal.outcome(), monotonic_us()) {
        return;
    }
    let (status, reason) = (refusal.status().as_u16(), refusal.reason());
    let request = ticket.request.describe();
    let worker = ticket.worker_pid.get();
    if refusal.is_clients() {
        info!("{status} {request}: a client's fault: {reason}");
    } else {
        let ran = match refusal {
            Refusal::WorkerTimedOut { ran_ms } => {
                format!(", {:.1} s", Duration::from_millis(ran_ms).as_secs_f64())
            }
            _ => String::new(),
        };
        let dispatch = shared.dispatch.borrow();
        let lane = dispatch.lanes.name(ticket.lane.get());
        let lane = lane.map_or(String::new(), |lane| format!(" lane={lane}"));
        warn!("{status} {request}: {reason}{ran} worker={worker}{lane}");
    }
}

/// Runs `reading` until everybody is told that we are leaving, or this sender is not waited for any
/// longer. The connection's task is woken for that, and then this is polled.
async fn unless_called_off<T>(
    shared: &Shared,
    connection: &Connection,
    reading: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let mut reading = std::pin::pin!(reading);
    poll_fn(|context| {
        if shared.refusing.get() {
            return Poll::Ready(Err(Refusal::ShuttingDown));
        }
        if let Some(refusal) = connection.called_off() {
            return Poll::Ready(Err(refusal));
        }
        reading.as_mut().poll(context)
    })
    .await
}

/// Counts a request once, however it ends.
pub(super) struct Account {
    shared: Rc<Shared>,
    closed: Cell<Option<Outcome>>,
}

impl Account {
    fn open(shared: &Rc<Shared>) -> Self {
        shared.common.tally.arrived();
        Self {
            shared: Rc::clone(shared),
            closed: Cell::new(None),
        }
    }

    /// The request has ended so, unless it has ended before. Gives how it ended.
    pub(super) fn close(&self, outcome: Outcome) -> Outcome {
        if let Some(before) = self.closed.get() {
            return before;
        }
        self.closed.set(Some(outcome));
        self.shared.common.tally.ended(outcome);
        outcome
    }
}

impl Drop for Account {
    /// What comes after the body was read closes it.
    fn drop(&mut self) {
        self.close(Outcome::AbandonedReading);
    }
}

/// Waits for the answer. Dropped before it is there, the client has gone: the request leaves the
/// line, or its worker learns of it.
struct Pending<'t> {
    account: &'t Account,
    ticket: &'t Rc<Ticket>,
    answered: bool,
}

impl<'t> Pending<'t> {
    fn join(account: &'t Account, ticket: &'t Rc<Ticket>) -> Self {
        let shared = &account.shared;
        if shared.refusing.get() {
            ticket.answer(Answer::Refused(Refusal::ShuttingDown));
        } else {
            shared.dispatch.borrow_mut().join(ticket);
        }
        Self {
            account,
            ticket,
            answered: false,
        }
    }
}

impl Future for Pending<'_> {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let answer = self.ticket.poll_answer(context);
        self.answered = answer.is_ready();
        answer
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let shared = &self.account.shared;
            let outcome = shared.dispatch.borrow_mut().abandon(self.ticket);
            self.account.close(outcome);
            let ticket = Rc::clone(self.ticket);
            let status = StatusCode::from_u16(CLIENT_GONE).unwrap_or(StatusCode::BAD_REQUEST);
            let entry = Entry {
                ticket,
                status,
                outcome,
                fields: HeaderMap::new(),
                bytes: 0,
            };
            shared.over(&entry);
        }
    }
}
