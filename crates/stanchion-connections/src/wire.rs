//! The bytes of an HTTP/2 connection on their way between the socket and h2, which takes and gives them by tokio's traits.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::overhead::Overhead;

/// How many bytes wait for the socket. h2 keeps further ones, within a bound for each stream.
const OUTWARD_BYTES_MAX: usize = 64 << 10;

/// The bytes between the socket and h2.
pub(super) struct Wire {
    pub(super) inward: Bytes,
    /// How much of `inward` h2 may still take now.
    pub(super) piece_left: usize,
    pub(super) overhead: Overhead,
    pub(super) outward: Vec<u8>,
    /// Nothing more comes from the client.
    pub(super) ended: bool,
}

impl Wire {
    /// Whether h2 has left input although it may take it, or the input has ended.
    pub(super) fn is_unread(&self) -> bool {
        self.ended || self.piece_left > 0 && !self.inward.is_empty()
    }

    /// Whether h2 has used up its piece of the input, and there is more.
    pub(super) fn has_next_piece(&self) -> bool {
        self.piece_left == 0 && !self.inward.is_empty()
    }
}

/// h2's end of the [`Wire`]. It wakes no task: code that moves bytes polls h2 again.
pub(super) struct Wired(pub(super) Rc<RefCell<Wire>>);

impl AsyncRead for Wired {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wire = &mut *self.0.borrow_mut();
        if wire.inward.is_empty() {
            return if wire.ended {
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            };
        }
        let len = into.remaining().min(wire.inward.len()).min(wire.piece_left);
        if len == 0 {
            return Poll::Pending;
        }
        let piece = wire.inward.split_to(len);
        wire.overhead.came(&piece);
        into.put_slice(&piece);
        wire.piece_left -= len;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wired {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outward = &mut self.0.borrow_mut().outward;
        let len = bytes
            .len()
            .min(OUTWARD_BYTES_MAX.saturating_sub(outward.len()));
        if len == 0 {
            return Poll::Pending;
        }
        outward.extend_from_slice(&bytes[..len]);
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
