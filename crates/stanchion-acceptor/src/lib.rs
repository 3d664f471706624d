//! The acceptor owns every client connection, keeps the line, and hands its head to free workers.
//!
//! It has one loop on one thread, and only the loop waits, for the kernel; helper threads do what would keep it
//! waiting. In each turn the loop does this, in this order: accept new connections; drive the connections that epoll(7)
//! reports; collect the answers of workers; drive the connections for which workers or helper threads have something;
//! check deadlines; notify the observers of requests that are over. It wakes workers for all new requests of a turn at
//! once. Time is read once a turn and passed down as `now_us`. The work itself is in the crates below: connections,
//! requests, observers and dispatch, each of which knows only those below it. This crate has the loop, the doors by
//! which clients come in, and the answers for operators.
//!
//! It knows the master by its messages and the workers by the exchange. It may not fork, name Python, read heads of
//! clients (the crate of connections does) or use unsafe code.

#![forbid(unsafe_code)]

mod admin;
mod calls;
mod checks;
mod doors;
mod operators;
mod orders;
mod recording;
mod tls;

use std::io;
use std::rc::Rc;
use std::time::Duration;

use stanchion_sys::channel::Channel;
use stanchion_sys::clock::monotonic_us;
use stanchion_sys::code;
use stanchion_sys::listener::{Listener, ListenerAddress};
use stanchion_sys::signal::spin;
use stanchion_sys::{process, scheduling};
use tracing::{error, info, warn};

use admin::Admin;
pub use admin::{PAGE, PAGE_POLICY};
pub use checks::check_settings;
use doors::lent::Sought;
use doors::{AcceptThread, DoorContext, DoorKind, Doors};
use orders::Farewell;
use stanchion_connections::poller::{Poller, Token};
use stanchion_connections::{Audience, ConnectionState, Connections, after};
use stanchion_dispatch::PortNumber;
use stanchion_dispatch::storage::connection_shares::ConnectionShares;
use stanchion_dispatch::storage::payers::Payers;
use stanchion_generation::common::Common;
use stanchion_generation::heartbeat::TURN_CPU;
use stanchion_generation::messages::{self, FromAcceptor};
use stanchion_log::{self as log, caught::caught, cure, exit_code};
use stanchion_requests::Requests;
use stanchion_requests::lifecycle::Lifecycle;
use tls::{Certificates, TicketKeeper};

/// How long refusals may take to be written when the server leaves.
const FAREWELL: Duration = Duration::from_millis(500);
/// The allocator keeps freed memory, because page faults would cost bodies more than copies do. But a buffer of
/// [`MAPPED_BYTES`] or more has a mapping of its own, so that a long message of a `WebSocket` grows without a copy.
const FREED_BYTES_KEPT: i32 = 16 << 20;
const MAPPED_BYTES: i32 = 1 << 20;
/// How often the loop looks for clients that dawdle, and does everything else that is due every now and then.
const WATCH: Duration = Duration::from_millis(250);
/// The same while no client is connected: a host of many servers sleeps better.
const WATCH_IDLE: Duration = Duration::from_secs(1);
/// How many answers an operator gets in one turn that goes on asking.
const OPERATORS_ANSWERS_MAX: usize = 16;
/// How often in a row the loop sweeps up answers before it asks the kernel for news.
const SWEEPS_MAX: u32 = 4;

/// The main function of an acceptor process; returns its exit code.
pub fn run(
    common: &'static Common,
    listeners: &[Listener],
    master: Channel,
    prompt: io::Result<()>,
) -> i32 {
    process::set_name(c"stanchion-acpt");
    let is_prompt = prompt.is_ok();
    // The log gets this once, not at each reload.
    if common.generation == 1 {
        doors::tell_of_promptness(prompt);
    }
    let code = match caught(|| start(common, listeners, master, is_prompt)) {
        Some(Ok(code)) => code,
        Some(Err(error)) => {
            error!("the acceptor cannot go on: {}", cure::told(&error));
            exit_code::INTERNAL
        }
        None => exit_code::INTERNAL,
    };
    log::finish();
    common.count_dropped_lines();
    code
}

fn start(
    common: &'static Common,
    listeners: &[Listener],
    master: Channel,
    is_prompt: bool,
) -> io::Result<i32> {
    calls::try_on(common.exchange.doorbell())?;
    let given = tls::config(common).and_then(|tls| Ok((tls, recording::open(common)?)));
    let (tls, recording) = match given {
        Ok(given) => given,
        Err(reason) => {
            messages::report(&master, &FromAcceptor::CannotServe { reason })?;
            return Ok(exit_code::USAGE);
        }
    };
    let connections_max = doors::connections_max(&common.settings, common.generation == 1)?;
    // The accept thread starts before all other threads: it inherits the priority that this thread still has, and they must not.
    let accept_thread = AcceptThread::start(connections_max)?;
    // When all cores are busy with workers, each answer and each packet would else throw a worker off its core for a
    // moment's work; the acceptor does several at once if it waits for the next gap. It waits at most for a slice of the
    // scheduler's, some 3 ms, and only when no core is idle.
    if let Err(error) = scheduling::never_preempt() {
        // An acceptor that keeps its real-time priority would leave no CPU time to other processes.
        if is_prompt {
            return Err(error);
        }
        warn!(
            "the acceptor will interrupt workers, which costs CPU: SCHED_BATCH cannot be set: {error}"
        );
    }
    stanchion_generation::spool::clear(&common.spool)?;
    process::keep_freed_memory(FREED_BYTES_KEPT, MAPPED_BYTES);
    log::write_by_thread()?;
    let mut acceptor = Acceptor::new(common, listeners, master, (connections_max, accept_thread))?;
    let observers = &mut acceptor.requests.record.observers;
    observers.record_arrivals(&common.settings, recording)?;
    if let Some(tls) = tls {
        acceptor.serve_tls(tls)?;
    }
    let served = acceptor.serve();
    acceptor.close_books();
    if let Ok(Farewell::Orphaned) = served {
        stanchion_generation::spool::remove(&common.spool);
    }
    served.map(|_| exit_code::FINE)
}

struct Acceptor {
    common: &'static Common,
    /// The channel to the master, for reports and orders.
    master: Rc<Channel>,
    poller: Poller,
    doors: Doors,
    sought: Sought,
    clients: Connections,
    operators: Connections,
    requests: Requests,
    certificates: Certificates,
    ticket_keeper: Option<TicketKeeper>,
    admin: Admin,
    /// Another master has the same listeners.
    is_shared: bool,
    ending: Option<ShutdownState>,
    woken: Vec<u32>,
    watch_at_us: u64,
}

/// How the acceptor leaves, and when.
#[derive(Clone, Copy, Debug)]
struct ShutdownState {
    farewell: Farewell,
    /// When the acceptor refuses the requests that are left, and then when it stops waiting for their clients.
    until_us: u64,
    /// The acceptor has refused the requests that were left.
    is_last: bool,
}

impl Acceptor {
    fn new(
        common: &'static Common,
        listeners: &[Listener],
        master: Channel,
        (connections_max, accept_thread): (usize, AcceptThread),
    ) -> io::Result<Self> {
        let settings = &common.settings;
        let now_us = monotonic_us();
        let poller = Poller::new()?;
        let master = Rc::new(master);
        poller.watch(Token::Master, &*master)?;
        let payers = Payers::open(connections_max, settings.limits.max_connections as usize);
        let mut requests = Requests::new(common, &master, now_us)?;
        requests.connection_shares = ConnectionShares::new(settings, connections_max);
        // The loop never reads these: each ring ends a wait, and each turn looks at all that may have rung.
        poller.watch(Token::Bell, common.exchange.doorbell())?;
        poller.watch(Token::Bell, requests.storage.disk.bell())?;
        requests.policy.https_port = settings.https_port(listeners);
        if let Some(compressor) = &requests.compressor {
            poller.watch(Token::Bell, compressor.bell())?;
        }
        let mut doors = Doors::new(connections_max, accept_thread, &poller)?;
        let mut admin_is_tcp = true;
        for listener in listeners {
            let mut port = None;
            let kind = if settings.is_admin(listener) {
                admin_is_tcp = matches!(listener.address(), ListenerAddress::Tcp(_));
                DoorKind::Operators
            } else if settings.is_agent(listener) {
                DoorKind::Balancers
            } else {
                let worker = settings.worker_of(listener.address());
                port = worker.map(PortNumber::from);
                DoorKind::Clients
            };
            doors.add(listener, kind, port, settings, &poller)?;
        }
        Ok(Self {
            common,
            master,
            poller,
            doors,
            sought: Sought::default(),
            clients: Connections::new(Audience::Clients, payers),
            operators: Connections::new(Audience::Operators, Rc::default()),
            requests,
            certificates: Certificates::default(),
            ticket_keeper: None,
            admin: Admin::new(settings, admin_is_tcp),
            is_shared: false,
            ending: None,
            woken: Vec::new(),
            watch_at_us: now_us,
        })
    }

    /// Serves until the master orders the acceptor to leave, and leaves.
    fn serve(&mut self) -> io::Result<Farewell> {
        code::let_go();
        match messages::report(&self.master, &FromAcceptor::Ready) {
            // The master is dead already; the loop notices when it reads the master's orders.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            other => other?,
        }
        let watched = self.common.tally.watched(exit_code::SPUN);
        if let Err(error) = spin::bound_turns(watched, TURN_CPU) {
            warn!("the acceptor cannot watch its loop, and will not be ended if it spins: {error}");
        }
        let (mut is_busy, mut sweeps) = (true, 0);
        loop {
            let sleeps = !is_busy && self.requests.dispatch.try_sleep();
            if sleeps || sweeps >= SWEEPS_MAX || is_busy {
                self.poll(sleeps)?;
                sweeps = 0;
            } else {
                // A worker has brought something in this moment.
                sweeps += 1;
            }
            is_busy = self.turn(sweeps == 0)?;
            self.common.tally.turned();
            if let Some(farewell) = self.is_over() {
                return Ok(farewell);
            }
        }
    }

    /// Asks the kernel for news, and waits for it if the loop `sleeps`.
    fn poll(&mut self, sleeps: bool) -> io::Result<()> {
        let timeout = if sleeps {
            self.timeout()
        } else {
            Duration::ZERO
        };
        let polled = self.poller.wait(timeout);
        if sleeps {
            self.requests.dispatch.awake();
        }
        self.requests.begin_turn();
        polled
    }

    /// How long the loop may wait for the kernel until something is due.
    fn timeout(&self) -> Duration {
        let now_us = self.requests.now_us;
        let due = [
            Some(self.watch_at_us),
            self.doors.due_us(now_us),
            self.sought.due_us(),
            self.requests.dispatch.held_due_us(),
            self.requests.dispatch.call_due_us(),
            self.requests.dispatch.times.staffing.due_us(),
            self.requests.wakes.later.due_us(),
            self.requests.wakes.clients.wasteful_due_us(),
            self.ending.map(|ending| ending.until_us),
        ];
        let due_us = due.into_iter().flatten().min().unwrap_or(u64::MAX);
        Duration::from_micros(due_us.saturating_sub(now_us))
    }

    /// Makes one turn; true if there is more to do at once.
    fn turn(&mut self, has_news: bool) -> io::Result<bool> {
        if has_news {
            self.hear_master_and_doors()?;
        }
        // The doors come first: a connection that waits in the kernel's queue may cost the next one its place there, and no
        // work for connected clients is worth that.
        let mut inside = DoorContext {
            clients: &mut self.clients,
            operators: &mut self.operators,
            requests: &mut self.requests,
            poller: &self.poller,
        };
        let mut is_busy = self.doors.accept(&mut inside);
        if has_news {
            self.hear_the_others();
        }
        self.requests.hear_threads();
        let requests = &mut self.requests;
        requests.wakes.wake_due(requests.now_us);
        self.requests.dispatch.sweep(self.requests.now_us);
        self.drive_woken();
        self.look_at_the_clock();
        self.requests.dispatch.end_turn(self.requests.now_us);
        self.requests.tell_observers();
        self.requests.count_load();
        self.requests.wakes.clients.end_turn();
        self.clients.end_turn();
        self.operators.end_turn();
        is_busy |=
            !self.requests.wakes.clients.is_empty() || !self.requests.wakes.operators.is_empty();
        is_busy |= self.doors.can_welcome(&self.clients);
        Ok(is_busy)
    }

    /// Hears the master before the doors: it may have left a listener to another acceptor, and then the clients that come
    /// there belong to that one.
    fn hear_master_and_doors(&mut self) -> io::Result<()> {
        for index in 0..self.poller.news() {
            if let (Token::Master, _) = self.poller.get(index) {
                self.obey()?;
            }
        }
        for index in 0..self.poller.news() {
            if let (Token::Door(number), _) = self.poller.get(index) {
                self.doors.told(number);
            }
        }
        Ok(())
    }

    fn hear_the_others(&mut self) {
        for index in 0..self.poller.news() {
            let (source, ready) = self.poller.get(index);
            match source {
                Token::Bell | Token::Master | Token::Door(_) => {}
                Token::Client(number) => {
                    let (requests, poller) = (&mut self.requests, &self.poller);
                    self.clients.hear(number, ready, requests, poller);
                }
                Token::Operator(number) => {
                    let (requests, poller) = (&mut self.requests, &self.poller);
                    let fate = self.operators.drive(number, Some(ready), requests, poller);
                    self.answer_operator(number, fate);
                }
            }
            self.requests.dispatch.announce_if_late(monotonic_us);
        }
    }

    /// Drives the connections that have news from workers, threads and clocks. Later news waits for the next turn.
    fn drive_woken(&mut self) {
        let mut woken = std::mem::take(&mut self.woken);
        self.requests.wakes.clients.take(&mut woken);
        for number in woken.drain(..) {
            self.clients.wake(number, &mut self.requests, &self.poller);
            self.requests.dispatch.announce_if_late(monotonic_us);
        }
        self.clients.drive_behind(&mut self.requests, &self.poller);
        self.clients
            .drive_wasteful(&mut self.requests, &self.poller);
        // An HTTP/2 connection sends at once what its streams have written.
        self.requests.wakes.clients.take_called(&mut woken);
        for number in woken.drain(..) {
            self.clients.wake(number, &mut self.requests, &self.poller);
        }
        self.requests.wakes.operators.take(&mut woken);
        for number in woken.drain(..) {
            let (requests, poller) = (&mut self.requests, &self.poller);
            let fate = self.operators.drive(number, None, requests, poller);
            self.answer_operator(number, fate);
        }
        self.woken = woken;
    }

    fn look_at_the_clock(&mut self) {
        let now_us = self.requests.now_us;
        let is_due = |due_us: Option<u64>| due_us.is_some_and(|due_us| due_us <= now_us);
        if is_due(self.requests.dispatch.held_due_us()) {
            self.requests.spool_for_slow_clients();
        }
        self.requests.dispatch.call_if_due(now_us);
        if is_due(self.sought.due_us()) {
            let (settings, master) = (&self.common.settings, &self.master);
            let dispatch = &self.requests.dispatch;
            self.sought.advance(settings, dispatch, master, now_us);
        }
        if is_due(self.requests.dispatch.times.staffing.due_us()) {
            self.requests.dispatch.staff(now_us);
        }
        let next_us = after(now_us, WATCH);
        if now_us >= self.watch_at_us {
            let pause = if self.is_idle() { WATCH_IDLE } else { WATCH };
            self.watch_at_us = after(now_us, pause);
            self.watch();
        } else if self.watch_at_us > next_us && !self.is_idle() {
            self.watch_at_us = next_us;
        }
    }

    /// Whether the acceptor has no client to watch, and sends no figures.
    fn is_idle(&self) -> bool {
        let is_empty = self.clients.len() == 0 && self.operators.len() == 0;
        let is_still =
            self.ending.is_none() && self.common.settings.monitoring.statsd_host.is_none();
        is_empty && is_still && self.requests.dispatch.is_empty()
    }

    /// Does what is due every now and then.
    fn watch(&mut self) {
        let now_us = self.requests.now_us;
        let dispatch = &mut self.requests.dispatch;
        dispatch.mend(now_us);
        dispatch.expire(now_us);
        dispatch.end_those_overdue(now_us);
        dispatch.slots.report_culprits();
        dispatch.look_at_line(now_us);
        dispatch.staff(now_us);
        dispatch.demand.others_have_seats = matches!(
            self.requests.serving.lifecycle,
            Lifecycle::Starting | Lifecycle::Announced | Lifecycle::Retiring
        );
        dispatch.measure(scheduling::core_times, now_us);
        self.doors.settle(&self.requests);
        self.requests.settle();
        self.common.count_dropped_lines();
        self.requests.record.observers.flush_recording();
        self.requests
            .record
            .observers
            .tick(now_us, || self.gauges());
        self.keep_history();
        self.look_at_tls(now_us);
        let (requests, poller) = (&mut self.requests, &self.poller);
        self.clients
            .look(self.doors.is_starved(&self.clients), requests, poller);
        self.operators.look(false, requests, poller);
    }

    /// Gives how the acceptor leaves, once it may end. When its time is over, refuses the requests that are left.
    fn is_over(&mut self) -> Option<Farewell> {
        let ending = self.ending?;
        let now_us = self.requests.now_us;
        // An operator that has just connected is about to ask, and only an answer that closes the connection sends it to the
        // next acceptor.
        let asks = |doing| {
            matches!(
                doing,
                ConnectionState::New | ConnectionState::Reading | ConnectionState::Busy
            )
        };
        let is_retiring = self.requests.serving.lifecycle == Lifecycle::Retiring;
        let is_awaited = is_retiring && self.operators.doing().any(asks);
        let is_empty = self.clients.len() == 0 && self.doors.are_closed() && !is_awaited;
        if is_empty || (ending.is_last && now_us >= ending.until_us) {
            return Some(ending.farewell);
        }
        if now_us >= ending.until_us {
            info!("graceful_timeout is over: requests that are not answered yet get 503");
            self.refuse_all_requests();
        }
        None
    }

    /// Settles the counts and the logs before the process ends.
    fn close_books(&mut self) {
        self.clients.abandon_all(&mut self.requests);
        // No further turn would wake the event loops that serve these clients.
        self.requests.dispatch.end_turn(self.requests.now_us);
        self.requests.dispatch.end_standstill();
        let counts = self.common.tally.read();
        if counts.arrived() > 0 {
            info!("requests {counts}");
        }
        if counts.in_flight() + counts.connections() + counts.sessions() > 0 {
            error!(
                "the counts do not add up: our fault in_flight={} connections={} sessions={}",
                counts.in_flight(),
                counts.connections(),
                counts.sessions()
            );
        }
        self.requests.record.observers.finish();
        self.requests.storage.disk.finish(FAREWELL);
    }
}
