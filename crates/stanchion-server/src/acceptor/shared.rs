//! What the tasks of the acceptor share, all of them in one thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use hyper::server::conn::http1;
use stanchion_sys::channel::Channel;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{error, info};

use super::access_log::{AccessLog, Entry};
use super::clients::Shares;
use super::connection::Connection;
use super::dispatch::{Dispatch, PortNumber};
use super::doors::AtTheDoors;
use super::listen::OpenDoor;
use super::memory::Memory;
use super::outflow::Limits;
use super::repeats::Repeats;
use super::request_id::RequestIds;
use super::roll::Roll;
use super::room::{self, Shortage};
use super::spans::Spans;
use super::spool::Spool;
use super::statsd::Statsd;
use super::vital::Vital;
use crate::record::REQUEST_HEAD_BYTES_MAX;
use crate::tally::{Event, Outcome};
use crate::tree::Common;

/// The most that is read at a time, and so the memory that a connection keeps once a body came on
/// it. hyper reads as much as a head may have, or it would refuse a shorter one.
const READ_BUFFER_BYTES_MAX: usize = REQUEST_HEAD_BYTES_MAX;
/// The most fields of a head when `limit_request_fields` is 0, as gunicorn has it.
const FIELDS_MAX: usize = 32_768;

/// What the tasks of the acceptor share.
pub(super) struct Shared {
    pub(super) common: &'static Common,
    /// Where reports go, and orders come from.
    pub(super) master: Rc<Channel>,
    pub(super) dispatch: RefCell<Dispatch>,
    pub(super) http: http1::Builder,
    pub(super) access_log: Option<AccessLog>,
    pub(super) statsd: Option<Statsd>,
    pub(super) request_ids: Option<RequestIds>,
    pub(super) spans: Option<Spans>,
    pub(super) connections: RefCell<Roll<Rc<Connection>>>,
    pub(super) connections_max: usize,
    /// Of these, how many each client may have, where that is limited, and has.
    pub(super) connections_max_each: Option<u64>,
    pub(super) shares: Rc<Shares>,
    /// The same of connections on which a client is told that it has too many.
    pub(super) turned_away_max_each: u64,
    pub(super) turned_away: Rc<Shares>,
    /// Notified when a connection has ended.
    pub(super) room: Notify,
    /// How many are at the door for whom there is no room.
    pub(super) pressed: Cell<u32>,
    /// Nobody is accepted before.
    pub(super) paused_until: Cell<Instant>,
    pub(super) unaccepted: Shortage,
    pub(super) unspooled: Shortage,
    /// Notified when clients are to be let in, and when nobody else is.
    pub(super) door: Notify,
    /// What clients come in by.
    pub(super) doors: RefCell<Vec<OpenDoor>>,
    pub(super) at_the_doors: AtTheDoors,
    /// Tasks that try addresses which workers have asked for and somebody else has.
    pub(super) sought: RefCell<HashMap<PortNumber, JoinHandle<()>>>,
    /// Clients are let in.
    pub(super) open: Cell<bool>,
    /// Another master has the same listeners.
    pub(super) is_shared: Cell<bool>,
    /// Of requests' bodies.
    pub(super) body_memory: Rc<Memory>,
    pub(super) answers: Rc<Limits>,
    pub(super) spool: Rc<Spool>,
    /// Notified when workers wait for clients.
    pub(super) relief: Rc<Notify>,
    /// Tasks without which there is no going on.
    pub(super) vital: Rc<Vital>,
    /// Refusals that the log need not show one by one.
    pub(super) repeats: Repeats,
    /// No connection is to outlive its present request.
    pub(super) draining: Cell<bool>,
    /// Another acceptor has the door: idle connections may stay for one more request.
    pub(super) retiring: Cell<bool>,
    /// Every request not yet with a worker is told that we are leaving.
    pub(super) refusing: Cell<bool>,
}

impl Shared {
    pub(super) fn new(
        common: &'static Common,
        connections_max: usize,
        master: &Rc<Channel>,
    ) -> io::Result<Self> {
        let settings = &common.settings;
        let mut http = http1::Builder::new();
        // Deadlines for heads are kept by `watch`.
        http.header_read_timeout(None)
            .half_close(settings.half_close)
            .keep_alive(settings.keepalive.as_duration().is_some())
            .max_header_size(REQUEST_HEAD_BYTES_MAX)
            .max_buf_size(READ_BUFFER_BYTES_MAX);
        let fields_max = match settings.limit_request_fields {
            0 => FIELDS_MAX,
            limit => limit,
        };
        // hyper keeps up to 100 fields on its stack, and allocates for any other limit.
        if fields_max != 100 {
            http.max_headers(fields_max);
        }
        let access_log = AccessLog::open(settings)?;
        let statsd = Statsd::open(settings, &common.tally)?;
        let header = settings.request_id_header.as_deref();
        let request_ids = header.map(RequestIds::new).transpose()?;
        let answers = Rc::new(Limits {
            buffer_bytes: settings.response_buffer,
            memory: Memory::new(settings.max_response_memory),
            spool_bytes: settings.response_spool,
        });
        let relief = Rc::new(Notify::new());
        Ok(Self {
            common,
            master: Rc::clone(master),
            dispatch: RefCell::new(Dispatch::new(common, &answers, &relief, master)),
            http,
            access_log,
            statsd,
            request_ids,
            spans: Spans::open(settings)?,
            connections: RefCell::default(),
            connections_max,
            connections_max_each: room::connections_max_each(settings, connections_max),
            shares: Rc::default(),
            turned_away_max_each: room::turned_away_max_each(connections_max),
            turned_away: Rc::default(),
            room: Notify::new(),
            pressed: Cell::new(0),
            paused_until: Cell::new(Instant::now()),
            unaccepted: Shortage::of("connections cannot be accepted (open files? memory?)"),
            unspooled: Shortage::of(
                "bodies and answers cannot be written to the spool directory (disk full? open files? see --tmp-upload-dir)",
            ),
            door: Notify::new(),
            doors: RefCell::default(),
            at_the_doors: AtTheDoors::default(),
            sought: RefCell::default(),
            open: Cell::new(false),
            is_shared: Cell::new(false),
            body_memory: Memory::new(settings.max_body_memory),
            answers,
            spool: Spool::new(&common.spool, settings.max_spool),
            relief,
            vital: Rc::default(),
            repeats: Repeats::default(),
            draining: Cell::new(false),
            retiring: Cell::new(false),
            refusing: Cell::new(false),
        })
    }

    /// Once per turn of the event loop, before it sleeps.
    pub(super) fn turn(&self) {
        self.dispatch.borrow_mut().turn();
        if let Some(log) = &self.access_log {
            log.flush();
        }
    }

    /// Whether anybody wants to hear of each request.
    pub(super) fn wants_entries(&self) -> bool {
        self.access_log.is_some() || self.statsd.is_some()
    }

    /// A request is over, and whoever keeps records is told.
    pub(super) fn over(&self, entry: &Entry) {
        if let Some(log) = &self.access_log {
            log.add(entry);
        }
        if let Some(statsd) = &self.statsd {
            statsd.add(entry);
        }
        if let Some(spans) = &self.spans {
            spans.end(entry);
        }
    }

    pub(super) fn count_dropped_spans(&self) {
        if let Some(spans) = &self.spans {
            let dropped = spans.take_dropped();
            if dropped > 0 {
                self.common
                    .tally
                    .happened_times(Event::SpanDropped, dropped);
            }
        }
    }

    /// A request whose head could not be read arrived, and was refused.
    pub(super) fn count_unreadable(&self, outcome: Outcome) {
        let tally = &self.common.tally;
        tally.arrived();
        tally.ended(outcome);
    }

    /// The last thing of all, when no task is left.
    pub(super) fn close_books(&self) {
        let counts = self.common.tally.read();
        if counts.arrived() > 0 {
            info!("requests {counts}");
        }
        if counts.in_flight() > 0 || counts.connections() > 0 {
            error!(
                "the counts do not add up: our fault in_flight={} connections={}",
                counts.in_flight(),
                counts.connections()
            );
        }
        if let Some(statsd) = &self.statsd {
            statsd.finish(&self.common.tally);
        }
        if let Some(log) = &self.access_log {
            log.finish();
        }
        if let Some(spans) = &self.spans {
            spans.finish();
            self.count_dropped_spans();
        }
    }
}
