//! How many workers there should be: as many as the settings say, or as the line needs.

use std::io;
use std::rc::Rc;

use stanchion_generation::common::Common;
use stanchion_generation::messages::{self, FromAcceptor, HeadroomRead};
use stanchion_line::{Curve, Elastic, ElasticLimits, Headroom, HeldBack, Left, Seen, Wanted};
use stanchion_settings::Settings;
use stanchion_sys::channel::Channel;
use tracing::error;

use crate::causes::Causes;
use crate::status::ElasticStatus;
use crate::view::LineView;

/// How often the acceptor asks the master for the headroom, while requests wait.
const HEADROOM_EVERY_US: u64 = 1_000_000;
/// An answer counts for so long: a busy master may be late with the next.
const HEADROOM_US_MAX: u64 = 3_000_000;

/// The share of their time that requests compute is known of so much time at seats.
const SHARE_US_MIN: u64 = 5_000_000;

/// The number of workers that there should be.
pub struct Staffing {
    fixed: usize,
    elastic: Option<Elastic>,
    master: Rc<Channel>,
    /// A report to the master for which its channel had no room yet.
    unreported: Option<FromAcceptor>,
    /// The headroom, and when the master said it.
    headroom: Option<(u64, Headroom)>,
    /// When the master was asked for that.
    asked_us: Option<u64>,
}

impl Staffing {
    /// As many as the settings say; of a range the fewest, until the master says another number.
    pub(crate) fn new(common: &Common, master: &Rc<Channel>) -> Self {
        let count = common.settings.workers.workers;
        // It stays until the master says what it is: there may be more workers, of an acceptor before this one.
        let new = || {
            let mut elastic = Elastic::new(limits(&common.settings, common.cores));
            elastic.set(0, count.min as u16, true);
            elastic
        };
        Self {
            fixed: count.min as usize,
            elastic: count.is_elastic().then(new),
            master: Rc::clone(master),
            unreported: None,
            headroom: None,
            asked_us: None,
        }
    }

    /// How many there should be.
    pub fn wanted(&self) -> usize {
        let elastic = self.elastic.as_ref();
        elastic.map_or(self.fixed, |elastic| usize::from(elastic.wanted()))
    }

    /// The master says how many there should be, and whether that is to stay so.
    pub fn set(&mut self, workers: u16, is_pinned: bool, now_us: u64) {
        if let Some(elastic) = &mut self.elastic {
            elastic.set(now_us, workers, is_pinned);
        }
        self.unreported = None;
    }

    /// The master says the headroom.
    pub fn set_headroom(&mut self, read: &HeadroomRead, now_us: u64) {
        let left = |(left, max)| Left { left, max };
        let headroom = Headroom {
            workers: read.workers,
            memory: read.memory.map(left),
            private_bytes: read.private_bytes,
            some_percent: read.some_percent,
            full_percent: read.full_percent,
            tasks: read.tasks.map(left),
            tasks_each: read.tasks_each,
            is_boot_failing: read.is_boot_failing,
        };
        self.headroom = Some((now_us, headroom));
    }

    /// The number stays as it is from now on.
    pub fn stop(&mut self, now_us: u64) {
        self.set(self.wanted() as u16, true, now_us);
    }

    /// Notes a request that has left its seat, which it had for so long.
    pub(crate) fn served(&mut self, service_us: u64, now_us: u64) {
        if let Some(elastic) = &mut self.elastic {
            elastic.served(now_us, service_us);
        }
    }

    /// Notes how many requests and workers there are.
    pub(crate) fn note(&mut self, view: &LineView<'_>, now_us: u64) {
        if let Some(elastic) = &mut self.elastic {
            let (workers, waiting) = (view.workers(), view.waiting_for_seats(now_us).0);
            let has = view.in_exchange_for_any();
            // While requests wait in the line, seats that are free are not for them: lanes keep them, or workers leave.
            let seats = match waiting {
                0 => 0,
                _ => workers.len() * workers.seats_each(),
            };
            elastic.note(now_us, has.max(seats) + waiting, workers.len() as u16);
        }
        self.ask_for_headroom(now_us);
    }

    /// Asks the master for the headroom, if that matters and the last answer is old. It answers before the first decision on
    /// requests that have begun to wait.
    fn ask_for_headroom(&mut self, now_us: u64) {
        let wants = self.elastic.as_ref().is_some_and(Elastic::wants_headroom);
        let is_young = |asked_us| now_us.saturating_sub(asked_us) < HEADROOM_EVERY_US;
        if wants && !self.asked_us.is_some_and(is_young) && self.is_reported(&FromAcceptor::Weigh) {
            self.asked_us = Some(now_us);
        }
    }

    /// Decides whether another number of workers is wanted, and reports that to the master.
    pub(crate) fn step(
        &mut self,
        view: &LineView<'_>,
        (curve, causes): (&mut Curve, &Causes),
        now_us: u64,
    ) {
        // Requests may have left their seats in this turn.
        self.note(view, now_us);
        let Some(elastic) = &mut self.elastic else {
            return;
        };
        let oldest_us = view.oldest_for_any_us(now_us);
        let is_young =
            |(read_us, _): &(u64, Headroom)| now_us.saturating_sub(*read_us) < HEADROOM_US_MAX;
        let seen = Seen {
            oldest_us: oldest_us.max(view.waiting_for_seats(now_us).1),
            busy_rank: busy_rank(view),
            cpu_share: elastic.limits().auto_cores.and_then(|_| cpu_share(causes)),
            headroom: self.headroom.filter(is_young).map(|(_, headroom)| headroom),
        };
        let wanted = elastic.step(now_us, &seen, curve);
        if let Some(Wanted { workers, because }) = wanted {
            let why = because.to_string();
            self.unreported = Some(FromAcceptor::Want { workers, why });
        }
        let unreported = self.unreported.take();
        self.unreported = unreported.filter(|want| !self.is_reported(want));
    }

    /// Whether the master gets a report, or never will.
    fn is_reported(&self, report: &FromAcceptor) -> bool {
        match messages::send(&self.master, report) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => {
                error!("the acceptor cannot ask the master for another number of workers: {error}");
                true
            }
        }
    }

    /// When that is to be decided, if requests wait.
    pub fn due_us(&self) -> Option<u64> {
        self.elastic.as_ref()?.due_us()
    }

    /// The state, for operators; `None` if the number of workers is fixed by the settings.
    pub fn status(&self) -> Option<ElasticStatus> {
        let elastic = self.elastic.as_ref()?;
        let ElasticLimits {
            workers_min,
            workers_max,
            ..
        } = elastic.limits();
        Some(ElasticStatus {
            min: workers_min,
            max: workers_max,
            wanted: elastic.wanted(),
            pinned: elastic.is_pinned(),
            held_back: elastic.held_back().map(HeldBack::name),
        })
    }
}

/// The share that requests compute, once enough of them were measured that the first, which import and compile, count for little.
fn cpu_share(causes: &Causes) -> Option<f64> {
    let recent = causes.recent();
    let is_known = recent.service_us() >= SHARE_US_MIN;
    recent.cpu_share().filter(|_| is_known)
}

/// The highest number of a worker that has a request, counted from 1.
fn busy_rank(view: &LineView<'_>) -> u16 {
    let seated = view.workers();
    let busy = seated
        .iter()
        .filter(|(index, _)| seated.seats_of(*index).1 > 0);
    let ranks = busy.map(|(_, sitting)| sitting.number.saturating_add(1));
    ranks.max().unwrap_or(0)
}

fn limits(settings: &Settings, cores: u32) -> ElasticLimits {
    let count = settings.workers.workers;
    ElasticLimits {
        workers_min: count.min as u16,
        workers_max: count.max as u16,
        seats_each: settings.seats_per_worker(),
        keep_us: settings.workers.workers_keep.duration().as_micros() as u64,
        slow_boots_max: u16::try_from(cores).unwrap_or(u16::MAX),
        // Of that setting there are as many as cores at least.
        auto_cores: count.is_auto.then_some(count.min as u16),
    }
}
