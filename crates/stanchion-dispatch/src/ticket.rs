//! A request's place in the server, from its joining the line to the last byte of its answer.

use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use stanchion_exchange::{Corrupt, Submitted};
use stanchion_http::{AnswerFacts, BodyLength};
use stanchion_line::{LaneId, Place};
use stanchion_sys::charge::{self, Charged, Payer};

use super::hints::Hints;
use super::outflow::{Limits, Next, Outflow, StreamEnd};
use super::refusal::Refusal;
use super::reply::Reply;
use super::request::Request;
use super::sessions::{SessionFacts, SessionPermit};
use super::trace::Trace;
use super::trailers::Trailed;
use crate::storage::clients::Share;
use crate::storage::disk::OpenFile;
use crate::storage::woken::Woken;
use stanchion_generation::tally::Outcome;
use stanchion_record::FilePart;

/// The connection, which waits for the answer, and the dispatch, which brings it, share a ticket.
pub struct Ticket {
    /// The request.
    pub request: Request,
    /// Its place in a trace, if it is traced.
    pub trace: Option<Box<Trace>>,
    /// How far the request has come.
    pub stage: Cell<Stage>,
    /// The lane that gives it its turns in the line, and its seats.
    pub lane: Cell<LaneId>,
    /// Its share of `max_waiting_per_client` while it waits, if that is limited.
    pub client_share: Cell<Option<Share>>,
    /// The head of the answer, and the body as far as it came with the head, until the connection fetches them.
    answer: RefCell<Option<Answer>>,
    /// Hints that go to the client before the answer, if any have come.
    hints: RefCell<Option<Box<Hints>>>,
    /// The body of an answer that comes in pieces, once the head is out.
    outflow: RefCell<Option<Box<Outflow>>>,
    /// How far the body has come, if trailers come behind it.
    trailed: RefCell<Option<Box<Trailed>>>,
    /// Bytes of the body that the head promises and that have not come, if it promises a number.
    owed: Cell<Option<u64>>,
    /// The payer of the connection that asks, which pays for all that the worker brings.
    payer: Payer,
    /// The connection that waits, and the list of connections to wake.
    connection: u32,
    woken: Rc<Woken>,
    is_woken: Cell<bool>,
    /// When a seat took it; 0 = not yet.
    pub taken_us: Cell<u64>,
    /// When the seat gave it back; 0 = not yet.
    pub done_us: Cell<u64>,
    /// The worker's process; 0 = none took it.
    pub worker_pid: Cell<i32>,
    /// The worker's number, once a worker took it.
    pub worker: Cell<Option<u16>>,
    /// The right to a session, if it asks for a WebSocket.
    pub permit: Cell<Option<SessionPermit>>,
    /// The facts about its session, once that is over.
    pub session: OnceCell<Box<SessionFacts>>,
    /// There was no room for what its client has sent: the connection looks again when there is.
    pub wants_room: Cell<bool>,
    /// Until when the worker had to wait for the client to send the rest of the body; `u64::MAX` while it has to.
    pub client_until_us: Cell<u64>,
    /// A worker has died over it, and it goes to another one.
    pub is_retried: Cell<bool>,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not yet in the line.
    New,
    /// In the line.
    Waiting(Place),
    /// In the exchange.
    Submitted(Submitted),
    /// Neither: answered, refused, or no longer wanted by a client.
    Over,
}

/// An answer, as the connection gets it.
pub enum Answer {
    /// The app's answer, whole or with more to come.
    App(AppAnswer),
    /// A refusal by the server.
    Refused(Refusal),
    /// A reply of the server, and the outcome that the request counts as.
    Ours(Reply, Outcome),
    /// A static file.
    Static(AppAnswer),
}

/// The head of the app's answer and the start of its body.
pub struct AppAnswer {
    /// The bytes as they came from the worker: a prefix, the head, perhaps the body.
    pub bytes: Vec<u8>,
    /// Where the head is in there, in wire form, without the empty line; checked.
    pub head: Range<usize>,
    /// The facts that the head gives about the answer.
    pub facts: AnswerFacts,
    /// The app wants the connection to end behind it. A stream of HTTP/2 has no connection of its own (RFC 9113 section
    /// 8.2.2).
    pub closes: bool,
    /// The start of the body.
    pub body: Start,
}

/// The body of an answer, as far as it is known when the head is there.
pub enum Start {
    /// All of the body is behind the head.
    Whole,
    /// The body comes through the ticket's outflow; so many bytes, if that is known.
    Streamed(Option<u64>),
    /// Parts of a file, perhaps with something between.
    File(OpenFile, Vec<Section>),
    /// A file of which only the head was asked for.
    FileUnasked,
}

/// A part of a body.
#[derive(Clone, Debug)]
pub enum Section {
    /// These bytes.
    Text(Bytes),
    /// These bytes of the file.
    Part(FilePart),
}

impl Section {
    /// How long it is.
    #[allow(
        clippy::len_without_is_empty,
        reason = "no caller asks whether it is empty"
    )]
    pub fn len(&self) -> u64 {
        match self {
            Self::Text(bytes) => bytes.len() as u64,
            Self::Part(part) => part.len,
        }
    }
}

impl Ticket {
    /// The ticket of a request that joins the line.
    pub fn new(
        request: Request,
        trace: Option<Box<Trace>>,
        connection: u32,
        woken: &Rc<Woken>,
    ) -> Self {
        Self {
            request,
            trace,
            stage: Cell::new(Stage::New),
            lane: Cell::default(),
            client_share: Cell::new(None),
            answer: RefCell::new(None),
            hints: RefCell::default(),
            outflow: RefCell::default(),
            trailed: RefCell::default(),
            owed: Cell::new(None),
            payer: charge::current(),
            connection,
            woken: Rc::clone(woken),
            is_woken: Cell::new(false),
            taken_us: Cell::new(0),
            done_us: Cell::new(0),
            worker_pid: Cell::new(0),
            worker: Cell::new(None),
            permit: Cell::new(None),
            session: OnceCell::new(),
            wants_room: Cell::new(false),
            client_until_us: Cell::new(0),
            is_retried: Cell::new(false),
        }
    }

    /// Such as ` worker=0 pid=4711`, to stand at the end of a line of the log; nothing if no worker took it.
    pub fn shown_worker(&self) -> String {
        match (self.worker.get(), self.worker_pid.get()) {
            (None, _) | (_, 0) => String::new(),
            (Some(worker), pid) => format!(" worker={worker} pid={pid}"),
        }
    }

    /// How long it was in the line; until now, if no seat has taken it.
    pub fn wait_us(&self, now_us: u64) -> u64 {
        let until_us = match self.taken_us.get() {
            0 => now_us,
            taken_us => taken_us,
        };
        until_us.saturating_sub(self.request.arrived_us)
    }

    /// How long a seat ran it, or has run it until now, if one took it.
    pub fn service_us(&self, now_us: u64) -> Option<u64> {
        let taken_us = self.taken_us.get();
        let until_us = match self.done_us.get() {
            0 => now_us,
            done_us => done_us,
        };
        (taken_us != 0).then(|| until_us.saturating_sub(taken_us))
    }

    /// Its connection pays for all that is allocated until the guard is dropped.
    pub(crate) fn charged(&self) -> Charged {
        charge::to(self.payer)
    }

    /// Ends the request, which no app will answer.
    pub(crate) fn refuse(&self, why: Refusal) {
        self.client_share.take();
        self.stage.set(Stage::Over);
        self.answer(Answer::Refused(why));
    }

    /// Leaves the answer for the connection, and wakes the connection.
    pub fn answer(&self, answer: Answer) {
        *self.answer.borrow_mut() = Some(answer);
        self.wake();
    }

    /// Gives the connection the answer, if it is there.
    pub fn take_answer(&self) -> Option<Answer> {
        self.is_woken.set(false);
        self.answer.borrow_mut().take()
    }

    /// Leaves hints for the connection, and wakes the connection.
    pub(crate) fn hint<T>(&self, bring: impl FnOnce(&mut Hints) -> T) -> T {
        let brought = bring(self.hints.borrow_mut().get_or_insert_default());
        self.wake();
        brought
    }

    /// Does something with the hints; `None` if none have come.
    pub fn hints<T>(&self, act: impl FnOnce(&mut Hints) -> T) -> Option<T> {
        self.hints.borrow_mut().as_deref_mut().map(act)
    }

    /// Begins a body that comes in pieces, with the first of them. If that piece is more than the head promised, it
    /// changes nothing and gives an error.
    pub fn start_streaming(
        &self,
        limits: &Rc<Limits>,
        promised: BodyLength,
        first: Bytes,
    ) -> Result<(), Corrupt> {
        let owed = left_of(bytes_of(promised), first.len())?;
        let mut outflow = Outflow::new(limits);
        outflow.push(first);
        *self.outflow.borrow_mut() = Some(Box::new(outflow));
        self.owed.set(owed);
        Ok(())
    }

    /// Begins a body behind which trailers come, as its head says. Gives the bytes of `first` that are body.
    pub(crate) fn begin_trailed(&self, first: &[u8]) -> Result<Bytes, Corrupt> {
        let mut trailed = Box::<Trailed>::default();
        let body = trailed.take(first)?;
        *self.trailed.borrow_mut() = Some(trailed);
        Ok(body)
    }

    /// Whether trailers come behind the body.
    pub fn is_trailed(&self) -> bool {
        self.trailed.borrow().is_some()
    }

    /// Gives the connection the trailers, in wire form, once the body is whole; `None` if there are none.
    pub fn take_trailers(&self) -> Option<Vec<u8>> {
        let trailed = self.trailed.take();
        trailed.and_then(|trailed| trailed.into_trailers())
    }

    /// Appends to the body what its worker has written, and wakes the connection. A piece with which the body would be
    /// longer than its head says is an error: the client would take the rest for another answer.
    pub fn push(&self, written: Bytes) -> Result<(), Corrupt> {
        let piece = match self.trailed.borrow_mut().as_deref_mut() {
            Some(trailed) => trailed.take(&written)?,
            None => written,
        };
        self.owed.set(self.owed_after(piece.len())?);
        self.pour(|outflow| outflow.push(piece));
        Ok(())
    }

    /// How many bytes the head still promises after so many more, if it promises a number.
    pub(crate) fn owed_after(&self, bytes: usize) -> Result<Option<u64>, Corrupt> {
        left_of(self.owed.get(), bytes)
    }

    /// Notes that the connection has fetched and sent so many bytes of the body.
    pub(crate) fn fetched(&self, bytes: usize, owed: Option<u64>) {
        self.owed.set(owed);
        self.outflow(|outflow| outflow.fetched(bytes));
    }

    /// Whether the connection fetches the body from the exchange.
    pub fn is_fetched(&self) -> bool {
        let outflow = self.outflow.borrow();
        outflow.as_deref().is_some_and(Outflow::is_fetched)
    }

    /// Ends the body. To end as complete a body with fewer bytes than its head says is an error.
    pub fn end(&self, end: StreamEnd) -> Result<(), Corrupt> {
        if end == StreamEnd::Complete && self.owed.get().is_some_and(|owed| owed > 0) {
            return Err(Corrupt("an answer is shorter than it says"));
        }
        if end == StreamEnd::Complete
            && let Some(trailed) = self.trailed.borrow_mut().as_deref_mut()
        {
            trailed.check()?;
        }
        self.pour(|outflow| outflow.end(end));
        Ok(())
    }

    /// Whether the head is out.
    pub(crate) fn is_streaming(&self) -> bool {
        self.outflow.borrow().is_some()
    }

    /// Lets `act` look at the body or change it, without waking the connection; `None` if the head is not out.
    pub fn outflow<T>(&self, act: impl FnOnce(&mut Outflow) -> T) -> Option<T> {
        self.outflow.borrow_mut().as_deref_mut().map(act)
    }

    /// Lets `act` change the body, and wakes the connection.
    pub fn pour<T>(&self, act: impl FnOnce(&mut Outflow) -> T) -> Option<T> {
        let done = self.outflow(act);
        self.wake();
        done
    }

    /// Gives the connection a piece of the body, or its end.
    pub fn next_piece(&self) -> Next {
        self.is_woken.set(false);
        self.outflow(Outflow::pop).unwrap_or(Next::Nothing)
    }

    /// The connection waits for what comes next, and looks by itself: until it has looked, nothing wakes it.
    pub fn expects(&self) {
        self.is_woken.set(true);
    }

    /// The connection has looked, though it fetched nothing: what comes from now on wakes it.
    pub fn seen(&self) {
        self.is_woken.set(false);
    }

    /// Wakes the connection, once until it looks.
    pub(crate) fn wake(&self) {
        if !self.is_woken.replace(true) {
            self.woken.add(self.connection);
        }
    }
}

/// How many bytes a body has, if that is known.
pub(crate) fn bytes_of(length: BodyLength) -> Option<u64> {
    match length {
        BodyLength::Nothing => Some(0),
        BodyLength::Bytes(bytes) => Some(bytes),
        BodyLength::Unknown => None,
    }
}

/// How many bytes are owed after so many more.
fn left_of(owed: Option<u64>, bytes: usize) -> Result<Option<u64>, Corrupt> {
    let Some(owed) = owed else { return Ok(None) };
    let left = owed.checked_sub(bytes as u64);
    let left = left.ok_or(Corrupt("an answer is longer than it says"))?;
    Ok(Some(left))
}
