//! How the throughput of an app follows from the number of busy seats, drawn from the requests that it serves anyway.
//!
//! If requests have their seats for S(n) while n seats are busy, then n / S(n) requests leave in a unit of time (Little's law). Where
//! the cores are full or a pool of connections is empty, S(n) grows as n does, and another worker adds nothing.
//!
//! A request counts for the number of seats that were busy when it got its own: its kind has no influence on that number. The mean
//! over its service would put slow requests, whose mean is that of the whole day, and quick ones, which see a moment, into different
//! bands, and a mixed app would seem to slow itself down.
//!
//! The curve has two readers. The [ceiling](Curve::ceiling) takes seats away, so it believes the last minute alone, and tries again after
//! another. The [plateau](Curve::plateau) only says where throughput stopped growing. It remembers more: while all seats stay busy, no request
//! shows what fewer would bring.

use crate::demand::Demand;
use crate::drain_rate::to_f64;
use crate::verdict::Plateau;

/// The bands of busy seats: 1, 2, 3 and 4, 5 to 8, and so on up to 65,536.
const BANDS: usize = 17;
/// A mean of so many service times is good to a tenth if they vary as much as their mean. If they vary more, it takes more of them.
const SERVICES_MIN: f64 = 100.0;
/// A band with more than this halves its sums, so that it follows the app.
const SERVICES_MAX: f64 = 2_048.0;
/// Only so many times as many busy seats say whether more bring more: with fewer, chance could hide the gain. Of twice as many seats a few are free now
/// and then.
const FAR_MIN: f64 = 1.75;
/// More seats must bring so many times the throughput, or they bring nothing.
const GAIN_MIN: f64 = 1.25;
/// The ceiling forgets a band that no request has confirmed for so long: the app, or its database, may have changed.
const FORGOTTEN_US: u64 = 60_000_000;
/// The plateau forgets it after so long.
const REMEMBERED_US: u64 = 600_000_000;
/// The first requests of a seat import, compile and connect. They say nothing of the pace of the app, and would make it look slower
/// whenever workers are added.
const COLD_REQUESTS: u64 = 16;

/// The throughput by bands of busy seats.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    bands: [Band; BANDS],
    ceiling: Option<Ceiling>,
    /// Until when the curve judges nothing, since it judged wrong.
    humble_until_us: u64,
}

/// The number of busy seats beyond which throughput does not grow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    /// The number.
    pub busy: usize,
    /// More busy seats than that were seen, so many as a mean,
    pub beyond: f64,
    /// and so many requests left them in a second.
    pub beyond_per_s: f64,
    /// How many left in a second with up to `busy` seats.
    pub per_s: f64,
    until_us: u64,
}

/// A mean over requests that left their seats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// How many seats were busy when they got their own, themselves included.
    pub busy: f64,
    /// How many requests leave so many busy seats in a second.
    pub per_s: f64,
    /// The mean is of so many requests.
    pub requests: u64,
}

/// The requests that got their seats while so many were busy.
#[derive(Clone, Copy, Debug, Default)]
struct Band {
    now: BandMean,
    /// The last mean of enough requests before that began.
    before: BandMean,
}

/// Sums over requests.
#[derive(Clone, Copy, Debug, Default)]
struct BandMean {
    services: f64,
    busy: f64,
    service_us: f64,
    /// Sum of squares.
    service_us2: f64,
    last_us: u64,
}

impl Curve {
    /// Counts a request that left its seat: how many seats were busy when it got that, itself included, for how long it had it, and how many
    /// requests the seat had run by then, itself included.
    pub fn served(&mut self, now_us: u64, busy: usize, service_us: u64, nth: u64) {
        if nth > COLD_REQUESTS {
            self.bands[Self::band_of(busy)].add(now_us, busy, service_us);
        }
    }

    /// The band of so many busy seats: 1, 2, 3 and 4, 5 to 8, and so on. The last one has all that are more.
    pub fn band_of(busy: usize) -> usize {
        let below = busy.saturating_sub(1);
        let band = below.checked_ilog2().map_or(0, |log| log as usize + 1);
        band.min(BANDS - 1)
    }

    /// The present ceiling, if there is one. It lasts for a minute; then it takes new requests beyond it to find it again. It ends at once
    /// if the seats that are left prove to bring less than the seats beyond it did.
    pub fn ceiling(&mut self, now_us: u64) -> Option<Ceiling> {
        if let Some(ceiling) = self.ceiling {
            let own = self.bands[Self::band_of(ceiling.busy)].now;
            let was_wrong = own.is_known(now_us) && !is_enough(own.per_s(), ceiling.beyond_per_s);
            if now_us < ceiling.until_us && !was_wrong {
                return Some(ceiling);
            }
            self.ceiling = None;
            if was_wrong {
                self.bands = Default::default();
                self.humble_until_us = now_us.saturating_add(FORGOTTEN_US);
            } else {
                let beyond = &mut self.bands[Self::band_of(ceiling.busy) + 1..];
                beyond.iter_mut().for_each(Band::begin_again);
            }
        }
        if now_us < self.humble_until_us {
            return None;
        }
        let known = |band: &Band| Some(band.now).filter(|mean| mean.is_known(now_us));
        self.ceiling = self.found(known, now_us);
        if let Some(ceiling) = self.ceiling {
            // The requests so far were served while the number of seats changed; those from now on show whether the rest is enough.
            self.bands[Self::band_of(ceiling.busy)].begin_again();
        }
        self.ceiling
    }

    /// Where throughput stopped growing, by all that the curve remembers. To read it changes nothing.
    pub fn plateau(&self, now_us: u64) -> Option<Plateau> {
        if now_us < self.humble_until_us {
            return None;
        }
        let found = self.found(|band| band.remembered(now_us), now_us)?;
        let busy = found.busy as u64;
        let shown = |point: CurvePoint| (point.busy.round() as u64, point.per_s);
        let mut seen: Vec<_> = self.points(now_us).map(shown).collect();
        let beyond = seen.pop();
        // The two points before it show how throughput grew.
        seen.retain(|(below, _)| *below <= busy);
        seen.drain(..seen.len().saturating_sub(2));
        seen.extend(beyond);
        Some(Plateau { busy, seen })
    }

    /// A point for each band that the curve remembers, the fewest busy seats first.
    pub fn points(&self, now_us: u64) -> impl Iterator<Item = CurvePoint> {
        let remembered = move |band: &Band| band.remembered(now_us);
        self.bands
            .iter()
            .filter_map(remembered)
            .map(|mean| CurvePoint {
                busy: mean.busy(),
                per_s: mean.per_s(),
                requests: mean.services as u64,
            })
    }

    /// The lowest band whose greatest number brings nearly as much as the highest band, which has [`FAR_MIN`] times as many busy seats or more.
    fn found(&self, known: impl Fn(&Band) -> Option<BandMean>, now_us: u64) -> Option<Ceiling> {
        let bands = self.bands.iter().enumerate();
        let mut known = bands.filter_map(|(index, band)| Some((index, known(band)?)));
        let (_, beyond) = known.clone().next_back()?;
        known.find_map(|(index, mean)| {
            let busy = 1_usize << index;
            let most = to_f64(busy as u64);
            // A band that is not full may bring as much more as it has room for more.
            let per_s = mean.per_s() * most / mean.busy();
            let is_far = beyond.busy() >= FAR_MIN * most;
            (is_far && is_enough(per_s, beyond.per_s())).then(|| Ceiling {
                busy,
                beyond: beyond.busy(),
                beyond_per_s: beyond.per_s(),
                per_s,
                until_us: now_us.saturating_add(FORGOTTEN_US),
            })
        })
    }
}

impl Band {
    fn add(&mut self, now_us: u64, busy: usize, service_us: u64) {
        if self.now.is_older(now_us, FORGOTTEN_US) {
            self.begin_again();
        }
        self.now.add(now_us, busy, service_us);
    }

    /// Forgets its mean, except for the plateau.
    fn begin_again(&mut self) {
        let now = std::mem::take(&mut self.now);
        if now.is_enough() {
            self.before = now;
        }
    }

    /// The last mean of enough requests.
    fn remembered(&self, now_us: u64) -> Option<BandMean> {
        let mut means = [self.now, self.before].into_iter();
        means.find(|mean| mean.is_enough() && !mean.is_older(now_us, REMEMBERED_US))
    }
}

impl BandMean {
    fn add(&mut self, now_us: u64, busy: usize, service_us: u64) {
        if self.services >= SERVICES_MAX {
            for sum in [
                &mut self.services,
                &mut self.busy,
                &mut self.service_us,
                &mut self.service_us2,
            ] {
                *sum /= 2.0;
            }
        }
        // A stream says nothing of the pace of the app.
        let service_us = to_f64(service_us.clamp(1, Demand::HELD_US));
        self.services += 1.0;
        self.busy += to_f64(busy as u64);
        self.service_us += service_us;
        self.service_us2 += service_us * service_us;
        self.last_us = now_us;
    }

    fn is_older(&self, now_us: u64, than_us: u64) -> bool {
        now_us.saturating_sub(self.last_us) >= than_us
    }

    /// Whether the ceiling may rely on it.
    fn is_known(&self, now_us: u64) -> bool {
        self.is_enough() && !self.is_older(now_us, FORGOTTEN_US)
    }

    /// Whether there are enough requests for a mean. Of an app whose requests differ by far too much there never are.
    fn is_enough(&self) -> bool {
        let mean_us = self.service_us / self.services.max(1.0);
        let variance_us2 = self.service_us2 / self.services.max(1.0) - mean_us * mean_us;
        let variation = variance_us2 / (mean_us * mean_us).max(1.0);
        self.services >= SERVICES_MIN * variation.max(1.0)
    }

    fn busy(&self) -> f64 {
        self.busy / self.services.max(1.0)
    }

    /// Little's law; the numbers of requests in both means are the same.
    fn per_s(&self) -> f64 {
        self.busy / self.service_us.max(1.0) * 1e6
    }
}

/// Whether more seats would not bring [`GAIN_MIN`] times as much.
fn is_enough(per_s: f64, beyond_per_s: f64) -> bool {
    beyond_per_s < per_s * GAIN_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    /// A thousand requests in each band up to so many busy seats, by the service time with so many.
    fn drawn(busy_max: usize, service_us: impl Fn(usize, usize) -> u64) -> Curve {
        let mut curve = Curve::default();
        for busy in 1..=busy_max {
            for request in 0..1_000 {
                curve.served(S, busy, service_us(busy, request), 99);
            }
        }
        curve
    }

    fn busy_max(mut curve: Curve, now_us: u64) -> Option<usize> {
        curve.ceiling(now_us).map(|ceiling| ceiling.busy)
    }

    #[test]
    fn a_band_has_the_numbers_up_to_twice_those_of_the_band_before() {
        let table = [
            (0, 0),
            (1, 0),
            (2, 1),
            (3, 2),
            (4, 2),
            (5, 3),
            (8, 3),
            (9, 4),
            (65_536, 16),
        ];
        for (busy, band) in table {
            assert_eq!(Curve::band_of(busy), band, "{busy}");
        }
        assert_eq!(Curve::band_of(usize::MAX), BANDS - 1);
    }

    #[test]
    fn the_ceiling_is_where_more_busy_seats_bring_no_more() {
        // (what there is, service time in ms by busy seats, the ceiling)
        type Service = fn(usize) -> usize;
        let table: [(&str, Service, Option<usize>); 4] = [
            ("nothing is short", |_| 50, None),
            ("two cores are full", |busy| 50 * busy.max(2) / 2, Some(2)),
            ("a pool has eight", |busy| 50 * busy.max(8) / 8, Some(8)),
            ("one lock for all", |busy| 50 * busy, Some(1)),
        ];
        for (what, service, ceiling) in table {
            let curve = drawn(32, |busy, _| service(busy) as u64 * 1_000);
            assert_eq!(busy_max(curve, S), ceiling, "{what}");
        }
    }

    #[test]
    fn a_few_busy_seats_more_prove_nothing() {
        // Each seat brings the same; there are seven to nine.
        for services in [300, 1_000] {
            let mut curve = Curve::default();
            for busy in [7, 8, 8, 9] {
                (0..services).for_each(|_| curve.served(S, busy, 50_000, 99));
            }
            assert_eq!(busy_max(curve, S), None);
        }
    }

    #[test]
    fn requests_of_two_kinds_do_not_slow_each_other_down() {
        // Nine of ten take 1 ms, and one 200 ms, whatever is busy.
        let curve = drawn(
            16,
            |_, request| {
                if request % 10 == 0 { 200_000 } else { 1_000 }
            },
        );
        assert_eq!(busy_max(curve, S), None);
    }

    #[test]
    fn seats_that_are_full_but_for_a_moment_show_a_ceiling_at_half_of_them() {
        for (busy, ceiling) in [(28, Some(16)), (27, None)] {
            let mut curve = Curve::default();
            for busy in [16, busy] {
                (0..200).for_each(|_| curve.served(S, busy, busy as u64 * 10_000, 99));
            }
            assert_eq!(busy_max(curve, S), ceiling, "{busy}");
        }
    }

    #[test]
    fn a_few_requests_prove_nothing() {
        let mut curve = Curve::default();
        for request in 1..=400 {
            let busy = if request % 4 == 0 { 16 } else { 2 };
            curve.served(S, busy, busy as u64 * 10_000, 99);
            let expected = (request >= 400).then_some(2);
            assert_eq!(busy_max(curve.clone(), S), expected, "{request}");
        }
    }

    #[test]
    fn a_ceiling_lasts_for_a_minute() {
        let mut curve = drawn(16, |busy, _| busy as u64 * 10_000);
        assert_eq!(curve.ceiling(S).map(|found| found.busy), Some(1));
        // Requests go on with one seat, as slow as ever.
        (0..500).for_each(|_| curve.served(30 * S, 1, 10_000, 99));
        assert!(curve.ceiling(60 * S).is_some());
        assert_eq!(curve.ceiling(61 * S), None);
        // Twice as many seats may be worth it now.
        (0..500).for_each(|_| curve.served(62 * S, 2, 10_000, 99));
        assert_eq!(curve.ceiling(62 * S), None);
    }

    #[test]
    fn a_ceiling_that_costs_throughput_ends_at_once_and_does_not_come_back_soon() {
        let mut curve = drawn(16, |busy, _| busy as u64 * 10_000);
        assert!(curve.ceiling(S).is_some());
        // The app was slow for another reason, and still is: one seat serves far fewer than sixteen did.
        (0..99).for_each(|_| curve.served(2 * S, 1, 160_000, 99));
        assert!(curve.ceiling(2 * S).is_some());
        curve.served(2 * S, 1, 160_000, 99);
        assert_eq!(curve.ceiling(2 * S), None);
        for busy in [1, 16] {
            (0..500).for_each(|_| curve.served(3 * S, busy, busy as u64 * 10_000, 99));
        }
        assert_eq!(curve.ceiling(61 * S), None, "it is humble");
        assert_eq!(curve.ceiling(62 * S).map(|found| found.busy), Some(1));
    }

    #[test]
    fn the_first_requests_of_a_seat_do_not_count_for_the_pace() {
        let mut curve = Curve::default();
        for nth in 1..=COLD_REQUESTS {
            for _ in 0..50 {
                curve.served(S, 4, 50_000, 99);
                curve.served(S, 16, 500_000, nth);
            }
        }
        assert_eq!(curve.ceiling(S), None);
        assert_eq!(curve.points(S).count(), 1);
    }

    #[test]
    fn the_plateau_shows_what_it_was_found_by() {
        let pool = drawn(32, |busy, _| 50_000 * busy.max(8) as u64 / 8);
        let plateau = pool.plateau(S).expect("a pool of eight");
        assert_eq!(plateau.busy, 8);
        let seen: Vec<_> = plateau
            .seen
            .iter()
            .map(|(busy, per_s)| (*busy, per_s.round() as u64))
            .collect();
        assert_eq!(seen, [(4, 70), (7, 142), (31, 160)]);
        let free = drawn(4, |_, _| 50_000);
        assert_eq!(free.plateau(S), None);
        let points = free
            .points(S)
            .map(|point| (point.busy, point.per_s.round(), point.requests));
        let points: Vec<_> = points.collect();
        assert_eq!(
            points,
            [(1.0, 20.0, 1_000), (2.0, 40.0, 1_000), (3.5, 70.0, 2_000)]
        );
    }

    #[test]
    fn a_plateau_is_remembered_for_ten_minutes_and_read_without_a_trace() {
        let mut curve = drawn(32, |busy, _| 50_000 * busy.max(8) as u64 / 8);
        for second in 2..=601 {
            // All seats stay busy from now on, but for a moment now and then.
            (0..20).for_each(|_| curve.served(second * S, 32, 200_000, 99));
            if second % 61 == 0 {
                curve.served(second * S, 8, 50_000, 99);
            }
            let busy = curve.plateau(second * S).map(|plateau| plateau.busy);
            assert_eq!(busy, (second < 601).then_some(8), "{second}");
        }
        let mut read = drawn(32, |busy, _| busy as u64 * 10_000);
        let unread = read.clone();
        assert!(read.plateau(S).is_some());
        assert_eq!(format!("{read:?}"), format!("{unread:?}"));
        // Seats that were taken away for it do not hide it.
        assert!(read.ceiling(S).is_some());
        assert_eq!(read.plateau(S), unread.plateau(S));
    }

    #[test]
    fn a_curve_that_judged_wrong_shows_no_plateau_for_a_while() {
        let mut curve = drawn(16, |busy, _| busy as u64 * 10_000);
        assert!(curve.ceiling(S).is_some());
        (0..200).for_each(|_| curve.served(2 * S, 1, 160_000, 99));
        assert_eq!(curve.ceiling(2 * S), None);
        for busy in [1, 16] {
            (0..500).for_each(|_| curve.served(3 * S, busy, busy as u64 * 10_000, 99));
        }
        assert_eq!(curve.plateau(61 * S), None);
        assert!(curve.plateau(62 * S).is_some());
    }
}
