//! The admin listener: how the server is, for people, scrapers and probes. What is asked here never
//! waits in the line, and never costs more than a bounded share of the acceptor.

mod exposition;
mod metrics;
mod probe;
mod snapshot;
mod status;

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use stanchion_sys::listener::Listener;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::{debug, error};

use super::listen::{Closing, DoorSocket, Guest};
use super::{Shared, first_of};
use exposition::Flavour;
pub(super) use probe::Verdict;
pub(super) use status::{LaneStatus, LineStatus, SeatDoes, SeatStatus};

/// Connections at a time: a few scrapers, pages and probes.
const CONNECTIONS_MAX: usize = 64;
/// Without descriptors or memory for another one, how long accepting pauses.
const PAUSE: Duration = Duration::from_millis(100);
/// How long one may be idle, or take for a request.
const IDLE: Duration = Duration::from_secs(75);
/// Of a request's head; hyper's least is 8 KiB.
const HEAD_BYTES_MAX: usize = 16 << 10;

const PAGE: &str = include_str!("page.html");
/// The page is all there is: nothing else is loaded, and nobody else is asked.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; \
     script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Accepts on the admin listener as long as clients are let in here, and until the very end.
pub(super) fn spawn(shared: &Rc<Shared>, listener: &Listener) -> io::Result<()> {
    let socket = DoorSocket::of(listener)?;
    tokio::task::spawn_local(accept_all(Rc::clone(shared), socket));
    Ok(())
}

async fn accept_all(shared: Rc<Shared>, socket: DoorSocket) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(HEAD_BYTES_MAX);
    let http = Rc::new(http);
    let connected = Rc::new(Cell::new(0));
    shared.door_opens(&Cell::new(Closing::No)).await;
    // Another acceptor answers once this one retires.
    while !shared.retiring.get() {
        let changed = shared.door.notified();
        let mut accepted = None;
        first_of(changed, async { accepted = Some(socket.accept().await) }).await;
        let guest = match accepted {
            None => continue,
            Some(Ok(guest)) => guest,
            Some(Err(error)) => {
                error!("the admin listener cannot accept, trying again in {PAUSE:?}: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        if connected.get() >= CONNECTIONS_MAX {
            debug!("{CONNECTIONS_MAX} connections to the admin listener are enough: one is closed");
            continue;
        }
        let place = Place::take(&connected);
        match guest {
            Guest::Tcp(stream, _) => serve(&shared, &http, stream, place),
            Guest::Unix(stream) => serve(&shared, &http, stream, place),
        }
    }
}

/// One of [`CONNECTIONS_MAX`].
struct Place(Rc<Cell<usize>>);

impl Place {
    fn take(connected: &Rc<Cell<usize>>) -> Self {
        connected.set(connected.get() + 1);
        Self(Rc::clone(connected))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

fn serve<S>(shared: &Rc<Shared>, http: &Rc<http1::Builder>, stream: S, place: Place)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let (shared, http) = (Rc::clone(shared), Rc::clone(http));
    tokio::task::spawn_local(async move {
        let _place = place;
        let answer = service_fn(|request| {
            let mut answer = answer(&shared, &request).map(Full::new);
            if shared.retiring.get() {
                // Whoever asks next is to ask the acceptor that has the door now.
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(CONNECTION, close);
            }
            async move { Ok::<_, Infallible>(answer) }
        });
        if let Err(error) = http.serve_connection(TokioIo::new(stream), answer).await {
            debug!("a connection to the admin listener broke off: {error}");
        }
    });
}

fn answer(shared: &Shared, request: &Request<Incoming>) -> Response<Bytes> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
        return response;
    }
    match request.uri().path() {
        "/" => {
            let mut response = of_type("text/html; charset=utf-8", PAGE);
            let policy = HeaderValue::from_static(PAGE_POLICY);
            response
                .headers_mut()
                .insert(CONTENT_SECURITY_POLICY, policy);
            response
        }
        "/status" => match serde_json::to_string(&shared.snapshot()) {
            Ok(json) => of_type("application/json", json),
            Err(error) => {
                error!("the status cannot be told: our fault: {error}");
                text(StatusCode::INTERNAL_SERVER_ERROR, "see the error log\n")
            }
        },
        "/metrics" => {
            let accept = request.headers().get(ACCEPT);
            let accept = accept.and_then(|accept| accept.to_str().ok());
            let flavour = Flavour::accepted(accept.unwrap_or_default());
            let metrics = metrics::metrics(&shared.snapshot(), flavour);
            of_type(flavour.content_type(), metrics)
        }
        "/live" => Verdict::live().response(),
        "/ready" => shared.verdict_ready().response(),
        _ => text(
            StatusCode::NOT_FOUND,
            "there are /, /status, /metrics, /live and /ready\n",
        ),
    }
}

fn of_type(content_type: &'static str, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = Response::new(body.into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Bytes> {
    let mut response = of_type("text/plain; charset=utf-8", body);
    *response.status_mut() = status;
    response
}
