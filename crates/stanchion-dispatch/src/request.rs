//! A request that has arrived, as the line and the exchange need it.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use bytes::Bytes;
use stanchion_exchange::Area;
use stanchion_http::{HTTP2, Head, ProxyHeader};
use stanchion_websocket::Deflate;

use super::request_id::RequestId;
use crate::storage::clients::Client;
use crate::storage::memory::Held;
use crate::storage::spool::SpooledBody;
use stanchion_log::describe;
use stanchion_record::{BodySource, RequestFacts, write_request};
use stanchion_settings::{AllowedPeers, Believed};

/// The number of a port of a single worker. The ports of `worker_port_base` are counted from 0; the master numbers the
/// others, beyond them.
pub type PortNumber = u32;

/// The peer of a connection, described once for all requests of the connection.
#[derive(Clone)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is known of it by itself"
)]
pub struct Peer {
    /// `None` on a unix socket.
    pub ip: Option<IpAddr>,
    /// The address as text; empty on a unix socket.
    pub address: String,
    /// The port of the peer.
    pub port: u16,
    /// The address that the peer connected to.
    pub server_name: Rc<str>,
    /// The port that the peer connected to.
    pub server_port: Rc<str>,
    /// The server believes what it says about clients (`forwarded_allow_ips`).
    pub trusted: bool,
    /// `http` or `https`, by which the connection came.
    pub scheme: &'static str,
    /// Its connection begins with a handshake of TLS, behind a PROXY header if there is one.
    pub speaks_tls: bool,
    /// The facts about its TLS that each of its requests gives the app, once the handshake is over
    /// ([`tls_values`](stanchion_record::tls_values)).
    pub tls: Rc<[u8]>,
    /// Its connection begins with a PROXY header, which names the client.
    pub sends_proxy_header: bool,
    /// Its requests are packets of the uwsgi protocol, which name the client.
    pub sends_packets: bool,
    /// The number of the port that the connection came in by, if a single worker serves that port.
    pub only_worker: Option<PortNumber>,
}

impl Peer {
    /// The peer for which a proxy speaks with this header.
    #[must_use]
    pub fn behind(&self, header: &ProxyHeader, believed: &AllowedPeers) -> Self {
        let mut peer = Self {
            sends_proxy_header: false,
            ..self.clone()
        };
        if header.is_tls {
            peer.scheme = "https";
        }
        if let Some((source, destination)) = header.addresses {
            peer.name_client(source.ip(), source.port(), believed);
            peer.server_name = destination.ip().to_canonical().to_string().into();
            peer.server_port = destination.port().to_string().into();
        }
        peer
    }

    /// Takes the client that its proxy names. It is not believed because the proxy is, nor by a `*` that is meant for the
    /// proxy: its own address must be listed.
    fn name_client(&mut self, ip: IpAddr, port: u16, believed: &AllowedPeers) {
        let ip = ip.to_canonical();
        self.ip = Some(ip);
        self.address = ip.to_string();
        self.port = port;
        self.trusted = believed.lists(ip);
    }

    /// The peer for which a proxy speaks with a packet of the uwsgi protocol that has become this head.
    #[must_use]
    pub fn of_packet(&self, head: &Head, believed: &AllowedPeers) -> Self {
        let said = |name| {
            head.variable(name)
                .and_then(|value| std::str::from_utf8(value).ok())
        };
        let mut peer = Self {
            sends_packets: false,
            ..self.clone()
        };
        if let Some(ip) = said("REMOTE_ADDR").and_then(|text| text.parse::<IpAddr>().ok()) {
            let port = said("REMOTE_PORT").and_then(|text| text.parse().ok());
            peer.name_client(ip, port.unwrap_or_default(), believed);
        } else {
            // The packet does not name the client.
            peer.trusted = false;
        }
        if let Some(name) = said("SERVER_NAME") {
            peer.server_name = name.into();
        }
        if let Some(port) = said("SERVER_PORT").filter(|port| !port.is_empty()) {
            peer.server_port = port.into();
        }
        let is_https = said("HTTPS").is_some_and(|text| matches!(text, "on" | "1"))
            || said("UWSGI_SCHEME").or_else(|| said("REQUEST_SCHEME")) == Some("https");
        if is_https {
            peer.scheme = "https";
        }
        peer
    }

    /// The peer's address, if the peer is a single client, whose connections are counted. A proxy that the server
    /// believes speaks for many clients.
    pub fn limited_ip(&self) -> Option<IpAddr> {
        self.ip
            .filter(|_| !self.trusted && !self.sends_proxy_header && !self.sends_packets)
    }

    /// The client that sent a request; `None` if the request came through a proxy that does not name the client.
    pub fn client(&self, head: &Head, believed: &Believed) -> Option<Client> {
        Client::behind_proxies(self.ip, self.said(head), believed)
    }

    /// The head of a request, if the server believes what it says about the client.
    pub fn said<'h>(&self, head: &'h Head) -> Option<&'h Head> {
        self.trusted.then_some(head)
    }
}

/// A request that has arrived: whole, or so much of it that an app may begin with it.
pub struct Request {
    /// The head, as it was read.
    pub head: Head,
    /// The body, as far as it has come.
    pub body: Body,
    /// The client, or the proxy in front of it.
    pub peer: Rc<Peer>,
    /// `http` or `https`, after what trusted proxies say.
    pub scheme: &'static str,
    /// Its id, unless ids are switched off.
    pub id: Option<RequestId>,
    /// How long the proxies had it, if they say so and are believed.
    pub proxy_us: Option<u64>,
    /// When it arrived, in microseconds since the epoch, if the app is told so as `X-Request-Start`.
    pub request_start_us: Option<u64>,
    /// The values for the answer to its handshake, if it asks for a WebSocket.
    pub websocket: Option<Handshaken>,
    /// Whether hints may go ahead of its answer.
    pub takes_hints: bool,
    /// When the acceptor began to read it, in microseconds of the monotonic clock.
    pub started_us: u64,
    /// When the acceptor read the last byte that the request waited for, by the same clock.
    pub arrived_us: u64,
}

/// The values for the answer to the handshake of a WebSocket.
pub struct Handshaken {
    /// The value of `Sec-WebSocket-Accept`.
    pub accept: Box<str>,
    /// How messages are compressed, if they are.
    pub deflate: Option<Deflate>,
}

/// A body.
pub enum Body {
    /// There is none.
    Empty,
    /// A whole body in memory.
    Memory(InMemory),
    /// The start of a body, whose rest is still coming.
    Begun(InMemory),
    /// A whole body in a file.
    Spooled(SpooledBody),
}

/// The bytes that have come of a body, in the pieces in which they were read, until the acceptor needs them no more.
pub struct InMemory(RefCell<Option<(Vec<Bytes>, Held)>>);

impl InMemory {
    /// The pieces of a body, which count as in memory.
    pub fn new(pieces: Vec<Bytes>, held: Held) -> Self {
        Self(RefCell::new(Some((pieces, held))))
    }

    /// Whether the pieces are still here.
    pub fn is_kept(&self) -> bool {
        self.0.borrow().is_some()
    }

    fn forget(&self) {
        self.0.take();
    }

    /// Gives the pieces to `act`, unless they are gone.
    pub fn with<T>(&self, act: impl FnOnce(&[Bytes]) -> T) -> Option<T> {
        self.0.borrow().as_ref().map(|(pieces, _)| act(pieces))
    }
}

impl Request {
    /// Its id, if ids are on.
    pub fn id(&self) -> Option<&str> {
        self.id.as_ref().map(RequestId::as_str)
    }

    /// How messages of its WebSocket are compressed, if they are.
    pub fn deflate(&self) -> Option<Deflate> {
        self.websocket.as_ref()?.deflate
    }

    /// Method, target and id, for logs.
    pub fn describe(&self) -> String {
        let id = self.id().unwrap_or_default();
        describe(self.head.method(), self.head.target(), id)
    }

    /// Whether to run it twice is to run it once (RFC 9110 section 9.2.2). Not if its body is in a file, which the app
    /// may have written to; nor if the acceptor has handed over a part of the body, and keeps it no longer.
    pub(crate) fn is_repeatable(&self) -> bool {
        let method = self.head.method();
        let is_safe = matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE");
        let is_kept = match &self.body {
            Body::Empty => true,
            Body::Memory(body) => body.is_kept(),
            Body::Begun(_) | Body::Spooled(_) => false,
        };
        (is_safe || matches!(method, "PUT" | "DELETE")) && is_kept
    }

    /// Whether trailers may come behind the answer: over HTTP/2, to a client that says that it takes them (`TE`, which is
    /// `trailers` there or refused).
    pub(crate) fn takes_trailers(&self) -> bool {
        let head = &self.head;
        head.protocol() == HTTP2 && self.websocket.is_none() && head.first("te").is_some()
    }

    /// Whether its body is whole.
    pub(crate) fn is_whole(&self) -> bool {
        !matches!(self.body, Body::Begun(_))
    }

    /// Forgets the body once the exchange has it, unless it may be handed over twice, so that the next body is read
    /// into the same memory, which is in the cache of the core. The body is kept for the port of a single worker, as
    /// the port may pass to another worker, which gets the requests that no seat has taken. Else it is kept only for
    /// requests that may be repeated, if `repeats` allows that.
    pub(crate) fn forget_body(&self, repeats: bool) {
        match &self.body {
            Body::Begun(body) => body.forget(),
            Body::Memory(body) => {
                let is_portbound = self.peer.only_worker.is_some();
                let may_follow = is_portbound || (repeats && self.is_repeatable());
                if !may_follow {
                    body.forget();
                }
            }
            Body::Empty | Body::Spooled(_) => {}
        }
    }

    /// Writes the record for the exchange; `None` if it does not fit.
    pub(crate) fn write(&self, area: Area<'_>) -> Option<usize> {
        let facts = RequestFacts {
            is_https: self.scheme == "https",
            peer_address: self.peer.address.as_bytes(),
            peer_port: self.peer.port,
            server_name: self.peer.server_name.as_bytes(),
            server_port: self.peer.server_port.as_bytes(),
            trusted_peer: self.peer.trusted,
            request_id: self.id().unwrap_or_default().as_bytes(),
            tls: &self.peer.tls,
            proxy_us: self.proxy_us,
            request_start_us: self.request_start_us,
            is_websocket: self.websocket.is_some(),
            takes_hints: self.takes_hints,
            takes_trailers: self.takes_trailers(),
            deflate_bits: self.deflate().map(Deflate::window_bits),
        };
        let write = |body: BodySource<'_>| write_request(area, &facts, &self.head, &body);
        match &self.body {
            Body::Empty => write(BodySource::Memory(&[])),
            Body::Memory(body) => body.with(|pieces| write(BodySource::Memory(pieces)))?,
            Body::Begun(body) => body.with(|pieces| write(BodySource::Begun(pieces)))?,
            Body::Spooled(body) => write(BodySource::Spooled {
                path: body.path()?.to_str()?,
                len: body.len,
            }),
        }
    }
}
