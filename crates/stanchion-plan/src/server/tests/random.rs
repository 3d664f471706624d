//! Random requests on random servers.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// The sum of all waits in a line before so many servers.
fn naive_wait_us(servers: usize, requests: &[Offered]) -> u64 {
    let mut free_us = vec![0; servers];
    let mut wait_us = 0;
    for request in requests {
        free_us.sort_unstable();
        let begins_us = free_us[0].max(request.at_us);
        free_us[0] = begins_us + request.service_us().max(1);
        wait_us += begins_us - request.at_us;
    }
    wait_us
}

prop_compose! {
    fn any_requests()(
        rows in vec((0..20_000_u64, 0..3_000_u32, 0..3_000_u32, 0..500_u32, 0..4_u32, 0..3_u16), 1..120),
        patient in any::<bool>(),
    ) -> Vec<Offered> {
        let mut requests: Vec<_> = rows.into_iter().map(|(at_us, cpu_us, elsewhere_us, patience_us, client, lane)| Offered {
            at_us, cpu_us, elsewhere_us, client, lane,
            patience_us: if patient { 0 } else { patience_us },
            ..Offered::default()
        }).collect();
        requests.sort_by_key(|one| one.at_us);
        requests
    }
}

prop_compose! {
    fn any_scenario()(
        (fewest, more, threads) in (1..4_u16, 0..4_u16, 1..4_u32),
        (event_loop, gil, adaptive) in any::<(bool, bool, bool)>(),
        (max_waiting, max_waiting_per_client) in (1..40_u32, 0..4_u32),
        (queue_target_us, queue_timeout_us) in (0..3_000_u64, 0..9_000_u64),
        lanes in vec((0..3_u32, 0..3_usize, prop::option::of(1..4_usize), prop::option::of(0..9_usize)), 0..4),
        cores in prop::option::of(0.3..5.0_f64),
    ) -> Scenario {
        Scenario {
            workers: if more == 0 { WorkerRange::Fixed(fewest) } else { WorkerRange::Elastic([fewest, fewest + more]) },
            threads,
            event_loop,
            worker_concurrency: threads,
            max_waiting,
            max_waiting_per_client,
            queue_order: if adaptive { LineOrder::Adaptive } else { LineOrder::Fifo },
            queue_target_us,
            queue_timeout_us,
            lanes: lanes.into_iter().map(|(priority, seats, seats_max, waiting)| PlannedLane {
                priority, seats, seats_max, waiting, ..PlannedLane::default()
            }).collect(),
            workers_keep_us: 5_000,
            boot_us: 700,
            cores,
            gil,
            ..Scenario::default()
        }
    }
}

proptest! {
    #[test]
    fn a_line_before_equal_seats_is_the_naive_one(requests in any_requests(), servers in 1..6_u16) {
        let patient: Vec<_> = requests.into_iter().map(|one| Offered { patience_us: 0, ..one }).collect();
        let outcome = run(&workers(servers), &patient);
        prop_assert_eq!(outcome.wait.sum_us(), naive_wait_us(servers.into(), &patient));
    }

    #[test]
    fn each_request_ends_once_and_no_time_is_lost(
        requests in any_requests(),
        scenario in any_scenario(),
        pool in prop::option::of(0.5..4.0_f64),
        seed in any::<u64>(),
    ) {
        let delays = Delays { idle_us: vec![0, 90], busy_us: vec![0, 30] };
        let load = OfferedLoad { requests: &requests, delays: &delays, outside: Outside::NONE, pool };
        let outcome = ServerModel::new(&scenario, load, seed).run(&mut |_| true).unwrap();
        prop_assert_eq!(outcome.offered, requests.len() as u64);
        prop_assert_eq!(away(&outcome).iter().sum::<u64>(), outcome.offered);
        prop_assert_eq!(outcome.spent.all_us(), outcome.latency.sum_us());
        prop_assert_eq!(outcome.spent.line_us, outcome.wait.sum_us());
        let seats = usize::from(Staff::numbers(&scenario)) * scenario.seats_each();
        prop_assert!(outcome.busy_max <= seats);
        let lanes = outcome.lanes.iter().map(|lane| lane.offered);
        prop_assert_eq!(lanes.sum::<u64>(), outcome.offered);
        let attendance = outcome.attendance;
        prop_assert!(attendance.ready_us <= attendance.worker_us);
        // No more than there are seats, and no more than there are cores.
        let ready_us = attendance.ready_us as f64;
        let slack_us = outcome.served as f64 * 5.0;
        if let (Some(cores), 0) = (scenario.cores, attendance.forks) {
            prop_assert!(outcome.spent.cpu_us as f64 <= outcome.ended_us as f64 * cores + slack_us);
            prop_assert!(outcome.spent.service_us() as f64 <= ready_us * scenario.seats_each() as f64 + slack_us);
        }
    }
}
