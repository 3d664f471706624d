//! How far a request of an ASGI app is: what of its body the app has got, and what of its answer is written.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stanchion_server::record::{AnswerHead, piece_prefix};
use stanchion_server::{Ending, Gone, Inflow, Taken};
use tracing::error;

use super::input::{Input, Part, come, in_record};
use super::waits::{Put, Waiters};
use crate::answer::{Answer, Stage};
use crate::response::ClientGone;

/// A body that is in a file is given to the app in pieces of this size.
const PIECE_BYTES: usize = 64 * 1024;

/// Nothing has come of a body that is still coming.
const NOTHING: (usize, Inflow) = (0, Inflow::Open);

/// How many pieces an app may send behind all that its client is to have: what a HEAD request leaves out, or an empty
/// one behind the promised length. Those of a large file; an endless stream that a HEAD request asks for ends there.
const BEYOND_PIECES_MAX: u32 = 16 * 1024;

/// How far a request is, and its answer.
pub(super) struct Progress {
    pub(super) answer: Answer,
    pub(super) input: Input,
    /// The answer is whole as far as the app goes; some of it may wait for room.
    pub(super) is_answered: bool,
    /// Once the body is whole, if the app has said that trailers come behind it: those that have come.
    pub(super) trailers: Option<AnswerHead>,
    pub(super) is_client_gone: bool,
    /// When the app was first found to send on after that, and how often it has.
    pub(super) gone_us: Option<u64>,
    pub(super) drops: u32,
    /// Pieces that the app has sent behind all that its client is to have.
    beyond: u32,
    /// The app's task has ended, but pieces that it has sent wait for room.
    pub(super) is_left: bool,
    pub(super) receivers: Waiters,
    /// Those who are to send nothing before what [`Self::give_up_waiting`] was called for is out.
    pub(super) senders: Waiters,
    /// Pieces of the answer for which there was no room, oldest first.
    pending: VecDeque<Pending>,
    /// The number of the last one.
    pieces: u64,
    /// Up to this one, somebody has given up waiting for them.
    given_up: u64,
    pub(super) task: Option<Py<PyAny>>,
    /// The task, once it was cancelled since it ran past its deadline.
    pub(super) cancelled: Option<Py<PyAny>>,
    idle: Idle,
}

/// What was found when [`Progress::rest`] was called last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Idle {
    /// So much was written.
    Seen(u64),
    /// So much was written, and memory was given back.
    Rests(u64),
}

/// A piece of the answer that waits for room.
struct Pending {
    piece: Piece,
    is_last: bool,
    number: u64,
    /// `None` until it is made, or if nobody waits.
    future: Option<Py<PyAny>>,
}

/// What is left of a piece.
enum Piece {
    /// From `from` on.
    Bytes { bytes: Py<PyBytes>, from: usize },
    /// This part of a file.
    File { file: File, at: u64, end: u64 },
}

/// Why nothing more of a piece is written. No Python object: it comes up under a lock.
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

impl Piece {
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
    /// A request that the app has not begun to read or answer.
    pub(super) fn new(answer: Answer, input: Input) -> Self {
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

    /// To be called now and then: if nothing was written since the last time, the slot keeps no memory that only the
    /// request needed, or what was answered until now.
    pub(super) fn rest(&mut self) {
        // What is still to be read from it keeps it.
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

    /// Whether nothing more comes from the client, and nothing more goes to it.
    pub(super) fn is_over(&self) -> bool {
        self.is_client_gone || (self.is_answered && self.pending.is_empty())
    }

    /// It is past its deadline: its task, if that is to be cancelled now.
    pub(super) fn cancel(&mut self, py: Python<'_>) -> Option<Py<PyAny>> {
        let task = self.task.take()?;
        Some(self.cancelled.insert(task).clone_ref(py))
    }

    /// The next piece of the request's body.
    pub(super) fn next_piece<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Part<'py>>> {
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
        Ok(Some(Part { bytes, is_last }))
    }

    /// Whether the app has sent too much behind all that its client is to have.
    pub(super) fn is_far_beyond(&self) -> bool {
        self.beyond > BEYOND_PIECES_MAX
    }

    /// Whether more of the request's body has come, or the end of it.
    pub(super) fn has_input(&self) -> bool {
        let taken = self.answer.taken.as_ref();
        let inflow = taken.map(Taken::inflow);
        matches!(self.input, Input::Coming) && inflow.is_some_and(|inflow| inflow != NOTHING)
    }

    /// Sends a piece, as far as there is room.
    pub(super) fn put(&mut self, py: Python<'_>, piece: &[u8], is_last: bool) -> PyResult<Put> {
        if self.answer.is_given() {
            self.beyond = self.beyond.saturating_add(1);
            if self.is_far_beyond() {
                return Err(client_gone());
            }
            // The acceptor lets go of who has all. What is left to say is missed by nobody.
            if self.is_client_gone {
                return Ok(Put::Through);
            }
        }
        let whole = is_last && self.answer.stage == Stage::Head;
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
        Ok(self.wait(Piece::Bytes { bytes, from: 0 }, is_last))
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

    /// Sends a file of so many bytes as all of the body, through the exchange, as far as there is room.
    pub(super) fn put_file(&mut self, py: Python<'_>, file: File, len: u64) -> PyResult<Put> {
        self.answer.put_head(Some(len), None, write_all)?;
        let (at, end) = (0, self.answer.owed_of_file(len));
        if self.answer.is_trailed() {
            write_all(&mut self.answer.taken, &piece_prefix(end))?;
        }
        let is_last = !self.answer.promises_trailers();
        let mut piece = Piece::File { file, at, end };
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
    fn wait(&mut self, piece: Piece, is_last: bool) -> Put {
        self.pieces += 1;
        self.pending.push_back(Pending {
            piece,
            is_last,
            number: self.pieces,
            future: None,
        });
        Put::Waits(self.pieces)
    }

    /// Keeps the future of who waits for the room of a piece. False if that is written meanwhile.
    ///
    /// # Errors
    /// The client has gone meanwhile.
    pub(super) fn keep_waiting(
        &mut self,
        number: u64,
        future: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        // They are numbered as they stand: an app may have thousands of tasks that send to one client.
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

    /// Somebody does not wait any more until what it has sent is written, such as with a timeout. Who sends next waits for
    /// that instead, before anything is taken of it: or each piece that is given up would take memory, without end.
    pub(super) fn give_up_waiting(&mut self) {
        self.given_up = self.pieces;
    }

    /// Whether that waits for room.
    pub(super) fn is_behind(&self) -> bool {
        let oldest = self.pending.front();
        oldest.is_some_and(|piece| piece.number <= self.given_up)
    }

    /// Those whose turn to send has come.
    fn next_senders(&mut self) -> Vec<Py<PyAny>> {
        if self.is_behind() {
            return Vec::new();
        }
        self.senders.take()
    }

    /// All that was given of the answer is written.
    fn is_through(&mut self, is_last: bool) {
        if is_last {
            self.answer.complete();
        } else if let Some(taken) = &mut self.answer.taken {
            taken.publish();
        }
    }

    /// Writes what waits for room, as far as there is some. Gives the futures of those who are through or may send now, and
    /// of those whose client has gone.
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
                        error!("a file that the app sends cannot be read: {failure}");
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

    /// Whether something waits for room.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether the acceptor has something for a WebSocket, or may have room for what waits.
    pub(super) fn has_news(&self) -> bool {
        let taken = self.answer.taken.as_ref();
        let has_come = taken.is_some_and(|taken| taken.client_gone() || taken.inflow() != NOTHING);
        has_come || self.has_pending()
    }

    /// The worker can serve no more: the slot goes back as it is. Gives the task, which is to be cancelled.
    pub(super) fn break_off(&mut self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.finish_gone();
        self.cancel(py)
    }

    /// The client has gone: the slot goes back.
    pub(super) fn finish_gone(&mut self) {
        self.is_client_gone = true;
        if let Some(taken) = self.answer.taken.take() {
            taken.finish(Ending::Broken);
        }
    }

    /// The app has no more to say: the slot goes back, with whatever is in it. Gives the futures of those who wait to
    /// say more all the same.
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

/// Writes what there is room for, since nothing else was written.
pub(super) fn write_all(taken: &mut Option<Taken<'static>>, bytes: &[u8]) -> PyResult<()> {
    let Some(taken) = taken else {
        return Ok(());
    };
    match taken.write_some(bytes) {
        Ok(written) if written == bytes.len() => Ok(()),
        Ok(_) => Err(PyValueError::new_err("it is longer than the answer's ring")),
        Err(_) => Err(client_gone()),
    }
}

pub(super) fn client_gone() -> PyErr {
    ClientGone::new_err("the client has gone")
}
