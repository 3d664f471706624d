//! A request's place in the server, from its joining the line to the last byte of its answer.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use stanchion_exchange::Submitted;
use stanchion_line::{LaneId, Place};

use super::admin::Verdict;
use super::dispatch::ClientShare;
use super::refusal::Refusal;
use super::request::Arrived;

/// Shared by whoever waits for the answer (the connection) and whoever brings it (the dispatch).
pub(super) struct Ticket {
    pub(super) request: Arrived,
    pub(super) stage: Cell<Stage>,
    /// Whose turns it has in the line, and whose seats.
    pub(super) lane: Cell<LaneId>,
    /// While it waits, if it is counted how many of one client do.
    pub(super) client_share: Cell<Option<ClientShare>>,
    /// The head of the answer and what there was of the body with it, until it is fetched.
    answer: RefCell<Option<Answer>>,
    stream: RefCell<Stream>,
    waker: Cell<Option<Waker>>,
    /// When a seat took it and gave it back; 0 = not yet.
    pub(super) taken_us: Cell<u64>,
    pub(super) done_us: Cell<u64>,
    /// The worker's process; 0 = none took it.
    pub(super) worker_pid: Cell<i32>,
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
    pub(super) head: http::response::Parts,
    pub(super) body: Start,
}

/// What is known of a body when the head is.
pub(super) enum Start {
    /// All of it.
    Whole(Bytes),
    /// It comes through the ticket's stream.
    Streamed,
    /// A file.
    File(std::fs::File, crate::record::FilePart),
}

/// What has arrived of a streamed body and was not sent yet.
#[derive(Default)]
struct Stream {
    /// The answer's head is out.
    begun: bool,
    chunks: VecDeque<Bytes>,
    bytes: usize,
    end: Option<StreamEnd>,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// Whole.
    Complete,
    /// The app failed, or its worker died: the client must see that the body is not whole.
    Broken,
}

impl Ticket {
    pub(super) fn new(request: Arrived) -> Self {
        Self {
            request,
            stage: Cell::new(Stage::New),
            lane: Cell::default(),
            client_share: Cell::new(None),
            answer: RefCell::new(None),
            stream: RefCell::default(),
            waker: Cell::new(None),
            taken_us: Cell::new(0),
            done_us: Cell::new(0),
            worker_pid: Cell::new(0),
        }
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

    /// The head is out, and the body comes in pieces.
    pub(super) fn start_streaming(&self) {
        self.stream.borrow_mut().begun = true;
    }

    /// Whether the head is out.
    pub(super) fn is_streaming(&self) -> bool {
        self.stream.borrow().begun
    }

    /// Brings a piece of the body.
    pub(super) fn push(&self, chunk: Bytes) {
        if !chunk.is_empty() {
            let mut stream = self.stream.borrow_mut();
            stream.bytes += chunk.len();
            stream.chunks.push_back(chunk);
        }
        self.wake();
    }

    /// Ends the body.
    pub(super) fn end(&self, end: StreamEnd) {
        self.stream.borrow_mut().end.get_or_insert(end);
        self.wake();
    }

    /// Bytes of the body that wait for a slow reader.
    pub(super) fn buffered(&self) -> usize {
        self.stream.borrow().bytes
    }

    /// The connection fetches a piece of the body, or its end.
    pub(super) fn poll_chunk(&self, context: &mut Context<'_>) -> Poll<Result<Bytes, StreamEnd>> {
        let mut stream = self.stream.borrow_mut();
        if let Some(chunk) = stream.chunks.pop_front() {
            stream.bytes -= chunk.len();
            return Poll::Ready(Ok(chunk));
        }
        match stream.end {
            Some(end) => Poll::Ready(Err(end)),
            None => {
                self.wait(context);
                Poll::Pending
            }
        }
    }

    fn wait(&self, context: &Context<'_>) {
        self.waker.set(Some(context.waker().clone()));
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
