//! A streamed answer between its worker and its client: in memory while the client keeps up, and in a file when it does
//! not, so that the worker need not wait.
//!
//! The first bytes are in front, in memory. Behind them come the bytes in the file, if there is one. At the back, in
//! memory again, are the bytes that will be written to the file. Code here neither waits nor touches the disk: the
//! spooler asks for the next [`FileAction`], does it, and reports how it went.
//!
//! A full buffer does not show that a client is slow, since a worker fills it faster than any socket takes it. Only
//! when the seat has waited for longer than a quick client needs, the rest of the answer goes through a file. When the
//! client has caught up, only memory is used again. The file has no name, so nothing is left after SIGKILL. Another
//! thread writes it, one piece at a time. If there is no room (`response_spool`, `max_spool`, the disk), the seat waits
//! for the client.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use stanchion_exchange::AnswerEnd;

use crate::storage::memory::{Memory, Piece};

/// An answer may have so much in memory however much others have, so that it gets ahead at all. Also the most that is
/// read back at a time, and that waits to be written.
pub const OWN_BYTES: usize = 128 << 10;
/// A client is slow when its worker has waited this long for it, ...
pub(crate) const PATIENCE_US: u64 = 50_000;
/// ... and longer than it would have waited for a client that takes so much a second. A client on the same host or in
/// the same network is quicker, and costs no disk, however quick the worker is.
const QUICK_BYTES_PER_S: u64 = 32 << 20;

/// The limits of an answer.
pub struct Limits {
    /// Bytes in memory, for this answer: `response_buffer`.
    pub buffer_bytes: usize,
    /// Bytes in memory, for all answers: `max_response_memory`.
    pub memory: Rc<Memory>,
    /// Bytes in the file, for this answer: `response_spool`.
    pub spool_bytes: u64,
}

/// The next thing for the client.
pub enum Outgoing {
    /// A piece of the body.
    Piece(Piece),
    /// Nothing yet.
    Nothing,
    /// The body has ended.
    End(AnswerEnd),
}

/// How much of a body the connection can fetch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fetchable {
    /// Bytes that are there.
    pub len: usize,
    /// Nothing comes after it: the body is whole.
    pub is_last: bool,
}

/// Whether a worker should go on waiting for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// The worker does not wait.
    Unneeded,
    /// The worker waits, and may go on waiting.
    Left,
    /// The client is slow, and the worker should not wait for it.
    Over,
    /// The client is slow, and `response_spool` allows no file.
    Forced,
}

/// The next thing to do with the file.
#[derive(Debug, PartialEq, Eq)]
pub enum FileAction {
    /// Append these, then call [`Outflow::written`].
    Write(Vec<Bytes>),
    /// Read so many bytes from there, then call [`Outflow::read`].
    Read {
        /// Where in the file.
        offset: u64,
        /// How many bytes.
        len: usize,
    },
    /// Do nothing until a piece is pushed or popped.
    Wait,
    /// Give the file up, as it is not needed any more.
    Leave,
}

/// The part of an answer's body that has come from a worker and not gone to the client.
pub struct Outflow {
    limits: Rc<Limits>,
    front: PieceQueue,
    /// There is a file, or there will be.
    spooling: Option<Spooling>,
    end: Option<AnswerEnd>,
    /// Bytes that the client has taken.
    taken: u64,
    /// Since when the worker waits.
    held_since_us: Option<u64>,
    /// How long the worker has waited in all before that.
    held_us: u64,
    was_stuck: bool,
    /// The client has all there was, and the connection fetches what comes next from the exchange: see
    /// [`Outflow::fetches`].
    is_fetched: bool,
}

#[derive(Default)]
struct Spooling {
    /// The file has these bytes for the client, from here ...
    read: u64,
    /// ... to here.
    written: u64,
    back: PieceQueue,
    /// How many of the pieces at the back are being written.
    writing: usize,
    /// Not all of the back could be written when it was last tried.
    refused: bool,
    /// The disk has failed: nothing more is written, but what is in the file is still read.
    failed: bool,
}

#[derive(Default)]
struct PieceQueue {
    pieces: VecDeque<Piece>,
    bytes: usize,
}

impl Outflow {
    /// Makes the outflow of an answer of which nothing has come.
    pub fn new(limits: &Rc<Limits>) -> Self {
        Self {
            limits: Rc::clone(limits),
            front: PieceQueue::default(),
            spooling: None,
            end: None,
            taken: 0,
            held_since_us: None,
            held_us: 0,
            was_stuck: false,
            is_fetched: false,
        }
    }

    /// Notes whether the connection, which has sent all that it was given, fetches what comes next from the exchange
    /// itself, without a copy. It does so if `wanted`, but not as long as there is something here, which goes first.
    /// Gives whether it fetches.
    pub fn fetches(&mut self, wanted: bool, now_us: u64) -> bool {
        let is_empty = self.front.pieces.is_empty() && self.spooling.is_none();
        self.is_fetched = wanted && is_empty && self.end.is_none();
        if self.is_fetched {
            self.hold(false, now_us);
        }
        self.is_fetched
    }

    /// Whether there is a piece for the client, or the end.
    pub(crate) fn has_news(&self) -> bool {
        self.end.is_some() || self.front.bytes > 0
    }

    /// Whether the connection fetches, so that the worker's bytes stay in the exchange.
    pub(crate) fn is_fetched(&self) -> bool {
        self.is_fetched
    }

    /// Counts bytes that the connection has fetched and sent to the client.
    pub(crate) fn fetched(&mut self, bytes: usize) {
        self.taken += bytes as u64;
    }

    /// How many bytes may be pushed now.
    pub(crate) fn room(&self) -> usize {
        if let Some(spooling) = &self.spooling {
            return OWN_BYTES.saturating_sub(spooling.back.bytes);
        }
        let limits = &self.limits;
        let own = limits.buffer_bytes.saturating_sub(self.front.bytes);
        let least = OWN_BYTES.saturating_sub(self.front.bytes);
        own.min(limits.memory.left()).max(least)
    }

    /// Whether there is so much room that a look into the exchange is worth while.
    pub(crate) fn wants_more(&self) -> bool {
        let bytes_max = self.limits.buffer_bytes.max(OWN_BYTES);
        match &self.spooling {
            Some(spooling) => spooling.back.bytes * 2 <= OWN_BYTES,
            None => self.front.bytes * 2 <= bytes_max,
        }
    }

    /// Appends a piece of the body.
    pub fn push(&mut self, bytes: Bytes) {
        // Nothing follows the end of a body.
        if !bytes.is_empty() && self.end.is_none() {
            let piece = Piece::new(&self.limits.memory, bytes);
            match &mut self.spooling {
                Some(spooling) => spooling.back.push(piece),
                None => self.front.push(piece),
            }
        }
    }

    /// Ends the body. Only the first end counts.
    pub fn end(&mut self, end: AnswerEnd) {
        self.end.get_or_insert(end);
    }

    /// The client takes a piece of the body, or its end.
    pub fn pop(&mut self) -> Outgoing {
        let mut next = self.front.pop();
        let dry = self.spooling.as_mut().filter(|spooling| spooling.is_dry());
        if next.is_none()
            && let Some(spooling) = dry
        {
            next = spooling.back.pop();
        }
        if let Some(piece) = next {
            self.taken += piece.len() as u64;
            return Outgoing::Piece(piece);
        }
        let all = self.spooling.as_ref().is_none_or(Spooling::is_dry);
        match self.end {
            Some(end) if all => Outgoing::End(end),
            Some(_) | None => Outgoing::Nothing,
        }
    }

    /// Notes whether the worker waits for room.
    pub(crate) fn hold(&mut self, held: bool, now_us: u64) {
        match self.held_since_us {
            None if held => self.held_since_us = Some(now_us),
            Some(since_us) if !held => {
                self.held_us += now_us.saturating_sub(since_us);
                self.held_since_us = None;
            }
            Some(_) | None => {}
        }
    }

    /// Whether the worker should go on waiting for the client.
    pub fn patience(&self, now_us: u64) -> Patience {
        let Some(since_us) = self.held_since_us else {
            return Patience::Unneeded;
        };
        let quick_us = self.taken.saturating_mul(1_000_000) / QUICK_BYTES_PER_S;
        let held_us = self.held_us + now_us.saturating_sub(since_us);
        match held_us > PATIENCE_US + quick_us {
            true if self.limits.spool_bytes > 0 => Patience::Over,
            true => Patience::Forced,
            false => Patience::Left,
        }
    }

    /// Sends the pieces that are pushed from now on to a file, until the client has taken all that is in it.
    pub fn spool(&mut self) {
        self.spooling.get_or_insert_default();
    }

    /// Prepares for the last `bytes` of a body: they go to a file if they are more than all answers together have room
    /// for. They may exceed this answer's own buffer: else a client that keeps up would cost a file for lagging once.
    pub(crate) fn make_room(&mut self, bytes: usize) {
        if bytes > self.limits.memory.left() && self.limits.spool_bytes > 0 {
            self.spool();
        }
    }

    /// Whether there is a file, or will be.
    pub fn is_spooling(&self) -> bool {
        self.spooling.is_some()
    }

    /// Whether the worker has to wait for a slow client, since there is no room in a file. True once for an answer.
    pub(crate) fn gets_stuck(&mut self, now_us: u64) -> bool {
        let stuck = match &self.spooling {
            Some(spooling) => spooling.refused && self.held_since_us.is_some(),
            None => self.patience(now_us) == Patience::Forced,
        };
        stuck && !std::mem::replace(&mut self.was_stuck, true)
    }

    /// The next thing to do with the file.
    pub fn next_job(&mut self) -> FileAction {
        let Some(spooling) = &mut self.spooling else {
            return FileAction::Leave;
        };
        if spooling.is_dry() && spooling.written > 0 {
            // The client has caught up. The spooler owns the file, and gives it up only when this call says so.
            self.front.append(&mut spooling.back);
            self.spooling = None;
            return FileAction::Leave;
        }
        if spooling.read < spooling.written && self.front.bytes == 0 {
            let left = spooling.written - spooling.read;
            return FileAction::Read {
                offset: spooling.read,
                len: left.min(OWN_BYTES as u64) as usize,
            };
        }
        let room = self.limits.spool_bytes - spooling.written;
        match spooling.write(room) {
            Some(pieces) => FileAction::Write(pieces),
            None => {
                spooling.refused = spooling.back.bytes > 0;
                FileAction::Wait
            }
        }
    }

    /// Notes that a [`FileAction::Write`] was done, or could not be for want of room.
    pub fn written(&mut self, done: bool) {
        if let Some(spooling) = &mut self.spooling {
            let writing = std::mem::take(&mut spooling.writing);
            spooling.refused = !done;
            if done {
                for _ in 0..writing {
                    let piece = spooling.back.pop();
                    spooling.written += piece.map_or(0, |piece| piece.len() as u64);
                }
            }
        }
    }

    /// Notes that the disk has failed: the bytes that are not in the file yet wait for the client, and the worker too.
    pub fn disk_failed(&mut self) {
        self.written(false);
        if let Some(spooling) = &mut self.spooling {
            spooling.failed = true;
        }
    }

    /// Notes that a [`FileAction::Read`] was done, which brought these bytes.
    pub fn read(&mut self, bytes: Bytes) {
        if let Some(spooling) = &mut self.spooling {
            spooling.read += bytes.len() as u64;
            self.front.push(Piece::new(&self.limits.memory, bytes));
        }
    }

    /// Notes that the file cannot be read: the answer breaks off, since it is not whole.
    pub fn lost(&mut self) {
        self.end = Some(AnswerEnd::Broken);
        self.spooling = None;
    }

    /// Drops all bytes, as no client takes them any more.
    pub fn give_up(&mut self) {
        self.front = PieceQueue::default();
        self.spooling = None;
        self.end(AnswerEnd::Broken);
    }
}

impl Spooling {
    /// Whether the file has nothing that the client does not have, and will not have soon.
    fn is_dry(&self) -> bool {
        self.read == self.written && self.writing == 0
    }

    /// Gives as many pieces from the back as fit into `room`, to be written, if none are being written.
    fn write(&mut self, room: u64) -> Option<Vec<Bytes>> {
        if self.failed || self.writing > 0 {
            return None;
        }
        let mut bytes = 0;
        let fitting = self
            .back
            .pieces
            .iter()
            .map(Piece::bytes)
            .take_while(|piece| {
                bytes += piece.len() as u64;
                bytes <= room
            });
        let pieces: Vec<_> = fitting.cloned().collect();
        self.writing = pieces.len();
        (!pieces.is_empty()).then_some(pieces)
    }
}

impl PieceQueue {
    fn push(&mut self, piece: Piece) {
        self.bytes += piece.len();
        self.pieces.push_back(piece);
    }

    fn append(&mut self, later: &mut Self) {
        self.bytes += std::mem::take(&mut later.bytes);
        self.pieces.append(&mut later.pieces);
    }

    fn pop(&mut self) -> Option<Piece> {
        let piece = self.pieces.pop_front()?;
        self.bytes -= piece.len();
        Some(piece)
    }
}

#[cfg(test)]
mod tests;
