//! Traffic that a server has seen, and what it says: the requests for a simulation, how late seats begin, and where more busy seats bring
//! no more.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use stanchion_line::{Curve, Measured, Spent};

use crate::chance::Chance;
use crate::offered::Offered;

/// The throughput with so many busy seats is known from so many requests.
const KNOWN_MIN: u64 = 30;
/// How often the curve of the throughput is looked at, in microseconds of the traffic.
const LOOK_US: u64 = 10_000_000;

/// Traffic that a server has seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeenTraffic {
    /// In the order of their arrival.
    pub requests: Vec<SeenRequest>,
    /// The settings of the server as far as they are known, by the names of a scenario.
    pub settings: Map<String, Value>,
    /// How many requests are not among them though they came.
    pub lost: u64,
    /// Sentences on other facts that a reader of the figures has to know.
    pub notes: Vec<String>,
}

/// A request that a server has seen. `None` is unknown, times are in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenRequest {
    /// When it came to the line; the zero does not matter.
    pub at_us: u64,
    /// How long it waited until a worker began with it or it was over.
    pub wait_us: Option<u32>,
    /// How long it had its seat, if it had one.
    pub service_us: Option<u32>,
    /// How long of that it was on a core,
    pub cpu_us: Option<u32>,
    /// waited for a core,
    pub core_us: Option<u32>,
    /// and waited for the interpreter's lock.
    pub gil_us: Option<u32>,
    /// Its client; 0 is unknown.
    pub client: u32,
    /// Its lane.
    pub lane: u16,
    /// How it ended.
    pub end: SeenEnd,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeenEnd {
    /// Its answer was whole.
    #[default]
    Served,
    /// It was refused at once: too many waited.
    Refused,
    /// It waited for too long, or was shed.
    TimedOut,
    /// Its client left while it waited.
    LeftWaiting,
    /// Its client left later.
    LeftSeated,
    /// Its seat brought no whole answer.
    Failed,
    /// The server refused it for another reason: it takes no part in a simulation.
    Other,
}

impl SeenRequest {
    /// When it got its seat and when it gave it back, if it had one.
    pub(crate) fn seated_us(&self) -> Option<(u64, u64)> {
        let had_seat = matches!(
            self.end,
            SeenEnd::Served | SeenEnd::LeftSeated | SeenEnd::Failed
        );
        let service_us = self.service_us.filter(|_| had_seat)?;
        let began_us = self.at_us + u64::from(self.wait_us.unwrap_or(0));
        Some((began_us, began_us + u64::from(service_us)))
    }

    /// How long it was at its seat.
    pub(crate) fn service_us(&self) -> Option<u64> {
        self.seated_us()
            .map(|(began_us, ended_us)| ended_us - began_us)
    }
}

/// The facts that the traffic shows, and the requests for a simulation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    pub(crate) requests: Vec<Offered>,
    /// How many of them had no time at a seat, and got that of another one.
    pub(crate) drawn: u64,
    /// Where the time of the others went, but for the line.
    pub(crate) spent: Spent,
    /// CPU was measured, or was given.
    pub(crate) knows_cpu: bool,
    /// The most busy seats at any moment.
    pub(crate) busy_max: usize,
    /// Requests in a second by busy seats.
    pub(crate) throughput: Vec<(f64, f64)>,
    /// How many requests are elsewhere at once without slowing each other down, if they ever slowed each other down.
    pub(crate) pool: Option<f64>,
}

impl SeenTraffic {
    /// The requests of a window of time.
    pub(crate) fn within(mut self, from_us: Option<u64>, until_us: Option<u64>) -> Self {
        let is_after = |at_us: u64| from_us.is_none_or(|from_us| at_us >= from_us);
        let is_before = |at_us: u64| until_us.is_none_or(|until_us| at_us < until_us);
        self.requests
            .retain(|one| is_after(one.at_us) && is_before(one.at_us));
        self.requests.sort_by_key(|one| one.at_us);
        self
    }

    /// When the first request came.
    pub(crate) fn first_us(&self) -> u64 {
        self.requests.first().map_or(0, |first| first.at_us)
    }

    /// The time between the first and the last request.
    pub(crate) fn span_us(&self) -> u64 {
        self.requests
            .last()
            .map_or(0, |last| last.at_us - self.first_us())
    }

    /// All that it says. `cpu_share`: the part of a time at a seat that is CPU, where none was measured.
    pub(crate) fn evidence(&self, cpu_share: Option<f64>) -> Evidence {
        let shares = LaneShares::of(&self.requests, cpu_share);
        let services = self.services_by_lane();
        let all: Vec<usize> = services.values().flatten().copied().collect();
        let busy = self.busy_at_begin();
        let mut chance = Chance::of(0);
        let (mut drawn, mut spent) = (0, Spent::default());
        let mut requests = Vec::with_capacity(self.requests.len());
        let mut sources = Vec::with_capacity(self.requests.len());
        let offered = self
            .requests
            .iter()
            .enumerate()
            .filter(|(_, one)| one.end != SeenEnd::Other);
        for (index, one) in offered {
            let has_own = one.service_us().is_some();
            drawn += u64::from(!has_own);
            let same_lane = services.get(&one.lane).unwrap_or(&all);
            let own = has_own.then_some(index);
            let Some(source) = own.or_else(|| chance.one_of(same_lane)) else {
                continue; // there is none to draw from
            };
            sources.push(source);
            let parts = shares.parts(&self.requests[source]);
            if has_own {
                spent += Spent {
                    line_us: 0,
                    core_us: parts.core_us.into(),
                    gil_us: parts.gil_us.into(),
                    cpu_us: parts.cpu_us.into(),
                    elsewhere_us: parts.elsewhere_us.into(),
                };
            }
            requests.push(Offered {
                at_us: one.at_us - self.first_us(),
                client: one.client,
                lane: one.lane,
                patience_us: match one.end {
                    SeenEnd::LeftWaiting => one.wait_us.unwrap_or(0).max(1),
                    _ => 0,
                },
                ..parts
            });
        }
        let crowding = Crowding::found(self, &shares, &busy);
        if let Some(crowding) = &crowding {
            for (request, &source) in requests.iter_mut().zip(&sources) {
                crowding.split(request, busy[source]);
            }
        }
        Evidence {
            requests,
            drawn,
            spent,
            knows_cpu: shares.knows_cpu(),
            busy_max: busy.iter().copied().max().unwrap_or(0),
            throughput: throughput(&self.requests, &busy),
            pool: crowding.map(|crowding| crowding.pool),
        }
    }

    fn services_by_lane(&self) -> BTreeMap<u16, Vec<usize>> {
        let mut services: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        let served = self
            .requests
            .iter()
            .enumerate()
            .filter(|(_, one)| one.end == SeenEnd::Served);
        for (index, one) in served.filter(|(_, one)| one.service_us().is_some()) {
            services.entry(one.lane).or_default().push(index);
        }
        services
    }

    /// How many seats were busy when each request got its own, itself included; 0 if it got none.
    fn busy_at_begin(&self) -> Vec<usize> {
        let seated = self.requests.iter().map(SeenRequest::seated_us);
        let mut begins: Vec<_> = seated
            .enumerate()
            .filter_map(|(index, seated)| Some((seated?.0, index)))
            .collect();
        let mut ends: Vec<_> = self
            .requests
            .iter()
            .filter_map(|one| Some(one.seated_us()?.1))
            .collect();
        begins.sort_unstable();
        ends.sort_unstable();
        let mut busy = vec![0; self.requests.len()];
        for (before, (began_us, index)) in begins.into_iter().enumerate() {
            let ended = ends.partition_point(|&ended_us| ended_us <= began_us);
            busy[index] = (before + 1).saturating_sub(ended).max(1);
        }
        busy
    }
}

/// Requests in a second by busy seats: n seats that are busy for S each bring n / S. One point for each power of two.
fn throughput(requests: &[SeenRequest], busy: &[usize]) -> Vec<(f64, f64)> {
    let mut bands: Vec<(u64, usize, u64)> = Vec::new();
    for (one, &busy) in requests.iter().zip(busy) {
        if let Some(service_us) = one.service_us() {
            let band = Curve::band_of(busy);
            if band >= bands.len() {
                bands.resize(band + 1, (0, 0, 0));
            }
            let (count, all_busy, all_us) = &mut bands[band];
            (*count, *all_busy, *all_us) = (*count + 1, *all_busy + busy, *all_us + service_us);
        }
    }
    let known = bands
        .into_iter()
        .filter(|(count, _, all_us)| *count >= KNOWN_MIN && *all_us > 0);
    let point = |(count, all_busy, all_us): (u64, usize, u64)| {
        (
            all_busy as f64 / count as f64,
            all_busy as f64 / all_us as f64 * 1e6,
        )
    };
    known.map(point).collect()
}

/// Where the time at seats goes, by lane, for the requests of which that was not measured.
#[derive(Debug)]
struct LaneShares {
    of: BTreeMap<u16, Spent>,
    all: Spent,
    given: Option<f64>,
}

impl LaneShares {
    fn of(requests: &[SeenRequest], given: Option<f64>) -> Self {
        let mut shares = Self {
            of: BTreeMap::new(),
            all: Spent::default(),
            given,
        };
        for one in requests {
            if let Some(spent) = measured(one) {
                *shares.of.entry(one.lane).or_default() += spent;
                shares.all += spent;
            }
        }
        shares
    }

    fn knows_cpu(&self) -> bool {
        self.all.service_us() > 0 || self.given.is_some()
    }

    /// Where the time of a request goes.
    fn parts(&self, one: &SeenRequest) -> Offered {
        let service_us = one.service_us().unwrap_or(0);
        let spent = measured(one).unwrap_or_else(|| {
            let like = self.of.get(&one.lane).unwrap_or(&self.all);
            let whole_us = like.service_us();
            let given = (self.given.unwrap_or(0.0).clamp(0.0, 1.0) * service_us as f64) as u64;
            let part = |us: u64| (us as f64 / whole_us as f64 * service_us as f64) as u64;
            let parts = if whole_us > 0 {
                [part(like.cpu_us), part(like.core_us), part(like.gil_us)].map(Some)
            } else {
                [Some(given), None, None]
            };
            let [cpu_us, core_us, gil_us] = parts;
            Spent::of(
                0,
                service_us,
                Measured {
                    cpu_us,
                    core_us,
                    gil_us,
                },
            )
            .unwrap_or_default()
        });
        let us = |us: u64| u32::try_from(us).unwrap_or(u32::MAX);
        Offered {
            cpu_us: us(spent.cpu_us),
            core_us: us(spent.core_us),
            gil_us: us(spent.gil_us),
            elsewhere_us: us(spent.elsewhere_us),
            ..Offered::default()
        }
    }
}

/// The parts of a request's time at its seat, if they were measured.
fn measured(one: &SeenRequest) -> Option<Spent> {
    let measured = Measured {
        cpu_us: one.cpu_us.map(u64::from),
        core_us: one.core_us.map(u64::from),
        gil_us: one.gil_us.map(u64::from),
    };
    Spent::of(0, one.service_us()?, measured)
}

/// Something elsewhere that all requests use, and that is full: a database, a pool of connections.
#[derive(Debug)]
struct Crowding {
    pool: f64,
    /// How long requests are elsewhere while it is not full, in microseconds, as a mean.
    alone_us: f64,
    /// The same by band of busy seats.
    crowded_us: Vec<f64>,
}

impl Crowding {
    /// Found by the curve by which a server judges its own throughput. Waiting for cores and for the lock is left out: these the simulation has itself.
    fn found(traffic: &SeenTraffic, shares: &LaneShares, busy: &[usize]) -> Option<Self> {
        let mut over: Vec<_> = (traffic.requests.iter().zip(busy))
            .filter_map(|(one, &busy)| {
                let parts = shares.parts(one);
                let us = u64::from(parts.cpu_us) + u64::from(parts.elsewhere_us);
                Some((one.seated_us()?.1, busy, us, u64::from(parts.elsewhere_us)))
            })
            .collect();
        over.sort_unstable();
        let (mut curve, mut ceiling) = (Curve::default(), None);
        let mut look_us = over.first()?.0 + LOOK_US;
        for &(now_us, busy, us, _) in &over {
            // The recording does not say how many requests a seat had run by then.
            curve.served(now_us, busy, us, u64::MAX);
            if now_us >= look_us {
                look_us = now_us + LOOK_US;
                ceiling = curve.ceiling(now_us).or(ceiling);
            }
        }
        let ceiling = curve.ceiling(over.last()?.0).or(ceiling)?;
        let mut bands: Vec<(f64, f64)> = Vec::new();
        for (_, busy, _, elsewhere_us) in over {
            let band = Curve::band_of(busy);
            if band >= bands.len() {
                bands.resize(band + 1, (0.0, 0.0));
            }
            bands[band].0 += 1.0;
            bands[band].1 += elsewhere_us as f64;
        }
        let mean = |(count, us): (f64, f64)| if count > 0.0 { us / count } else { 0.0 };
        let below = bands.iter().take(Curve::band_of(ceiling.busy) + 1);
        let alone_us = mean(below.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1)));
        let pool = ceiling.per_s.max(ceiling.beyond_per_s) / 1e6 * alone_us;
        // A pool has a place at least. If less comes out, what is short is not elsewhere.
        (pool > 0.5).then(|| Self {
            pool: pool.max(1.0),
            alone_us,
            crowded_us: bands.into_iter().map(mean).collect(),
        })
    }

    /// Splits the time of a request elsewhere, which got its seat while so many were busy.
    fn split(&self, request: &mut Offered, busy: usize) {
        let crowded_us = self
            .crowded_us
            .get(Curve::band_of(busy))
            .copied()
            .unwrap_or(0.0);
        if crowded_us > self.alone_us {
            let alone_us =
                (f64::from(request.elsewhere_us) * self.alone_us / crowded_us).round() as u32;
            request.crowd_us = request.elsewhere_us - alone_us;
            request.elsewhere_us = alone_us;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
