//! A worker: seats that pull requests and answer them. The host does what a request asks for; this module decides when to stop.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use stanchion_exchange::{Exchange, Inbox, SeatMeter, SeatSide, Taken, Tenant};
use stanchion_sys::channel::Channel;
use stanchion_sys::clock::monotonic_us;
use stanchion_sys::signal::{self, asked};
use stanchion_sys::{futex, process};
use tracing::{debug, error, info, warn};

use crate::gil_watch::GilWatch;
use crate::hook::Hook;
use crate::load_error::LoadError;
use stanchion_generation::listeners::of_worker::{self, BindFailure};
use stanchion_generation::messages::{
    self, Envelope, FromWorker, Incoming, WorkerOrder, WorkerRef,
};
use stanchion_generation::{common::Common, heartbeat, jitter::jitter};
use stanchion_log::{self as log, caught::caught, exit_code};
use stanchion_settings::{Bind, BindAddress, Settings};

/// How long a leaving worker's supervisor sleeps between looks, should a wake-up be lost.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// One worker process, as its host sees it.
pub struct Worker {
    pub(crate) common: &'static Common,
    id: WorkerRef,
    /// Where it reports.
    pub(crate) reports: Channel,
    /// Requests and messages after which it is to be replaced; `u64::MAX` = never.
    served_max: u64,
    requests: AtomicU64,
    /// Messages that its app has received, each over a WebSocket.
    messages: AtomicU64,
    /// The master knows that it is enough.
    is_due: AtomicBool,
    /// A thread runs the hooks of a worker that leaves at once.
    departing: AtomicBool,
    /// The error log was reopened, and the host has not heard of it.
    reopened: AtomicBool,
    /// A seat of it has panicked.
    broken: AtomicBool,
    /// The master knows that it has answered `refork_after` requests.
    is_warm: AtomicBool,
    /// It has left its seats for good, and its process is a template.
    is_template: AtomicBool,
    gil: GilWatch,
}

impl Worker {
    pub(crate) fn new(common: &'static Common, id: WorkerRef, reports: Channel) -> Self {
        Self {
            common,
            id,
            reports,
            served_max: served_max(&common.settings),
            requests: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            is_due: AtomicBool::new(false),
            departing: AtomicBool::new(false),
            reopened: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            is_warm: AtomicBool::new(false),
            is_template: AtomicBool::new(false),
            gil: GilWatch::default(),
        }
    }

    /// How many seats it has: see [`Settings::seats_per_worker`](stanchion_settings::Settings::seats_per_worker).
    pub fn seats(&self) -> usize {
        self.common.settings.seats_per_worker()
    }

    /// How many of the requests that are ready its event loop should take, the others' loads being what they are.
    pub fn fair_share(&self, now_us: u64) -> usize {
        self.common.exchange.share_of_ready(self.id.index, now_us)
    }

    /// The request that has been ready for the longest: a number that is another one once the request is taken.
    pub fn oldest_ready(&self) -> Option<u64> {
        self.common.exchange.oldest_ready()
    }

    /// Where its event loop sleeps; `None` if its seats are threads.
    pub fn inbox(&self) -> Option<Inbox<'_>> {
        self.common.exchange.inbox(self.id.index)
    }

    /// How long its event loop rests while it has nothing to do, in microseconds.
    pub fn rest_us(&self) -> u64 {
        heartbeat::rest_us(&self.common.settings)
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.common.settings
    }

    /// Sits down at seat `thread` of this worker's, counted from 0; to be called on the thread that has the seat.
    pub fn seat(&self, thread: usize) -> Seat<'_> {
        signal::dump::sit_down(thread);
        let Seat { worker, side } = self.sit(thread);
        let calls = self.gil.calls_of_this_thread();
        let side = match SeatMeter::of_this_thread(calls.is_some()) {
            Ok(meter) => {
                if let Some(calls) = calls {
                    self.gil.add(side.number(), Arc::clone(&meter), calls);
                }
                side.with_meter(meter)
            }
            Err(error) => {
                warn!("a seat cannot measure where the time of its requests goes: {error}");
                side
            }
        };
        Seat { worker, side }
    }

    /// Measures from now on for how long threads with seats wait for the interpreter's lock, which lies within these addresses: to be
    /// called before the threads sit down. The main thread looks in [`Self::wait_until_leaving`].
    pub fn watch_gil(&self, data: Range<usize>) {
        self.gil.begin(data);
    }

    /// Sits down at all seats: to be called on the thread of the event loop.
    pub fn all_seats(&self) -> Vec<Seat<'_>> {
        signal::dump::sit_down(0);
        (0..self.seats()).map(|number| self.sit(number)).collect()
    }

    fn sit(&self, number: usize) -> Seat<'_> {
        let exchange: &Exchange = &self.common.exchange;
        let seats = exchange.geometry().seats_of(self.id.index);
        let tenant = Tenant {
            seat: seats.start + number as u16,
            epoch: self.id.epoch,
        };
        let timeout = self.common.settings.workers.timeout.as_duration();
        let side = SeatSide::new(exchange, tenant, process::pid().cast_unsigned(), timeout);
        Seat { worker: self, side }
    }

    /// Whether a seat or the event loop has panicked.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Does the work of a seat, for as long as it lasts. Should it panic, the request that the seat had is answered 502 (its `Taken` is dropped), and the
    /// worker leaves once its other seats are through with theirs, to be replaced: there is no knowing what else is left halfway.
    pub fn work(&self, seat: impl FnOnce()) {
        if caught(seat).is_none() {
            self.broken.store(true, Ordering::Release);
            error!(
                "a worker thread has panicked: the worker finishes the requests of its other threads, and leaves"
            );
            self.leave();
        }
    }

    /// Does what an event loop calls for; `None` if it panicked. It is unknown then which work is left halfway, and of which request: the host gives
    /// up all that the loop runs, and ends it.
    pub fn work_of_loop<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let done = caught(work);
        if done.is_none() {
            self.broken.store(true, Ordering::Release);
            error!("an event loop has panicked: its requests are given up, and the worker leaves");
            self.leave();
        }
        done
    }

    /// Makes the worker leave once the requests its seats have are answered.
    pub fn leave(&self) {
        // An event loop is woken by that as well.
        asked::ask(asked::LEAVE);
        self.common.exchange.ready_bell().rouse(u32::MAX);
    }

    /// Whether no further request should be taken: the worker was asked to leave, the master is gone, or the exchange is closed, as when its generation is
    /// gone. Also reopens the log if that was asked for.
    pub fn should_leave(&self) -> bool {
        if self.is_forsaken() {
            return true;
        }
        let bits = asked::word().load(Ordering::Acquire);
        if bits & asked::REOPEN != 0 && asked::take(asked::REOPEN) {
            log::reopen();
            self.reopened.store(true, Ordering::Release);
        }
        if bits & asked::LEAVING == 0 && self.common.exchange.is_closed() {
            // Once one seat has seen it all must: the acceptor takes it back if another worker wrote it, and a
            // worker whose seats are empty would stay.
            info!("the exchange says that no more requests will be handed out: the worker leaves");
            self.leave();
            return true;
        }
        bits & asked::LEAVING != 0
    }

    /// Whether the acceptor serves only the clients that are here: the worker goes on, and is asked to leave once they are served.
    pub fn is_draining(&self) -> bool {
        self.common.exchange.is_draining()
    }

    /// The same for looks now and then, and leaves if the master has ended: the app may catch or block the signal that the kernel
    /// sends then.
    pub fn heed_master(&self) -> bool {
        let leaves = self.should_leave();
        if !leaves && asked::is_orphaned() {
            info!("the master has ended: the worker leaves");
            self.leave();
            // As if the master had sent it.
            let _ = process::kill(process::pid(), signal::SIGTERM);
        }
        leaves
    }

    /// This process is a child that the app has forked: it has no part in what the worker does, its parent. For a handler
    /// of such forks. A child of a template that was this worker is a worker itself.
    pub fn forsake(&self) {
        if !self.is_template.load(Ordering::Relaxed) {
            self.common.exchange.forsake();
        }
    }

    /// The channel of a template, if the master has ordered that this worker be one once it has left its seats.
    pub(crate) fn offered_template(&self) -> Option<Channel> {
        match messages::receive_from(&self.reports) {
            Ok(Incoming::Message(Envelope {
                message: WorkerOrder::BecomeTemplate,
                fd: Some(fd),
                sender,
            })) if sender == self.common.master_pid => Some(Channel::received(fd)),
            Ok(_) => None,
            Err(error) => {
                warn!("a worker that leaves cannot read whether it is to be the template: {error}");
                None
            }
        }
    }

    /// Its seats are empty, and are another worker's from now on.
    pub(crate) fn is_template_now(&self) {
        self.is_template.store(true, Ordering::Relaxed);
        self.gil.end();
    }

    /// Whether this process is such a child.
    pub fn is_forsaken(&self) -> bool {
        self.common.exchange.is_forsaken()
    }

    /// Serves, alone, the clients at this address from now on; gives the address with the port in force. `None` if it is in use: it is then taken
    /// over from the worker that this one succeeds, or tried again as its `tries` say, while this one serves.
    ///
    /// # Errors
    /// The kernel's. `InvalidInput` if a worker cannot have such a listener.
    pub fn listen(&self, bind: &Bind) -> io::Result<Option<BindAddress>> {
        let refused = |problem| io::Error::new(io::ErrorKind::InvalidInput, problem);
        of_worker::check(bind).map_err(refused)?;
        let (at, listener) = match of_worker::open(self.settings(), bind) {
            Ok((at, listener)) => (Box::new(at), Some(listener)),
            Err(BindFailure::InUse(at)) => (at, None),
            Err(BindFailure::Failed(error)) => return Err(error),
        };
        let asked = FromWorker::Listen {
            bind: at.to_string(),
        };
        let fd = listener.as_ref().map(AsFd::as_fd);
        messages::report_with(&self.reports, &asked, fd)?;
        Ok(listener.map(|_| at.address))
    }

    /// To be called for each message of a WebSocket's client that the app has received. It is work as a request is, and
    /// an app that leaks leaks by it.
    pub fn served_message(&self) {
        let messages = self.messages.fetch_add(1, Ordering::Relaxed) + 1;
        self.served(self.requests.load(Ordering::Relaxed), messages);
    }

    /// Tells the master once it is enough for one life. The worker goes on until its successor is there. The master also hears once the worker has
    /// answered so many requests that it may be the template.
    fn served(&self, requests: u64, messages: u64) {
        let refork_after = self.common.settings.workers.refork_after;
        if refork_after > 0 && requests >= refork_after {
            let what = "it may be the template (refork_after)";
            self.report_once(&self.is_warm, &FromWorker::Warm { requests }, what);
        }
        if requests + messages >= self.served_max {
            let due = FromWorker::Due { requests, messages };
            self.report_once(&self.is_due, &due, "max_requests is reached");
        }
    }

    /// If the master is behind with its reading, the worker reports this after a later request or message.
    fn report_once(&self, is_reported: &AtomicBool, said: &FromWorker, what: &str) {
        if is_reported.swap(true, Ordering::Relaxed) {
            return;
        }
        match messages::send(&self.reports, said) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                is_reported.store(false, Ordering::Relaxed);
            }
            Err(error) => error!("the worker could not report to the master that {what}: {error}"),
        }
    }

    /// For the main thread of a worker with several seats: sleeps until the worker should leave,
    /// then sees to it that the seats of this worker notice. False if it is to ask [`Self::has_reopened`] before.
    pub fn wait_until_leaving(&self) -> bool {
        while !self.heed_master() {
            if self.reopened.load(Ordering::Acquire) {
                return false;
            }
            let pause = self.gil.look(&self.common.exchange, monotonic_us());
            futex::wait(asked::word(), 0, pause.unwrap_or(LOOK_AGAIN));
        }
        self.common.exchange.ready_bell().rouse(u32::MAX);
        true
    }

    /// Whether the error log was reopened since the last call: the host is to do the same with logs of its own.
    pub fn has_reopened(&self) -> bool {
        self.reopened.swap(false, Ordering::AcqRel)
    }

    /// If the worker is to leave at once, whatever runs: runs the hooks for that by `hook`, and gives the exit code with which the process is then to
    /// end. `None` if it is not, or if a thread does this already, or if this process is a child that has the worker's orders from its fork.
    pub fn depart(&self, mut hook: impl FnMut(Hook) -> Result<(), LoadError>) -> Option<i32> {
        if self.is_forsaken() {
            return None;
        }
        let bits = asked::word().load(Ordering::Acquire);
        let (signal, moment, code) = if bits & asked::ABORT != 0 {
            ("ABRT", Hook::WorkerAbort, exit_code::INTERNAL)
        } else if bits & asked::QUICK != 0 {
            ("INT or QUIT", Hook::WorkerInt, exit_code::FINE)
        } else {
            return None;
        };
        if self.departing.swap(true, Ordering::AcqRel) {
            return None;
        }
        asked::heard();
        info!("worker leaves at once: it was sent {signal}");
        // The log has what they raise; the worker leaves in any case.
        let _ = hook(moment);
        let _ = hook(Hook::WorkerExit);
        Some(code)
    }
}

/// A seat of a worker.
pub struct Seat<'w> {
    worker: &'w Worker,
    side: SeatSide<'w>,
}

impl<'w> Seat<'w> {
    /// The next request if one is ready, without waiting; `None` also when it is time to leave.
    pub fn take(&self) -> Option<Taken<'w>> {
        if self.worker.should_leave() {
            return None;
        }
        self.side.take()
    }

    /// Whether a request is ready that it may take.
    pub fn sees_request(&self) -> bool {
        self.side.sees_request()
    }

    /// Waits for the next request; `None` when it is time to leave.
    pub fn wait(&self) -> Option<Taken<'w>> {
        self.side.wait(|| self.worker.heed_master())
    }

    /// To be called after each request: counts it.
    pub fn served(&self) {
        self.side.rest();
        let worker = self.worker;
        if worker.is_forsaken() {
            return;
        }
        let requests = worker.requests.fetch_add(1, Ordering::Relaxed) + 1;
        worker.served(requests, worker.messages.load(Ordering::Relaxed));
    }

    /// Sends a file's descriptor to the acceptor, ahead of the answer that names it. False if the
    /// acceptor does not take it in time; the bytes must then go through the exchange.
    pub fn send_file(&self, taken: &Taken<'_>, file: BorrowedFd<'_>) -> bool {
        let (slot, turn) = taken.ticket();
        let mut message = [0; 8];
        message[..4].copy_from_slice(&slot.to_le_bytes());
        message[4..].copy_from_slice(&turn.to_le_bytes());
        match self
            .worker
            .common
            .files
            .worker_end
            .send(&message, Some(file))
        {
            Ok(()) => true,
            Err(error) => {
                debug!("the acceptor did not take a file, its bytes are sent instead: {error}");
                false
            }
        }
    }
}

/// `max_requests` plus the jitter.
fn served_max(settings: &Settings) -> u64 {
    if settings.workers.max_requests == 0 {
        return u64::MAX;
    }
    settings.workers.max_requests + jitter(process::pid(), settings.workers.max_requests_jitter)
}
