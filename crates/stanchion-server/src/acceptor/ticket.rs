//! A request's place in the server, from its joining the line to the last byte of its answer.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use stanchion_exchange::{Corrupt, Submitted};
use stanchion_line::{LaneId, Place};
use tokio::sync::Notify;

use super::admin::Verdict;
use super::app_head::{AppHead, Promised};
use super::clients::Share;
use super::memory::Piece;
use super::outflow::{Limits, Next, Outflow, StreamEnd};
use super::refusal::Refusal;
use super::request::Arrived;
use super::spans::Trace;

/// Shared by whoever waits for the answer (the connection) and whoever brings it (the dispatch).
pub(super) struct Ticket {
    pub(super) request: Arrived,
    /// If it is traced, its place there.
    pub(super) trace: Option<Box<Trace>>,
    pub(super) stage: Cell<Stage>,
    /// Whose turns it has in the line, and whose seats.
    pub(super) lane: Cell<LaneId>,
    /// While it waits, if it is counted how many of one client do.
    pub(super) client_share: Cell<Option<Share>>,
    /// The head of the answer and what there was of the body with it, until it is fetched.
    answer: RefCell<Option<Answer>>,
    /// The body, once the head of an answer is out that comes in pieces.
    outflow: RefCell<Option<Box<Outflow>>>,
    /// Bytes of it that the head promises and that have not come, if it does.
    owed: Cell<Option<u64>>,
    /// Notified when something of the outflow has changed that concerns its file.
    pub(super) spooler: Notify,
    waker: Cell<Option<Waker>>,
    /// When a seat took it and gave it back; 0 = not yet.
    pub(super) taken_us: Cell<u64>,
    pub(super) done_us: Cell<u64>,
    /// The worker's process; 0 = none took it.
    pub(super) worker_pid: Cell<i32>,
    /// Its number, once one took it.
    pub(super) worker: Cell<Option<u16>>,
    /// A worker has died over it, and it goes to another one.
    pub(super) is_retried: Cell<bool>,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
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
pub(super) enum Answer {
    /// The app's, whole or with more to come.
    App(Box<AppAnswer>),
    /// Ours.
    Refused(Refusal),
    /// Ours, to a probe.
    Probed(Verdict),
}

/// The head of the app's answer and the start of its body.
pub(super) struct AppAnswer {
    pub(super) head: AppHead,
    pub(super) body: Start,
}

/// What is known of a body when the head is.
pub(super) enum Start {
    /// All of it.
    Whole(Bytes),
    /// It comes through the ticket's outflow.
    Streamed,
    /// A file.
    File(std::fs::File, crate::record::FilePart),
}

impl Ticket {
    pub(super) fn new(request: Arrived, trace: Option<Box<Trace>>) -> Self {
        Self {
            request,
            trace,
            stage: Cell::new(Stage::New),
            lane: Cell::default(),
            client_share: Cell::new(None),
            answer: RefCell::new(None),
            outflow: RefCell::default(),
            owed: Cell::new(None),
            spooler: Notify::new(),
            waker: Cell::new(None),
            taken_us: Cell::new(0),
            done_us: Cell::new(0),
            worker_pid: Cell::new(0),
            worker: Cell::new(None),
            is_retried: Cell::new(false),
        }
    }

    /// How long it was in the line; until now, if no seat has taken it.
    pub(super) fn wait_us(&self, now_us: u64) -> u64 {
        let until_us = match self.taken_us.get() {
            0 => now_us,
            taken_us => taken_us,
        };
        until_us.saturating_sub(self.request.arrived_us)
    }

    /// How long a seat ran it, or has run it until now, if one took it.
    pub(super) fn service_us(&self, now_us: u64) -> Option<u64> {
        let taken_us = self.taken_us.get();
        let until_us = match self.done_us.get() {
            0 => now_us,
            done_us => done_us,
        };
        (taken_us != 0).then(|| until_us.saturating_sub(taken_us))
    }

    /// Brings the answer.
    pub(super) fn answer(&self, answer: Answer) {
        *self.answer.borrow_mut() = Some(answer);
        self.wake();
    }

    /// The connection fetches the answer.
    pub(super) fn poll_answer(&self, context: &mut Context<'_>) -> Poll<Answer> {
        if let Some(answer) = self.answer.borrow_mut().take() {
            return Poll::Ready(answer);
        }
        self.wait(context);
        Poll::Pending
    }

    /// The head is out, with the first piece of a body that comes in pieces. Nothing has happened if that
    /// piece is more than was promised.
    pub(super) fn start_streaming(
        &self,
        limits: &Rc<Limits>,
        promised: Promised,
        first: Bytes,
    ) -> Result<(), Corrupt> {
        let owed = left_of(promised.bytes(), &first)?;
        let mut outflow = Outflow::new(limits);
        outflow.push(first);
        *self.outflow.borrow_mut() = Some(Box::new(outflow));
        self.owed.set(owed);
        Ok(())
    }

    /// Brings a piece of the body. Nothing of one with which the body is longer than its head says:
    /// the client would take the rest for another answer.
    pub(super) fn push(&self, piece: Bytes) -> Result<(), Corrupt> {
        self.owed.set(left_of(self.owed.get(), &piece)?);
        self.pour(|outflow| outflow.push(piece));
        Ok(())
    }

    /// Ends the body. It is not whole if there is less of it than its head says.
    pub(super) fn end(&self, end: StreamEnd) -> Result<(), Corrupt> {
        if end == StreamEnd::Complete && self.owed.get().is_some_and(|owed| owed > 0) {
            return Err(Corrupt("an answer is shorter than it says"));
        }
        self.pour(|outflow| outflow.end(end));
        Ok(())
    }

    /// Whether the head is out.
    pub(super) fn is_streaming(&self) -> bool {
        self.outflow.borrow().is_some()
    }

    /// Looks at the body, or takes note of something; `None` if the head is not out.
    pub(super) fn outflow<T>(&self, act: impl FnOnce(&mut Outflow) -> T) -> Option<T> {
        self.outflow.borrow_mut().as_deref_mut().map(act)
    }

    /// Changes the body: whoever waits for that looks again.
    pub(super) fn pour<T>(&self, act: impl FnOnce(&mut Outflow) -> T) -> Option<T> {
        let done = self.outflow(act);
        self.wake();
        self.spooler.notify_one();
        done
    }

    /// The connection fetches a piece of the body, or its end.
    pub(super) fn poll_piece(&self, context: &mut Context<'_>) -> Poll<Result<Piece, StreamEnd>> {
        let next = self.outflow(Outflow::pop);
        self.spooler.notify_one();
        match next {
            Some(Next::Piece(piece)) => Poll::Ready(Ok(piece)),
            Some(Next::End(end)) => Poll::Ready(Err(end)),
            Some(Next::Nothing) | None => {
                self.wait(context);
                Poll::Pending
            }
        }
    }

    fn wait(&self, context: &Context<'_>) {
        self.waker.set(Some(context.waker().clone()));
    }

    /// The connection looks again.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Bytes that are owed after this piece.
fn left_of(owed: Option<u64>, piece: &Bytes) -> Result<Option<u64>, Corrupt> {
    let Some(owed) = owed else { return Ok(None) };
    let left = owed.checked_sub(piece.len() as u64);
    let left = left.ok_or(Corrupt("an answer is longer than it says"))?;
    Ok(Some(left))
}
