//! The seats that are wanted, as the figure by which the autoscaler of Kubernetes scales: its law, in a simulation of a
//! quarter of an hour. Pods of two seats have one line in front of them, as `HAProxy` has with `maxconn` at the number
//! of seats, so each pod sees the line by `X-Request-Start` only.
//!
//! The law is that of the `HorizontalPodAutoscaler` of Kubernetes 1.36: every 15 s, ceil, tolerance 0.1, up by the larger of 100 %
//! and four pods, down to the most that was recommended in five minutes.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use stanchion_line::{Demand, DemandNow, DemandSecond};

const SEATS: u64 = 2;
const SERVICE_S: f64 = 0.05;
const TARGET: f64 = 0.7;
const LENGTH_S: f64 = 900.0;
const START_S: f64 = 5.0;
const DOWN_S: f64 = 300.0;
const PODS_MIN: usize = 2;
const PODS_MAX: usize = 20;
const PERIOD_S: f64 = 15.0;
/// A request that waited for longer is late.
const LATE_S: f64 = 0.2;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Step,
    Steep,
    Bursts,
    Sine,
    Flat,
}

impl Shape {
    fn per_s(self, at_s: f64) -> f64 {
        let is_high = (60.0..360.0).contains(&at_s);
        match self {
            Self::Step if is_high => 120.0,
            Self::Steep if is_high => 240.0,
            Self::Step | Self::Steep => 20.0,
            Self::Bursts if at_s % 60.0 < 6.0 => 120.0,
            Self::Bursts => 30.0,
            Self::Sine => 70.0 + 50.0 * (at_s / 300.0 * std::f64::consts::TAU).sin(),
            Self::Flat => 56.0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Signal {
    InFlight,
    RateTimesService,
    /// Each pod gives the peak of twelve seconds: KEDA's `metrics-api` adds up.
    SumOfPeaks,
    /// Prometheus has the sum of what pods give for ten seconds, and takes the peak of [`PERIOD_S`].
    PeakOfSum,
}

/// `SplitMix64` (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((bits ^ (bits >> 31)) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.uniform().ln()
    }
}

#[derive(Default)]
struct Pod {
    busy: u64,
    is_ready: bool,
    /// By the second in which the pod has counted, from the beginning.
    seconds: Vec<DemandSecond>,
}

impl Pod {
    fn second(&mut self, now_s: f64) -> &mut DemandSecond {
        let now = now_s as usize;
        if self.seconds.len() <= now {
            self.seconds.resize(now + 1, DemandSecond::default());
        }
        &mut self.seconds[now]
    }

    fn demand(&self, now: usize) -> Demand {
        let from = now.saturating_sub(Demand::SECONDS);
        let there = from.min(self.seconds.len())..now.min(self.seconds.len());
        let mut seconds = self.seconds[there].to_vec();
        seconds.resize(now - from, DemandSecond::default());
        Demand::of(&seconds, &DemandNow::default())
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrives,
    /// The pod of this number is done with a request, which it had for so long.
    Done(usize, f64),
    Ready(usize),
    Scraped,
    Looks,
}

/// An event with its time in seconds and its number, which makes the order total.
#[derive(Clone, Copy, Debug)]
struct At(f64, u64, Event);
impl Ord for At {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}
impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for At {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for At {}

struct Fleet {
    now_s: f64,
    events: BinaryHeap<Reverse<At>>,
    pushed: u64,
    random: Random,
    pods: BTreeMap<usize, Pod>,
    gone: BTreeMap<usize, Pod>,
    made: usize,
    line: VecDeque<f64>,
    waits_s: Vec<f64>,
    /// By second: requests that arrived, and the requests in flight, as an integral.
    arrived: Vec<u64>,
    in_flight: Vec<f64>,
    /// What the pods want, second by second.
    sums: Vec<f64>,
    flying: u64,
    pod_seconds: f64,
    changes: usize,
}

#[derive(Debug)]
struct Outcome {
    /// The share of requests that waited for longer than [`LATE_S`].
    late: f64,
    /// How many pods there were on the mean.
    pods: f64,
    changes: usize,
}

impl Outcome {
    /// The means, and the most changes.
    fn mean(all: impl Iterator<Item = Self>) -> Self {
        let all: Vec<_> = all.collect();
        let mean = |of: fn(&Self) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
        Self {
            late: mean(|one| one.late),
            pods: mean(|one| one.pods),
            changes: all.iter().map(|one| one.changes).max().unwrap_or_default(),
        }
    }
}

impl Fleet {
    fn run(shape: Shape, signal: Signal, seed: u64) -> Outcome {
        let mut fleet = Self {
            now_s: 0.0,
            events: BinaryHeap::new(),
            pushed: 0,
            random: Random(seed.wrapping_mul(0x1234_5678_9abc_def1)),
            pods: BTreeMap::new(),
            gone: BTreeMap::new(),
            made: 0,
            line: VecDeque::new(),
            waits_s: Vec::new(),
            arrived: vec![0; LENGTH_S as usize + 1],
            in_flight: vec![0.0; LENGTH_S as usize + 1],
            sums: Vec::new(),
            flying: 0,
            pod_seconds: 0.0,
            changes: 0,
        };
        (0..PODS_MIN).for_each(|_| fleet.make_pod(0.0));
        fleet.at(0.0, Event::Arrives);
        fleet.at(PERIOD_S, Event::Looks);
        if signal == Signal::PeakOfSum {
            fleet.at(1.0, Event::Scraped);
        }
        let mut recommended = VecDeque::new();
        while let Some(Reverse(At(at_s, _, event))) = fleet.events.pop() {
            if at_s > LENGTH_S {
                break;
            }
            fleet.pass(at_s);
            match event {
                Event::Arrives => fleet.arrives(shape),
                Event::Done(pod, service_s) => fleet.done(pod, service_s),
                Event::Ready(pod) => {
                    if let Some(pod) = fleet.pods.get_mut(&pod) {
                        pod.is_ready = true;
                    }
                }
                Event::Scraped => {
                    let sum = fleet.sum(|demand| demand.seats_10s);
                    fleet.sums.push(sum);
                    fleet.at(at_s + 1.0, Event::Scraped);
                }
                Event::Looks => {
                    fleet.looks(signal, &mut recommended);
                    fleet.at(at_s + PERIOD_S, Event::Looks);
                }
            }
            fleet.serve();
        }
        let late = fleet.waits_s.iter().filter(|wait_s| **wait_s > LATE_S);
        let waiting = fleet.line.iter().filter(|at_s| LENGTH_S - **at_s > LATE_S);
        Outcome {
            late: (late.count() + waiting.count()) as f64 / fleet.waits_s.len() as f64,
            pods: fleet.pod_seconds / LENGTH_S,
            changes: fleet.changes,
        }
    }

    fn at(&mut self, at_s: f64, event: Event) {
        self.pushed += 1;
        self.events.push(Reverse(At(at_s, self.pushed, event)));
    }

    fn pass(&mut self, at_s: f64) {
        let lasted_s = at_s - self.now_s;
        self.in_flight[at_s as usize] += lasted_s * self.flying as f64;
        self.pod_seconds += lasted_s * self.pods.len() as f64;
        for pod in self.pods.values_mut().filter(|pod| pod.is_ready) {
            let (busy, lasted_us) = (pod.busy, (lasted_s * 1e6) as u64);
            let second = pod.second(at_s);
            second.looks = 1;
            second.seats += SEATS * lasted_us;
            second.busy += busy * lasted_us;
            second.in_flight = busy;
        }
        self.now_s = at_s;
    }

    fn make_pod(&mut self, start_s: f64) {
        self.made += 1;
        self.pods.insert(self.made, Pod::default());
        self.at(self.now_s + start_s, Event::Ready(self.made));
    }

    fn arrives(&mut self, shape: Shape) {
        const MOST_PER_S: f64 = 250.0;
        if self.now_s > 0.0 {
            self.arrived[self.now_s as usize] += 1;
            self.flying += 1;
            self.line.push_back(self.now_s);
        }
        // Thinning: of arrivals at the largest rate, the share of the present rate stays.
        let mut next_s = self.now_s;
        loop {
            next_s += self.random.exponential(1.0 / MOST_PER_S);
            if self.random.uniform() < shape.per_s(next_s) / MOST_PER_S {
                break;
            }
        }
        self.at(next_s, Event::Arrives);
    }

    fn serve(&mut self) {
        while let Some(arrived_s) = self.line.front().copied() {
            let free = self.pods.iter().filter(|(_, pod)| pod.is_ready);
            let free = free.filter(|(_, pod)| pod.busy < SEATS);
            let Some((&number, _)) = free.min_by_key(|(_, pod)| pod.busy) else {
                return;
            };
            self.line.pop_front();
            let (now_s, service_s) = (self.now_s, self.random.exponential(SERVICE_S));
            let pod = self.pods.get_mut(&number).expect("found above");
            pod.busy += 1;
            let second = pod.second(now_s);
            second.arrived += 1;
            second.fronted += 1;
            second.front_us += ((now_s - arrived_s) * 1e6) as u64;
            self.waits_s.push(now_s - arrived_s);
            self.at(now_s + service_s, Event::Done(number, service_s));
        }
    }

    fn done(&mut self, number: usize, service_s: f64) {
        self.flying -= 1;
        let now_s = self.now_s;
        let pod = self.pods.get_mut(&number);
        let pod = pod.or_else(|| self.gone.get_mut(&number)).expect("a pod");
        pod.busy -= 1;
        let second = pod.second(now_s);
        second.served += 1;
        second.service_us += (service_s * 1e6) as u64;
    }

    fn total(&self, signal: Signal) -> f64 {
        let (now, window) = (self.now_s as usize, 10);
        let last = now.saturating_sub(window)..now;
        match signal {
            Signal::InFlight => self.in_flight[last].iter().sum::<f64>() / window as f64,
            Signal::RateTimesService => {
                self.arrived[last].iter().sum::<u64>() as f64 / window as f64 * SERVICE_S
            }
            Signal::SumOfPeaks => self.sum(|demand| demand.seats_peak_12s),
            Signal::PeakOfSum => {
                let last = self.sums.len().saturating_sub(PERIOD_S as usize);
                self.sums[last..].iter().copied().fold(0.0, f64::max)
            }
        }
    }

    fn sum(&self, seats: impl Fn(&Demand) -> f64) -> f64 {
        let ready = self.pods.values().filter(|pod| pod.is_ready);
        ready
            .map(|pod| seats(&pod.demand(self.now_s as usize)))
            .sum()
    }

    fn looks(&mut self, signal: Signal, recommended: &mut VecDeque<(f64, usize)>) {
        let (present, total) = (self.pods.len(), self.total(signal));
        let each = TARGET * SEATS as f64;
        let is_near = (total / (each * present as f64) - 1.0).abs() <= 0.1;
        let want = if is_near {
            present
        } else {
            (total / each).ceil() as usize
        };
        let mut want = want.clamp(PODS_MIN, PODS_MAX);
        recommended.push_back((self.now_s, want));
        recommended.retain(|(at_s, _)| *at_s > self.now_s - DOWN_S);
        if want < present {
            let most = recommended.iter().map(|(_, want)| *want).max();
            want = want.max(most.unwrap_or(want).min(present));
        }
        want = want.min((2 * present).max(present + 4));
        self.changes += usize::from(want != present);
        (present..want).for_each(|_| self.make_pod(START_S));
        for _ in want..present {
            let (number, mut pod) = self.pods.pop_last().expect("there are more");
            pod.is_ready = false;
            self.gone.insert(number, pod);
        }
    }
}

/// The most pods on the mean, as a multiple of what the true rate times the true service asks for, and the most changes, in five runs: of the sum of
/// peaks, and of the peak of the sum. The law itself takes three changes to get to the top of the steep step, and two more down.
const LIMITS: [(Shape, [(f64, usize); 2]); 5] = [
    (Shape::Step, [(1.1, 3), (1.25, 5)]),
    (Shape::Steep, [(1.25, 5), (1.6, 7)]),
    (Shape::Bursts, [(1.8, 2), (2.5, 3)]),
    (Shape::Sine, [(1.25, 3), (1.25, 3)]),
    (Shape::Flat, [(1.25, 1), (1.25, 1)]),
];
const SEEDS: u64 = 5;

#[test]
fn an_autoscaler_that_divides_the_seats_wanted_is_early_and_calm() {
    for (shape, limits) in LIMITS {
        let of = |signal| Outcome::mean((1..=SEEDS).map(|seed| Fleet::run(shape, signal, seed)));
        let (in_flight, rate) = (of(Signal::InFlight), of(Signal::RateTimesService));
        for (signal, (most, changes)) in [Signal::SumOfPeaks, Signal::PeakOfSum]
            .into_iter()
            .zip(limits)
        {
            let wanted = of(signal);
            let said =
                format!("{shape:?} {signal:?}: {wanted:?}, in flight {in_flight:?}, rate {rate:?}");
            assert!(wanted.late <= in_flight.late + 0.003, "{said}");
            assert!(wanted.pods <= most * rate.pods, "{said}");
            assert!(wanted.changes <= changes, "{said}");
        }
    }
}
