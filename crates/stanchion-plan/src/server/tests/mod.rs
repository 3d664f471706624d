//! The simulation beside formulas, a naive line, and cases whose end is known.

mod formulas;
mod random;

use super::*;
use crate::scenario::{LineOrder, PlannedLane, WorkerRange};

const S: u64 = 1_000_000;

fn workers(workers: u16) -> Scenario {
    Scenario {
        workers: WorkerRange::Fixed(workers),
        max_waiting: u32::MAX,
        queue_timeout_us: 0,
        ..Scenario::default()
    }
}

fn elsewhere(at_us: u64, elsewhere_us: u32) -> Offered {
    Offered {
        at_us,
        elsewhere_us,
        ..Offered::default()
    }
}

fn on_core(at_us: u64, cpu_us: u32) -> Offered {
    Offered {
        at_us,
        cpu_us,
        ..Offered::default()
    }
}

fn run(scenario: &Scenario, requests: &[Offered]) -> RunOutcome {
    let load = OfferedLoad {
        requests,
        delays: &Delays::default(),
        outside: Outside::NONE,
        pool: None,
    };
    ServerModel::new(scenario, load, 1)
        .run(&mut |_| true)
        .unwrap()
}

fn away(outcome: &RunOutcome) -> [u64; 5] {
    [
        outcome.served,
        outcome.refused,
        outcome.timed_out,
        outcome.shed,
        outcome.left,
    ]
}

/// Poisson arrivals at a seat each `gap_us`, with services of this law.
fn poisson(
    count: usize,
    gap_us: f64,
    mut service_us: impl FnMut(&mut Chance) -> f64,
) -> Vec<Offered> {
    let mut chance = Chance::of(11);
    let mut now_us = 0.0;
    let mut next = || {
        now_us += chance.exponential(gap_us);
        elsewhere(now_us as u64, service_us(&mut chance).round() as u32)
    };
    (0..count).map(|_| next()).collect()
}

fn assert_near(found: f64, expected: f64, within: f64) {
    assert!(
        (found / expected - 1.0).abs() < within,
        "{found} is not near {expected}"
    );
}

#[test]
fn requests_at_seats_wait_for_the_lock_and_for_cores() {
    let threads = |threads| Scenario {
        threads,
        ..workers(1)
    };
    let free = Scenario {
        gil: false,
        ..threads(2)
    };
    let one_core = |scenario: Scenario| Scenario {
        cores: Some(1.0),
        ..scenario
    };
    let both = |cpu_us, elsewhere_us| {
        [0, 1].map(|at_us| Offered {
            at_us,
            cpu_us,
            elsewhere_us,
            ..Offered::default()
        })
    };
    // (what, the scenario, the requests, the sum of their latencies)
    let table = [
        (
            "alone",
            threads(1),
            [on_core(0, 3_000), on_core(9_000, 3_000)],
            6_000,
        ),
        (
            "three turns each",
            threads(2),
            both(3_000, 0),
            5_000 + 5_999,
        ),
        ("no lock", free.clone(), both(3_000, 0), 6_000),
        (
            "no lock, one core",
            one_core(free),
            both(3_000, 0),
            5_999 + 5_999,
        ),
        (
            "a core for two workers",
            one_core(workers(2)),
            both(3_000, 0),
            5_999 + 5_999,
        ),
        (
            "as many cores as workers",
            Scenario {
                cores: Some(2.0),
                ..workers(2)
            },
            both(3_000, 0),
            6_000,
        ),
        // Each is on the core while the other one is elsewhere.
        (
            "elsewhere meanwhile",
            threads(2),
            both(3_000, 2_000),
            5_000 + 5_999,
        ),
        // The long one gives the lock up after 5 ms each time: 5 + 1, 5 + 1, 5 + 1.
        (
            "a turn is 5 ms",
            threads(2),
            [on_core(0, 30_000), on_core(1, 3_000)],
            33_000 + 17_999,
        ),
        (
            "a loop is not interrupted",
            Scenario {
                event_loop: true,
                ..workers(1)
            },
            [on_core(0, 30_000), on_core(1, 3_000)],
            32_000 + 32_999,
        ),
    ];
    for (what, scenario, requests, expected) in table {
        let outcome = run(&scenario, &requests);
        assert_eq!(
            (outcome.served, outcome.latency.sum_us()),
            (2, expected),
            "{what}"
        );
        let cpu_us: u32 = requests.iter().map(|one| one.cpu_us).sum();
        assert_eq!(outcome.spent.cpu_us, u64::from(cpu_us), "{what}");
        assert_eq!(outcome.spent.all_us(), expected, "{what}");
    }
}

#[test]
fn a_pool_slows_down_those_that_share_it() {
    let requests = [0, 0, 0, 0].map(|at_us| elsewhere(at_us, 1_000));
    let load = OfferedLoad {
        requests: &requests,
        delays: &Delays::default(),
        outside: Outside::NONE,
        pool: Some(2.0),
    };
    let outcome = ServerModel::new(&workers(4), load, 1)
        .run(&mut |_| true)
        .unwrap();
    assert_eq!(outcome.latency.sum_us(), 4 * 2_000);
}

#[test]
fn seats_begin_late_as_they_were_seen_to() {
    let requests = [elsewhere(0, 100), elsewhere(10, 100), elsewhere(1_000, 100)];
    let delays = Delays {
        idle_us: vec![7],
        busy_us: vec![3],
    };
    let load = OfferedLoad {
        requests: &requests,
        delays: &delays,
        outside: Outside::NONE,
        pool: None,
    };
    let outcome = ServerModel::new(&workers(1), load, 1)
        .run(&mut |_| true)
        .unwrap();
    // 7, then 107 + 3 - 10, then 7.
    assert_eq!(outcome.wait.sum_us(), 7 + 100 + 7);
}

#[test]
fn measured_waiting_stays_as_far_as_others_caused_it() {
    let request = Offered {
        cpu_us: 100,
        core_us: 40,
        gil_us: 20,
        crowd_us: 8,
        elsewhere_us: 32,
        ..Offered::default()
    };
    let half = Outside {
        core: Outside::part(0.5),
        gil: Outside::part(0.5),
        crowd: Outside::part(0.5),
    };
    let with = |outside, scenario: &Scenario| {
        let load = OfferedLoad {
            requests: &[request],
            delays: &Delays::default(),
            outside,
            pool: None,
        };
        ServerModel::new(scenario, load, 1)
            .run(&mut |_| true)
            .unwrap()
    };
    let recorded = Scenario {
        as_recorded: true,
        ..workers(1)
    };
    for (outside, scenario, latency_us) in [
        (Outside::ALL, workers(1), 200),
        (Outside::NONE, workers(1), 132),
        (half, workers(1), 166),
        (Outside::NONE, recorded, 200),
    ] {
        let outcome = with(outside, &scenario);
        assert_eq!(outcome.latency.sum_us(), latency_us, "{outside:?}");
        assert_eq!(outcome.spent.all_us(), latency_us, "{outside:?}");
    }
}

#[test]
fn limits_turn_away_as_the_server_does() {
    let at_once = |count: usize| vec![elsewhere(0, 100); count];
    let one = workers(1);
    let of_client = |client, mut requests: Vec<Offered>| {
        for request in &mut requests {
            request.client = client;
        }
        requests
    };
    let impatient = {
        let mut requests = at_once(4);
        requests[2].patience_us = 50;
        // This one is in the ring when its client leaves.
        requests[1].patience_us = 70;
        requests
    };
    // (what, the scenario, the requests, served, refused, timed out, shed, left)
    let table = [
        // One has the seat, one is ahead of it, two wait.
        (
            "a full line",
            Scenario {
                max_waiting: 2,
                ..one.clone()
            },
            at_once(5),
            [4, 1, 0, 0, 0],
        ),
        (
            "a limit of time",
            Scenario {
                queue_timeout_us: 150,
                ..one.clone()
            },
            at_once(4),
            [3, 0, 1, 0, 0],
        ),
        (
            "a client's limit",
            Scenario {
                max_waiting_per_client: 1,
                ..one.clone()
            },
            of_client(7, at_once(4)),
            [3, 1, 0, 0, 0],
        ),
        (
            "an unknown client",
            Scenario {
                max_waiting_per_client: 1,
                ..one.clone()
            },
            at_once(4),
            [4, 0, 0, 0, 0],
        ),
        ("clients that leave", one, impatient, [2, 0, 0, 0, 2]),
    ];
    for (what, scenario, requests, expected) in table {
        assert_eq!(away(&run(&scenario, &requests)), expected, "{what}");
    }
}

#[test]
fn lanes_have_their_seats_and_their_turns() {
    let lane = |priority, seats, seats_max| PlannedLane {
        priority,
        seats,
        seats_max,
        ..PlannedLane::default()
    };
    let with = |count, other: PlannedLane| Scenario {
        lanes: vec![PlannedLane::default(), other],
        ..workers(count)
    };
    let mixed: Vec<_> = (0..8)
        .map(|number| Offered {
            lane: number % 2,
            ..elsewhere(number.into(), 1_000)
        })
        .collect();
    let waits_us = |scenario: &Scenario| {
        let outcome = run(scenario, &mixed);
        assert_eq!(outcome.served, 8);
        [0, 1].map(|lane| outcome.lanes[lane].wait.sum_us())
    };
    // Each comes 1 us after the one before. One has the seat, and the next is ahead of it, when the other six wait.
    assert_eq!(
        waits_us(&with(1, lane(1, 0, None))),
        [18_000 - 12, 10_000 - 16]
    );
    assert_eq!(
        waits_us(&with(1, lane(10, 0, None))),
        [12_000 - 12, 16_000 - 16]
    );
    // Two seats, of which the second lane has one for itself, and may take no other.
    assert_eq!(waits_us(&with(2, lane(10, 1, Some(1)))), [6_000 - 12; 2]);
}

#[test]
fn a_seat_stays_idle_for_the_lane_that_it_is_kept_for() {
    let of = |lane, at_us| Offered {
        lane,
        ..elsewhere(at_us, 1_000)
    };
    let with = |seats, seats_max| {
        let other = PlannedLane {
            seats,
            seats_max,
            ..PlannedLane::default()
        };
        Scenario {
            lanes: vec![PlannedLane::default(), other],
            ..workers(2)
        }
    };
    // (the seats of the other lane, requests, the waits of both lanes)
    let table = [
        (
            with(1, None),
            vec![of(0, 0), of(0, 1), of(0, 2), of(1, 10)],
            [999 + 1_998, 0],
        ),
        (
            with(0, Some(1)),
            vec![of(1, 0), of(1, 1), of(0, 10)],
            [0, 999],
        ),
    ];
    for (scenario, requests, expected) in table {
        let outcome = run(&scenario, &requests);
        let waits = [0, 1].map(|lane| outcome.lanes[lane].wait.sum_us());
        assert_eq!(waits, expected, "{:?}", scenario.lanes);
    }
}

#[test]
fn an_adaptive_line_sheds_by_its_law() {
    // The lane is over its target at 1 s. It sheds at 2, 3, 3.71, 4.28, 4.78 and 5.23 s; at 5.3 s the seat is free again.
    let adaptive = Scenario {
        queue_order: LineOrder::Adaptive,
        queue_target_us: S,
        ..workers(1)
    };
    let outcome = run(&adaptive, &vec![elsewhere(0, 5_300_000); 10]);
    assert_eq!(away(&outcome), [3, 0, 0, 7, 0]);
}

#[test]
fn overload_ends_as_the_order_of_the_line_says() {
    // Five requests come while four are served.
    let requests: Vec<_> = (0..30_000)
        .map(|number| elsewhere(number * 2_000, 20_000))
        .collect();
    let fifo = Scenario {
        queue_timeout_us: 2 * S,
        ..workers(8)
    };
    let adaptive = Scenario {
        queue_order: LineOrder::Adaptive,
        queue_target_us: S / 10,
        ..fifo.clone()
    };
    let (fifo, adaptive) = (run(&fifo, &requests), run(&adaptive, &requests));
    for outcome in [&fifo, &adaptive] {
        assert_near(outcome.served as f64 / 30_000.0, 0.8, 0.05);
        assert!(outcome.refused == 0 && outcome.left == 0);
    }
    let (late, early) = (
        fifo.wait.figures().unwrap(),
        adaptive.wait.figures().unwrap(),
    );
    assert!(late.p50_us > 1.8e6 && late.p99_us < 2.1e6, "{late:?}");
    assert!(early.p50_us < 0.1e6 && early.p90_us < 0.2e6, "{early:?}");
    assert!(
        fifo.shed == 0 && adaptive.shed > adaptive.timed_out,
        "{:?}",
        away(&adaptive)
    );
}

#[test]
fn an_elastic_server_has_the_workers_that_it_needs() {
    let busy = (0..4_000).map(|number| elsewhere(10 * S + number * 2_500, 50_000));
    let quiet = (0..200).map(|number| elsewhere(20 * S + number * 500_000, 50_000));
    let requests: Vec<_> = busy.chain(quiet).collect();
    let elastic = Scenario {
        workers: WorkerRange::Elastic([2, 32]),
        workers_keep_us: 10 * S,
        ..workers(1)
    };
    let (outcome, fixed) = (run(&elastic, &requests), run(&workers(32), &requests));
    assert_eq!(outcome.served, 4_200);
    assert!(
        outcome.wait.figures().unwrap().p99_us < 300_000.0,
        "{:?}",
        outcome.wait.figures()
    );
    let attendance = outcome.attendance;
    assert!(
        (18..=30).contains(&attendance.forks),
        "{}",
        attendance.forks
    );
    assert!(attendance.worker_us * 3 < fixed.attendance.worker_us);
    let most = attendance
        .points
        .iter()
        .map(|(_, there)| *there)
        .max()
        .unwrap();
    assert!((20..=32).contains(&most), "{most}");
    assert_eq!(
        attendance.points.last().unwrap().1,
        2,
        "the others have left"
    );
}

#[test]
fn requests_that_come_twice_as_fast_wait_as_twice_the_rate_does() {
    let requests = poisson(20_000, 20_000.0, |_| 5_000.0);
    let twice = Scenario {
        rate_factor: 2.0,
        ..workers(1)
    };
    let halved: Vec<_> = requests
        .iter()
        .map(|one| elsewhere((one.at_us as f64 / 2.0).round() as u64, 5_000))
        .collect();
    assert_eq!(
        run(&twice, &requests).wait.sum_us(),
        run(&workers(1), &halved).wait.sum_us()
    );
}

#[test]
fn requests_that_no_server_ever_serves_end_it() {
    let requests = vec![elsewhere(0, u32::MAX); 40_000];
    let load = OfferedLoad {
        requests: &requests,
        delays: &Delays::default(),
        outside: Outside::ALL,
        pool: None,
    };
    let halt = ServerModel::new(&workers(1), load, 1)
        .run(&mut |_| true)
        .err();
    assert_eq!(halt, Some(Halt::Endless));
}

#[test]
fn a_caller_that_has_enough_stops_it() {
    let requests = vec![elsewhere(0, 1); REPORT_EVERY as usize + 1];
    let load = OfferedLoad {
        requests: &requests,
        delays: &Delays::default(),
        outside: Outside::ALL,
        pool: None,
    };
    let mut arrived = 0;
    let halt = ServerModel::new(&workers(1), load, 1).run(&mut |count| {
        arrived = count;
        false
    });
    assert_eq!(
        (halt.err(), arrived),
        (Some(Halt::Stopped), REPORT_EVERY as usize - 1)
    );
}
