//! Whether a client is still there while it waits for its answer.
//!
//! hyper notices one that has left by reading, and does not read where it has bytes of the next
//! request already, nor where half-closed connections are served. Then it is read here, ahead of
//! hyper, which gets these bytes when it asks for them.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tracing::debug;

/// Bytes of later requests that are read ahead of hyper. A client that has sent more is not seen
/// to leave before its answer is sent.
const AHEAD_BYTES_MAX: usize = 16 << 10;

/// A connection's socket, for hyper and for whoever looks out.
pub(super) struct Watched<S>(Rc<RefCell<Socket<S>>>);

struct Socket<S> {
    stream: S,
    /// What was read ahead, and how much of it hyper has had.
    ahead: Vec<u8>,
    taken: usize,
    /// What came after it.
    end: Option<io::Result<()>>,
    /// The task is woken when there is something to read.
    awaited: bool,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S) -> Self {
        Self(Rc::new(RefCell::new(Socket {
            stream,
            ahead: Vec::new(),
            taken: 0,
            end: None,
            awaited: false,
        })))
    }

    /// Another hold on the same socket.
    pub(super) fn share(&self) -> Self {
        Self(Rc::clone(&self.0))
    }

    /// The stream, once nobody shares it any more, and whether something was read of it that hyper
    /// did not ask for.
    pub(super) fn into_inner(self) -> (S, bool) {
        let socket = Rc::into_inner(self.0).expect("the caller has dropped all others");
        let socket = socket.into_inner();
        (socket.stream, socket.taken < socket.ahead.len())
    }

    /// hyper is about to be polled, and may read.
    pub(super) fn begin(&self) {
        self.0.borrow_mut().awaited = false;
    }
}

/// What is seen of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It is there, as far as can be told.
    Present,
    /// It sends no more. Nobody is woken when it leaves: look again.
    HalfClosed,
    /// It has left.
    Gone,
}

impl<S: AsyncRead + AsFd + Unpin> Watched<S> {
    /// Looks for the client, after hyper has been polled and while its request is answered. Wakes
    /// the task when there is news.
    pub(super) fn look(&self, context: &mut Context<'_>) -> Seen {
        let socket = &mut *self.0.borrow_mut();
        loop {
            if socket.awaited {
                return Seen::Present;
            }
            match &socket.end {
                Some(Ok(())) if is_hung_up(&socket.stream) => return Seen::Gone,
                Some(Ok(())) => return Seen::HalfClosed,
                Some(Err(_)) => return Seen::Gone,
                None if socket.ahead.len() - socket.taken >= AHEAD_BYTES_MAX => {
                    return Seen::Present;
                }
                None => socket.read_ahead(context),
            }
        }
    }
}

impl<S: AsyncRead + Unpin> Socket<S> {
    fn read_ahead(&mut self, context: &mut Context<'_>) {
        let mut bytes = [0; AHEAD_BYTES_MAX];
        let room = AHEAD_BYTES_MAX - (self.ahead.len() - self.taken);
        let mut buffer = ReadBuf::new(&mut bytes[..room]);
        match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
            Poll::Pending => self.awaited = true,
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => self.end = Some(Ok(())),
            Poll::Ready(Ok(())) => self.ahead.extend_from_slice(buffer.filled()),
            Poll::Ready(Err(error)) => self.end = Some(Err(error)),
        }
    }
}

/// Whether both directions are closed, or the connection is reset: poll(2) says `POLLHUP` or
/// `POLLERR` then, and with nothing asked nothing else.
fn is_hung_up(stream: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::empty())];
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(_) => fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR),
        Err(error) => {
            debug!("a connection cannot be looked at: {error}");
            false
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = &mut *self.0.borrow_mut();
        if socket.taken < socket.ahead.len() {
            let len = buffer.remaining().min(socket.ahead.len() - socket.taken);
            buffer.put_slice(&socket.ahead[socket.taken..socket.taken + len]);
            socket.taken += len;
            if socket.taken == socket.ahead.len() {
                (socket.ahead, socket.taken) = (Vec::new(), 0);
            }
            return Poll::Ready(Ok(()));
        }
        match &mut socket.end {
            Some(Ok(())) => return Poll::Ready(Ok(())),
            Some(end) => return Poll::Ready(std::mem::replace(end, Ok(()))),
            None => {}
        }
        let read = Pin::new(&mut socket.stream).poll_read(context, buffer);
        socket.awaited = read.is_pending();
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0.borrow_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0.borrow_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.borrow().stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.borrow_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.borrow_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream as StdStream;
    use std::task::Waker;

    use tokio::io::AsyncReadExt;
    use tokio::net::UnixStream;

    use super::*;

    fn run(test: impl AsyncFnOnce(StdStream, Watched<UnixStream>)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (client, server) = StdStream::pair().unwrap();
            server.set_nonblocking(true).unwrap();
            let server = UnixStream::from_std(server).unwrap();
            test(client, Watched::new(server)).await;
        });
    }

    /// Looks until what is seen is this.
    async fn wait_until(watched: &Watched<UnixStream>, expected: Seen) {
        std::future::poll_fn(|context| {
            watched.begin();
            if watched.look(context) == expected {
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
    }

    #[test]
    fn what_was_read_ahead_comes_first_and_then_the_end() {
        run(async |mut client, watched| {
            let mut context = Context::from_waker(Waker::noop());
            assert_eq!(watched.look(&mut context), Seen::Present);
            client.write_all(b"GET / HTTP/1.1").unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            wait_until(&watched, Seen::HalfClosed).await;
            let mut hyper = watched.share();
            let mut read = [0; 5];
            hyper.read_exact(&mut read).await.unwrap();
            let mut rest = Vec::new();
            hyper.read_to_end(&mut rest).await.unwrap();
            assert_eq!((&read[..], &rest[..]), (&b"GET /"[..], &b" HTTP/1.1"[..]));
        });
    }

    #[test]
    fn one_who_has_left_is_gone() {
        run(async |client, watched| {
            drop(client);
            wait_until(&watched, Seen::Gone).await;
        });
    }

    #[test]
    fn so_much_is_read_ahead_and_no_more() {
        run(async |mut client, watched| {
            client.write_all(&vec![b'x'; 3 * AHEAD_BYTES_MAX]).unwrap();
            drop(client);
            let mut context = Context::from_waker(Waker::noop());
            let ahead = || watched.0.borrow().ahead.len();
            while ahead() < AHEAD_BYTES_MAX {
                watched.begin();
                assert_eq!(watched.look(&mut context), Seen::Present);
                tokio::task::yield_now().await;
            }
            assert_eq!(watched.look(&mut context), Seen::Present);
            assert_eq!(ahead(), AHEAD_BYTES_MAX);
        });
    }
}
