//! Requests on their way in, and answers on their way out. A connection asks [`Requests`] for all that a request needs,
//! from its head to the last byte of its answer: the client that a proxy names, the body in memory or in a file, the
//! place in the line, the head of the answer, files of the operator and of the app, compression, and the record for
//! observers.
//!
//! This crate does not know how bytes come and go: it may not name sockets of clients, frames or epoll, and it may not
//! fork or use unsafe code. It waits for nothing. Threads of the disk and of the compressor do what would keep the loop
//! waiting.

#![forbid(unsafe_code)]

mod account;
pub mod body;
pub mod compressor;
pub mod file;
mod handshake;
pub mod head;
pub mod host;
pub mod lifecycle;
pub mod probe;
mod redirect;
#[cfg(debug_assertions)]
pub mod rig;
mod spare_heads;
pub mod spooler;
pub mod static_files;
mod storing;
pub mod tls;
mod tls_facts;

use std::io;
use std::rc::Rc;

use stanchion_http::{
    ClientField, Fault, FieldRules, Framing, Head, HeadRules, SchemeFields, forwarded,
};
use stanchion_sys::channel::Channel;
use stanchion_sys::charge;

pub use account::Account;
use body::Sink;
use compressor::Compressor;
use handshake::handshaken;
use head::Date;
use lifecycle::Lifecycle;
use probe::{Load, Verdict};
use spare_heads::SpareHeads;
use stanchion_dispatch::Dispatch;
use stanchion_dispatch::hints::takes_hints;
use stanchion_dispatch::outflow::Limits;
use stanchion_dispatch::over::Over;
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::reply::Reply;
use stanchion_dispatch::request::{Body, Peer, Request};
use stanchion_dispatch::request_id::RequestIds;
use stanchion_dispatch::storage::connection_shares::ConnectionShares;
use stanchion_dispatch::storage::disk::Disk;
use stanchion_dispatch::storage::memory::Memory;
use stanchion_dispatch::storage::message_memory::MessageMemory;
use stanchion_dispatch::storage::shortage::Shortage;
use stanchion_dispatch::storage::spool::Spool;
use stanchion_dispatch::storage::woken::{Later, Woken};
use stanchion_dispatch::ticket::{Answer, Ticket};
use stanchion_generation::common::Common;
use stanchion_generation::tally::{Event, Outcome};
use stanchion_log::LogChannels;
use stanchion_observers::{Observers, Repeats};
use stanchion_record::REQUEST_HEAD_BYTES_MAX;
use stanchion_settings::{Believed, Settings};
use static_files::{Looking, StaticFiles};
use tls::TlsService;

/// Connections read into this buffer first. They share it, so that an idle connection has none. A body of 64 KiB fits with a head of usual size.
const SCRATCH_BYTES: usize = 68 << 10;
/// The most fields of a head when `limit_request_fields` is 0, as gunicorn has it.
const FIELDS_MAX: usize = 32_768;
/// The acceptor keeps a buffer for the next answers up to this size, and gives a larger one back.
const SPARE_BYTES_MAX: usize = 32 << 10;
/// The access log shows this status for a client that left before it had an answer, as nginx does.
const CLIENT_GONE: u16 = 499;
/// The log shows so many characters of the name of a field.
const NAME_CHARS_MAX: usize = 64;

/// All that requests need.
pub struct Requests {
    /// The state that the processes of a generation share.
    pub common: &'static Common,
    /// The line, and the seats.
    pub dispatch: Dispatch,
    /// The observers that the settings ask for.
    pub observers: Observers,
    /// Refusals that the log need not show one by one.
    pub repeats: Repeats,
    /// The threads that wait for files.
    pub disk: Disk,
    /// The files of bodies that are too large for memory.
    pub spool: Rc<Spool>,
    /// The limits of bodies that clients have not taken.
    pub answers: Rc<Limits>,
    /// Clients' connections that the loop has to drive.
    pub woken: Rc<Woken>,
    /// The same for operators' connections.
    pub operators_woken: Woken,
    /// Connections whose bodies have begun to come.
    pub later: Later,
    /// How far the acceptor is in its life.
    pub lifecycle: Lifecycle,
    /// A new client waits for a place: answers then say that the connection closes, so that clients who never idle for long share the places with
    /// clients that have none.
    pub is_pressed: bool,
    /// Bodies that the spool has no room for.
    pub unspooled: Shortage,
    /// How many connections each client has.
    pub connection_shares: ConnectionShares,
    /// The service for TLS, if the server speaks it.
    pub tls: Option<TlsService>,
    /// The port of https, if the server redirects clients that come in clear text (`redirect_to_https`).
    pub https_port: Option<u16>,
    /// The compressor of answers, if the settings have any compressed.
    pub compressor: Option<Rc<Compressor>>,
    /// Files that cannot be read.
    pub unread: Shortage,
    static_files: StaticFiles,
    /// The disk has failed since [`Self::take_disk_trouble`] was last called.
    has_disk_trouble: bool,
    /// The rules for heads.
    pub head_rules: HeadRules,
    field_rules: FieldRules,
    scheme_fields: SchemeFields,
    believed: Rc<Believed>,
    /// When this turn began.
    pub now_us: u64,
    body_memory: Rc<Memory>,
    /// The memory of messages of sessions.
    pub messages: MessageMemory,
    request_ids: Option<RequestIds>,
    date: Date,
    scratch: Vec<u8>,
    out: Vec<u8>,
    /// Heads that were read, for the next ones.
    pub heads: SpareHeads,
}

impl Requests {
    /// Opens all that requests need. The dispatch reports to the master on this channel.
    pub fn new(common: &'static Common, master: &Rc<Channel>, now_us: u64) -> io::Result<Self> {
        let settings = &common.settings;
        let scribe = common.log_channels.as_ref();
        let scribe = scribe.map(LogChannels::writer_of_accesses);
        let scribe = scribe.transpose()?;
        let header = settings.request_id_header.as_deref();
        let answers = Rc::new(Limits {
            buffer_bytes: settings.response_buffer,
            memory: Memory::new(settings.max_response_memory),
            spool_bytes: settings.response_spool,
        });
        let woken = Rc::new(Woken::default());
        Ok(Self {
            common,
            dispatch: Dispatch::new(common, &answers, master),
            observers: Observers::open(settings, &common.tally, scribe)?,
            repeats: Repeats::default(),
            disk: Disk::new(settings.max_connections as usize)?,
            spool: Spool::new(&common.spool, settings.max_spool, &woken),
            answers,
            woken,
            later: Later::default(),
            operators_woken: Woken::default(),
            lifecycle: Lifecycle::Starting,
            is_pressed: false,
            unspooled: Shortage::of(
                "bodies and answers cannot be written to the spool directory (disk full? open files? see --tmp-upload-dir)",
            ),
            connection_shares: ConnectionShares::default(),
            tls: None,
            https_port: None,
            compressor: Compressor::new(settings)?,
            unread: Shortage::of(
                "a static file cannot be read (permissions? open files? see --static)",
            ),
            static_files: StaticFiles::open(settings)?,
            has_disk_trouble: false,
            head_rules: head_rules(settings),
            field_rules: settings.field_rules(),
            scheme_fields: settings.scheme_fields(),
            believed: Rc::new(settings.believed()),
            now_us,
            body_memory: Memory::new(settings.max_body_memory),
            messages: MessageMemory::new(settings.max_ws_memory),
            request_ids: header.map(RequestIds::new).transpose()?,
            date: Date::default(),
            scratch: Vec::new(),
            out: Vec::new(),
            heads: SpareHeads::default(),
        })
    }

    /// Lends the buffer into which connections read first. A connection may take the buffer away to keep what is in it.
    pub fn with_scratch<T>(&mut self, act: impl FnOnce(&mut Vec<u8>, &mut Self) -> T) -> T {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        if scratch.capacity() < SCRATCH_BYTES {
            // All connections share it.
            let _charged = charge::to_nobody();
            scratch.reserve_exact(SCRATCH_BYTES);
        }
        let done = act(&mut scratch, self);
        self.scratch = scratch;
        done
    }

    /// Hands the requests that are over to the observers. To be called once a turn.
    pub fn tell_observers(&mut self) {
        let heads = &mut self.heads;
        self.observers.tell(|ticket| heads.keep(ticket));
    }

    /// The buffer in which answers are put together.
    pub fn take_out(&mut self) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        charge::take_over(&mut out);
        out
    }

    /// Keeps a buffer from [`Self::take_out`] for the next answer, unless it is large.
    pub fn give_out(&mut self, mut out: Vec<u8>) {
        if out.capacity() <= SPARE_BYTES_MAX {
            charge::give_back(&mut out);
            self.out = out;
        }
    }

    /// Keeps the memory of an answer that has been sent, for the next one.
    pub fn recycle(&mut self, bytes: Vec<u8>) {
        self.dispatch.buffers.keep(bytes);
    }

    /// Counts a request that has begun to arrive.
    pub fn arrives(&self) -> Account {
        Account::open(&self.common.tally)
    }

    /// The proxies that the server believes about their clients.
    pub fn believed(&self) -> &Believed {
        &self.believed
    }

    /// Makes the sink for a body that is about to come.
    pub fn sink(&self, peer: &Peer, head: &Head, framing: Framing, connection: u32) -> Sink {
        let owner = peer.client(head, &self.believed);
        Sink::new(&self.body_memory, owner, framing, connection)
    }

    /// Puts a request that has arrived into the line, or answers it. If a helper thread has to look for a static file first, gives the look, which
    /// [`Self::look_again`] takes.
    pub fn join(
        &mut self,
        head: Head,
        body: Body,
        peer: &Rc<Peer>,
        started_us: u64,
        connection: u32,
    ) -> (Rc<Ticket>, Option<Looking>) {
        let (ticket, fault) = self.ticket(head, body, peer, started_us, connection);
        let mut looking = None;
        if let Some(refusal) = fault {
            ticket.answer(Answer::Refused(refusal));
        } else if let Some(reply) = self.probed(&ticket.request.head) {
            ticket.answer(Answer::Ours(reply, Outcome::Probed));
        } else if self.is_challenge(&ticket.request) {
            looking = self.seek_challenge(&ticket, connection);
        } else if let Some(answer) = self.redirected(&ticket.request) {
            ticket.answer(answer);
        } else if let Some(refusal) = self.refusal() {
            ticket.answer(Answer::Refused(refusal));
        } else {
            looking = self.seek_file(&ticket, connection);
        }
        (ticket, looking)
    }

    /// Refuses a request before all of it was read.
    pub fn refused(
        &mut self,
        refusal: Refusal,
        head: Head,
        peer: &Rc<Peer>,
        started_us: u64,
        connection: u32,
    ) -> Rc<Ticket> {
        let (ticket, _) = self.ticket(head, Body::Empty, peer, started_us, connection);
        ticket.answer(Answer::Refused(refusal));
        ticket
    }

    /// Puts a request together, and gives the fault of its fields: the proxies in front contradict each other, or a field has a name that the server
    /// does not take.
    fn ticket(
        &mut self,
        mut head: Head,
        body: Body,
        peer: &Rc<Peer>,
        started_us: u64,
        connection: u32,
    ) -> (Rc<Ticket>, Option<Refusal>) {
        let trace = self.observers.begin_trace(&mut head, started_us);
        let said = self.said_scheme(&head, peer);
        let fault = self.field_rules.check(&head, peer.trusted).err();
        let id = self.request_ids.as_ref();
        let id = id.map(|ids| ids.name(&head, peer.trusted));
        let proxy_us = if peer.trusted {
            stanchion_http::proxy_us(&head, stanchion_sys::clock::wall_us())
        } else {
            None
        };
        let (websocket, unfit) = match handshaken(&head, &self.common.settings) {
            Ok(websocket) => (websocket, None),
            Err(refusal) => (None, Some(refusal)),
        };
        if websocket.is_some() {
            head.remove_handshake();
        }
        let takes_hints =
            websocket.is_none() && takes_hints(&head) && self.common.settings.sends_early_hints();
        let request = Request {
            head,
            body,
            peer: Rc::clone(peer),
            scheme: said.unwrap_or_default().unwrap_or(peer.scheme),
            id,
            proxy_us,
            websocket,
            takes_hints,
            arrived_us: self.now_us,
        };
        let ticket = Rc::new(Ticket::new(request, trace, connection, &self.woken));
        let fault = fault.or(said.err()).map(Refusal::from);
        (ticket, fault.or(unfit))
    }

    /// The scheme by which the client came, if a proxy that the server believes says so.
    fn said_scheme(&self, head: &Head, peer: &Peer) -> Result<Option<&'static str>, Fault> {
        let Some(head) = peer.said(head) else {
            return Ok(None);
        };
        match self.believed.field {
            ClientField::XForwardedFor => self.scheme_fields.scheme(head),
            field @ ClientField::Forwarded => {
                let is_proxy = |ip| self.believed.peers.lists(ip);
                Ok(forwarded(head.all(field.name()), is_proxy)?.scheme)
            }
        }
    }

    /// The answer to a probe on a listener of `bind`, if this is one.
    fn probed(&self, head: &Head) -> Option<Reply> {
        let verdict = Verdict::of_probe(&self.common.settings, head, || self.verdict_ready());
        verdict.map(Verdict::reply)
    }

    /// Whether the server is ready for new clients, or they are better sent elsewhere.
    pub fn verdict_ready(&self) -> Verdict {
        let load = Load {
            waiting: self.dispatch.waiting(),
            oldest_wait_us: self.dispatch.oldest_wait_us(self.now_us),
            has_workers: self.dispatch.has_workers(),
        };
        Verdict::ready(&self.common.settings, self.lifecycle, load)
    }

    /// Whether connections end with their present requests.
    pub fn ends_connections(&self) -> bool {
        self.lifecycle.is_leaving() || self.is_pressed
    }

    /// Ends a request whose client has gone before there was an answer.
    pub fn client_gone(&mut self, ticket: &Rc<Ticket>, account: &Account) {
        let outcome = self.dispatch.abandon(ticket, self.now_us);
        let outcome = account.close(outcome);
        self.over(ticket, CLIENT_GONE, outcome, Vec::new(), 0);
    }

    /// Keeps a request that is over for the observers, if any want it.
    pub fn over(
        &mut self,
        ticket: &Rc<Ticket>,
        status: u16,
        outcome: Outcome,
        head: Vec<u8>,
        bytes: u64,
    ) {
        if self.observers.wants() || ticket.trace.is_some() {
            self.observers.over(Over {
                ticket: Rc::clone(ticket),
                status,
                outcome,
                head,
                bytes,
                // A seat may have taken or done it since this turn began, which is no later than its end.
                now_us: self.now_us.max(ticket.taken_us()).max(ticket.done_us()),
            });
        }
    }

    /// Adds the id of the request to a reply of the server, so that a client can name the request when it asks about it. In the app's answers that is
    /// up to the app.
    pub fn named(&self, reply: Reply, ticket: &Ticket) -> Reply {
        match (&self.request_ids, ticket.request.id()) {
            (Some(ids), Some(id)) => reply.with(ids.header().to_owned(), id),
            _ => reply,
        }
    }

    /// Logs and counts the refusal of a request whose head was not read.
    pub fn refused_unread(&self, refusal: Refusal, address: &str) {
        self.repeats.refused_unread(refusal, address, self.now_us);
        self.count_unreadable(refusal.outcome());
    }

    /// Counts a request that was refused because its head could not be read.
    pub(crate) fn count_unreadable(&self, outcome: Outcome) {
        let tally = &self.common.tally;
        tally.arrived();
        tally.ended(outcome);
    }

    /// Logs and counts a connection that is closed without an answer, since its client has too many. Other connections give the client the reason: to
    /// give it on all of them would take as many places as the client likes.
    pub fn turn_out(&self, address: &str) {
        self.repeats.turned_out(address, self.now_us);
        self.count_unreadable(Outcome::TooManyConnections);
    }

    /// Logs and counts a client that is cut off.
    pub fn cut_off(&self, event: Event, reason: &str, address: &str) {
        self.common.tally.happened(event);
        self.repeats.cut_off(event, reason, address, self.now_us);
    }

    /// The part of a refusal that only the log gets: the field, and the setting that would let it in.
    fn detail(&self, ticket: &Ticket, refusal: Refusal) -> String {
        if refusal != Refusal::BadRequest(stanchion_http::UNDERSCORE) {
            return String::new();
        }
        let request = &ticket.request;
        let name = self
            .field_rules
            .refused(&request.head, request.peer.trusted);
        let name = String::from_utf8_lossy(name.unwrap_or_default());
        let shown: String = name.chars().take(NAME_CHARS_MAX).collect();
        format!(": {shown:?} (header_map)")
    }

    /// Logs a request that was refused.
    pub fn log_refusal(&self, ticket: &Ticket, refusal: Refusal) {
        let lane = self.dispatch.lane_name(ticket);
        let detail = self.detail(ticket, refusal);
        self.repeats
            .refused(ticket, refusal, (lane, &detail), self.now_us);
    }

    /// Logs and counts that a body or an answer could not be spooled.
    pub(crate) fn cannot_spool(&mut self, error: &io::Error) {
        self.unspooled.failed(self.now_us, error);
        self.common.tally.happened(Event::Paused);
        self.has_disk_trouble = true;
    }

    /// Whether the disk has failed since this was last asked: then the clients that are here come first.
    pub fn take_disk_trouble(&mut self) -> bool {
        std::mem::take(&mut self.has_disk_trouble)
    }
}

/// The rules by which heads are read, from the settings.
fn head_rules(settings: &Settings) -> HeadRules {
    let or_none = |limit: usize| if limit == 0 { usize::MAX } else { limit };
    HeadRules {
        line_bytes: or_none(settings.limit_request_line),
        field_bytes: or_none(settings.limit_request_field_size),
        fields: match settings.limit_request_fields {
            0 => FIELDS_MAX,
            limit => limit,
        },
        head_bytes: REQUEST_HEAD_BYTES_MAX,
        permits: settings.permits(),
    }
}
