//! Seats that begin late by times that are known.

use super::*;
use crate::scenario::{PlannedLane, WorkerRange};
use crate::seen::SeenRequest;
use crate::seen::tests::{Naive, poisson};

fn settings(workers: u16) -> Scenario {
    Scenario {
        workers: WorkerRange::Fixed(workers),
        ..Scenario::default()
    }
}

#[test]
fn seats_are_seen_to_begin_late() {
    let naive = Naive {
        workers: 4,
        idle_us: 80,
        busy_us: 30,
        servers: None,
    };
    let seen = naive.seen(&poisson([300.0; 20], 10_000.0));
    let Delays { idle_us, busy_us } = delays(&seen, &settings(4));
    assert!(idle_us.len() > 1_000 && busy_us.len() > 1_000);
    assert!(
        idle_us.iter().all(|&us| us == 80),
        "{:?}",
        idle_us.iter().find(|&&us| us != 80)
    );
    // Of two seats that are done within 30 us each may be taken for the other, which changes no sum.
    let exact = busy_us.iter().filter(|&&us| us == 30).count();
    assert!(exact * 100 > busy_us.len() * 95, "{exact}");
    let mean_us = f64::from(busy_us.iter().sum::<u32>()) / busy_us.len() as f64;
    assert!((29.5..30.5).contains(&mean_us), "{mean_us}");
}

#[test]
fn a_seat_that_is_kept_for_another_lane_is_not_late() {
    let one = |at_us, wait_us, service_us, lane| SeenRequest {
        at_us,
        wait_us: Some(wait_us),
        service_us: Some(service_us),
        lane,
        ..SeenRequest::default()
    };
    let traffic = SeenTraffic {
        requests: vec![
            one(0, 5, 100, 0),
            // A seat is idle all the time, and is not for this lane.
            one(10, 102, 100, 0),
            // For this one it is.
            one(120, 4, 20, 1),
        ],
        ..SeenTraffic::default()
    };
    let kept = PlannedLane {
        seats: 1,
        ..PlannedLane::default()
    };
    let reserved = Scenario {
        lanes: vec![PlannedLane::default(), kept],
        ..settings(2)
    };
    let Delays { idle_us, busy_us } = delays(&traffic, &reserved);
    assert_eq!((idle_us, busy_us), (vec![5, 4], vec![7]));
}
