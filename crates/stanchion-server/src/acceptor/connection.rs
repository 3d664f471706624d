//! One client connection: hyper speaks HTTP on it, and it is watched for those who dawdle.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use stanchion_sys::clock::monotonic_us;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tracing::{debug, info};

use super::Shared;
use super::request::Peer;
use super::service::answer;
use crate::tally::Outcome;

/// A client that is still sending when it has been refused gets this long, and may send this
/// much, so that closing does not reset the connection and destroy the answer (RFC 9112
/// section 9.6).
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 16 << 20;
/// How long writing a last word may take.
const LAST_WORD: Duration = Duration::from_secs(1);

/// A connection, as the acceptor's watch sees it.
pub(super) struct Connection {
    pub(super) peer: Rc<Peer>,
    phase: Cell<Phase>,
    order: Cell<Option<Order>>,
    waker: Cell<Option<Waker>>,
    /// The client may still be sending what nobody will read.
    unread: Cell<bool>,
    /// Since when the client has taken nothing of what is to be written to it.
    stalled_since_us: Cell<Option<u64>>,
    /// How often hyper had nothing more to write, and who waits for the next time.
    flushes: Cell<u64>,
    flush_waker: Cell<Option<Waker>>,
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Connected, and nothing has come yet.
    New { since_us: u64 },
    /// Between requests.
    Idle { since_us: u64 },
    /// A head is being read.
    Reading { since_us: u64 },
    /// A request is being answered.
    Busy,
}

/// What the watch asks of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Finish what is being answered, then close.
    Close,
    /// The head took too long: say so and close.
    TimedOut,
    /// Close without a word: nothing was ever asked.
    Drop,
}

impl Connection {
    pub(super) fn new(peer: Peer) -> Self {
        Self {
            peer: Rc::new(peer),
            phase: Cell::new(Phase::New {
                since_us: monotonic_us(),
            }),
            order: Cell::new(None),
            waker: Cell::new(None),
            unread: Cell::new(false),
            stalled_since_us: Cell::new(None),
            flushes: Cell::new(0),
            flush_waker: Cell::new(None),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.get()
    }

    pub(super) fn stalled_since_us(&self) -> Option<u64> {
        self.stalled_since_us.get()
    }

    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let stalled = written.is_pending();
        if stalled != self.stalled_since_us.get().is_some() {
            self.stalled_since_us.set(stalled.then(monotonic_us));
        }
        written
    }

    /// Gives an order; the connection's task acts on it.
    pub(super) fn order(&self, order: Order) {
        self.order.set(Some(order));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// A request has come.
    pub(super) fn busy(&self) {
        self.phase.set(Phase::Busy);
    }

    /// What the client is still sending will not be read.
    pub(super) fn leave_unread(&self, unread: bool) {
        self.unread.set(unread);
    }

    /// An answer has been given to hyper whole, or was given up.
    pub(super) fn answered(&self) {
        self.phase.set(Phase::Idle {
            since_us: monotonic_us(),
        });
    }

    /// How often everything given to hyper so far has been written.
    pub(super) fn flushes(&self) -> u64 {
        self.flushes.get()
    }

    /// Ready once all has been written after the moment when [`Connection::flushes`] gave `since`.
    pub(super) fn poll_flushed(&self, since: u64, context: &Context<'_>) -> Poll<()> {
        if self.flushes.get() > since {
            return Poll::Ready(());
        }
        self.flush_waker.set(Some(context.waker().clone()));
        Poll::Pending
    }

    fn flushed(&self) {
        self.flushes.set(self.flushes.get() + 1);
        if let Some(waker) = self.flush_waker.take() {
            waker.wake();
        }
    }

    fn received(&self) {
        if let Phase::New { .. } | Phase::Idle { .. } = self.phase.get() {
            self.phase.set(Phase::Reading {
                since_us: monotonic_us(),
            });
        }
    }

    fn listen(&self, context: &Context<'_>) -> Option<Order> {
        // Tasks keep their waker, so this clones once for most polls.
        let waker = self
            .waker
            .take()
            .filter(|waker| waker.will_wake(context.waker()));
        self.waker
            .set(Some(waker.unwrap_or_else(|| context.waker().clone())));
        self.order.take()
    }
}

/// How a connection came to its end.
enum End {
    Served(hyper::Result<()>),
    TimedOut,
    Dropped,
}

/// Serves a connection to its end.
pub(super) async fn serve<S>(shared: Rc<Shared>, connection: Rc<Connection>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let tracked = Tracked {
        stream,
        connection: Rc::clone(&connection),
    };
    let service = {
        let (shared, connection) = (Rc::clone(&shared), Rc::clone(&connection));
        service_fn(move |request| answer(Rc::clone(&shared), Rc::clone(&connection), request))
    };
    let mut http = shared.http.serve_connection(TokioIo::new(tracked), service);
    let end = poll_fn(|context| {
        shared.dispatch.borrow_mut().turn_if_late();
        match connection.listen(context) {
            Some(Order::Close) => Pin::new(&mut http).graceful_shutdown(),
            Some(Order::TimedOut) => return Poll::Ready(End::TimedOut),
            Some(Order::Drop) => return Poll::Ready(End::Dropped),
            None => {}
        }
        Pin::new(&mut http).poll(context).map(End::Served)
    })
    .await;
    let mut linger = connection.unread.get();
    let mut last_word = None;
    match &end {
        End::Served(Ok(())) | End::Dropped => {}
        End::Served(Err(error)) if error.is_parse() || error.is_parse_too_large() => {
            info!(
                "a client's fault: {error} (from {:?})",
                connection.peer.address
            );
            shared.count_unreadable(if error.is_parse_too_large() {
                Outcome::HeadTooLarge
            } else {
                Outcome::BadRequest
            });
            linger = true;
        }
        End::Served(Err(error)) => debug!("a connection broke off: {error}"),
        End::TimedOut => {
            info!(
                "a client's fault: the head did not arrive in time (from {:?})",
                connection.peer.address
            );
            shared.count_unreadable(Outcome::HeadTimeout);
            last_word = Some(
                "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 54\r\n\r\n408 Request Timeout: the head did not arrive in time.\n",
            );
            linger = true;
        }
    }
    if linger {
        let mut stream = http.into_parts().io.into_inner().stream;
        let gone = say_goodbye(&mut stream, last_word).await;
        if let Err(error) = gone {
            debug!("the client did not wait for the last word: {error}");
        }
    }
}

/// Sends a last word, then reads what the client still sends, so that closing resets nothing.
async fn say_goodbye<S>(stream: &mut S, last_word: Option<&str>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let saying = async {
        if let Some(last_word) = last_word {
            stream.write_all(last_word.as_bytes()).await?;
        }
        stream.shutdown().await
    };
    tokio::time::timeout(LAST_WORD, saying).await??;
    let draining = async {
        let mut waste = vec![0; 64 << 10];
        let mut read = 0;
        while read < LINGER_BYTES_MAX {
            match stream.read(&mut waste).await? {
                0 => break,
                len => read += len,
            }
        }
        io::Result::Ok(())
    };
    tokio::time::timeout(LINGER, draining).await?
}

/// A stream that tells the connection when a client begins to send.
struct Tracked<S> {
    stream: S,
    connection: Rc<Connection>,
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
            self.connection.received();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tracked<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.connection.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.connection.wrote(written)
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
