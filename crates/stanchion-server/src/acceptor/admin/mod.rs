//! The admin listener: how the server is, for people, scrapers and probes. What is asked here never
//! waits in the line, and what is told is gathered so seldom that it costs a bounded share of the acceptor.

mod exposition;
mod hosts;
mod metrics;
mod probe;
mod snapshot;
mod status;
mod told;

use std::cell::{Cell, RefCell};
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
use tokio::sync::Notify;
use tracing::{debug, error};

use super::listen::{Closing, DoorSocket, Guest};
use super::roll::Roll;
use super::{Shared, first_of};
use exposition::Flavour;
use hosts::{AllowedHosts, host_of};
pub(super) use probe::Verdict;
pub(super) use status::{LaneStatus, LineStatus, SeatDoes, SeatStatus};
use told::Telling;

/// Connections at a time: a few scrapers, pages and probes. One more takes the place of the one that has asked
/// nothing for the longest, so that nobody can keep a probe out by staying.
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
    let accepting = accept_all(Rc::clone(shared), socket);
    shared
        .vital
        .spawn("accepts on the admin listener", accepting);
    Ok(())
}

/// What the connections of the admin listener share.
struct Desk {
    shared: Rc<Shared>,
    http: http1::Builder,
    /// By which names it may be called; any, where no browser gets to it.
    hosts: Option<AllowedHosts>,
    telling: Telling,
    /// Each with what tells it to leave, the one that has asked nothing for the longest first.
    connected: RefCell<Roll<Rc<Notify>>>,
}

async fn accept_all(shared: Rc<Shared>, socket: DoorSocket) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(HEAD_BYTES_MAX);
    let is_tcp = matches!(socket, DoorSocket::Tcp(..));
    let desk = Rc::new(Desk {
        http,
        hosts: is_tcp.then(|| AllowedHosts::of(&shared.common.settings)),
        telling: Telling::default(),
        connected: RefCell::default(),
        shared: Rc::clone(&shared),
    });
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
        desk.make_room().await;
        let place = Place::take(&desk);
        match guest {
            Guest::Tcp(stream, _) => serve(place, stream),
            Guest::Unix(stream) => serve(place, stream),
        }
        // Whoever has a place is answered before more come in.
        tokio::task::yield_now().await;
    }
}

impl Desk {
    /// Sends away who has asked nothing for the longest, if all places are taken.
    async fn make_room(&self) {
        while self.connected.borrow().len() >= CONNECTIONS_MAX {
            let longest = self
                .connected
                .borrow()
                .longest_spare()
                .map(|(number, leave)| {
                    leave.notify_one();
                    number
                });
            if let Some(number) = longest {
                self.connected.borrow_mut().set_spare(number, false);
            }
            // It leaves when it has its turn.
            tokio::task::yield_now().await;
        }
    }
}

/// One of [`CONNECTIONS_MAX`].
struct Place {
    desk: Rc<Desk>,
    number: u32,
    leave: Rc<Notify>,
}

impl Place {
    fn take(desk: &Rc<Desk>) -> Self {
        let leave = Rc::new(Notify::new());
        let mut number = 0;
        desk.connected.borrow_mut().add(|its_number| {
            number = its_number;
            Rc::clone(&leave)
        });
        let place = Self {
            desk: Rc::clone(desk),
            number,
            leave,
        };
        place.asks();
        place
    }

    /// It is the last that is sent away.
    fn asks(&self) {
        let mut connected = self.desk.connected.borrow_mut();
        connected.set_spare(self.number, false);
        connected.set_spare(self.number, true);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.desk.connected.borrow_mut().remove(self.number);
    }
}

fn serve<S>(place: Place, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    tokio::task::spawn_local(async move {
        let desk = &place.desk;
        let answer = service_fn(|request| {
            place.asks();
            let mut answer = answer(desk, &request).map(Full::new);
            if desk.shared.retiring.get() {
                // Whoever asks next is to ask the acceptor that has the door now.
                let close = HeaderValue::from_static("close");
                answer.headers_mut().insert(CONNECTION, close);
            }
            async move { Ok::<_, Infallible>(answer) }
        });
        let served = async {
            let connection = desk.http.serve_connection(TokioIo::new(stream), answer);
            if let Err(error) = connection.await {
                debug!("a connection to the admin listener broke off: {error}");
            }
        };
        first_of(place.leave.notified(), served).await;
    });
}

fn answer(desk: &Desk, request: &Request<Incoming>) -> Response<Bytes> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
        return response;
    }
    // Probes give nothing away, and come by whatever name a balancer has for the server.
    match request.uri().path() {
        "/live" => return Verdict::live().response(),
        "/ready" => return desk.shared.verdict_ready().response(),
        _ => {}
    }
    if let Some(hosts) = &desk.hosts
        && !host_of(request).is_ok_and(|host| hosts.allow(host))
    {
        return text(StatusCode::MISDIRECTED_REQUEST, hosts::MISDIRECTED);
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
        "/status" => match desk.telling.status(&desk.shared) {
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
            let metrics = desk.telling.metrics(&desk.shared, flavour);
            of_type(flavour.content_type(), metrics)
        }
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
