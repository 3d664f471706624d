//! One client connection: hyper speaks HTTP on it, and it is watched for those who dawdle.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use stanchion_sys::clock::monotonic_us;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tracing::{debug, info};

use super::Shared;
use super::goodbye::{has_more, say_goodbye};
use super::refusal::Refusal;
use super::request::Peer;
use super::service::answer;
use crate::tally::Outcome;

/// A connection, as the acceptor's watch sees it.
pub(super) struct Connection {
    /// Its number in [`Shared::connections`].
    number: u32,
    pub(super) peer: Rc<Peer>,
    phase: Cell<Phase>,
    order: Cell<Option<Order>>,
    waker: Cell<Option<Waker>>,
    /// The client may still be sending what nobody will read.
    unread: Cell<bool>,
    /// The next answer is the last.
    closing: Cell<bool>,
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
    /// All is said; what the client still sends is thrown away.
    Leaving { since_us: u64 },
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
    pub(super) fn new(number: u32, peer: Peer) -> Self {
        Self {
            number,
            peer: Rc::new(peer),
            phase: Cell::new(Phase::New {
                since_us: monotonic_us(),
            }),
            order: Cell::new(None),
            waker: Cell::new(None),
            unread: Cell::new(false),
            closing: Cell::new(false),
            stalled_since_us: Cell::new(None),
            flushes: Cell::new(0),
            flush_waker: Cell::new(None),
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.get()
    }

    pub(super) fn stalled_since_us(&self) -> Option<u64> {
        self.stalled_since_us.get()
    }

    /// Since when nobody would miss it, if so: nothing is being asked and nothing being told.
    pub(super) fn spare_since_us(&self) -> Option<u64> {
        match self.phase.get() {
            Phase::New { since_us } | Phase::Idle { since_us } | Phase::Leaving { since_us } => {
                self.stalled_since_us.get().is_none().then_some(since_us)
            }
            Phase::Reading { .. } | Phase::Busy => None,
        }
    }

    fn enter(&self, shared: &Shared, phase: Phase) {
        self.phase.set(phase);
        self.enroll(shared);
    }

    fn enroll(&self, shared: &Shared) {
        let is_spare = self.spare_since_us().is_some();
        let mut connections = shared.connections.borrow_mut();
        connections.set_spare(self.number, is_spare);
    }

    fn wrote(&self, shared: &Shared, is_pending: bool) {
        if is_pending == self.stalled_since_us.get().is_some() {
            return;
        }
        self.stalled_since_us.set(is_pending.then(monotonic_us));
        // hyper has had the whole answer for a while, but only now the client has it.
        if let (false, Phase::Idle { .. }) = (is_pending, self.phase.get()) {
            let since_us = monotonic_us();
            self.phase.set(Phase::Idle { since_us });
        }
        self.enroll(shared);
    }

    /// Gives an order; the connection's task acts on it.
    pub(super) fn order(&self, order: Order) {
        self.order.set(Some(order));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// A request has come.
    pub(super) fn busy(&self, shared: &Shared) {
        self.enter(shared, Phase::Busy);
    }

    /// Whether the next answer is to say that it is the last.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// What the client is still sending will not be read.
    pub(super) fn leave_unread(&self, unread: bool) {
        self.unread.set(unread);
    }

    /// An answer has been given to hyper whole, or was given up.
    pub(super) fn answered(&self, shared: &Shared) {
        let since_us = monotonic_us();
        self.enter(shared, Phase::Idle { since_us });
    }

    /// Nothing more will be read as a request.
    fn leaving(&self, shared: &Shared) {
        let since_us = monotonic_us();
        self.enter(shared, Phase::Leaving { since_us });
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

    fn received(&self, shared: &Shared) {
        if let Phase::New { .. } | Phase::Idle { .. } = self.phase.get() {
            let since_us = monotonic_us();
            self.enter(shared, Phase::Reading { since_us });
        }
    }

    pub(super) fn listen(&self, context: &Context<'_>) -> Option<Order> {
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
        shared: Rc::clone(&shared),
        ended: false,
    };
    let service = {
        let (shared, connection) = (Rc::clone(&shared), Rc::clone(&connection));
        service_fn(move |request| answer(Rc::clone(&shared), Rc::clone(&connection), request))
    };
    let mut http = shared.http.serve_connection(TokioIo::new(tracked), service);
    let end = poll_fn(|context| {
        shared.dispatch.borrow_mut().turn_if_late();
        match connection.listen(context) {
            Some(Order::Close) => {
                // What has come by now is a request like any other.
                if let Poll::Ready(end) = Pin::new(&mut http).poll(context) {
                    return Poll::Ready(End::Served(end));
                }
                // hyper would give up a head of which it has a part.
                if !matches!(connection.phase(), Phase::Reading { .. }) {
                    Pin::new(&mut http).graceful_shutdown();
                }
                connection.closing.set(true);
            }
            Some(Order::TimedOut) => return Poll::Ready(End::TimedOut),
            Some(Order::Drop) => return Poll::Ready(End::Dropped),
            None => {}
        }
        Pin::new(&mut http).poll(context).map(End::Served)
    })
    .await;
    let mut last_word = Bytes::new();
    let mut linger = connection.unread.get();
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
            last_word = Refusal::HeadTimeout.message();
            linger = true;
        }
    }
    if matches!(end, End::Dropped) {
        return;
    }
    let parts = http.into_parts();
    let Tracked {
        mut stream, ended, ..
    } = parts.io.into_inner();
    // Requests that were sent after the last one that we answer.
    linger |= !parts.read_buf.is_empty();
    if !ended && (linger || has_more(&mut stream).await) {
        connection.leaving(&shared);
        let gone = say_goodbye(&mut stream, &connection, &last_word).await;
        if let Err(error) = gone {
            debug!("the client did not wait for the last word: {error}");
        }
    }
}

/// A stream that tells the connection when a client begins to send, and when it takes nothing.
struct Tracked<S> {
    stream: S,
    connection: Rc<Connection>,
    shared: Rc<Shared>,
    /// The client has closed its direction.
    ended: bool,
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
            self.connection.received(&self.shared);
        } else if read.is_ready() && buffer.remaining() > 0 {
            self.ended = true;
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
        self.connection.wrote(&self.shared, written.is_pending());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.connection.wrote(&self.shared, written.is_pending());
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
