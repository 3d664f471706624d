//! How many workers there should be: as many as the settings say, or as the line needs.

use std::io;
use std::rc::Rc;
use std::thread::available_parallelism;

use stanchion_generation::messages::{self, FromAcceptor};
use stanchion_line::{Curve, Elastic, ElasticLimits, HeldBack, Seen, Wanted};
use stanchion_settings::Settings;
use stanchion_sys::channel::Channel;
use tracing::error;

use crate::causes::Causes;
use crate::status::ElasticStatus;
use crate::view::LineView;

/// The number of workers that there should be.
pub struct Staffing {
    fixed: usize,
    elastic: Option<Elastic>,
    master: Rc<Channel>,
    /// A report to the master for which its channel had no room yet.
    unreported: Option<FromAcceptor>,
}

impl Staffing {
    /// As many as the settings say; of a range the fewest, until the master says another number.
    pub(crate) fn new(settings: &Settings, master: &Rc<Channel>) -> Self {
        let count = settings.workers.workers;
        // It stays until the master says what it is: there may be more workers, of an acceptor before this one.
        let new = || {
            let mut elastic = Elastic::new(limits(settings));
            elastic.set(0, count.min as u16, true);
            elastic
        };
        Self {
            fixed: count.min as usize,
            elastic: count.is_elastic().then(new),
            master: Rc::clone(master),
            unreported: None,
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
        let seen = Seen {
            oldest_us: oldest_us.max(view.waiting_for_seats(now_us).1),
            busy_rank: busy_rank(view),
            cpu_share: causes.recent().cpu_share(),
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
    fn is_reported(&self, want: &FromAcceptor) -> bool {
        match messages::send(&self.master, want) {
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

/// The highest number of a worker that has a request, counted from 1.
fn busy_rank(view: &LineView<'_>) -> u16 {
    let seated = view.workers();
    let busy = seated
        .iter()
        .filter(|(index, _)| seated.seats_of(*index).1 > 0);
    let ranks = busy.map(|(_, sitting)| sitting.number.saturating_add(1));
    ranks.max().unwrap_or(0)
}

fn limits(settings: &Settings) -> ElasticLimits {
    let cores = available_parallelism().map_or(1, usize::from);
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
