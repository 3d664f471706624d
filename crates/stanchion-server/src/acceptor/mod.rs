//! The acceptor: owns every client connection, keeps the line, hands its head to free workers.
//!
//! One thread, one event loop (tokio's current-thread runtime), so nothing here is locked: what
//! tasks share is in `Rc` and cells. Once per turn of the loop, before it sleeps,
//! [`dispatch::Dispatch::turn`] sweeps up answers and wakes workers for new requests, all at once.

mod access_log;
mod admin;
mod answer;
mod app_head;
mod clients;
mod connection;
mod conversation;
mod disk;
mod dispatch;
mod door;
mod doors;
mod durations;
mod goodbye;
mod intake;
mod lent;
mod listen;
mod lookout;
mod memory;
mod metered;
mod orders;
mod outflow;
mod pace;
mod proxies;
mod random;
mod refusal;
mod repeats;
mod request;
mod request_id;
mod roll;
mod room;
mod service;
mod shared;
mod spans;
mod spool;
mod spooling;
mod statsd;
mod ticket;
mod traceparent;
mod tracked;
mod vital;
mod watch;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use stanchion_sys::channel::Channel;
use stanchion_sys::listener::Listener;
use stanchion_sys::process;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, LocalOptions};
use tracing::{debug, error, info};

use crate::exit_code;
use crate::log;
use crate::messages::{self, FromAcceptor};
use crate::panics;
use crate::settings::Settings;
use crate::tally::Event;
use crate::tree::Common;
use dispatch::PortNumber;
use orders::{Farewell, Orders};
use shared::Shared;

/// How long refusals may take to be written when the server leaves.
const FAREWELL: Duration = Duration::from_millis(500);
/// Freed memory that is kept for the next buffers: bodies and answers come and go at a rate at
/// which page faults would cost more than the copying.
const FREED_BYTES_KEPT: i32 = 16 << 20;

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
    if let Some(admin) = &settings.admin
        && settings
            .bind
            .iter()
            .any(|bind| bind.address == admin.address)
    {
        return Err(format!(
            "`admin` is {admin}, which is an address of `bind` too: it needs one of its own"
        ));
    }
    access_log::check(&settings.access_log_format)
}

/// The life of an acceptor process; gives its exit code.
pub(crate) fn run(common: &'static Common, listeners: &[Listener], master: Channel) -> i32 {
    process::set_name(c"stanchion-acpt");
    let code = match panics::caught(|| start(common, listeners, master)) {
        Some(Ok(())) => exit_code::FINE,
        Some(Err(error)) => {
            error!("the acceptor cannot go on: {error}");
            exit_code::INTERNAL
        }
        None => exit_code::INTERNAL,
    };
    log::finish();
    common.count_dropped_lines();
    code
}

fn start(common: &'static Common, listeners: &[Listener], master: Channel) -> io::Result<()> {
    crate::spool::clear(&common.spool)?;
    process::keep_freed_memory(FREED_BYTES_KEPT);
    // When all cores are busy with workers, each answer and each packet would else throw one of
    // them off its core for a moment's work; waiting for the next gap does several at once. The
    // wait is at most a slice of the scheduler's, some 3 ms, and only when nothing is idle.
    if let Err(error) = process::interrupt_nobody() {
        debug!("the acceptor runs under the normal scheduling policy: {error}");
    }
    let connections_max = room::connections_max(&common.settings);
    log::write_by_thread()?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(disk::DISK_THREADS_MAX)
        .on_thread_park(|| with_shared(Shared::turn))
        .on_thread_unpark(|| with_shared(|shared| shared.dispatch.borrow().awake()))
        .build_local(LocalOptions::default())?;
    let served = runtime.block_on(serve(common, connections_max, listeners, master));
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
    connections_max: usize,
    listeners: &[Listener],
    master: Channel,
) -> io::Result<Farewell> {
    let master = Rc::new(master);
    let shared = Rc::new(Shared::new(common, connections_max, &master)?);
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
        listen::open(&shared, listener, worker.map(PortNumber::from))?;
    }
    let served = serve_while_whole(&shared, master);
    let farewell = shared.at_the_doors.accept_during(served).await;
    drop(doorbell);
    farewell
}

/// Serves until the master says how to leave; gives up if one of the tasks is lost that all rely on.
async fn serve_while_whole(shared: &Rc<Shared>, master: Rc<Channel>) -> io::Result<Farewell> {
    let mut farewell = None;
    let mut lost = None;
    let served = async { farewell = Some(serve_until_told(shared, master).await) };
    first_of(served, async { lost = Some(shared.vital.lost().await) }).await;
    farewell.unwrap_or_else(|| {
        let what = lost.unwrap_or_default();
        Err(io::Error::other(format!(
            "the task that {what} has panicked"
        )))
    })
}

/// Serves until the master says how to leave, and leaves.
async fn serve_until_told(shared: &Rc<Shared>, master: Rc<Channel>) -> io::Result<Farewell> {
    let vital = &shared.vital;
    let watch = vital.spawn("keeps deadlines", watch::watch(Rc::clone(shared)));
    let relief = vital.spawn("relieves workers", spooling::relieve(Rc::clone(shared)));
    match messages::report(&master, &FromAcceptor::Ready) {
        // It is dead already: its orders end, which is heard as ever.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        other => other?,
    }

    let orders = Orders::new(watched(master)?);
    let farewell = orders.obey(shared, |_| true).await?;
    let orphaned = Cell::new(farewell == Farewell::Orphaned);
    if farewell != Farewell::Quit {
        let timeout = shared.drain(farewell);
        shared.doors.take();
        let drained = async {
            shared.at_the_doors.all_closed().await;
            shared.all_gone().await;
        };
        let told_to_quit = async {
            if !orphaned.get() {
                let is_quit = |farewell| farewell == Farewell::Quit;
                match orders.obey(shared, is_quit).await {
                    Ok(Farewell::Orphaned) => {
                        orphaned.set(true);
                        shared.orphaned();
                    }
                    Ok(_) => return,
                    Err(error) => {
                        error!("the master cannot be heard, so nobody is waited for: {error}");
                        return;
                    }
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
