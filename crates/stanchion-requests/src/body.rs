//! A sink takes the bytes of a request's body: into memory while they are few, else into a file.

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use stanchion_http::Framing;

use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::request::{Body, InMemory};
use stanchion_dispatch::storage::clients::Client;
use stanchion_dispatch::storage::disk::Disk;
use stanchion_dispatch::storage::memory::{Held, Memory};
use stanchion_dispatch::storage::spool::{Spool, SpoolError, SpoolFile};

/// The most bytes of a piece. A piece is allocated when the piece before it is full, so a client has no more memory
/// than twice what it sent, however much it has announced.
const PIECE_BYTES_MAX: usize = 256 << 10;
/// The first piece has room for so much, if so much is announced.
const FIRST_PIECE_BYTES: usize = 64 << 10;
/// The smallest piece of a body whose length is not known.
const PIECE_BYTES_MIN: usize = 1 << 10;
/// Bytes gathered before they are written to a spool file in one go.
const SPOOL_WRITE_BYTES: usize = 256 << 10;

/// Takes a body that is being read.
pub struct Sink {
    /// The bytes in memory, in order: pieces that are full, and the piece that is being filled.
    pieces: Vec<Bytes>,
    filling: Vec<u8>,
    held: Held,
    memory: Rc<Memory>,
    /// How many bytes have come, in memory or not.
    len: u64,
    /// The length that the client has announced, if it has.
    announced: Option<u64>,
    /// All of the body has come.
    is_whole: bool,
    file: Option<SpoolFile>,
    /// The memory of the bytes that are being written.
    writing: Option<Held>,
    /// The client that sends the body, if it is known.
    owner: Option<Client>,
    connection: u32,
}

/// Whether more can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkState {
    /// The next bytes may come.
    Ready,
    /// The disk has something to do first; the connection is woken when it is done.
    Busy,
    /// The body cannot be taken, and the request gets this refusal.
    Failed(Refusal),
}

/// An event of a body that goes to a file, for the log and the counts.
#[derive(Debug)]
pub(crate) enum Noted {
    Nothing,
    /// The body has a file now.
    Spooled,
    /// The disk has no room, or fails.
    Failed(io::Error),
}

/// The disk, the spool and the limit of a sink.
pub(crate) struct Means<'m> {
    pub disk: &'m Disk,
    pub spool: &'m Rc<Spool>,
    /// Most bytes of one body in memory: `body_memory`.
    pub own_bytes_max: usize,
}

impl Sink {
    /// Makes a sink for a body of `connection`, which counts in `memory`.
    pub(crate) fn new(
        memory: &Rc<Memory>,
        owner: Option<Client>,
        framing: Framing,
        connection: u32,
    ) -> Self {
        let announced = match framing {
            Framing::Empty => Some(0),
            Framing::Length(len) => Some(len),
            Framing::Chunked | Framing::ToEnd => None,
        };
        Self {
            pieces: Vec::new(),
            filling: Vec::new(),
            held: Held::new(memory, 0),
            memory: Rc::clone(memory),
            len: 0,
            announced,
            is_whole: announced == Some(0),
            file: None,
            writing: None,
            owner,
            connection,
        }
    }

    /// How many bytes have come.
    #[allow(
        clippy::len_without_is_empty,
        reason = "no caller asks whether it is empty"
    )]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Takes the next bytes.
    pub fn add(&mut self, mut data: &[u8]) {
        let len = data.len();
        while !data.is_empty() {
            self.make_room(data.len());
            let room = self.filling.capacity() - self.filling.len();
            let (fitting, rest) = data.split_at(room.min(data.len()));
            self.filling.extend_from_slice(fitting);
            data = rest;
        }
        self.count(len);
    }

    /// Takes the next bytes, and keeps them as they are.
    pub fn add_piece(&mut self, piece: Bytes) {
        self.put_away();
        let len = piece.len();
        self.pieces.push(piece);
        self.count(len);
    }

    /// The buffer into which the connection may read the next bytes directly, behind those that are there; it says to
    /// [`Sink::placed`] how many they were. `None` for a body of unknown length, of which so few bytes may come that a
    /// copy is better. `plain` bytes are still to come.
    pub fn place(&mut self, plain: u64) -> Option<&mut Vec<u8>> {
        if plain == 0 || self.announced.is_none() {
            return None;
        }
        self.make_room(1);
        Some(&mut self.filling)
    }

    /// Counts bytes that were read into the buffer of [`Sink::place`].
    pub fn placed(&mut self, len: usize) {
        self.count(len);
    }

    /// Ends the body: no more bytes follow.
    pub fn end(&mut self) {
        self.is_whole = true;
    }

    /// Makes room for at least a byte; `wanted` bytes are at hand.
    fn make_room(&mut self, wanted: usize) {
        if self.filling.len() < self.filling.capacity() {
            return;
        }
        self.put_away();
        let came = self.len as usize;
        let bytes = match self.announced {
            // The piece has room for exactly what is missing, if that is not much more than came.
            Some(announced) => {
                let missing = announced.saturating_sub(self.len);
                let most = came.clamp(FIRST_PIECE_BYTES, PIECE_BYTES_MAX);
                missing.min(most as u64) as usize
            }
            None => came.max(wanted).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX),
        };
        self.filling = Vec::with_capacity(bytes.max(1));
    }

    fn put_away(&mut self) {
        if !self.filling.is_empty() {
            if self.filling.len() < self.filling.capacity() / 2 {
                self.filling.shrink_to_fit();
            }
            self.pieces.push(std::mem::take(&mut self.filling).into());
        }
    }

    fn count(&mut self, len: usize) {
        self.held.add(len);
        self.len += len as u64;
        self.is_whole |= self.announced == Some(self.len);
    }

    /// Goes on with the file, if there is one or has to be.
    pub(crate) fn advance(&mut self, means: &Means<'_>) -> (SinkState, Noted) {
        let mut noted = Noted::Nothing;
        if self.writing.is_some() {
            let file = self.file.as_mut();
            let Some(file) = file else {
                return (SinkState::Ready, noted);
            };
            let was_made = file.is_made();
            match file.appended() {
                None => return (SinkState::Busy, noted),
                Some(Ok(())) if was_made => {}
                Some(Ok(())) => noted = Noted::Spooled,
                Some(Err(error)) => return failed(SpoolError::Disk(error)),
            }
            self.writing = None;
        }
        if !self.must_write(means) {
            return (SinkState::Ready, noted);
        }
        self.put_away();
        let owner = self.owner;
        let file = self
            .file
            .get_or_insert_with(|| means.spool.file(means.disk, owner));
        match file.append(self.connection, std::mem::take(&mut self.pieces)) {
            Ok(()) => {
                self.writing = Some(std::mem::replace(
                    &mut self.held,
                    Held::new(&self.memory, 0),
                ));
                (SinkState::Busy, noted)
            }
            Err(error) => failed(error),
        }
    }

    fn must_write(&self, means: &Means<'_>) -> bool {
        if self.held.bytes() == 0 {
            return false;
        }
        let own_bytes_max = match &self.file {
            Some(_) if self.is_whole => return true,
            Some(_) => SPOOL_WRITE_BYTES,
            None => means.own_bytes_max,
        };
        self.held.bytes() > own_bytes_max || self.memory.is_over()
    }

    /// Whether no part of the body is in a file, or about to be.
    pub fn is_in_memory(&self) -> bool {
        self.file.is_none()
    }

    /// The part of the body that has come, if its rest goes elsewhere; only if the sink [`Self::is_in_memory`].
    pub fn into_start(mut self) -> Body {
        self.put_away();
        Body::Begun(InMemory::new(self.pieces, self.held))
    }

    /// The whole body; to be called once it is, and nothing is [`SinkState::Busy`].
    pub fn into_body(mut self) -> Body {
        self.put_away();
        if let Some(spooled) = self.file.and_then(SpoolFile::close) {
            return Body::Spooled(spooled);
        }
        if self.pieces.is_empty() {
            return Body::Empty;
        }
        Body::Memory(InMemory::new(self.pieces, self.held))
    }
}

fn failed(error: SpoolError) -> (SinkState, Noted) {
    match error {
        SpoolError::Full => (SinkState::Failed(Refusal::SpoolFull), Noted::Nothing),
        SpoolError::ShareFull => (SinkState::Failed(Refusal::SpoolShareFull), Noted::Nothing),
        SpoolError::Disk(error) => (
            SinkState::Failed(Refusal::SpoolFailed),
            Noted::Failed(error),
        ),
    }
}

#[cfg(test)]
mod tests;
