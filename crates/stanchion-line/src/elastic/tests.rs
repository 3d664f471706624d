//! The rules one by one, then a server that is simulated with them.

mod machine;
mod simulated;

use proptest::prelude::*;

use super::*;
use crate::headroom::Left;

const MS: u64 = 1_000;
const S: u64 = 1_000_000;

const LIMITS: ElasticLimits = ElasticLimits {
    workers_min: 2,
    workers_max: 32,
    seats_each: 1,
    keep_us: 60 * S,
    slow_boots_max: 2,
    auto_cores: None,
};

/// Two workers serve, requests take 50 ms, and a worker is known to boot in 3 ms.
fn serving(limits: ElasticLimits) -> Elastic {
    serving_of(limits, 50)
}

fn serving_of(limits: ElasticLimits, service_ms: u64) -> Elastic {
    let mut elastic = Elastic::new(limits);
    elastic.note(0, 0, limits.workers_min);
    elastic.boot.mean_us = Some(3 * MS);
    elastic.served(0, service_ms * MS);
    elastic
}

/// The facts of a machine that has room for every worker.
const ROOMY: Seen = Seen {
    oldest_us: 20 * MS,
    busy_rank: 0,
    cpu_share: None,
    headroom: Some(HEADROOM),
};

const HEADROOM: Headroom = Headroom {
    workers: 0,
    memory: None,
    private_bytes: 0,
    some_percent: 0,
    full_percent: 0,
    tasks: None,
    tasks_each: 0,
    is_boot_failing: false,
};

/// A decision while throughput is not known. `busy_rank`: the highest rank of a worker that has a request.
fn step(elastic: &mut Elastic, now_us: u64, oldest_us: u64, busy_rank: u16) -> Option<Wanted> {
    let seen = Seen {
        oldest_us,
        busy_rank,
        ..ROOMY
    };
    elastic.step(now_us, &seen, &mut Curve::default())
}

/// A curve by which more than four busy seats bring no more.
fn flat() -> Curve {
    let mut curve = Curve::default();
    for busy in [4, 16] {
        (0..200).for_each(|_| curve.served(0, busy, busy as u64 * 10 * MS, 99));
    }
    curve
}

/// The number wanted after requests stood in the house at so many milliseconds, and the oldest of them for `oldest_ms`.
fn after(elastic: &mut Elastic, now_ms: u64, in_flight: usize, oldest_ms: u64) -> u16 {
    elastic.note(now_ms * MS, in_flight, elastic.ready);
    step(elastic, now_ms * MS, oldest_ms * MS, 0);
    elastic.wanted()
}

#[test]
fn a_worker_comes_if_requests_would_wait_longer_than_for_the_worker() {
    // (how long each takes in ms, requests in the house, how long the oldest has waited in ms, workers)
    let table = [
        (50, 2, 0, 2), // all have seats
        (50, 3, 0, 3), // the third would wait for 25 ms: a worker boots in 3, and the line is looked at each 10
        (50, 6, 0, 4), // no request has left since the number doubled
        (5, 7, 0, 2),  // the last would wait for 12.5 ms
        (5, 8, 0, 3),  // 15 ms
        (5, 7, 13, 2),
        (5, 7, 14, 3), // it has waited longer than was to be expected
        (5_000, 3, 0, 3),
    ];
    for (service_ms, in_flight, oldest_ms, workers) in table {
        let mut elastic = serving_of(LIMITS, service_ms);
        let wanted = after(&mut elastic, 0, in_flight, oldest_ms);
        assert_eq!(
            wanted, workers,
            "{in_flight} of {service_ms} ms, the oldest waits for {oldest_ms} ms"
        );
    }
}

#[test]
fn a_worker_of_four_threads_has_four_seats() {
    let limits = ElasticLimits {
        seats_each: 4,
        ..LIMITS
    };
    for (in_flight, workers) in [(8, 2), (10, 2), (11, 3), (15, 3), (16, 4)] {
        let wanted = after(&mut serving(limits), 0, in_flight, 0);
        assert_eq!(wanted, workers, "{in_flight}");
    }
}

#[test]
fn each_bound_has_a_name() {
    let held = |elastic: &mut Elastic, in_flight| {
        after(elastic, 100, in_flight, 20);
        (elastic.wanted(), elastic.held_back())
    };
    let mut full = serving(ElasticLimits {
        workers_max: 3,
        ..LIMITS
    });
    assert_eq!(held(&mut full, 9), (3, Some(HeldBack::Max)));

    let mut stuck = serving(LIMITS);
    assert_eq!(held(&mut stuck, 9), (4, Some(HeldBack::Stall)));
    stuck.note(110 * MS, 9, 4);
    stuck.served(110 * MS, 50 * MS);
    assert_eq!(held(&mut stuck, 20), (8, Some(HeldBack::Stall)));

    let mut slow = serving(LIMITS);
    slow.boot.mean_us = Some(2 * S);
    slow.ready_at_departure = 32;
    after(&mut slow, 100, 400, 0);
    assert_eq!((slow.wanted(), slow.held_back()), (4, Some(HeldBack::Boot)));

    let mut eager = serving(LIMITS);
    eager.forks.left = 1.5;
    assert_eq!(held(&mut eager, 9), (3, Some(HeldBack::Forks)));

    let mut useless = serving(LIMITS);
    useless.set(0, 4, false);
    useless.ready_at_departure = 32;
    useless.note(100 * MS, 40, 4);
    assert_eq!(useless.step(100 * MS, &ROOMY, &mut flat()), None);
    assert_eq!(useless.held_back(), Some(HeldBack::Throughput));

    after(&mut useless, 110, 2, 0);
    assert_eq!(useless.held_back(), None, "no request waits any more");
    let names = HeldBack::ALL.map(HeldBack::name);
    assert_eq!(
        names,
        [
            "max",
            "throughput",
            "cores",
            "stall",
            "forks",
            "boot",
            "memory",
            "pids"
        ]
    );
}

#[test]
fn forks_come_out_of_a_budget() {
    let mut elastic = serving(ElasticLimits {
        workers_max: 6,
        ..LIMITS
    });
    elastic.ready_at_departure = 6;
    assert_eq!(after(&mut elastic, 0, 40, 20), 6);
    // All four forks of a minute are spent.
    elastic.set(0, 2, false);
    for (now_ms, workers, held_back) in [
        (14_999, 2, HeldBack::Forks),
        (15_000, 3, HeldBack::Forks),
        (29_999, 3, HeldBack::Forks),
        (75_000, 6, HeldBack::Max),
    ] {
        let wanted = after(&mut elastic, now_ms, 40, 20);
        assert_eq!(
            (wanted, elastic.held_back()),
            (workers, Some(held_back)),
            "{now_ms}"
        );
    }
}

#[test]
fn no_worker_comes_while_those_are_missing_that_there_are_in_any_case() {
    let mut elastic = Elastic::new(LIMITS);
    for ready in [0, 1] {
        elastic.note(0, 50, ready);
        assert_eq!(after(&mut elastic, 500, 50, 500), 2);
    }
    elastic.note(0, 50, 2);
    assert_eq!(after(&mut elastic, 500, 50, 500), 4);
}

#[test]
fn a_worker_leaves_that_was_not_needed_for_a_while() {
    let mut elastic = serving_of(LIMITS, 5_000);
    elastic.set(0, 8, false);
    elastic.note(0, 8, 8);
    // Eight are needed up to second 10, six up to second 20, and one from then on.
    elastic.note(10 * S, 6, 8);
    elastic.note(20 * S, 1, 8);
    let mut seen = Vec::new();
    for second in 0..120 {
        if let Some(Wanted { workers, because }) = step(&mut elastic, second * S, 0, 0) {
            seen.push((second, workers, because.to_string()));
            elastic.note(second * S, 1, workers);
        }
    }
    let expected = [
        (70, 6, "number 7 was last needed 60 s ago".to_owned()),
        (80, 2, "number 3 was last needed 60 s ago".to_owned()),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_worker_that_has_a_request_stays() {
    let mut elastic = serving(LIMITS);
    elastic.set(0, 8, false);
    elastic.note(0, 1, 8);
    for (busy_rank, workers) in [(8, None), (20, None), (6, Some(6)), (6, None), (1, Some(2))] {
        let wanted = step(&mut elastic, 70 * S, 0, busy_rank);
        assert_eq!(wanted.map(|wanted| wanted.workers), workers, "{busy_rank}");
    }
}

#[test]
fn a_worker_that_was_added_stays_for_as_long_as_one_that_was_needed() {
    // By their mean time two workers are enough, but a request has waited for too long.
    let mut elastic = serving_of(LIMITS, 5);
    assert_eq!(after(&mut elastic, 1_000, 7, 14), 3);
    elastic.note(2 * S, 0, 3);
    assert_eq!(step(&mut elastic, 60 * S, 0, 0), None);
    let wanted = step(&mut elastic, 61 * S, 0, 0);
    assert_eq!(wanted.map(|wanted| wanted.workers), Some(2));
}

#[test]
fn a_worker_that_is_needed_now_and_then_stays() {
    let mut elastic = serving_of(LIMITS, 5_000);
    elastic.set(0, 8, false);
    for second in 0..600 {
        elastic.note(second * S, if second % 50 == 0 { 8 } else { 0 }, 8);
        assert_eq!(step(&mut elastic, second * S, 0, 0), None, "{second}");
    }
}

#[test]
fn workers_leave_at_once_where_fewer_bring_as_much() {
    let mut elastic = serving(LIMITS);
    elastic.set(0, 16, false);
    elastic.note(0, 40, 16);
    let wanted = elastic.step(10 * MS, &ROOMY, &mut flat());
    let wanted = wanted.expect("another number");
    assert_eq!(wanted.workers, 4);
    assert_eq!(
        wanted.because.to_string(),
        "more than 4 busy seats bring no more requests a second (100 with up to 4, 100 with 16)"
    );
}

#[test]
fn a_pinned_number_stays() {
    let mut elastic = serving(LIMITS);
    elastic.set(0, 5, true);
    elastic.note(0, 50, 5);
    assert_eq!(
        (step(&mut elastic, S, S, 0), elastic.due_us()),
        (None, None)
    );
    elastic.note(S, 0, 5);
    assert_eq!(step(&mut elastic, 900 * S, 0, 0), None);
    elastic.set(900 * S, 5, false);
    assert_eq!(
        step(&mut elastic, 959 * S, 0, 0),
        None,
        "all five count as needed when it is freed"
    );
    assert_eq!(
        step(&mut elastic, 960 * S, 0, 0).map(|wanted| wanted.workers),
        Some(2)
    );
}

#[test]
fn it_is_due_while_requests_wait() {
    let mut elastic = serving(LIMITS);
    assert_eq!(elastic.due_us(), None);
    elastic.note(S, 3, 2);
    assert_eq!(elastic.due_us(), Some(S + 10 * MS));
    elastic.note(S + MS, 4, 2);
    assert_eq!(elastic.due_us(), Some(S + 10 * MS));
    step(&mut elastic, S + 10 * MS, 10 * MS, 0);
    assert_eq!(elastic.due_us(), Some(S + 20 * MS));
    elastic.note(S + 12 * MS, 2, 2);
    assert_eq!(elastic.due_us(), None);
    let mut full = serving(ElasticLimits {
        workers_max: 2,
        ..LIMITS
    });
    full.note(S, 50, 2);
    assert_eq!(full.due_us(), None, "there is nothing to decide");
}

#[test]
fn the_time_of_a_boot_is_learnt_from_the_first_of_those_that_are_asked_for_together() {
    let mut elastic = serving(LIMITS);
    elastic.boot.mean_us = None;
    assert_eq!(after(&mut elastic, 100, 4, 20), 4);
    elastic.note(140 * MS, 4, 3);
    elastic.note(900 * MS, 4, 4);
    assert_eq!(elastic.boot.mean_us, Some(40 * MS));
}

#[test]
fn one_request_is_told_of_as_one() {
    let told = |requests| {
        let oldest_us = 14_900;
        Because::Waiting {
            requests,
            oldest_us,
        }
        .to_string()
    };
    assert_eq!(told(1), "a request waits (14 ms by now)");
    assert_eq!(told(9), "9 requests wait, the oldest 14 ms");
}

/// A machine with memory for so many workers more, such a percentage of stalls, and so many processes left.
fn roomy(workers: u16, (memory, full_percent, tasks): (u64, u16, u64)) -> Headroom {
    let left = |left| Some(Left { left, max: 0 });
    Headroom {
        workers,
        memory: left(memory),
        private_bytes: 1,
        some_percent: full_percent,
        full_percent,
        tasks: left(tasks),
        tasks_each: 1,
        is_boot_failing: false,
    }
}

/// Something that happens to a server.
#[derive(Clone, Copy, Debug)]
enum Happening {
    House { in_flight: usize },
    Ready,
    Served { busy: usize, service_us: u64 },
    Step { oldest_us: u64 },
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (0_usize..200).prop_map(|in_flight| Happening::House { in_flight }),
        Just(Happening::Ready),
        (1_usize..64, 0_u64..S)
            .prop_map(|(busy, service_us)| Happening::Served { busy, service_us }),
        (0_u64..S).prop_map(|oldest_us| Happening::Step { oldest_us }),
    ]
}

proptest! {
    #[test]
    fn the_number_keeps_its_bounds_and_forks_their_budget(
        (workers_min, more, seats_each, keep_ms, cores) in (1_u16..5, 0_u16..40, 1_usize..5, 1_u64..90_000, prop::option::of(1_u16..9)),
        cpu_share in prop::option::of(0.0_f64..=1.0),
        headroom in prop::option::of((0_u64..40, 0_u16..20, 0_u64..40)),
        happenings in prop::collection::vec((0_u64..500_000, happening()), 1..400),
    ) {
        let limits = ElasticLimits {
            workers_min,
            workers_max: workers_min + more,
            seats_each,
            keep_us: keep_ms * MS,
            slow_boots_max: 2,
            auto_cores: cores,
        };
        let (mut elastic, mut curve) = (Elastic::new(limits), Curve::default());
        let (mut now_us, mut in_flight, mut ready, mut forks) = (0, 0, 0, 0_u64);
        let mut grown_us = None;
        for (pause_us, happening) in happenings {
            now_us += pause_us;
            match happening {
                Happening::House { in_flight: new } => in_flight = new,
                Happening::Ready => ready = elastic.wanted(),
                Happening::Served { busy, service_us } => {
                    elastic.served(now_us, service_us);
                    curve.served(now_us, busy, service_us, 99);
                }
                Happening::Step { oldest_us } => {
                    let (before, rank) = (elastic.wanted(), elastic.rank());
                    let seen = Seen { oldest_us, cpu_share, headroom: headroom.map(|more| roomy(elastic.wanted(), more)), ..Seen::default() };
                    let wanted = elastic.step(now_us, &seen, &mut curve);
                    let grown = u64::from(elastic.wanted().saturating_sub(before));
                    match headroom {
                        None => prop_assert_eq!(grown, 0, "nothing is known of the machine"),
                        Some((memory, stalled, tasks)) => {
                            prop_assert!(grown <= memory && grown <= tasks && (stalled <= 10 || grown == 0));
                        }
                    }
                    prop_assert_eq!(wanted.map_or(before, |wanted| wanted.workers), elastic.wanted());
                    prop_assert_ne!(wanted.map(|wanted| wanted.workers), Some(before));
                    let is_unneeded = matches!(wanted, Some(Wanted { because: Because::Unneeded { .. }, .. }));
                    let is_young = grown_us.is_some_and(|grown_us| now_us - grown_us < limits.keep_us);
                    prop_assert!(!(is_unneeded && is_young), "a worker came and went");
                    if elastic.wanted() > before {
                        grown_us = Some(now_us);
                    }
                    forks += u64::from(elastic.wanted().saturating_sub(before));
                    let is_useless = matches!(wanted, Some(Wanted { because: Because::NoGain(_) | Because::Stalls { .. }, .. }));
                    prop_assert!(elastic.wanted() >= before || elastic.wanted() >= rank || is_useless);
                }
            }
            elastic.note(now_us, in_flight, ready);
            prop_assert!((workers_min..=limits.workers_max).contains(&elastic.wanted()));
            let budget = f64::from(more) * (1.0 + to_f64(now_us) / to_f64(limits.keep_us));
            prop_assert!(to_f64(forks) <= budget + 1e-6, "{} forks of {}", forks, budget);
        }
    }
}

#[test]
fn a_boot_that_never_ended_says_nothing_of_the_next_one() {
    for ends_by_itself in [true, false] {
        let mut elastic = Elastic::new(ElasticLimits {
            workers_min: 1,
            workers_max: 4,
            ..LIMITS
        });
        elastic.note(0, 3, 1);
        assert!(step(&mut elastic, 20 * MS, 20 * MS, 1).is_some());
        // No worker comes, and none is needed any more.
        elastic.note(S, 0, 1);
        if ends_by_itself {
            assert_eq!(
                step(&mut elastic, 3_600 * S, 0, 0).map(|it| it.workers),
                Some(1)
            );
        } else {
            elastic.set(S, 1, false);
        }
        // A successor of the only worker sits down beside it.
        elastic.note(7_200 * S, 0, 2);
        elastic.note(7_201 * S, 0, 1);
        elastic.note(7_202 * S, 9, 1);
        let wanted = step(&mut elastic, 7_202 * S + 20 * MS, 20 * MS, 1);
        assert!(wanted.is_some_and(|it| it.workers > 1), "{wanted:?}");
    }
    // A boot that took long because it waited for a service counts for 10 s.
    let mut boot = BootTime {
        asked_us: Some(0),
        ..BootTime::default()
    };
    boot.one_is_ready(3_600 * S);
    assert_eq!(boot.us(), 10 * S);
}
