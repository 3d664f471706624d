//! The body of an answer on its way out, fed to the connection as it can take it.

use std::fs::File;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tokio::task::JoinHandle;
use tracing::warn;

use super::Shared;
use super::access_log::Entry;
use super::app_head::Promised;
use super::connection::Connection;
use super::disk::{read_at, read_cached};
use super::memory::Piece;
use super::outflow::{Outflow, StreamEnd};
use super::service::Account;
use super::ticket::Ticket;
use crate::record::FilePart;
use crate::tally::Outcome;

/// How much of a file is read at a time.
const FILE_READ_BYTES: usize = 256 << 10;

/// What hyper sends after the head.
pub(super) struct AnswerBody {
    kind: Kind,
    /// Closed when the answer has been sent or given up, if it is the app's.
    account: Option<Account>,
    /// Bytes that the connection still wants, if that is known; with none it does not ask for the
    /// end.
    wanted: Option<u64>,
    /// Recorded when the answer has been sent or given up.
    entry: Option<Box<Entry>>,
    /// How often hyper had written everything when it was given the last piece.
    handed: Option<u64>,
    connection: Rc<Connection>,
    shared: Rc<Shared>,
}

enum Kind {
    Whole(Option<Piece>),
    Streamed(Rc<Ticket>),
    File(FileBody),
    /// It ends here though it is not whole. hyper drops what it has not written yet when a body
    /// fails, so what there was of it goes out first.
    Breaking {
        flushes: u64,
        error: Option<io::Error>,
    },
    Over,
}

impl AnswerBody {
    pub(super) fn whole(shared: &Rc<Shared>, connection: &Rc<Connection>, bytes: Bytes) -> Self {
        let piece = (!bytes.is_empty()).then(|| Piece::new(&shared.answers.memory, bytes));
        Self::new(shared, connection, Kind::Whole(piece))
    }

    pub(super) fn streamed(
        shared: &Rc<Shared>,
        connection: &Rc<Connection>,
        ticket: Rc<Ticket>,
    ) -> Self {
        Self::new(shared, connection, Kind::Streamed(ticket))
    }

    pub(super) fn file(
        shared: &Rc<Shared>,
        connection: &Rc<Connection>,
        file: File,
        part: FilePart,
    ) -> Self {
        Self::new(shared, connection, Kind::File(FileBody::new(file, part)))
    }

    fn new(shared: &Rc<Shared>, connection: &Rc<Connection>, kind: Kind) -> Self {
        let (connection, shared) = (Rc::clone(connection), Rc::clone(shared));
        Self {
            kind,
            account: None,
            wanted: None,
            entry: None,
            handed: None,
            connection,
            shared,
        }
    }

    /// Has the request counted at the end, by how the app's answer went.
    pub(super) fn counted(mut self, account: Account, promised: Promised) -> Self {
        self.account = Some(account);
        self.wanted = promised.bytes();
        self
    }

    /// Has those told at the end who keep records.
    pub(super) fn recorded(mut self, entry: Option<Box<Entry>>) -> Self {
        self.entry = entry;
        self
    }

    fn break_off(&mut self, error: io::Error) {
        if let Some(account) = &self.account {
            account.close(Outcome::BrokenOff);
        }
        self.kind = Kind::Breaking {
            flushes: self.connection.flushes(),
            error: Some(error),
        };
    }

    /// hyper keeps some hundred KiB for a slow client. When memory is short it gets the next piece
    /// only when it has written the last one; what is in files then stays there.
    fn poll_thrifty(&self, context: &Context<'_>) -> Poll<()> {
        match self.handed {
            Some(flushes) if self.shared.answers.memory.is_over() => {
                self.connection.poll_flushed(flushes, context)
            }
            Some(_) | None => Poll::Ready(()),
        }
    }

    fn count(&mut self, bytes: usize) {
        if let Some(wanted) = &mut self.wanted {
            *wanted = wanted.saturating_sub(bytes as u64);
        }
        if let Some(entry) = &mut self.entry {
            entry.bytes += bytes as u64;
        }
    }
}

impl http_body::Body for AnswerBody {
    type Data = Piece;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Piece>>>> {
        let this = &mut *self;
        if let Kind::Streamed(_) | Kind::File(_) = this.kind {
            ready!(this.poll_thrifty(context));
        }
        let piece = match &mut this.kind {
            Kind::Over => return Poll::Ready(None),
            Kind::Breaking { flushes, error } => {
                ready!(this.connection.poll_flushed(*flushes, context));
                let error = error.take();
                this.kind = Kind::Over;
                return Poll::Ready(error.map(Err));
            }
            Kind::Whole(piece) => {
                let piece = piece.take();
                this.kind = Kind::Over;
                match piece {
                    Some(piece) => piece,
                    None => return Poll::Ready(None),
                }
            }
            Kind::Streamed(ticket) => match ready!(ticket.poll_piece(context)) {
                Ok(piece) => {
                    this.shared.dispatch.borrow_mut().refill(ticket);
                    piece
                }
                Err(StreamEnd::Complete) => {
                    this.kind = Kind::Over;
                    return Poll::Ready(None);
                }
                Err(StreamEnd::Broken) => {
                    this.break_off(io::Error::other("the answer is not whole"));
                    return self.poll_frame(context);
                }
            },
            Kind::File(file) => match ready!(file.poll_read(context)) {
                Ok(None) => {
                    this.kind = Kind::Over;
                    return Poll::Ready(None);
                }
                Ok(Some(bytes)) => Piece::new(&this.shared.answers.memory, bytes),
                Err(error) => {
                    warn!("a file cannot be sent whole: {error}");
                    this.break_off(error);
                    return self.poll_frame(context);
                }
            },
        };
        this.count(piece.len());
        this.handed = Some(this.connection.flushes());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole(piece) => piece.is_none(),
            Kind::File(file) => file.left == 0,
            Kind::Over => true,
            Kind::Streamed(_) | Kind::Breaking { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(piece) => {
                SizeHint::with_exact(piece.as_ref().map_or(0, |piece| piece.len() as u64))
            }
            Kind::File(file) => SizeHint::with_exact(file.left),
            Kind::Over => SizeHint::with_exact(0),
            Kind::Streamed(_) | Kind::Breaking { .. } => SizeHint::default(),
        }
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        if let Kind::Streamed(ticket) = &self.kind {
            ticket.pour(Outflow::give_up);
            self.shared.dispatch.borrow_mut().abandon(ticket);
        }
        let outcome = self.account.as_ref().map(|account| {
            account.close(if self.is_end_stream() || self.wanted == Some(0) {
                Outcome::Answered
            } else if self.shared.refusing.get() {
                Outcome::CutAtShutdown
            } else {
                Outcome::AbandonedAnswering
            })
        });
        if let Some(mut entry) = self.entry.take() {
            // A refusal was counted when it was made.
            entry.outcome = outcome.unwrap_or(entry.outcome);
            self.shared.over(&entry);
        }
        self.connection.answered(&self.shared);
    }
}

/// A file that a worker handed over: read here, in pieces, so that the worker is free at once.
struct FileBody {
    file: std::sync::Arc<File>,
    offset: u64,
    left: u64,
    reading: Option<JoinHandle<io::Result<Vec<u8>>>>,
}

impl FileBody {
    fn new(file: File, part: FilePart) -> Self {
        Self {
            file: std::sync::Arc::new(file),
            offset: part.offset,
            left: part.len,
            reading: None,
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if self.left == 0 {
            return Poll::Ready(Ok(None));
        }
        let bytes = if let Some(reading) = &mut self.reading {
            let read = ready!(Pin::new(reading).poll(context));
            self.reading = None;
            read.map_err(io::Error::other)??
        } else {
            let len = self.left.min(FILE_READ_BYTES as u64) as usize;
            match read_cached(&self.file, self.offset, len) {
                Some(bytes) => bytes,
                // Not in the page cache: the disk must not hold up the event loop.
                None => {
                    let (file, offset) = (std::sync::Arc::clone(&self.file), self.offset);
                    let read = tokio::task::spawn_blocking(move || read_at(&file, offset, len));
                    self.reading = Some(read);
                    return self.poll_read(context);
                }
            }
        };
        if bytes.is_empty() {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file became shorter while it was sent",
            )));
        }
        self.offset += bytes.len() as u64;
        self.left -= bytes.len() as u64;
        Poll::Ready(Ok(Some(Bytes::from(bytes))))
    }
}
