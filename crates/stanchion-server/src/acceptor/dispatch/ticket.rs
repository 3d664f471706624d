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
use crate::acceptor::storage::clients::Share;
use crate::acceptor::storage::disk::OpenFile;
use crate::acceptor::storage::woken::Woken;
use crate::record::FilePart;
use crate::tally::Outcome;

/// Shared by whoever waits for the answer (the connection) and whoever brings it (the dispatch).
pub(crate) struct Ticket {
    pub(crate) request: Request,
    /// If it is traced, its place there.
    pub(crate) trace: Option<Box<Trace>>,
    pub(crate) stage: Cell<Stage>,
    /// Whose turns it has in the line, and whose seats.
    pub(crate) lane: Cell<LaneId>,
    /// While it waits, if it is counted how many of one client do.
    pub(crate) client_share: Cell<Option<Share>>,
    /// The head of the answer and what there was of the body with it, until it is fetched.
    answer: RefCell<Option<Answer>>,
    /// What goes to the client ahead of the answer, if anything has come.
    hints: RefCell<Option<Box<Hints>>>,
    /// The body, once the head of an answer is out that comes in pieces.
    outflow: RefCell<Option<Box<Outflow>>>,
    /// How its worker writes it, if trailers come behind it.
    trailed: RefCell<Option<Box<Trailed>>>,
    /// Bytes of it that the head promises and that have not come, if it does.
    owed: Cell<Option<u64>>,
    /// The payer of the connection that asks, which pays for all that the worker brings.
    payer: Payer,
    /// Who waits, and where a note is left for it.
    connection: u32,
    woken: Rc<Woken>,
    is_woken: Cell<bool>,
    /// When a seat took it and gave it back; 0 = not yet.
    pub(crate) taken_us: Cell<u64>,
    pub(crate) done_us: Cell<u64>,
    /// The worker's process; 0 = none took it.
    pub(crate) worker_pid: Cell<i32>,
    /// Its number, once one took it.
    pub(crate) worker: Cell<Option<u16>>,
    /// If it asks for a WebSocket: what it counts for among sessions.
    pub(crate) permit: Cell<Option<SessionPermit>>,
    /// It has its WebSocket, and its seat another request.
    pub(crate) is_session: Cell<bool>,
    /// What it was as a session, once that is over.
    pub(crate) session: OnceCell<Box<SessionFacts>>,
    /// There was no room for what its client has sent: it looks again when there is.
    pub(crate) wants_room: Cell<bool>,
    /// Until when its worker had to wait for the rest of its body; later than ever while it has to.
    pub(crate) client_until_us: Cell<u64>,
    /// A worker has died over it, and it goes to another one.
    pub(crate) is_retried: Cell<bool>,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not yet in the line.
    New,
    /// In the line.
    Waiting(Place),
    /// In the exchange.
    Submitted(Submitted),
    /// Neither: answered, refused, or nobody wants it any more.
    Over,
}

/// What the connection gets.
pub(crate) enum Answer {
    /// The app's, whole or with more to come.
    App(AppAnswer),
    /// Ours.
    Refused(Refusal),
    /// Ours, and what the request counts as.
    Ours(Reply, Outcome),
    /// A static file.
    Static(AppAnswer),
}

/// The head of the app's answer and the start of its body.
pub(crate) struct AppAnswer {
    /// As they came from the worker: something, the head, perhaps the body.
    pub(crate) bytes: Vec<u8>,
    /// Where the head is in there, in wire form, without the empty line; checked.
    pub(crate) head: Range<usize>,
    pub(crate) facts: AnswerFacts,
    /// The app wants its connection to end behind it. A stream of HTTP/2 has none of its own (RFC 9113 section 8.2.2).
    pub(crate) closes: bool,
    pub(crate) body: Start,
}

/// What is known of a body when the head is.
pub(crate) enum Start {
    /// All of it, behind the head.
    Whole,
    /// It comes through the ticket's outflow; so many bytes, if that is known.
    Streamed(Option<u64>),
    /// Parts of a file, perhaps with something between.
    File(OpenFile, Vec<Section>),
    /// A file of which only the head was asked for.
    FileUnasked,
}

/// A part of a body.
#[derive(Clone, Debug)]
pub(crate) enum Section {
    Text(Bytes),
    Part(FilePart),
}

impl Section {
    /// How long it is.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Text(bytes) => bytes.len() as u64,
            Self::Part(part) => part.len,
        }
    }
}

impl Ticket {
    pub(crate) fn new(
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
            is_session: Cell::new(false),
            session: OnceCell::new(),
            wants_room: Cell::new(false),
            client_until_us: Cell::new(0),
            is_retried: Cell::new(false),
        }
    }

    /// Such as ` worker=0 pid=4711`, to stand at the end of a line of the log; nothing if no worker took it.
    pub(crate) fn shown_worker(&self) -> String {
        match (self.worker.get(), self.worker_pid.get()) {
            (None, _) | (_, 0) => String::new(),
            (Some(worker), pid) => format!(" worker={worker} pid={pid}"),
        }
    }

    /// How long it was in the line; until now, if no seat has taken it.
    pub(crate) fn wait_us(&self, now_us: u64) -> u64 {
        let until_us = match self.taken_us.get() {
            0 => now_us,
            taken_us => taken_us,
        };
        until_us.saturating_sub(self.request.arrived_us)
    }

    /// How long a seat ran it, or has run it until now, if one took it.
    pub(crate) fn service_us(&self, now_us: u64) -> Option<u64> {
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

    /// Brings the answer.
    pub(crate) fn answer(&self, answer: Answer) {
        *self.answer.borrow_mut() = Some(answer);
        self.wake();
    }

    /// The connection fetches the answer, if it is there.
    pub(crate) fn take_answer(&self) -> Option<Answer> {
        self.is_woken.set(false);
        self.answer.borrow_mut().take()
    }

    /// Brings hints: the connection looks again.
    pub(crate) fn hint<T>(&self, bring: impl FnOnce(&mut Hints) -> T) -> T {
        let brought = bring(self.hints.borrow_mut().get_or_insert_default());
        self.wake();
        brought
    }

    /// Does something with the hints; `None` if none have come.
    pub(crate) fn hints<T>(&self, act: impl FnOnce(&mut Hints) -> T) -> Option<T> {
        self.hints.borrow_mut().as_deref_mut().map(act)
    }

    /// The head is out, with the first piece of a body that comes in pieces. Nothing has happened if that
    /// piece is more than was promised.
    pub(crate) fn start_streaming(
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

    /// The head says that trailers come behind the body. Gives what is body of what has come behind the head.
    pub(crate) fn begin_trailed(&self, first: &[u8]) -> Result<Bytes, Corrupt> {
        let mut trailed = Box::<Trailed>::default();
        let body = trailed.take(first)?;
        *self.trailed.borrow_mut() = Some(trailed);
        Ok(body)
    }

    /// Whether trailers come behind the body.
    pub(crate) fn is_trailed(&self) -> bool {
        self.trailed.borrow().is_some()
    }

    /// The connection fetches the trailers, in wire form, once the body is whole; `None` if there are none.
    pub(crate) fn take_trailers(&self) -> Option<Vec<u8>> {
        let trailed = self.trailed.take();
        trailed.and_then(|trailed| trailed.into_trailers())
    }

    /// Brings what comes of the body. Nothing of one with which the body is longer than its head says:
    /// the client would take the rest for another answer.
    pub(crate) fn push(&self, written: Bytes) -> Result<(), Corrupt> {
        let piece = match self.trailed.borrow_mut().as_deref_mut() {
            Some(trailed) => trailed.take(&written)?,
            None => written,
        };
        self.owed.set(self.owed_after(piece.len())?);
        self.pour(|outflow| outflow.push(piece));
        Ok(())
    }

    /// What the head still promises after so many bytes more, if it says.
    pub(crate) fn owed_after(&self, bytes: usize) -> Result<Option<u64>, Corrupt> {
        left_of(self.owed.get(), bytes)
    }

    /// So much of the body was fetched and sent.
    pub(crate) fn fetched(&self, bytes: usize, owed: Option<u64>) {
        self.owed.set(owed);
        self.outflow(|outflow| outflow.fetched(bytes));
    }

    /// Whether the connection fetches the body from the exchange.
    pub(crate) fn is_fetched(&self) -> bool {
        let outflow = self.outflow.borrow();
        outflow.as_deref().is_some_and(Outflow::is_fetched)
    }

    /// Ends the body. It is not whole if there is less of it than its head says.
    pub(crate) fn end(&self, end: StreamEnd) -> Result<(), Corrupt> {
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

    /// Looks at the body, or takes note of something; `None` if the head is not out.
    pub(crate) fn outflow<T>(&self, act: impl FnOnce(&mut Outflow) -> T) -> Option<T> {
        self.outflow.borrow_mut().as_deref_mut().map(act)
    }

    /// Changes the body: the connection looks again.
    pub(crate) fn pour<T>(&self, act: impl FnOnce(&mut Outflow) -> T) -> Option<T> {
        let done = self.outflow(act);
        self.wake();
        done
    }

    /// The connection fetches a piece of the body, or its end.
    pub(crate) fn next_piece(&self) -> Next {
        self.is_woken.set(false);
        self.outflow(Outflow::pop).unwrap_or(Next::Nothing)
    }

    /// What is brought until the connection looks again is no news: it waits for it.
    pub(crate) fn expects(&self) {
        self.is_woken.set(true);
    }

    /// The connection has looked, though it fetched nothing: what is brought now is news.
    pub(crate) fn seen(&self) {
        self.is_woken.set(false);
    }

    /// The connection looks again.
    pub(crate) fn wake(&self) {
        if !self.is_woken.replace(true) {
            self.woken.add(self.connection);
        }
    }
}

/// Bytes of a body, if they are known.
pub(crate) fn bytes_of(length: BodyLength) -> Option<u64> {
    match length {
        BodyLength::Nothing => Some(0),
        BodyLength::Bytes(bytes) => Some(bytes),
        BodyLength::Unknown => None,
    }
}

/// Bytes that are owed after so many.
fn left_of(owed: Option<u64>, bytes: usize) -> Result<Option<u64>, Corrupt> {
    let Some(owed) = owed else { return Ok(None) };
    let left = owed.checked_sub(bytes as u64);
    let left = left.ok_or(Corrupt("an answer is longer than it says"))?;
    Ok(Some(left))
}
