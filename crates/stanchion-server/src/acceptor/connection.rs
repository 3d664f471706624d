//! One client connection: hyper speaks HTTP on it, and it is watched for those who dawdle.

use std::cell::Cell;
use std::future::poll_fn;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustix::net::sockopt::set_socket_linger;
use stanchion_sys::clock::monotonic_us;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::{debug, info};

use super::Shared;
use super::goodbye::{has_more, say_goodbye};
use super::pace::Pace;
use super::refusal::Refusal;
use super::request::Peer;
use super::service::answer;
use super::tracked::Tracked;
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
    /// What it spoke first was TLS.
    pub(super) speaks_tls: Cell<bool>,
    /// Requests so far.
    requests: Cell<u32>,
    /// How fast the body comes that is being read.
    pace: Cell<Option<Pace>>,
    /// Its sender is not waited for any longer.
    called_off: Cell<Option<Refusal>>,
    /// The client takes nothing of what is to be written to it.
    stall: Cell<Option<Stall>>,
    /// How often hyper had nothing more to write, and who waits for the next time.
    flushes: Cell<u64>,
    flush_waker: Cell<Option<Waker>>,
}

/// Bytes wait that the kernel has no room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    /// Since when nothing was taken, as far as we have looked.
    pub(super) since_us: u64,
    /// What the kernel had that was not taken, when we last looked.
    untaken: u64,
    /// Whether it has been asked to look again.
    pub(super) in_doubt: bool,
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
    /// The body takes too long: say so and close.
    CallOff(Refusal),
    /// Look whether the client has taken something: its kernel may have, while ours still has no
    /// room.
    LookAgain,
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
            speaks_tls: Cell::new(false),
            requests: Cell::new(0),
            pace: Cell::new(None),
            called_off: Cell::new(None),
            stall: Cell::new(None),
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

    pub(super) fn stall(&self) -> Option<Stall> {
        self.stall.get()
    }

    pub(super) fn pace(&self) -> Option<Pace> {
        self.pace.get()
    }

    /// The body that is being read, as far as it has come.
    pub(super) fn set_pace(&self, pace: Option<Pace>) {
        self.pace.set(pace);
    }

    /// Why the sender of the body is not waited for any longer, if so.
    pub(super) fn called_off(&self) -> Option<Refusal> {
        self.called_off.get()
    }

    /// Since when nobody would miss it, if so: nothing is being asked and nothing being told.
    pub(super) fn spare_since_us(&self) -> Option<u64> {
        match self.phase.get() {
            Phase::New { since_us } | Phase::Idle { since_us } | Phase::Leaving { since_us } => {
                self.stall.get().is_none().then_some(since_us)
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

    /// Nothing could be written.
    pub(super) fn stalled(&self, shared: &Shared, untaken: u64) {
        let begun = self.stall.get();
        if begun.is_none_or(|stall| untaken < stall.untaken) {
            self.stall.set(Some(Stall {
                since_us: monotonic_us(),
                untaken,
                in_doubt: false,
            }));
        }
        if begun.is_none() {
            self.enroll(shared);
        }
    }

    /// It is to look whether something was taken.
    pub(super) fn doubt(&self, stall: Stall) {
        self.stall.set(Some(Stall {
            in_doubt: true,
            ..stall
        }));
        self.order(Order::LookAgain);
    }

    /// Something was written.
    pub(super) fn wrote(&self, shared: &Shared) {
        if self.stall.take().is_none() {
            return;
        }
        // hyper has had the whole answer for a while, but only now the client has it.
        if let Phase::Idle { .. } = self.phase.get() {
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
        self.requests.set(self.requests.get().wrapping_add(1));
        self.called_off.set(None);
        self.enter(shared, Phase::Busy);
    }

    /// Whether the next answer is to say that it is the last, where so many requests may come
    /// (0 = any).
    pub(super) fn is_closing(&self, requests_max: u32) -> bool {
        self.closing.get() || (requests_max > 0 && self.requests.get() >= requests_max)
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

    pub(super) fn flushed(&self) {
        self.flushes.set(self.flushes.get() + 1);
        if let Some(waker) = self.flush_waker.take() {
            waker.wake();
        }
    }

    pub(super) fn received(&self, shared: &Shared) {
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
    /// No head could be read.
    Refused(Refusal),
    Dropped,
}

/// Serves a connection to its end.
pub(super) async fn serve<S>(shared: Rc<Shared>, connection: Rc<Connection>, stream: S)
where
    S: AsyncRead + AsyncWrite + AsFd + Unpin + 'static,
{
    let tracked = Tracked::new(stream, Rc::clone(&connection), Rc::clone(&shared));
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
            Some(Order::CallOff(refusal)) => connection.called_off.set(Some(refusal)),
            Some(Order::LookAgain) | None => {}
            Some(Order::TimedOut) => return Poll::Ready(End::Refused(Refusal::HeadTimeout)),
            Some(Order::Drop) => return Poll::Ready(End::Dropped),
        }
        let served = Pin::new(&mut http).poll(context);
        if connection.speaks_tls.get() {
            let refusal = Refusal::BadRequest("TLS on a port for plain HTTP");
            return Poll::Ready(End::Refused(refusal));
        }
        served.map(End::Served)
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
        End::Refused(refusal) => {
            shared.refuse_unread(&connection, *refusal);
            last_word = refusal.message();
            linger = true;
        }
    }
    let parts = http.into_parts();
    let Tracked {
        mut stream, ended, ..
    } = parts.io.into_inner();
    if matches!(end, End::Dropped) {
        if connection.stall().is_some() {
            give_up(&connection, &stream);
        }
        return;
    }
    // Requests that were sent after the last one that we answer.
    linger |= !parts.read_buf.is_empty();
    if !ended && (linger || has_more(&mut stream).await) {
        leave(&shared, &connection, &mut stream, &last_word).await;
    }
}

/// Tells a client that it is not served, whatever it asks.
pub(super) async fn turn_away<S>(
    shared: Rc<Shared>,
    connection: Rc<Connection>,
    mut stream: S,
    refusal: Refusal,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    shared.refuse_unread(&connection, refusal);
    leave(&shared, &connection, &mut stream, &refusal.message()).await;
}

/// Closes a connection whose client takes nothing: by a reset, or the kernel would go on keeping
/// what it has for it for minutes (tcp(7), `SO_LINGER` of zero in socket(7)).
fn give_up(connection: &Connection, stream: &impl AsFd) {
    info!(
        "a client's fault: it took nothing of its answer in time (from {:?})",
        connection.peer.address
    );
    if let Err(error) = set_socket_linger(stream, Some(Duration::ZERO)) {
        debug!("the kernel keeps what the client did not take: {error}");
    }
}

async fn leave<S>(shared: &Shared, connection: &Connection, stream: &mut S, last_word: &[u8])
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    connection.leaving(shared);
    if let Err(error) = say_goodbye(stream, connection, last_word).await {
        debug!("the client did not wait for the last word: {error}");
    }
}

impl Shared {
    /// A request was refused of which no head was read.
    fn refuse_unread(&self, connection: &Connection, refusal: Refusal) {
        let (status, reason) = (refusal.status().as_u16(), refusal.reason());
        let address = &connection.peer.address;
        info!("{status}: a client's fault: {reason} (from {address:?})");
        self.count_unreadable(refusal.outcome());
    }
}
