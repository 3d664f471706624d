//! Traffic whose truth is known, and the facts that it shows.

use super::*;

/// Requests before so many workers of one seat each, first come, first served. An idle worker begins `idle_us` late, and a busy one `busy_us`.
/// `servers` of something are there for all that are at a seat, if any are few.
pub(crate) struct Naive {
    pub(crate) workers: usize,
    pub(crate) idle_us: u64,
    pub(crate) busy_us: u64,
    pub(crate) servers: Option<usize>,
}

impl Naive {
    pub(crate) fn seen(&self, offered: &[(u64, u32)]) -> SeenTraffic {
        let mut free_us = vec![0; self.workers];
        let mut servers_us = vec![0; self.servers.unwrap_or(0)];
        let mut requests = Vec::new();
        for &(at_us, service_us) in offered {
            free_us.sort_unstable();
            let free = free_us[0];
            let begins_us = if free > at_us {
                free + self.busy_us
            } else {
                at_us + self.idle_us
            };
            servers_us.sort_unstable();
            let served_us = servers_us.first().map_or(0, |&us| us).max(begins_us);
            let ends_us = served_us + u64::from(service_us);
            if let Some(server) = servers_us.first_mut() {
                *server = ends_us;
            }
            free_us[0] = ends_us;
            requests.push(SeenRequest {
                at_us,
                wait_us: Some((begins_us - at_us) as u32),
                service_us: Some((ends_us - begins_us) as u32),
                ..SeenRequest::default()
            });
        }
        SeenTraffic {
            requests,
            ..SeenTraffic::default()
        }
    }
}

/// Poisson arrivals in each of these seconds, so many a second, of exponential services.
pub(crate) fn poisson(
    rates_per_s: impl IntoIterator<Item = f64>,
    service_us: f64,
) -> Vec<(u64, u32)> {
    let mut chance = Chance::of(5);
    let mut made = Vec::new();
    for (second, per_s) in (0..).zip(rates_per_s) {
        let mut now_us = chance.exponential(1e6 / per_s);
        while now_us < 1e6 {
            made.push((
                second * 1_000_000 + now_us as u64,
                chance.exponential(service_us) as u32 + 1,
            ));
            now_us += chance.exponential(1e6 / per_s);
        }
    }
    made
}

#[test]
fn a_window_has_the_requests_that_came_in_it() {
    let naive = Naive {
        workers: 1,
        idle_us: 0,
        busy_us: 0,
        servers: None,
    };
    let seen = naive.seen(&[(10, 1), (20, 1), (30, 1)]);
    let at_us = |from_us, until_us| {
        let within = seen.clone().within(from_us, until_us);
        within
            .requests
            .iter()
            .map(|one| one.at_us)
            .collect::<Vec<_>>()
    };
    assert_eq!(at_us(None, None), [10, 20, 30]);
    assert_eq!(at_us(Some(20), None), [20, 30]);
    assert_eq!(at_us(Some(11), Some(30)), [20]);
    let none = seen.within(Some(40), None);
    assert_eq!(
        (
            none.first_us(),
            none.span_us(),
            none.evidence(None).requests.len()
        ),
        (0, 0, 0)
    );
}

#[test]
fn a_pool_that_all_requests_share_is_found_with_its_size() {
    let busy = |second: usize| if second % 20 < 10 { 60.0 } else { 170.0 };
    let offered = poisson((0..200).map(busy), 50_000.0);
    let pool_of = |servers| {
        let naive = Naive {
            workers: 32,
            idle_us: 0,
            busy_us: 0,
            servers,
        };
        naive.seen(&offered).evidence(None)
    };
    let found = pool_of(Some(8));
    assert!(
        (6.5..9.5).contains(&found.pool.unwrap()),
        "{:?}",
        found.pool
    );
    assert!(
        found
            .requests
            .iter()
            .any(|one| one.crowd_us > one.elsewhere_us)
    );
    let free = pool_of(None);
    assert_eq!(free.pool, None);
    assert!(free.requests.iter().all(|one| one.crowd_us == 0));
    let (_, most_per_s) = *found.throughput.last().unwrap();
    assert!(
        (130.0..190.0).contains(&most_per_s),
        "{:?}",
        found.throughput
    );
}

#[test]
fn requests_that_had_no_seat_get_the_time_of_others_of_their_lane() {
    let one = |lane, service_us, end| SeenRequest {
        lane,
        service_us,
        end,
        wait_us: Some(9),
        ..SeenRequest::default()
    };
    let seen = SeenTraffic {
        requests: vec![
            one(0, Some(100), SeenEnd::Served),
            one(1, Some(700), SeenEnd::Served),
            one(1, None, SeenEnd::Refused),
            one(0, Some(5), SeenEnd::TimedOut),
            one(1, None, SeenEnd::LeftWaiting),
            one(0, None, SeenEnd::Other),
            one(2, None, SeenEnd::Refused),
            one(1, Some(300), SeenEnd::LeftSeated),
        ],
        ..SeenTraffic::default()
    };
    let evidence = seen.evidence(Some(0.5));
    let found = evidence
        .requests
        .iter()
        .map(|one| (one.cpu_us, one.elsewhere_us, one.patience_us));
    let found: Vec<_> = found.collect();
    assert_eq!(
        found[..5],
        [
            (50, 50, 0),
            (350, 350, 0),
            (350, 350, 0),
            (50, 50, 0),
            (350, 350, 9)
        ]
    );
    assert!(
        [(50, 50, 0), (350, 350, 0)].contains(&found[5]),
        "a lane without one has any: {found:?}"
    );
    assert_eq!(
        (found[6], found.len(), evidence.drawn),
        ((150, 150, 0), 7, 4)
    );
    assert_eq!(evidence.spent.service_us(), 100 + 700 + 300);
}

#[test]
fn requests_that_were_not_measured_are_like_those_of_their_lane_that_were() {
    let one = |lane, cpu_us, core_us| SeenRequest {
        lane,
        cpu_us,
        core_us,
        service_us: Some(1_000),
        ..SeenRequest::default()
    };
    let seen = SeenTraffic {
        requests: vec![
            one(0, Some(200), Some(100)),
            one(0, Some(600), None),
            one(0, None, None),
            one(1, None, None),
            one(1, Some(1_000), Some(9)),
        ],
        ..SeenTraffic::default()
    };
    let evidence = seen.evidence(None);
    let parts = evidence
        .requests
        .iter()
        .map(|one| [one.cpu_us, one.core_us, one.elsewhere_us]);
    let expected = [
        [200, 100, 700],
        [600, 0, 400],
        [400, 50, 550],
        [1_000, 0, 0],
        [1_000, 0, 0],
    ];
    assert_eq!(parts.collect::<Vec<_>>(), expected);
    assert!(evidence.knows_cpu && !SeenTraffic::default().evidence(None).knows_cpu);
}

#[test]
fn busy_seats_are_counted_as_requests_begin() {
    let naive = Naive {
        workers: 3,
        idle_us: 0,
        busy_us: 0,
        servers: None,
    };
    let seen = naive.seen(&[(0, 100), (10, 100), (20, 100), (30, 50), (300, 10)]);
    assert_eq!(seen.busy_at_begin(), [1, 2, 3, 3, 1]);
    assert_eq!(seen.evidence(None).busy_max, 3);
}
