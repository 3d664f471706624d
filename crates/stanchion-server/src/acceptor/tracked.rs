//! A client's stream, as hyper reads and writes it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use stanchion_sys::outgoing::untaken;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Shared;
use super::connection::{Connection, Phase};

/// What a client that speaks TLS sends first: a record of its handshake (RFC 8446 section 5.1). No
/// method begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

/// A stream that tells the connection when a client begins to send, and when it takes nothing.
pub(super) struct Tracked<S> {
    pub(super) stream: S,
    connection: Rc<Connection>,
    shared: Rc<Shared>,
    /// The client has closed its direction.
    pub(super) ended: bool,
}

impl<S: AsFd> Tracked<S> {
    pub(super) fn new(stream: S, connection: Rc<Connection>, shared: Rc<Shared>) -> Self {
        Self {
            stream,
            connection,
            shared,
            ended: false,
        }
    }

    fn wrote(&self, written: &Poll<io::Result<usize>>) {
        if written.is_pending() {
            // Where it cannot be told, nothing is ever taken.
            let untaken = untaken(self.stream.as_fd()).unwrap_or(u64::MAX);
            self.connection.stalled(&self.shared, untaken);
        } else {
            self.connection.wrote(&self.shared);
        }
    }
}

impl<S: AsFd> AsFd for Tracked<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tracked<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            let first = buffer.filled()[before];
            if matches!(self.connection.phase(), Phase::New { .. }) && first == TLS_HANDSHAKE {
                self.connection.spoke_tls();
                // hyper need not see any of it.
                return Poll::Pending;
            }
            self.connection.received(&self.shared);
        } else if read.is_ready() && buffer.remaining() > 0 {
            self.ended = true;
        }
        read
    }
}

impl<S: AsyncWrite + AsFd + Unpin> AsyncWrite for Tracked<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper calls this when its own buffer is empty.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.flushed();
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
