//! Requests on their way in, and answers on their way out. [`Requests`] has the services that a request needs, from its
//! head to the last byte of its answer: the policy for heads, memory and files for bodies, the place in the line, the
//! heads of answers, files of the operator, compression, and the record for observers. Code that needs one of them gets
//! that one.
//!
//! This crate does not know how bytes come and go: it may not name sockets of clients, frames or epoll, and it may not
//! fork or use unsafe code. It waits for nothing. Threads of the disk and of the compressor do what would keep the loop
//! waiting.

#![forbid(unsafe_code)]

mod account;
pub mod body;
mod buffers;
pub mod compressor;
pub mod file;
mod handshake;
pub mod head;
pub mod host;
pub mod lifecycle;
mod load_report;
mod policy;
pub mod probe;
mod record;
mod redirect;
#[cfg(debug_assertions)]
pub mod rig;
mod spare_heads;
pub mod spooler;
pub mod static_files;
mod storage;
pub mod tls;
mod tls_facts;
mod wakes;

use std::io;
use std::rc::Rc;

use stanchion_http::{AnswerFacts, Framing, Head, WrongClock};
use stanchion_sys::channel::Channel;
use stanchion_sys::clock;

pub use account::Account;
use body::Sink;
pub use buffers::Buffers;
use compressor::Compressor;
use handshake::handshaken;
use head::{AnswerHeads, BodyEnd, Extras};
use lifecycle::{Lifecycle, Serving};
use load_report::SeatsNow;
pub use policy::HeadPolicy;
use probe::{LineLoad, Readiness};
pub use record::Record;
use spooler::Spooler;
use stanchion_dispatch::Dispatch;
use stanchion_dispatch::hints::takes_hints;
use stanchion_dispatch::outflow::Outflow;
use stanchion_dispatch::refusal::Refusal;
use stanchion_dispatch::reply::Reply;
use stanchion_dispatch::request::{Body, Peer, Request};
use stanchion_dispatch::storage::connection_shares::ConnectionShares;
use stanchion_dispatch::ticket::{Answer, Ticket};
use stanchion_generation::common::Common;
use stanchion_generation::tally::{Event, Outcome};
use static_files::{Looking, Opened, StaticFiles};
pub use storage::Storage;
use tls::TlsService;
pub use wakes::Wakes;

/// The access log shows this status for a client that left before it had an answer, as nginx does.
const CLIENT_GONE: u16 = 499;

/// The services that requests need.
pub struct Requests {
    /// The state that the processes of a generation share.
    pub common: &'static Common,
    /// When this turn began.
    pub now_us: u64,
    /// The same moment by the clock on the wall, in microseconds since the epoch.
    pub wall_us: u64,
    /// How the acceptor treats connections now.
    pub serving: Serving,
    /// The line, and the seats.
    pub dispatch: Dispatch,
    /// The rules by which heads are read and judged.
    pub policy: HeadPolicy,
    /// The heads of answers.
    pub answer_heads: AnswerHeads,
    /// The compressor of answers, if the settings have any compressed.
    pub compressor: Option<Rc<Compressor>>,
    /// Memory and files for bodies, answers and messages.
    pub storage: Storage,
    /// The counts, logs and observers of requests.
    pub record: Record,
    /// Memory that requests share, one after the other.
    pub buffers: Buffers,
    /// Connections that the loop has to drive.
    pub wakes: Wakes,
    /// How many connections each client has.
    pub connection_shares: ConnectionShares,
    /// The service for TLS, if the server speaks it.
    pub tls: Option<TlsService>,
    static_files: StaticFiles,
}

impl Requests {
    /// Opens all that requests need. The dispatch reports to the master on this channel.
    pub fn new(common: &'static Common, master: &Rc<Channel>, now_us: u64) -> io::Result<Self> {
        let settings = &common.settings;
        let record = Record::open(common)?;
        let wakes = Wakes::default();
        let storage = Storage::open(common, &wakes.clients)?;
        Ok(Self {
            common,
            now_us,
            wall_us: clock::wall_us(),
            serving: Serving {
                lifecycle: Lifecycle::Starting,
                is_pressed: false,
                arrived_in_time: None,
            },
            dispatch: Dispatch::new(common, &storage.answers, master),
            policy: HeadPolicy::new(settings)?,
            answer_heads: AnswerHeads::new(settings, now_us),
            compressor: Compressor::new(common)?,
            storage,
            record,
            buffers: Buffers::default(),
            wakes,
            connection_shares: ConnectionShares::default(),
            tls: None,
            static_files: StaticFiles::open(settings)?,
        })
    }

    /// Begins a turn: reads both clocks, one right after the other, so that the requests of the turn have the same arrival by
    /// either.
    pub fn begin_turn(&mut self) {
        self.now_us = clock::monotonic_us();
        self.wall_us = clock::wall_us();
        let epoch_us = self.wall_us.wrapping_sub(self.now_us);
        self.record.observers.begin_turn(epoch_us);
    }

    /// Lends the buffer into which connections read first. A connection may take the buffer away to keep what is in it.
    pub fn with_scratch<T>(&mut self, act: impl FnOnce(&mut Vec<u8>, &mut Self) -> T) -> T {
        let mut scratch = self.buffers.take_scratch();
        let done = act(&mut scratch, self);
        self.buffers.give_scratch(scratch);
        done
    }

    /// Hands the requests that are over to the observers. To be called once a turn.
    pub fn tell_observers(&mut self) {
        self.record.tell_observers(&mut self.buffers.heads);
    }

    /// Leaves a note for each connection for which a helper thread has something. To be called once per turn of the loop.
    pub fn hear_threads(&self) {
        self.storage.disk.done(&self.wakes.clients);
        if let Some(tls) = &self.tls {
            tls.done();
        }
        if let Some(compressor) = &self.compressor {
            compressor.done(&self.wakes.clients);
        }
    }

    /// Looks whether shortages are over, and logs that, and the refusals that it has counted since.
    pub fn settle(&self) {
        self.storage.settle(self.now_us);
        self.static_files.settle(self.now_us);
        self.record.repeats.settle(self.now_us);
    }

    /// Makes the sink for a body that is about to come.
    pub fn sink(&self, peer: &Peer, head: &Head, framing: Framing, connection: u32) -> Sink {
        let owner = peer.client(head, &self.policy.believed);
        self.storage.sink(owner, framing, connection)
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
        if let Some(answer) = self.answer_at_once(&ticket.request, fault) {
            ticket.answer(answer);
            return (ticket, None);
        }
        let (disk, now_us) = (&self.storage.disk, self.now_us);
        let sought = self
            .static_files
            .seek(&ticket.request, disk, connection, now_us);
        match sought {
            Ok(answer) => self.answer_or_join(&ticket, answer),
            Err(looking) => return (ticket, Some(looking)),
        }
        (ticket, None)
    }

    /// The answer to a request that needs neither file nor worker, if it is one. No challenge of ACME is redirected or
    /// refused.
    fn answer_at_once(&self, request: &Request, fault: Option<Refusal>) -> Option<Answer> {
        if let Some(refusal) = fault {
            return Some(Answer::Refused(refusal));
        }
        if let Some(reply) = self.probed(&request.head) {
            return Some(Answer::Ours(reply, Outcome::Probed));
        }
        if self.static_files.is_challenge(request) {
            return None;
        }
        let redirected = self.policy.redirected(request);
        redirected.or_else(|| self.serving.lifecycle.refusal().map(Answer::Refused))
    }

    /// Answers a request if a helper thread has found its file by now. Gives whether the thread still looks.
    pub fn look_again(&mut self, ticket: &Rc<Ticket>, looking: &mut Looking) -> bool {
        let Some(found) = looking.take() else {
            return true;
        };
        self.found(ticket, found);
        false
    }

    /// Gives up a look for a file that has taken as long as it may. The helper thread goes on with it, but no
    /// connection waits for that.
    pub fn give_up_looking(&mut self, ticket: &Rc<Ticket>) {
        self.found(ticket, static_files::too_long());
    }

    fn found(&mut self, ticket: &Rc<Ticket>, found: io::Result<Option<Opened>>) {
        let (disk, now_us) = (&self.storage.disk, self.now_us);
        let answer = self
            .static_files
            .found(&ticket.request, found, disk, now_us);
        self.answer_or_join(ticket, answer);
    }

    /// Answers a request, or has it join the line if the app is to answer. A refusal may be due: a helper thread may have
    /// looked for a file until after the others were refused.
    fn answer_or_join(&mut self, ticket: &Rc<Ticket>, answer: Option<Answer>) {
        let refused = || self.serving.lifecycle.refusal().map(Answer::Refused);
        match answer.or_else(refused) {
            Some(answer) => ticket.answer(answer),
            None => self.dispatch.join(ticket, self.now_us),
        }
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
        let settings = &self.common.settings;
        let trace = self.record.observers.begin_trace(&mut head, started_us);
        let said = self.policy.said_scheme(&head, peer);
        let fault = self.policy.fault_of_names(&head, peer);
        let id = self.policy.id_of(&head, peer);
        let proxy_us = policy::proxy_us(&head, peer, self.wall_us).unwrap_or_else(|WrongClock| {
            self.common.tally.happened(Event::ProxyTimeDropped);
            None
        });
        let request_start_us = policy::request_start_us(&mut head, peer.trusted, self.wall_us);
        let (websocket, unfit) = match handshaken(&head, settings) {
            Ok(websocket) => (websocket, None),
            Err(refusal) => (None, Some(refusal)),
        };
        if websocket.is_some() {
            head.remove_handshake();
        }
        let takes_hints = websocket.is_none() && takes_hints(&head) && settings.sends_early_hints();
        let request = Request {
            head,
            body,
            peer: Rc::clone(peer),
            scheme: said.unwrap_or_default().unwrap_or(peer.scheme),
            id,
            proxy_us,
            request_start_us,
            websocket,
            takes_hints,
            started_us,
            arrived_us: self.now_us,
        };
        let ticket = Ticket::new(request, trace, connection, &self.wakes.clients);
        let fault = fault.or(said.err()).map(Refusal::from);
        (Rc::new(ticket), fault.or(unfit))
    }

    /// The answer to a probe on a listener of `bind`, if this is one.
    fn probed(&self, head: &Head) -> Option<Reply> {
        let verdict = Readiness::of_probe(&self.common.settings, head, || self.verdict_ready());
        verdict.map(Readiness::reply)
    }

    /// Whether the server is ready for new clients, or they are better sent elsewhere.
    pub fn verdict_ready(&self) -> Readiness {
        // That requests wait in a lane that has as many seats as it may is no reason to send others elsewhere.
        let (waiting, oldest_wait_us) = self.dispatch.view().waiting_for_seats(self.now_us);
        let load = LineLoad {
            waiting,
            oldest_wait_us,
            has_workers: self.dispatch.has_workers(),
        };
        Readiness::ready(&self.common.settings, self.serving.lifecycle, load)
    }

    /// The head of the app's answer to a request, behind hints that did not go out before it, and a copy of the head
    /// for the observers.
    pub fn compose_answer(
        &mut self,
        ticket: &Ticket,
        wire: &[u8],
        facts: AnswerFacts,
        ending: BodyEnd,
        keeps: bool,
    ) -> (Vec<u8>, Vec<u8>) {
        let heads = &mut self.answer_heads;
        let told = heads.told_of(ticket, facts.status, self.now_us);
        let mut out = heads.take_out();
        ticket.hints(|hints| hints.put(&mut out));
        let hinted = out.len();
        let extras = Extras {
            facts: Some(facts),
            ending,
            keeps,
            is_old: ticket.request.head.minor_version() == 0,
            told,
        };
        heads.compose(&mut out, wire, &extras);
        let observed = self.record.observed(&out[hinted..]);
        (out, observed)
    }

    /// Counts the load of this turn, if answers report it. To be called at the end of a turn.
    pub fn count_load(&mut self) {
        let (view, demand, now_us) = (self.dispatch.view(), &self.dispatch.demand, self.now_us);
        let seats = || SeatsNow {
            seats: view.workers().seats_there(),
            loops: demand.load_of_loops(&view, now_us),
        };
        let in_flight = || view.in_flight();
        self.answer_heads.count_load(now_us, in_flight, seats);
    }

    /// Logs a request that was refused.
    pub fn log_refusal(&self, ticket: &Ticket, refusal: Refusal) {
        let lane = self.dispatch.lane_name(ticket);
        let detail = self.policy.detail(&ticket.request, refusal);
        let repeats = &self.record.repeats;
        repeats.refused(ticket, refusal, (lane, &detail), self.now_us);
    }

    /// Ends a request whose client has gone before there was an answer.
    pub fn client_gone(&mut self, ticket: &Rc<Ticket>, mut account: Account) {
        let outcome = self.dispatch.abandon(ticket, self.now_us);
        let outcome = account.close(outcome);
        let head = Vec::new();
        self.record
            .over(ticket, CLIENT_GONE, outcome, head, 0, self.now_us);
    }

    /// Sends answers to slow clients to files, if workers wait for these clients.
    pub fn spool_for_slow_clients(&mut self) {
        for ticket in self.dispatch.slow_clients(self.now_us) {
            ticket.pour(Outflow::spool);
        }
    }

    /// Goes on with an answer that goes to a file; true if something came of it for the client.
    pub fn spool(&mut self, spooler: &mut Spooler, ticket: &Ticket) -> bool {
        let (dispatch, believed) = (&mut self.dispatch, &self.policy.believed);
        self.storage
            .spool(spooler, ticket, dispatch, believed, self.now_us)
    }
}
