//! A request on its way in: its head is checked, its body read whole, into memory or the spool.

use std::io::Write as _;
use std::net::IpAddr;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::Authority;
use http::{Method, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use stanchion_exchange::Area;
use stanchion_http::answer::put_field;
use stanchion_http::{Fault, Head, HeadLimits, HeadReader};
use stanchion_sys::clock::monotonic_us;

use super::Shared;
use super::clients::Client;
use super::connection::Connection;
use super::dispatch::PortNumber;
use super::memory::Held;
use super::pace::Pace;
use super::proxies::{forwarded_scheme, proxy_us};
use super::refusal::Refusal;
use super::request_id::{RequestId, RequestIds};
use super::spool::{SpoolError, SpoolFile, SpooledBody};
use crate::log::describe;
use crate::record::{RequestFacts, WholeBody, write_request};
use crate::settings::Settings;
use crate::tally::Event;

/// Pieces of a body of at least this size are kept as they were read; smaller ones are copied
/// together.
const PIECE_KEPT_BYTES: usize = 16 << 10;
/// Bytes gathered before they are written to a spool file in one go.
const SPOOL_WRITE_BYTES: usize = 256 << 10;

/// What a connection knows about where it comes from, once for all its requests.
pub(super) struct Peer {
    /// None on a unix socket.
    pub(super) ip: Option<IpAddr>,
    pub(super) address: String,
    pub(super) port: u16,
    pub(super) server_name: String,
    pub(super) server_port: String,
    pub(super) trusted: bool,
    /// The number of the port it came in by, if that is one that a single worker serves.
    pub(super) only_worker: Option<PortNumber>,
}

/// A request that has arrived whole.
pub(super) struct Arrived {
    pub(super) head: Parts,
    /// The same as the worker reads it.
    wire: Head,
    pub(super) body: ArrivedBody,
    pub(super) peer: Rc<Peer>,
    scheme: &'static str,
    /// What it is called, unless that is switched off.
    id: Option<RequestId>,
    /// How long it was with the proxies, if they say so and are believed.
    pub(super) proxy_us: Option<u64>,
    /// When its last byte was read, in microseconds of the monotonic clock.
    pub(super) arrived_us: u64,
}

/// A whole body.
pub(super) enum ArrivedBody {
    /// In pieces, as it was read.
    Memory {
        pieces: Vec<Bytes>,
        /// Counts them for as long as they are here.
        _held: Held,
    },
    Spooled(SpooledBody),
}

impl ArrivedBody {
    /// No body.
    pub(super) fn none(shared: &Rc<Shared>) -> Self {
        Self::Memory {
            pieces: Vec::new(),
            _held: Held::new(&shared.body_memory, 0),
        }
    }
}

impl Arrived {
    /// Puts a request together, now that it is here; and says what is wrong with it, if the
    /// proxies in front contradict each other.
    pub(super) fn new(
        mut head: Parts,
        body: ArrivedBody,
        peer: Rc<Peer>,
        ids: Option<&RequestIds>,
    ) -> (Self, Option<Refusal>) {
        // The host in a whole URI counts, and not what the field says (RFC 9112 section 3.2.2).
        if let Some(host) = head.uri.authority()
            && let Ok(host) = http::HeaderValue::from_str(host.as_str())
        {
            head.headers.insert(HOST, host);
        }
        let scheme = if peer.trusted {
            forwarded_scheme(&head.headers)
        } else {
            Ok("http")
        };
        let id = ids.map(|ids| ids.name(&head.headers, peer.trusted));
        let proxy_us = peer.trusted.then(|| proxy_us(&head.headers)).flatten();
        let wire = wire_head(&head).map_err(|fault| Refusal::BadRequest(fault.reason()));
        let (wire, scheme) = match wire {
            Ok(wire) => (wire, scheme),
            Err(refusal) => (Head::default(), scheme.and(Err(refusal))),
        };
        let arrived = Self {
            head,
            wire,
            body,
            peer,
            scheme: scheme.unwrap_or("http"),
            id,
            proxy_us,
            arrived_us: monotonic_us(),
        };
        (arrived, scheme.err())
    }

    /// What it is called.
    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_ref().map(RequestId::as_str)
    }

    /// `http` or `https`, after what trusted proxies say.
    pub(super) fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// Method, target and name, for logs.
    pub(super) fn describe(&self) -> String {
        describe(
            self.head.method.as_str(),
            target(&self.head.uri).as_bytes(),
            self.id().unwrap_or_default(),
        )
    }

    /// Whether to run it twice is to run it once (RFC 9110 section 9.2.2). Not if its body is in a
    /// file, which the app may have written to.
    pub(super) fn is_repeatable(&self) -> bool {
        let method = &self.head.method;
        (method.is_safe() || matches!(*method, Method::PUT | Method::DELETE))
            && matches!(self.body, ArrivedBody::Memory { .. })
    }

    /// Writes the record for the exchange; `None` if it does not fit.
    pub(super) fn write(&self, area: Area<'_>) -> Option<usize> {
        let facts = RequestFacts {
            is_https: self.scheme == "https",
            peer_address: self.peer.address.as_bytes(),
            peer_port: self.peer.port,
            server_name: self.peer.server_name.as_bytes(),
            server_port: self.peer.server_port.as_bytes(),
            trusted_peer: self.peer.trusted,
            request_id: self.id().unwrap_or_default().as_bytes(),
            proxy_us: self.proxy_us,
        };
        let body = match &self.body {
            ArrivedBody::Memory { pieces, .. } => WholeBody::Memory(pieces),
            ArrivedBody::Spooled(body) => WholeBody::Spooled {
                path: body.path()?.to_str()?,
                len: body.len,
            },
        };
        write_request(area, &facts, &self.wire, &body)
    }
}

/// The head as the exchange has it. Its limits have been looked at.
fn wire_head(parts: &Parts) -> Result<Head, Fault> {
    const LIMITS: HeadLimits = HeadLimits {
        line_bytes: usize::MAX,
        field_bytes: usize::MAX,
        fields: usize::MAX,
        head_bytes: usize::MAX,
    };
    let mut wire = Vec::with_capacity(1024);
    let (method, version) = (parts.method.as_str(), parts.version);
    let line = write!(wire, "{method} {} {version:?}\r\n", target(&parts.uri));
    line.expect("a vector takes everything");
    for (name, value) in &parts.headers {
        put_field(&mut wire, name.as_str().as_bytes(), value.as_bytes());
    }
    wire.extend_from_slice(b"\r\n");
    let mut head = Head::default();
    match HeadReader::default().read(&wire, &LIMITS, &mut head)? {
        Some(len) if len == wire.len() => Ok(head),
        Some(_) | None => Err(Fault::BadRequest("the head ends before it should")),
    }
}

/// The target: almost always a path, as it was sent, seldom a whole URI (RFC 9112 section 3.2), put together again.
/// A fragment, which none should have, was dropped when it was read.
pub(super) fn target(uri: &http::Uri) -> std::borrow::Cow<'_, str> {
    match (uri.scheme(), uri.authority(), uri.path_and_query()) {
        (None, None, Some(path)) => path.as_str().into(),
        _ => uri.to_string().into(),
    }
}

/// What hyper lets pass and we do not: our limits on a head (hyper knows those on the number of
/// fields and the size of the whole), the form of the target (RFC 9112 section 3.2), codings and
/// expectations we do not have (RFC 9112 section 6.1, RFC 9110 section 10.1.1), and a missing or
/// second Host.
pub(super) fn check_head(head: &Parts, settings: &Settings) -> Result<(), Refusal> {
    const AROUND_TARGET: usize = "  HTTP/1.1".len();
    let line = head.method.as_str().len() + target(&head.uri).len() + AROUND_TARGET;
    if settings.limit_request_line > 0 && line > settings.limit_request_line {
        return Err(Refusal::LineTooLong);
    }
    if head.method == http::Method::CONNECT {
        return Err(Refusal::Unimplemented("CONNECT, which is for proxies"));
    }
    if head.uri.path_and_query().is_none() {
        return Err(Refusal::BadRequest("the target is not a path"));
    }
    // It counts as the Host field does (RFC 9112 section 3.2.2), and is held to the same.
    if let Some(host) = head.uri.authority()
        && !is_whole_host(host)
    {
        return Err(Refusal::BadRequest("the target names no host"));
    }
    let field_max = settings.limit_request_field_size;
    let (mut hosts, mut codings) = (0, 0);
    for (name, value) in &head.headers {
        if field_max > 0 && name.as_str().len() + value.len() + ": ".len() > field_max {
            return Err(Refusal::FieldTooLarge);
        }
        if name == HOST {
            hosts += 1;
            if !is_host(value.as_bytes()) {
                return Err(Refusal::BadRequest("the Host field is not a host"));
            }
        } else if name == TRANSFER_ENCODING {
            codings += 1;
            if codings > 1 || !value.as_bytes().eq_ignore_ascii_case(b"chunked") {
                return Err(Refusal::Unimplemented(
                    "a transfer coding other than chunked",
                ));
            }
        } else if name == EXPECT && !value.as_bytes().eq_ignore_ascii_case(b"100-continue") {
            return Err(Refusal::UnknownExpectation);
        }
    }
    match hosts {
        1 => Ok(()),
        0 if head.version == Version::HTTP_10 => Ok(()),
        0 => Err(Refusal::BadRequest("HTTP/1.1 without a Host field")),
        _ => Err(Refusal::BadRequest("more than one Host field")),
    }
}

/// RFC 9112 section 3.2: a host and perhaps a port, or nothing.
fn is_host(value: &[u8]) -> bool {
    value.is_empty() || (!value.contains(&b'@') && Authority::try_from(value).is_ok())
}

/// RFC 9110 section 4.2: in a whole URI a host may not be empty, and what stands before an `@` is no
/// part of it: a server that takes it for one takes a client's word for another host.
fn is_whole_host(authority: &Authority) -> bool {
    !authority.host().is_empty() && !authority.as_str().contains('@')
}

/// Reads a body whole. Once it is, its length is known, and the fields say so: chunks are gone
/// (RFC 9112 section 7.1.3).
pub(super) async fn read_body(
    shared: &Rc<Shared>,
    connection: &Connection,
    head: &mut Parts,
    mut body: Incoming,
) -> Result<ArrivedBody, Refusal> {
    if body.is_end_stream() {
        head.headers.remove(TRANSFER_ENCODING);
        return Ok(ArrivedBody::none(shared));
    }
    let settings = &shared.common.settings;
    let body_max = settings.limit_request_body;
    if body_max > 0 && body.size_hint().exact().is_some_and(|len| len > body_max) {
        return Err(Refusal::BodyTooLarge);
    }
    let owner = Client::behind_proxies(
        &connection.peer,
        &head.headers,
        &settings.forwarded_allow_ips,
    );
    let mut sink = Sink::new(shared, owner);
    let mut len = 0_u64;
    // The watch looks at it, and has the reading called off.
    let mut pace = Pace::begin(shared.body_pace(), monotonic_us());
    loop {
        connection.set_pace(Some(pace));
        let frame =
            std::future::poll_fn(|context| std::pin::Pin::new(&mut body).poll_frame(context)).await;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| Refusal::of_body(&error))?;
        // Trailers are nothing WSGI has a place for.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        len += data.len() as u64;
        if body_max > 0 && len > body_max {
            return Err(Refusal::BodyTooLarge);
        }
        pace.came(data.len(), monotonic_us());
        connection.set_pace(Some(pace));
        sink.add(shared, data).await?;
        pace.go_on(monotonic_us());
    }
    connection.set_pace(None);
    if head.headers.remove(TRANSFER_ENCODING).is_some() {
        head.headers.insert(CONTENT_LENGTH, len.into());
    }
    sink.finish(shared).await
}

/// Where the bytes of a body go: into memory while they are few, else into a file.
struct Sink {
    /// What is in memory, in order: large pieces as they came, small ones put together, since
    /// each keeps the whole buffer alive that it was read into.
    pieces: Vec<Bytes>,
    small: BytesMut,
    held: Held,
    file: Option<SpoolFile>,
    /// Whose body it is, if that is known.
    owner: Option<Client>,
}

impl Sink {
    fn new(shared: &Rc<Shared>, owner: Option<Client>) -> Self {
        Self {
            owner,
            pieces: Vec::new(),
            small: BytesMut::new(),
            held: Held::new(&shared.body_memory, 0),
            file: None,
        }
    }

    async fn add(&mut self, shared: &Shared, data: Bytes) -> Result<(), Refusal> {
        self.held.add(data.len());
        if data.len() < PIECE_KEPT_BYTES {
            self.small.extend_from_slice(&data);
        } else {
            self.put_together();
            self.pieces.push(data);
        }
        let own_max = match &self.file {
            Some(_) => SPOOL_WRITE_BYTES,
            None => shared.common.settings.body_memory,
        };
        if self.held.bytes() > own_max || shared.body_memory.is_over() {
            self.write(shared).await?;
        }
        Ok(())
    }

    fn put_together(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(self.small.split().freeze());
        }
    }

    async fn write(&mut self, shared: &Shared) -> Result<(), Refusal> {
        let written = self.append(shared).await;
        written.map_err(|error| not_spooled(shared, &error))
    }

    async fn append(&mut self, shared: &Shared) -> Result<(), SpoolError> {
        self.put_together();
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let created = shared.spool.create(self.owner).await?;
                shared.common.tally.happened(Event::BodySpooled);
                self.file.insert(created)
            }
        };
        file.append(std::mem::take(&mut self.pieces)).await?;
        self.held.release();
        Ok(())
    }

    async fn finish(mut self, shared: &Shared) -> Result<ArrivedBody, Refusal> {
        self.put_together();
        if self.file.is_some() && !self.pieces.is_empty() {
            self.write(shared).await?;
        }
        Ok(match self.file.and_then(SpoolFile::close) {
            Some(spooled) => ArrivedBody::Spooled(spooled),
            None => ArrivedBody::Memory {
                pieces: self.pieces,
                _held: self.held,
            },
        })
    }
}

fn not_spooled(shared: &Shared, error: &SpoolError) -> Refusal {
    match error {
        SpoolError::Full => Refusal::SpoolFull,
        SpoolError::ShareFull => Refusal::SpoolShareFull,
        SpoolError::Disk(error) => {
            shared.cannot_spool(error);
            Refusal::SpoolFailed
        }
    }
}
