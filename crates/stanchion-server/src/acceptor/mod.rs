//! The acceptor: owns every client connection, keeps the line, hands its head to free workers.
//!
//! One thread, one event loop (tokio's current-thread runtime), so nothing here is locked: what
//! tasks share is in `Rc` and cells. Once per turn of the loop, before it sleeps,
//! [`dispatch::Dispatch::turn`] sweeps up answers and wakes workers for new requests, all at once.

mod access_log;
mod admin;
mod answer;
mod clients;
mod connection;
mod conversation;
mod disk;
mod dispatch;
mod door;
mod durations;
mod goodbye;
mod lent;
mod listen;
mod lookout;
mod memory;
mod orders;
mod outflow;
mod pace;
mod proxies;
mod refusal;
mod request;
mod request_id;
mod roll;
mod room;
mod service;
mod spool;
mod spooling;
mod ticket;
mod tracked;
mod watch;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use hyper::server::conn::http1;
use stanchion_sys::channel::Channel;
use stanchion_sys::listener::Listener;
use stanchion_sys::process;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{debug, error, info};

use crate::exit_code;
use crate::log;
use crate::messages::{self, ToMaster};
use crate::record::REQUEST_HEAD_BYTES_MAX;
use crate::settings::Settings;
use crate::tally::{Event, Outcome};
use crate::tree::Common;
use access_log::{AccessLog, Entry};
use clients::Clients;
use connection::Connection;
use dispatch::{Dispatch, PortNumber};
use listen::OpenDoor;
use memory::Memory;
use orders::{Farewell, Orders};
use outflow::Limits;
use request_id::RequestIds;
use roll::Roll;
use room::Shortage;
use spool::Spool;

/// How long refusals may take to be written when the server leaves.
const FAREWELL: Duration = Duration::from_millis(500);
/// Freed memory that is kept for the next buffers: bodies and answers come and go at a rate at
/// which page faults would cost more than the copying.
const FREED_BYTES_KEPT: i32 = 16 << 20;
/// The most that is read at a time, and so the memory that a connection keeps once a body came on
/// it. hyper reads as much as a head may have, or it would refuse a shorter one.
const READ_BUFFER_BYTES_MAX: usize = REQUEST_HEAD_BYTES_MAX;
/// The most fields of a head when `limit_request_fields` is 0, as gunicorn has it.
const FIELDS_MAX: usize = 32_768;
/// Descriptors kept for other things than connections: logs, listeners.
const DESCRIPTORS_SPARE: usize = 64;
/// A connection's socket, and the file it sends or the spool file it fills.
const DESCRIPTORS_EACH: usize = 2;

/// What the tasks of the acceptor share.
struct Shared {
    common: &'static Common,
    dispatch: RefCell<Dispatch>,
    http: http1::Builder,
    access_log: Option<AccessLog>,
    request_ids: Option<RequestIds>,
    connections: RefCell<Roll<Rc<Connection>>>,
    connections_max: usize,
    clients: RefCell<Clients>,
    /// Notified when a connection has ended.
    room: Notify,
    /// How many are at the door for whom there is no room.
    pressed: Cell<u32>,
    /// Nobody is accepted before.
    paused_until: Cell<Instant>,
    unaccepted: Shortage,
    unspooled: Shortage,
    /// Notified when clients are to be let in, and when nobody else is.
    door: Notify,
    /// What clients come in by.
    doors: RefCell<Vec<OpenDoor>>,
    /// Tasks that try addresses which workers have asked for and somebody else has.
    sought: RefCell<HashMap<PortNumber, JoinHandle<()>>>,
    /// Clients are let in.
    open: Cell<bool>,
    /// Another master has the same listeners.
    is_shared: Cell<bool>,
    /// Of requests' bodies.
    body_memory: Rc<Memory>,
    answers: Rc<Limits>,
    spool: Rc<Spool>,
    /// Notified when workers wait for clients.
    relief: Rc<Notify>,
    /// No connection is to outlive its present request.
    draining: Cell<bool>,
    /// Another acceptor has the door: idle connections may stay for one more request.
    retiring: Cell<bool>,
    /// Every request not yet with a worker is told that we are leaving.
    refusing: Cell<bool>,
}

thread_local! {
    /// For the hooks of the runtime, which must be `Send` and so cannot hold an `Rc`.
    static SHARED: RefCell<Option<Rc<Shared>>> = const { RefCell::new(None) };
}

fn with_shared(act: impl FnOnce(&Shared)) {
    SHARED.with_borrow(|shared| {
        if let Some(shared) = shared {
            act(shared);
        }
    });
}

impl Common {
    /// Counts the lines that logs of this process did not take.
    fn count_dropped_lines(&self) {
        let dropped = log::take_dropped();
        if dropped > 0 {
            self.tally.happened_times(Event::LogLineDropped, dropped);
        }
    }
}

/// What of the settings only the acceptor understands.
pub(crate) fn check_settings(settings: &Settings) -> Result<(), String> {
    access_log::check(&settings.access_log_format)
}

/// The life of an acceptor process; gives its exit code.
pub(crate) fn run(common: &'static Common, listeners: &[Listener], orders: Channel) -> i32 {
    process::set_name(c"stanchion-acpt");
    let code = match start(common, listeners, orders) {
        Ok(()) => exit_code::FINE,
        Err(error) => {
            error!("the acceptor cannot go on: {error}");
            exit_code::INTERNAL
        }
    };
    log::finish();
    common.count_dropped_lines();
    code
}

fn start(common: &'static Common, listeners: &[Listener], orders: Channel) -> io::Result<()> {
    crate::spool::clear(&common.spool)?;
    process::keep_freed_memory(FREED_BYTES_KEPT);
    // When all cores are busy with workers, each answer and each packet would else throw one of
    // them off its core for a moment's work; waiting for the next gap does several at once. The
    // wait is at most a slice of the scheduler's, some 3 ms, and only when nothing is idle.
    if let Err(error) = process::interrupt_nobody() {
        debug!("the acceptor runs under the normal scheduling policy: {error}");
    }
    log::write_by_thread()?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(disk::DISK_THREADS_MAX)
        .on_thread_park(|| with_shared(Shared::turn))
        .on_thread_unpark(|| with_shared(|shared| shared.dispatch.borrow().awake()))
        .build_local(LocalOptions::default())?;
    let served = runtime.block_on(serve(common, listeners, orders));
    // Answers that are cut off here are counted and logged as their tasks are dropped.
    runtime.shutdown_timeout(FAREWELL);
    with_shared(Shared::close_books);
    if let Ok(Farewell::Orphaned) = served {
        crate::spool::remove(&common.spool);
    }
    served.map(drop)
}

async fn serve(
    common: &'static Common,
    listeners: &[Listener],
    orders: Channel,
) -> io::Result<Farewell> {
    let shared = Rc::new(Shared::new(common)?);
    SHARED.set(Some(Rc::clone(&shared)));
    // Registered edge-triggered and never read: each ring ends an epoll_wait, and the hooks above
    // do the rest.
    let doorbell = watched(common.exchange.doorbell().try_clone()?)?;
    for listener in listeners {
        if common.settings.is_admin(listener) {
            admin::spawn(&shared, listener)?;
            continue;
        }
        let worker = common.settings.worker_of(listener.address());
        let door = listen::spawn(&shared, listener, worker.map(PortNumber::from))?;
        shared.doors.borrow_mut().push(door);
    }
    let watch = tokio::task::spawn_local(watch::watch(Rc::clone(&shared)));
    let relief = tokio::task::spawn_local(spooling::relieve(Rc::clone(&shared)));
    messages::send(&common.reports.child_end, &ToMaster::AcceptorReady)?;

    let orders = Orders::new(watched(orders)?);
    let farewell = orders.obey(&shared, |_| true).await?;
    let orphaned = Cell::new(farewell == Farewell::Orphaned);
    if farewell != Farewell::Quit {
        let timeout = shared.drain(farewell);
        let doors = shared.doors.take();
        let drained = async {
            for task in doors.into_iter().map(OpenDoor::into_task) {
                let _ = task.await;
            }
            shared.all_gone().await;
        };
        let told_to_quit = async {
            if !orphaned.get() {
                let is_quit = |farewell| farewell == Farewell::Quit;
                match orders.obey(&shared, is_quit).await {
                    Ok(Farewell::Orphaned) => {
                        orphaned.set(true);
                        shared.orphaned();
                    }
                    _ => return,
                }
            }
            // Without a master there is nobody left to tell us.
            std::future::pending::<()>().await;
        };
        if tokio::time::timeout(timeout, first_of(drained, told_to_quit))
            .await
            .is_err()
        {
            info!("graceful_timeout is over: whoever is not served is told 503");
        }
    }
    shared.refuse_everybody();
    // Whoever does not take the refusal in time has been told as well as could be.
    let _ = tokio::time::timeout(FAREWELL, shared.all_gone()).await;
    watch.abort();
    relief.abort();
    drop(doorbell);
    Ok(if orphaned.get() {
        Farewell::Orphaned
    } else {
        farewell
    })
}

/// Has the event loop watch a descriptor for being readable.
#[expect(
    deprecated,
    reason = "its successor is unsafe, for types that may close their descriptor behind its back; ours own theirs"
)]
fn watched<T: std::os::fd::AsRawFd>(owner: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(owner, Interest::READABLE)
}

/// Waits for whichever ends first.
async fn first_of(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    std::future::poll_fn(|context| {
        let one = one.as_mut().poll(context);
        if one.is_ready() {
            one
        } else {
            other.as_mut().poll(context)
        }
    })
    .await;
}

impl Shared {
    fn new(common: &'static Common) -> io::Result<Self> {
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
        let header = settings.request_id_header.as_deref();
        let request_ids = header.map(RequestIds::new).transpose()?;
        let descriptors = process::raise_open_files();
        let descriptors_left = usize::try_from(descriptors).unwrap_or(usize::MAX);
        let connections_max = (settings.max_connections as usize)
            .min(descriptors_left.saturating_sub(DESCRIPTORS_SPARE) / DESCRIPTORS_EACH)
            // Never none, which would be a server that is up and serves nobody.
            .max(1);
        if connections_max < settings.max_connections as usize {
            info!(
                "at most {connections_max} connections: the limit of open files is {descriptors} (ulimit -Hn)"
            );
        }
        let answers = Rc::new(Limits {
            buffer_bytes: settings.response_buffer,
            memory: Memory::new(settings.max_response_memory),
            spool_bytes: settings.response_spool,
        });
        let relief = Rc::new(Notify::new());
        Ok(Self {
            common,
            dispatch: RefCell::new(Dispatch::new(common, &answers, &relief)),
            http,
            access_log,
            request_ids,
            connections: RefCell::default(),
            connections_max,
            clients: RefCell::new(Clients::new(settings.max_connections_per_client)),
            room: Notify::new(),
            pressed: Cell::new(0),
            paused_until: Cell::new(Instant::now()),
            unaccepted: Shortage::of("connections cannot be accepted (open files? memory?)"),
            unspooled: Shortage::of(
                "bodies and answers cannot be written to the spool directory (disk full? open files? see --tmp-upload-dir)",
            ),
            door: Notify::new(),
            doors: RefCell::default(),
            sought: RefCell::default(),
            open: Cell::new(false),
            is_shared: Cell::new(false),
            body_memory: Memory::new(settings.max_body_memory),
            answers,
            spool: Spool::new(&common.spool, settings.max_spool),
            relief,
            draining: Cell::new(false),
            retiring: Cell::new(false),
            refusing: Cell::new(false),
        })
    }

    /// Once per turn of the event loop, before it sleeps.
    fn turn(&self) {
        self.dispatch.borrow_mut().turn();
        if let Some(log) = &self.access_log {
            log.flush();
        }
    }

    fn log_access(&self, entry: &Entry) {
        if let Some(log) = &self.access_log {
            log.add(entry);
        }
    }

    /// A request whose head could not be read arrived, and was refused.
    fn count_unreadable(&self, outcome: Outcome) {
        let tally = &self.common.tally;
        tally.arrived();
        tally.ended(outcome);
    }

    /// The last thing of all, when no task is left.
    fn close_books(&self) {
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
        if let Some(log) = &self.access_log {
            log.finish();
        }
    }
}
