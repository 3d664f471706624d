//! Serving a connection to its end: hyper speaks HTTP on it, and we say goodbye.

use std::future::poll_fn;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustix::net::sockopt::set_socket_linger;
use stanchion_sys::clock::monotonic_us;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::{debug, info};

use super::Shared;
use super::connection::{Connection, Order, Phase};
use super::goodbye::{has_more, say_goodbye};
use super::intake::CutOff;
use super::lookout::{Seen, Watched};
use super::refusal::Refusal;
use super::service::answer;
use super::tracked::Tracked;
use crate::tally::Outcome;

/// How a connection came to its end.
enum End {
    Served(hyper::Result<()>),
    /// No head could be read.
    Refused(Refusal),
    Dropped,
    CutOff(CutOff),
    /// The client left while it was to wait.
    Gone,
}

/// Serves a connection to its end.
pub(super) async fn serve<S>(shared: Rc<Shared>, connection: Rc<Connection>, stream: S)
where
    S: AsyncRead + AsyncWrite + AsFd + Unpin + 'static,
{
    let watched = Watched::new(Tracked::new(
        stream,
        Rc::clone(&connection),
        Rc::clone(&shared),
    ));
    let service = {
        let (shared, connection) = (Rc::clone(&shared), Rc::clone(&connection));
        service_fn(move |request| answer(Rc::clone(&shared), Rc::clone(&connection), request))
    };
    let io = TokioIo::new(watched.share());
    let mut http = shared.http.serve_connection(io, service);
    let end = poll_fn(|context| {
        shared.dispatch.borrow_mut().turn_if_late();
        watched.begin();
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
                connection.close_after_next();
            }
            Some(Order::CallOff(refusal)) => connection.call_off(refusal),
            Some(Order::LookAgain) | None => {}
            Some(Order::TimedOut) => return Poll::Ready(End::Refused(Refusal::HeadTimeout)),
            Some(Order::Drop) => return Poll::Ready(End::Dropped),
            Some(Order::CutOff(why)) => return Poll::Ready(End::CutOff(why)),
        }
        let served = Pin::new(&mut http).poll(context);
        if connection.speaks_tls() {
            let refusal = Refusal::BadRequest("TLS on a port for plain HTTP");
            return Poll::Ready(End::Refused(refusal));
        }
        if served.is_pending() && connection.is_waiting() {
            match watched.look(context) {
                Seen::Gone => return Poll::Ready(End::Gone),
                Seen::HalfClosed if !shared.common.settings.half_close => {
                    return Poll::Ready(End::Gone);
                }
                Seen::HalfClosed => connection.half_close(),
                Seen::Present => {}
            }
        }
        served.map(End::Served)
    })
    .await;
    let mut last_word = Bytes::new();
    let mut linger = connection.is_unread();
    match &end {
        End::Served(Ok(())) | End::Dropped | End::CutOff(_) => {}
        End::Gone => return,
        End::Served(Err(error)) if error.is_parse() || error.is_parse_too_large() => {
            let outcome = if error.is_parse_too_large() {
                Outcome::HeadTooLarge
            } else {
                Outcome::BadRequest
            };
            if shared.repeats.shows(outcome, monotonic_us()) {
                info!(
                    "a client's fault: {error} (from {:?})",
                    connection.peer.address
                );
            }
            shared.count_unreadable(outcome);
            linger = true;
        }
        End::Served(Err(error)) => debug!("a connection broke off: {error}"),
        End::Refused(refusal) => {
            shared.refuse_unread(&connection, *refusal);
            last_word = refusal.message();
            linger = true;
        }
    }
    drop(watched);
    let parts = http.into_parts();
    let (tracked, ahead) = parts.io.into_inner().into_inner();
    let Tracked {
        mut stream, ended, ..
    } = tracked;
    match end {
        End::Dropped => return,
        End::CutOff(why) => {
            shared.common.tally.happened(why.event());
            give_up(&connection, &stream, why);
            return;
        }
        End::Served(_) | End::Refused(_) | End::Gone => {}
    }
    // Requests that were sent after the last one that we answer.
    linger |= ahead || !parts.read_buf.is_empty();
    if !ended && (linger || has_more(&mut stream).await) {
        leave(&shared, &connection, &mut stream, &last_word).await;
    }
}

/// Tells a client that has too many connections that it is not served on this one, whatever it asks.
pub(super) async fn turn_away<S>(shared: Rc<Shared>, connection: Rc<Connection>, mut stream: S)
where
    S: AsyncRead + AsyncWrite + AsFd + Unpin,
{
    let refusal = Refusal::TooManyConnections;
    shared.refuse_unread(&connection, refusal);
    leave(&shared, &connection, &mut stream, &refusal.message()).await;
}

/// Has a connection reset when it is closed, of a client that is told on others that it has too many: to tell
/// it on all of them would take as many places as it likes.
pub(super) fn turn_out(shared: &Shared, connection: &Connection, stream: &impl AsFd) {
    let address = &connection.peer.address;
    let outcome = Outcome::TooManyConnections;
    if shared.repeats.shows(outcome, monotonic_us()) {
        info!("a client's fault: too many connections to be told so on each (from {address:?})");
    }
    shared.count_unreadable(outcome);
    reset(stream);
}

/// Gives up a client that does not take its answer: or the kernel would go on keeping what it has for it for
/// minutes.
fn give_up(connection: &Connection, stream: &impl AsFd, why: CutOff) {
    info!(
        "a client's fault: {} (from {:?})",
        why.reason(),
        connection.peer.address
    );
    reset(stream);
}

/// A connection that is closed now is reset (tcp(7), `SO_LINGER` of zero in socket(7)).
fn reset(stream: &impl AsFd) {
    if let Err(error) = set_socket_linger(stream, Some(Duration::ZERO)) {
        debug!("the kernel keeps what the client did not take: {error}");
    }
}

async fn leave<S>(shared: &Shared, connection: &Connection, stream: &mut S, last_word: &[u8])
where
    S: AsyncRead + AsyncWrite + AsFd + Unpin,
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
        if self.repeats.shows(refusal.outcome(), monotonic_us()) {
            info!("{status}: a client's fault: {reason} (from {address:?})");
        }
        self.count_unreadable(refusal.outcome());
    }
}
