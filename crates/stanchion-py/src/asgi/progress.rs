//! The progress of an ASGI app's request: how much of the request's body the app has got, and how much of its answer is written.
//!
//! `send` writes as much as fits into the response ring. The rest is kept, and the acceptor's next notice writes on. A
//! task may end while pieces wait (another task has sent the last one, or a send was cancelled): the request then keeps
//! its seat until they are out. After a send that was cancelled no further message is taken before the pieces are out:
//! an app that tries each message with a timeout would else have all of them in memory. Only the end, a close or an
//! empty last piece, is taken, if it overtakes no piece.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stanchion_record::{AnswerHead, piece_prefix};
use stanchion_server::{AnswerEnd, Gone, Inflow, Taken};
use tracing::error;

use super::input::{BodyPart, Input, come, in_record};
use super::waiters::{Put, Waiters};
use crate::answer::{AnswerStage, AnswerWriter};
use crate::response::ClientGone;

/// The app gets a body that is in a file in pieces of this size.
const PIECE_BYTES: usize = 64 * 1024;

/// The inflow while nothing has come of a body that is still coming.
const NOTHING: (usize, Inflow) = (0, Inflow::Open);

/// How many pieces an app may send after its client has everything: the pieces that HEAD leaves out, or empty pieces behind the promised length.
/// It is enough for a large file; an endless stream that a HEAD request asks for ends here.
const BEYOND_PIECES_MAX: u32 = 16 * 1024;

/// The progress of a request and of its answer.
pub(super) struct Progress {
    pub(super) answer: AnswerWriter,
    pub(super) input: Input,
    /// The app has given its whole answer; some of it may wait for room.
    pub(super) is_answered: bool,
    /// The trailers that have come, once the body is complete, if the app has announced trailers.
    pub(super) trailers: Option<AnswerHead>,
    pub(super) is_client_gone: bool,
    /// When the app first sent something to a client that had gone, and how many messages it has sent since then.
    pub(super) gone_us: Option<u64>,
    pub(super) drops: u32,
    /// Pieces that the app has sent after its client had everything.
    beyond: u32,
    /// The app's task has ended, but pieces that it has sent wait for room.
    pub(super) is_left: bool,
    pub(super) receivers: Waiters,
    /// Tasks that wait with their messages until the pieces that were given up ([`Self::give_up_waiting`]) are written.
    pub(super) senders: Waiters,
    /// Pieces of the answer for which there was no room, oldest first.
    pending: VecDeque<Pending>,
    /// The number of the last piece.
    pieces: u64,
    /// A task has given up waiting for the pieces up to this number.
    given_up: u64,
    pub(super) task: Option<Py<PyAny>>,
    /// The task, if it was cancelled because it ran past its deadline.
    pub(super) cancelled: Option<Py<PyAny>>,
    idle: Idle,
}

/// The state of the answer when [`Progress::rest`] was called last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Idle {
    /// So many bytes were written.
    Seen(u64),
    /// So many bytes were written, and memory was given back.
    Rests(u64),
}

/// A piece of the answer that waits for room.
struct Pending {
    piece: UnsentPiece,
    is_last: bool,
    number: u64,
    /// `None` until the future is made, or if no task waits.
    future: Option<Py<PyAny>>,
}

/// The rest of a piece.
enum UnsentPiece {
    /// From `from` on.
    Bytes { bytes: Py<PyBytes>, from: usize },
    /// This part of a file.
    File { file: File, at: u64, end: u64 },
}

/// The reason why the rest of a piece is not written. It holds no Python object, because it comes up under a lock.
enum Stopped {
    Gone,
    File(io::Error),
}

impl From<Gone> for Stopped {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<Stopped> for PyErr {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Gone => client_gone(),
            Stopped::File(error) => error.into(),
        }
    }
}

impl UnsentPiece {
    /// Writes as much as there is room for; true if that was all.
    fn write_to(&mut self, py: Python<'_>, taken: &mut Taken<'static>) -> Result<bool, Stopped> {
        match self {
            Self::Bytes { bytes, from } => {
                let bytes = bytes.bind(py).as_bytes();
                *from += taken.write_some(&bytes[*from..])?;
                Ok(*from == bytes.len())
            }
            Self::File { file, at, end } => {
                let mut buffer = vec![0; PIECE_BYTES];
                while at < end {
                    let len = usize::try_from(*end - *at).unwrap_or(PIECE_BYTES);
                    let part = &mut buffer[..len.min(PIECE_BYTES)];
                    file.read_exact_at(part, *at)?;
                    let written = taken.write_some(part)?;
                    *at += written as u64;
                    if written < part.len() {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }
}

impl Progress {
    /// A request whose body the app has not read and which the app has not answered.
    pub(super) fn new(answer: AnswerWriter, input: Input) -> Self {
        Self {
            answer,
            input,
            is_answered: false,
            trailers: None,
            is_client_gone: false,
            gone_us: None,
            drops: 0,
            beyond: 0,
            is_left: false,
            receivers: Waiters::default(),
            senders: Waiters::default(),
            pending: VecDeque::new(),
            pieces: 0,
            given_up: 0,
            task: None,
            cancelled: None,
            idle: Idle::Seen(u64::MAX),
        }
    }

    /// Called at intervals: if nothing was written since the last call, the slot gives back memory that only the request, or the answer so far,
    /// needed.
    pub(super) fn rest(&mut self) {
        // The body that is still to be read from the memory keeps it.
        let (Input::Memory { len: 0, .. }
        | Input::Begun { len: 0, .. }
        | Input::Coming
        | Input::File { .. }
        | Input::Over) = self.input
        else {
            return;
        };
        let Some(taken) = &mut self.answer.taken else {
            return;
        };
        let written = taken.written();
        self.idle = match self.idle {
            Idle::Rests(then) if then == written => return,
            Idle::Seen(then) if then == written && taken.give_back() => Idle::Rests(written),
            _ => Idle::Seen(written),
        };
    }

    /// Whether the request is over: nothing more comes from the client, and nothing more goes to it.
    pub(super) fn is_over(&self) -> bool {
        self.is_client_gone || (self.is_answered && self.pending.is_empty())
    }

    /// The request is past its deadline. Returns its task, which the caller cancels, unless it was cancelled before.
    pub(super) fn cancel(&mut self, py: Python<'_>) -> Option<Py<PyAny>> {
        let task = self.task.take()?;
        Some(self.cancelled.insert(task).clone_ref(py))
    }

    /// The next piece of the request's body.
    pub(super) fn next_piece<'py>(&mut self, py: Python<'py>) -> PyResult<Option<BodyPart<'py>>> {
        let Some(taken) = self.answer.taken.as_mut().filter(|_| !self.is_client_gone) else {
            return Ok(None);
        };
        let (bytes, next) = match &mut self.input {
            Input::Over => return Ok(None),
            Input::Memory { at, len } => (in_record(py, taken, *at, *len)?, Some(Input::Over)),
            Input::Begun { at, len } => (in_record(py, taken, *at, *len)?, Some(Input::Coming)),
            Input::Coming => {
                let (unread, end) = taken.inflow();
                let is_all = unread <= PIECE_BYTES;
                match end {
                    Inflow::Open if unread == 0 => return Ok(None),
                    Inflow::Broken if unread == 0 => {
                        self.is_client_gone = true;
                        return Ok(None);
                    }
                    Inflow::Complete if is_all => (come(py, taken, unread)?, Some(Input::Over)),
                    _ => (come(py, taken, unread.min(PIECE_BYTES))?, None),
                }
            }
            Input::File { file, left } => {
                let len = usize::try_from(*left)
                    .unwrap_or(PIECE_BYTES)
                    .min(PIECE_BYTES);
                let bytes = PyBytes::new_with(py, len, |bytes| Ok(file.read_exact(bytes)?))?;
                *left -= len as u64;
                (bytes, (*left == 0).then_some(Input::Over))
            }
        };
        if let Some(next) = next {
            self.input = next;
        }
        let is_last = matches!(self.input, Input::Over);
        Ok(Some(BodyPart { bytes, is_last }))
    }

    /// Whether the app has sent too many pieces after its client had everything.
    pub(super) fn is_far_beyond(&self) -> bool {
        self.beyond > BEYOND_PIECES_MAX
    }

    /// Whether more of the request's body has come, or the end of it.
    pub(super) fn has_input(&self) -> bool {
        let taken = self.answer.taken.as_ref();
        let inflow = taken.map(Taken::inflow);
        matches!(self.input, Input::Coming) && inflow.is_some_and(|inflow| inflow != NOTHING)
    }

    /// Sends a piece of the body, as far as there is room.
    pub(super) fn put(&mut self, py: Python<'_>, piece: &[u8], is_last: bool) -> PyResult<Put> {
        if self.answer.is_given() {
            self.beyond = self.beyond.saturating_add(1);
            if self.is_far_beyond() {
                return Err(client_gone());
            }
            // The acceptor lets go of a client that has everything, so the client misses nothing of this piece.
            if self.is_client_gone {
                return Ok(Put::Through);
            }
        }
        let whole = is_last && self.answer.stage == AnswerStage::Head;
        let body_len = whole.then_some(piece.len() as u64);
        self.answer.put_head(body_len, None, write_all)?;
        let piece = self.answer.owed_of(piece);
        if self.answer.is_trailed() && !piece.is_empty() {
            let prefix = piece_prefix(piece.len() as u64);
            return self.write(py, &[&prefix, piece].concat(), is_last);
        }
        self.write(py, piece, is_last)
    }

    /// Writes bytes behind the head, as far as there is room.
    pub(super) fn write(&mut self, py: Python<'_>, piece: &[u8], is_last: bool) -> PyResult<Put> {
        let written = if !self.pending.is_empty() {
            0
        } else if let Some(taken) = &mut self.answer.taken {
            taken.write_some(piece).map_err(|_| client_gone())?
        } else {
            return Err(client_gone());
        };
        if written == piece.len() && self.pending.is_empty() {
            self.is_through(is_last);
            return Ok(Put::Through);
        }
        let bytes = PyBytes::new(py, &piece[written..]).unbind();
        Ok(self.wait(UnsentPiece::Bytes { bytes, from: 0 }, is_last))
    }

    /// Writes a message of a WebSocket, if there is room.
    pub(super) fn write_message(
        &mut self,
        py: Python<'_>,
        head: &[u8],
        payload: &[u8],
    ) -> PyResult<Put> {
        if self.pending.is_empty()
            && let Some(taken) = &mut self.answer.taken
            && taken.makes_room(head.len() + payload.len())
        {
            for part in [head, payload] {
                taken.write_some(part).map_err(|_| client_gone())?;
            }
            taken.publish();
            return Ok(Put::Through);
        }
        self.write(py, &[head, payload].concat(), false)
    }

    /// Sends a file of `len` bytes as the whole body, through the exchange, as far as there is room.
    pub(super) fn put_file(&mut self, py: Python<'_>, file: File, len: u64) -> PyResult<Put> {
        self.answer.put_head(Some(len), None, write_all)?;
        let (at, end) = (0, self.answer.owed_of_file(len));
        if self.answer.is_trailed() {
            write_all(&mut self.answer.taken, &piece_prefix(end))?;
        }
        let is_last = !self.answer.promises_trailers();
        let mut piece = UnsentPiece::File { file, at, end };
        let Some(taken) = &mut self.answer.taken else {
            return Err(client_gone());
        };
        let is_all = piece.write_to(py, taken)?;
        self.body_given(true);
        if is_all {
            self.is_through(is_last);
            return Ok(Put::Through);
        }
        Ok(self.wait(piece, is_last))
    }

    /// Has a piece wait for room.
    fn wait(&mut self, piece: UnsentPiece, is_last: bool) -> Put {
        self.pieces += 1;
        self.pending.push_back(Pending {
            piece,
            is_last,
            number: self.pieces,
            future: None,
        });
        Put::Waits(self.pieces)
    }

    /// Keeps the future of the task that waits until a piece is written. False if it was written meanwhile.
    ///
    /// # Errors
    /// The client has gone meanwhile.
    pub(super) fn keep_waiting(
        &mut self,
        number: u64,
        future: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        // The pieces have consecutive numbers, so no search is needed: an app may have thousands of tasks that send to one client.
        let oldest = self.pending.front().map_or(number, |piece| piece.number);
        let place = number.checked_sub(oldest).map(|place| place as usize);
        if let Some(piece) = place.and_then(|place| self.pending.get_mut(place)) {
            piece.future = Some(future.clone().unbind());
            return Ok(true);
        }
        if self.is_client_gone {
            return Err(client_gone());
        }
        Ok(false)
    }

    /// A task has given up waiting until its piece is written, for example by a timeout. The task that sends next waits for that piece instead,
    /// before anything of its message is taken: otherwise each piece that a task gives up would take memory, without end.
    pub(super) fn give_up_waiting(&mut self) {
        self.given_up = self.pieces;
    }

    /// Whether a piece that a task has given up still waits for room.
    pub(super) fn is_behind(&self) -> bool {
        let oldest = self.pending.front();
        oldest.is_some_and(|piece| piece.number <= self.given_up)
    }

    /// The futures of the tasks whose turn to send has come.
    fn next_senders(&mut self) -> Vec<Py<PyAny>> {
        if self.is_behind() {
            return Vec::new();
        }
        self.senders.take()
    }

    /// Publishes the answer so far, all of which is written, or completes it.
    fn is_through(&mut self, is_last: bool) {
        if is_last {
            self.answer.complete();
        } else if let Some(taken) = &mut self.answer.taken {
            taken.publish();
        }
    }

    /// Writes the pieces that wait, as far as there is room. Returns the futures of the tasks whose pieces are written or that may send now, and the
    /// futures of the tasks whose client has gone.
    pub(super) fn flush(&mut self, py: Python<'_>) -> (Vec<Py<PyAny>>, Vec<Py<PyAny>>) {
        let mut done = Vec::new();
        while let Some(pending) = self.pending.front_mut() {
            let Some(taken) = &mut self.answer.taken else {
                break;
            };
            match pending.piece.write_to(py, taken) {
                Ok(true) => {}
                Ok(false) => break,
                Err(stopped) => {
                    if let Stopped::File(failure) = stopped {
                        error!(
                            "an answer breaks off, as the file that the app sends cannot be read: {failure}"
                        );
                    }
                    self.is_client_gone = true;
                    break;
                }
            }
            if let Some(Pending {
                is_last, future, ..
            }) = self.pending.pop_front()
            {
                self.is_through(is_last);
                done.extend(future);
            }
        }
        let mut failed = Vec::new();
        if self.is_client_gone {
            let pending = self.pending.drain(..);
            failed.extend(pending.filter_map(|pending| pending.future));
        }
        done.append(&mut self.next_senders());
        (done, failed)
    }

    /// Whether a piece waits for room.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether the acceptor has something for a WebSocket, or may have room for a piece that waits.
    pub(super) fn has_news(&self) -> bool {
        let taken = self.answer.taken.as_ref();
        let has_come = taken.is_some_and(|taken| taken.client_gone() || taken.inflow() != NOTHING);
        has_come || self.has_pending()
    }

    /// The worker can serve no more: gives back the slot as it is. Returns the task, which the caller cancels.
    pub(super) fn break_off(&mut self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.finish_gone();
        self.cancel(py)
    }

    /// The client has gone: gives back the slot.
    pub(super) fn finish_gone(&mut self) {
        self.is_client_gone = true;
        if let Some(taken) = self.answer.taken.take() {
            taken.finish(AnswerEnd::Broken);
        }
    }

    /// The app sends no more: gives back the slot, with its content. Returns the futures of the tasks that still wait to send.
    pub(super) fn give_back(&mut self, py: Python<'_>) -> Vec<Py<PyAny>> {
        if self.is_client_gone {
            self.finish_gone();
        } else if self.answer.taken.is_some() {
            self.answer.fail(py, write_all);
        }
        self.is_answered = true;
        self.input = Input::Over;
        let waiting = self.pending.drain(..);
        let waiting = waiting.filter_map(|pending| pending.future);
        waiting.chain(self.senders.take()).collect()
    }
}

/// Writes bytes that always fit, because nothing was written before them.
pub(super) fn write_all(taken: &mut Option<Taken<'static>>, bytes: &[u8]) -> PyResult<()> {
    let Some(taken) = taken else {
        return Ok(());
    };
    match taken.write_some(bytes) {
        Ok(written) if written == bytes.len() => Ok(()),
        Ok(_) => Err(PyValueError::new_err(
            "these bytes are longer than the answer's ring",
        )),
        Err(_) => Err(client_gone()),
    }
}

pub(super) fn client_gone() -> PyErr {
    ClientGone::new_err("the client has gone")
}
