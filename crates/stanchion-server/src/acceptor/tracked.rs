//! A client's stream, as hyper reads and writes it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rustix::net::{RecvFlags, recv};
use stanchion_sys::clock::monotonic_us;
use stanchion_sys::incoming::wake_at;
use stanchion_sys::outgoing::untaken;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tracing::debug;

use super::Shared;
use super::connection::{Connection, Phase};
use super::pace::doze_us;

/// What a client that speaks TLS sends first: a record of its handshake (RFC 8446 section 5.1). No
/// method begins with it.
const TLS_HANDSHAKE: u8 = 0x16;
/// How much of a head that drips wakes its connection at once.
const DRIPPED_BYTES: u16 = 1024;

/// A stream that tells the connection when a client begins to send, and when it takes nothing.
pub(super) struct Tracked<S> {
    pub(super) stream: S,
    connection: Rc<Connection>,
    shared: Rc<Shared>,
    /// The client has closed its direction.
    pub(super) ended: bool,
    /// How much has come of the head that is being read.
    head_bytes: u64,
    /// Nobody is woken for less than [`DRIPPED_BYTES`].
    dozes: bool,
}

impl<S: AsFd> Tracked<S> {
    pub(super) fn new(stream: S, connection: Rc<Connection>, shared: Rc<Shared>) -> Self {
        Self {
            stream,
            connection,
            shared,
            ended: false,
            head_bytes: 0,
            dozes: false,
        }
    }

    /// Sees to it that the kernel wakes us for each of a few bytes, or does not.
    fn set_dozes(&mut self, dozes: bool) {
        if self.dozes == dozes {
            return;
        }
        if !dozes {
            self.connection.wake_up();
        }
        match wake_at(self.stream.as_fd(), if dozes { DRIPPED_BYTES } else { 1 }) {
            Ok(()) => self.dozes = dozes,
            Err(error) => debug!("a connection is woken for each byte: {error}"),
        }
    }

    /// Bytes of a head came, or were looked for. If they drip they are left to gather: to wake the
    /// connection for each of them would cost as much as a request.
    fn doze(&mut self, since_us: u64) {
        let now_us = monotonic_us();
        let settings = &self.shared.common.settings;
        let until_us = doze_us(self.head_bytes, now_us.saturating_sub(since_us))
            .map(|doze_us| now_us + doze_us)
            .filter(|until_us| {
                let limit = settings.header_timeout.as_duration();
                limit.is_none_or(|limit| u128::from(until_us - since_us) < limit.as_micros())
            });
        match until_us {
            Some(until_us) => {
                self.set_dozes(true);
                self.connection.doze(&self.shared, until_us);
            }
            None => self.set_dozes(false),
        }
    }

    fn wrote(&self, written: &Poll<io::Result<usize>>) {
        match written {
            Poll::Pending => {
                // Where it cannot be told, what the kernel has taken is as good as sent.
                let untaken = untaken(self.stream.as_fd()).unwrap_or(0);
                self.connection.stalled(&self.shared, untaken);
            }
            Poll::Ready(written) => {
                let bytes = written.as_ref().map_or(0, |bytes| *bytes);
                self.connection.wrote(&self.shared, bytes);
            }
        }
    }
}

impl<S: AsFd> AsFd for Tracked<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl<S: AsyncRead + AsFd + Unpin> AsyncRead for Tracked<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let phase = self.connection.phase();
        if self.dozes && !matches!(phase, Phase::Reading { .. }) {
            self.set_dozes(false);
        }
        let before = buffer.filled().len();
        let mut read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let glanced = read.is_pending() && self.connection.take_glance();
        if glanced && glance(&self.stream, buffer) {
            read = Poll::Ready(Ok(()));
        }
        let bytes = buffer.filled().len() - before;
        if bytes > 0 {
            let first = buffer.filled()[before];
            if matches!(phase, Phase::New { .. }) && first == TLS_HANDSHAKE {
                self.connection.spoke_tls();
                // hyper need not see any of it.
                return Poll::Pending;
            }
            if let Phase::New { .. } | Phase::Idle { .. } = phase {
                self.head_bytes = 0;
            }
            self.head_bytes += bytes as u64;
            self.connection.received(&self.shared);
        } else if read.is_ready() && buffer.remaining() > 0 {
            self.ended = true;
        }
        if let Phase::Reading { since_us } = phase
            && (bytes > 0 || glanced)
        {
            self.doze(since_us);
        }
        read
    }
}

/// Reads what there is, also if it is too little to wake anybody. Errors and the end do, and are met
/// then.
fn glance(stream: &impl AsFd, buffer: &mut ReadBuf<'_>) -> bool {
    let mut bytes = [0; DRIPPED_BYTES as usize];
    let room = bytes.len().min(buffer.remaining());
    match recv(stream, &mut bytes[..room], RecvFlags::DONTWAIT) {
        Ok((_, len)) => {
            buffer.put_slice(&bytes[..len]);
            len > 0
        }
        Err(_) => false,
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
