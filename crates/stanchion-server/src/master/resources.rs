//! The resources of a generation in the master: made before its first fork, freed when none of its processes is left.

use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stanchion_exchange::{Exchange, Geometry, SeatState, Word};
use stanchion_line::Ahead;
use stanchion_master::{ChildKind, GenerationPlan, ReforkPlan};
use stanchion_sys::channel::Channel;
use stanchion_sys::control_group::memory_limit_bytes;
use stanchion_sys::listener::Listener;
use stanchion_sys::memory::AppendFile;
use stanchion_sys::process;
use tracing::{info, warn};

use super::headroom::HeadroomWatch;
use super::late_loops::LateLoops;
use super::lent::Lent;
use super::links::Links;
use super::reports::Link;
use crate::auto_workers::{cores, heed_machine};
use stanchion_generation::common::{Common, Files};
use stanchion_generation::credentials::KeyFiles;
use stanchion_generation::figures::Figures;
use stanchion_generation::identities::{self, Identities};
use stanchion_generation::messages::WorkerRef;
use stanchion_generation::spool::SpoolDir;
use stanchion_generation::tally::{self, Counts, Tally, Total};
use stanchion_generation::ticket_keys::TicketKeys;
use stanchion_log::{self as log, LogChannels};
use stanchion_record::{REQUEST_HEAD_BYTES_MAX, REQUEST_RECORD_EXTRA_BYTES, response_ring_bytes};
use stanchion_settings::{EVENT_LOOPS_SPARE, Settings};

/// Workers there are seats for beyond those asked for, so that TTIN has somewhere to go and
/// successors can come before those they replace are gone. Seats that are never used cost address space,
/// and a page or two.
const WORKERS_SPARE: usize = 32;
/// How much of what comes in behind the head of a request is there for an event loop before the socket is read no further.
const INFLOW_BYTES: usize = 128 * 1024;
const MIB: u64 = 1 << 20;
/// How long the master writes lines that a scribe has left to the error log, while nothing else goes on in it.
const LEFT_LINES_WAIT: Duration = Duration::from_secs(1);

/// Makes the part of a generation that all its processes share.
fn common(
    generation_number: u32,
    (mut settings, has_scribe): (Settings, bool),
    spool: &SpoolDir,
    identities: Identities,
    before: &CarriedOver,
) -> io::Result<Common> {
    let limit_bytes = memory_limit_bytes();
    if let Some(bytes) = settings.heed_memory_limit(limit_bytes) {
        info!(
            "the control group may have {} MiB of memory, so clients may have {} MiB in each acceptor; max_client_memory sets another limit",
            limit_bytes.unwrap_or_default() / MIB,
            bytes as u64 / MIB
        );
    }
    if let Some(number) = heed_machine(&mut settings) {
        info!("`workers` auto is {number}");
    }
    let workers_max = workers_max(&settings)?;
    let exchange = Exchange::create(geometry(&settings, workers_max))?;
    log::belong_to(identities.of_error_log());
    let owner = identities.of_access_log(has_scribe);
    log::create(settings.log.accesslog.as_deref(), owner)?;
    if let Some(directory) = &settings.monitoring.record_arrivals {
        log::create_directory(directory, identities.of_recording())?;
    }
    let key_files = KeyFiles::copy(&settings).map_err(io::Error::other)?;
    let (acceptor_end, worker_end) = Channel::pair()?;
    let tally = Arc::new(Tally::create()?);
    Ok(Common {
        cores: cores(),
        generation: generation_number,
        exchange,
        figures: Arc::clone(&before.figures),
        total: Total {
            departed: before.departed,
            others: before.others.clone(),
            own: Arc::clone(&tally),
        },
        tally,
        master_pid: process::pid(),
        files: Files {
            acceptor_end: Mutex::new(Some(acceptor_end)),
            worker_end,
        },
        key_files,
        ticket_keys: Arc::clone(&before.ticket_keys),
        spool: spool.path().to_owned(),
        identities,
        settings,
        dumps: AppendFile::create("stanchion-dumps")?,
        log_channels: has_scribe.then(LogChannels::make).transpose()?,
    })
}

/// How many workers there are seats for.
fn workers_max(settings: &Settings) -> io::Result<usize> {
    let most = settings.workers.workers.max as usize;
    let seated_max = Word::SEATS_MAX / settings.seats_per_worker();
    let spare = if settings.is_event_loop() {
        EVENT_LOOPS_SPARE as usize
    } else {
        WORKERS_SPARE
    };
    let workers_max = (most + spare).min(seated_max);
    if workers_max < most {
        return Err(io::Error::other(format!(
            "the workers have more than {} seats, the most that there may be",
            Word::SEATS_MAX
        )));
    }
    Ok(workers_max)
}

/// The layout of the exchange, with seats for so many workers.
pub(crate) fn geometry(settings: &Settings, workers_max: usize) -> Geometry {
    let seats_per_worker = settings.seats_per_worker();
    let event_loops = settings.is_event_loop();
    let of_loops = |value: usize| if event_loops { value } else { 0 };
    Geometry {
        seats: workers_max * seats_per_worker,
        seats_per_worker,
        ahead_per_seat: if event_loops { 0 } else { Ahead::PER_SEAT_MAX },
        spare_per_worker: of_loops(Ahead::PER_LOOP),
        sessions_per_worker: of_loops(settings.event_loop.worker_sessions as usize),
        event_loops,
        inflow_bytes: of_loops(INFLOW_BYTES),
        request_bytes: REQUEST_HEAD_BYTES_MAX
            + REQUEST_RECORD_EXTRA_BYTES
            + settings.buffers.body_memory,
        response_bytes: response_ring_bytes(event_loops),
    }
}

/// The state that a generation takes over from those before it.
pub(crate) struct CarriedOver {
    pub(crate) figures: Arc<Figures>,
    pub(crate) ticket_keys: Arc<TicketKeys>,
    /// Counts of the requests of generations that are gone,
    pub(crate) departed: Counts,
    /// and of generations that are there.
    pub(crate) others: Vec<Arc<Tally>>,
    /// The spool directory of the generation that this one is made in place of: only one of the two has clients. A master that dies leaves no directory of
    /// a generation that has no acceptor to remove it.
    pub(crate) spool: Option<Rc<SpoolDir>>,
}

impl CarriedOver {
    /// The state for the first generation.
    pub(crate) fn nothing(figures: Figures, ticket_keys: TicketKeys) -> Self {
        Self {
            figures: Arc::new(figures),
            ticket_keys: Arc::new(ticket_keys),
            departed: Counts::default(),
            others: Vec::new(),
            spool: None,
        }
    }
}

/// The resources of a generation. A [`stanchion_master::Generation`] is what the master knows of it.
pub(crate) struct GenerationResources {
    pub(super) common: Rc<Common>,
    pub(super) listeners: Vec<Listener>,
    /// The listeners that single workers asked for.
    pub(super) lent: Lent<Listener>,
    pub(super) links: Links,
    pub(super) late_loops: LateLoops,
    pub(super) headroom: HeadroomWatch,
    /// Removed with what is in it when the last generation that has it is dropped.
    pub(super) spool: Rc<SpoolDir>,
}

impl GenerationResources {
    /// Makes all of it, for settings that ask for a scribe or do not; or gives the listeners back with the error.
    pub(crate) fn build(
        generation_number: u32,
        (settings, has_scribe): (Settings, bool),
        listeners: Vec<Listener>,
        before: &CarriedOver,
    ) -> Result<Self, (io::Error, Vec<Listener>)> {
        let made = || -> io::Result<_> {
            let identities = identities::find(&settings).map_err(io::Error::other)?;
            let parent = settings.buffers.tmp_upload_dir.as_deref();
            let spool = match &before.spool {
                Some(spool) => Rc::clone(spool),
                None => Rc::new(SpoolDir::create(parent, identities.of_spool())?),
            };
            let common = common(
                generation_number,
                (settings, has_scribe),
                &spool,
                identities,
                before,
            )?;
            Ok((common, spool))
        };
        match made() {
            Ok((common, spool)) => Ok(Self {
                common: Rc::new(common),
                listeners,
                lent: Lent::default(),
                links: Links::default(),
                late_loops: LateLoops::default(),
                headroom: HeadroomWatch::default(),
                spool,
            }),
            Err(error) => Err((error, listeners)),
        }
    }

    /// Its number.
    pub(super) fn number(&self) -> u32 {
        self.common.generation
    }

    /// All listeners that clients come in by.
    pub(super) fn doors(&self) -> impl Iterator<Item = &Listener> {
        self.listeners.iter().chain(self.lent.listeners())
    }

    /// The doors that lead to the app.
    pub(super) fn public_doors(&self) -> impl Iterator<Item = &Listener> {
        self.doors()
            .filter(|door| self.common.settings.is_for_clients(door))
    }

    /// Its settings that concern the master's decisions.
    pub(super) fn plan(&self) -> GenerationPlan {
        let settings = &self.common.settings;
        let workers = settings.workers.workers;
        let ms = |seconds: stanchion_settings::Seconds| seconds.duration().as_millis() as u64;
        GenerationPlan {
            workers: workers.min as u16,
            elastic_max: workers.is_elastic().then_some(workers.max as u16),
            workers_max: self.common.exchange.geometry().workers() as u16,
            graceful_ms: ms(settings.workers.graceful_timeout),
            drain_delay_ms: ms(settings.workers.drain_delay),
            memory_max: settings.workers.max_memory,
            memory_hard_max: settings.workers.max_memory_hard,
            lifetime_ms: ms(settings.workers.max_lifetime),
            lifetime_jitter_ms: ms(settings.workers.max_lifetime_jitter),
            has_scribe: self.common.log_channels.is_some(),
            beside_one: settings.beside_one_worker(),
            is_event_loop: settings.is_event_loop(),
            is_guess: settings.is_guess(),
            refork: match settings.without_refork() {
                Some(why) => ReforkPlan::Never(why),
                None if settings.workers.refork_after > 0 => ReforkPlan::AfterRequests,
                None => ReforkPlan::ByCommand,
            },
        }
    }

    /// It has this child, with a channel to it.
    pub(super) fn have_child(&mut self, kind: ChildKind, pid: i32, channel: Channel) {
        let links = &mut self.links;
        match kind {
            ChildKind::Acceptor => {
                links.acceptor = Some(Link::new(pid, channel));
                self.tell_of_lent(None);
            }
            ChildKind::Template { .. } => links.template = Some(Link::new(pid, channel)),
            ChildKind::Scribe => links.scribe = Some(Link::new(pid, channel)),
        }
    }

    /// For a child: the part of the generation that it works with, for the rest of its life.
    pub(super) fn common_for_life(&self) -> &'static Common {
        let common: &'static Rc<Common> = Box::leak(Box::new(Rc::clone(&self.common)));
        common
    }
}

impl Drop for GenerationResources {
    fn drop(&mut self) {
        if process::pid() == self.common.master_pid {
            // A worker that its template could not report any more finds out here.
            self.common.exchange.close();
        }
    }
}

impl GenerationResources {
    /// There is no acceptor: what the last one had in hand, if it was killed, is counted as lost.
    pub(super) fn settle(&self) {
        let lost = self.common.tally.settle();
        if lost > 0 {
            warn!("requests lost with an acceptor that was killed: {lost}");
        }
    }

    /// No process of the generation is left: lines that waited for its scribe are written to the error log.
    pub(super) fn close_logs(&self) {
        let channels = self.common.log_channels.as_ref();
        let lost = channels.map_or(0, |channels| {
            channels.write_what_is_left(Instant::now() + LEFT_LINES_WAIT)
        });
        if lost > 0 {
            self.common
                .tally
                .happened_times(tally::Event::LogLineDropped, lost);
            warn!("log lines that the scribe did not take, and that are lost: {lost}");
        }
    }

    /// A worker has ended, or will not come: its seats are empty, and it has nothing to report.
    pub(super) fn vacate(&mut self, worker: u16) {
        self.links.posts.remove(&worker);
        let exchange = &self.common.exchange;
        let seats = exchange.geometry().seats_of(worker);
        seats.for_each(|seat| exchange.vacate(seat));
        exchange.vacate_loop(worker);
        self.late_loops.forget(worker);
    }

    /// Whether no seat of a worker has taken a request.
    pub(super) fn is_unused(&self, worker: u16) -> bool {
        let exchange = &self.common.exchange;
        let mut seats = exchange.geometry().seats_of(worker);
        !self.is_busy(worker, None)
            && seats.all(|seat| exchange.seat(seat).served.load(Ordering::Relaxed) == 0)
    }

    /// Whether any seat of a worker is busy, but for one.
    pub(super) fn is_busy(&self, worker: u16, but: Option<u16>) -> bool {
        let exchange = &self.common.exchange;
        let mut seats = exchange.geometry().seats_of(worker);
        seats.any(|seat| Some(seat) != but && exchange.seat_state(seat) == SeatState::Busy)
    }

    /// Sends the acceptor the doors that are lent to single workers, or `only` the one that this worker has asked for.
    pub(super) fn tell_of_lent(&mut self, only: Option<(u32, WorkerRef)>) {
        if self.links.acceptor.is_none() {
            return;
        }
        // The claim of a worker that is gone is about to be dropped.
        let number_of = |worker: WorkerRef| self.links.number_of(worker).unwrap_or(worker.index);
        let messages = self.lent.messages(only, number_of);
        if let Some(acceptor) = &mut self.links.acceptor {
            for (message, fd) in messages {
                acceptor.outbox.send_with(message, fd);
            }
        }
    }
}
