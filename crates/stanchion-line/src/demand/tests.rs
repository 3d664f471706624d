use super::*;

const MINUTE: usize = Demand::SECONDS;

/// A second in which so many requests of so long were served.
fn second(arrived: u64, service_ms: u64) -> DemandSecond {
    DemandSecond {
        arrived,
        served: arrived,
        service_us: arrived * service_ms * 1_000,
        looks: 4,
        seats: 4 * 4,
        busy: 4 * 3,
        in_flight: 4 * 6,
        ..DemandSecond::default()
    }
}

fn near(actual: f64, expected: f64) {
    let is_near = (actual - expected).abs() <= 0.001 * expected.abs().max(1.0);
    assert!(is_near, "{actual} is not {expected}");
}

#[test]
fn the_rate_times_the_service_is_wanted_by_every_window() {
    let demand = Demand::of(&[second(80, 50); MINUTE], &DemandNow::default());
    for seats in [
        demand.seats_10s,
        demand.seats_peak_12s,
        demand.seats_peak_60s,
    ] {
        near(seats, 4.0);
    }
    near(demand.arrived_per_s, 80.0);
    near(demand.service_us, 50_000.0);
    near(demand.utilization, 0.75);
    near(demand.load, 1.5);
    assert_eq!(Demand::of(&[], &DemandNow::default()), Demand::default());
}

#[test]
fn a_burst_counts_as_long_as_its_window() {
    for (ago, peak_12s, peak_60s) in [
        (0, 6.0, 6.0),
        (6, 6.0, 6.0),
        (11, 11.0 / 6.0, 6.0),
        (30, 1.0, 6.0),
        (54, 1.0, 6.0),
    ] {
        let mut seconds = [second(20, 50); MINUTE];
        for one in &mut seconds[MINUTE - 6 - ago..MINUTE - ago] {
            *one = second(120, 50);
        }
        let demand = Demand::of(&seconds, &DemandNow::default());
        near(demand.seats_peak_12s, peak_12s);
        near(demand.seats_peak_60s, peak_60s);
    }
}

#[test]
fn the_rate_of_ten_seconds_is_that_of_six_after_a_change() {
    // Before, after, and what is wanted when five seconds have passed since the change.
    for (before, after, seats) in [
        (20, 120, 0.05 * (20.0 + 5.0 * 120.0) / 6.0),
        (120, 20, 0.05 * (120.0 + 5.0 * 20.0) / 6.0),
        // Four standard deviations of the 69 requests that are expected in six seconds are 0.48 of them; the rates differ by 0.39.
        (20, 40, 0.05 * (5.0 * 20.0 + 5.0 * 40.0) / 10.0),
        (1, 2, 0.05 * 1.5),
        (1, 0, 0.05 * 0.5),
    ] {
        let mut seconds = [second(before, 50); MINUTE];
        seconds[MINUTE - 5..].fill(second(after, 50));
        near(Demand::of(&seconds, &DemandNow::default()).seats_10s, seats);
    }
}

#[test]
fn requests_that_wait_or_hang_want_seats_of_their_own() {
    let now = DemandNow {
        waiting: 300,
        held: 3,
        ..DemandNow::default()
    };
    let demand = Demand::of(&[second(80, 50); MINUTE], &now);
    near(demand.seats_10s, 4.0 + 300.0 * 0.05 / 15.0 + 3.0);
    near(demand.seats_peak_60s, demand.seats_10s);
}

#[test]
fn the_last_service_time_holds_while_no_request_ends() {
    let arrived = DemandSecond {
        arrived: 40,
        ..DemandSecond::default()
    };
    let now = DemandNow {
        service_us: 100_000.0,
        ..DemandNow::default()
    };
    near(Demand::of(&[arrived; MINUTE], &now).seats_10s, 4.0);
}

#[test]
fn a_new_service_time_counts_once_there_are_enough_requests_of_it() {
    for (rate, expected_ms) in [(100, 200.0), (5, (15.0 * 200.0 + 5.0 * 50.0) / 20.0)] {
        let mut seconds = [second(rate, 50); MINUTE];
        seconds[MINUTE - SERVICE..].fill(second(rate, 200));
        let demand = Demand::of(&seconds, &DemandNow::default());
        near(demand.service_us / 1e3, expected_ms);
    }
}

#[test]
fn a_growing_wait_in_front_shows_the_rate_in_front() {
    // 120 requests in a second came to a proxy that lets 40 through, as many as two seats serve.
    let fronted = |second: usize| DemandSecond {
        fronted: 40,
        front_us: 40 * (second as u64 * 2_000_000 / 3),
        ..self::second(40, 50)
    };
    let mut seconds = [second(40, 50); MINUTE];
    for (index, one) in seconds[MINUTE - 8..].iter_mut().enumerate() {
        *one = fronted(index);
    }
    let demand = Demand::of(&seconds, &DemandNow::default());
    let wait_s = 6.5 * 2.0 / 3.0;
    near(demand.front_us, wait_s * 1e6);
    let least = 6.0 + 120.0 * wait_s * 0.05 / 15.0;
    near(demand.seats_peak_12s, least);
    assert!(demand.seats_peak_12s >= 2.7 * 2.0);
    // The seats take no request any more: the line in front is as it was, and grows older.
    let before = demand;
    for one in &mut seconds[MINUTE - 2..] {
        (one.arrived, one.fronted, one.front_us, one.served) = (0, 0, 0, 0);
    }
    let demand = Demand::of(&seconds, &DemandNow::default());
    assert!(demand.front_us >= 4.9e6 && demand.seats_10s > before.seats_10s / 2.0);
    // Idle seats: whatever made the requests old, it was no line for these seats.
    for one in &mut seconds {
        *one = DemandSecond {
            busy: 1,
            ..fronted(one.arrived as usize)
        };
    }
    seconds[MINUTE - 1].front_us = 40 * 60_000_000;
    near(Demand::of(&seconds, &DemandNow::default()).seats_10s, 2.0);
}

#[test]
fn requests_without_the_proxys_word_end_the_line_in_front() {
    for quiet in [1, 10, 30, 50] {
        // The proxy's clock steps ahead, or its clients leave the seats to others.
        let mut seconds = [second(40, 50); MINUTE];
        for one in &mut seconds[..MINUTE - quiet] {
            (one.fronted, one.front_us) = (40, 40 * 200_000);
        }
        let demand = Demand::of(&seconds, &DemandNow::default());
        // The requests of the proxy in the last six seconds waited 0.2 s.
        let wait_s = if quiet < 2 { 0.2 } else { 0.0 };
        assert!(demand.front_us <= wait_s * 1e6, "{quiet}: {demand:?}");
        assert!(
            (2.0..2.1).contains(&demand.seats_10s),
            "{quiet}: {demand:?}"
        );
        // Without any request at all it grows older.
        for one in &mut seconds[MINUTE - quiet..] {
            (one.arrived, one.served) = (0, 0);
        }
        let demand = Demand::of(&seconds, &DemandNow::default());
        near(demand.front_us, (0.2 + quiet as f64) * 1e6);
    }
}

#[test]
fn an_event_loop_is_worth_all_its_seats_once_its_core_is_full() {
    let of_loops = |loop_ms: u64| DemandSecond {
        loop_us: loop_ms * 1_000,
        seats: 4 * 2 * 1_000,
        ..second(100, 50)
    };
    let now = DemandNow {
        seats_per_loop: Some(1_000),
        ..DemandNow::default()
    };
    let demand = |loop_ms| Demand::of(&[of_loops(loop_ms); MINUTE], &now);
    // Requests wait for a database: five seats of two thousand.
    near(demand(2).seats_10s, 5.0);
    // One and a half cores of two are full.
    near(demand(1_500).seats_10s, 1_500.0);
    near(demand(1_500).utilization, 0.75);
    // Twice as many arrive as two loops serve.
    let mut seconds = [of_loops(2_000); MINUTE];
    for one in &mut seconds {
        one.arrived = 200;
    }
    near(Demand::of(&seconds, &now).seats_10s, 4_000.0);
    // Only sessions have the core.
    for one in &mut seconds {
        (one.arrived, one.served, one.service_us) = (0, 0, 0);
    }
    near(Demand::of(&seconds, &now).seats_10s, 2_000.0);
    // And one request among them does not take the time of all.
    (seconds[0].served, seconds[0].service_us) = (1, 1_000_000);
    seconds[MINUTE - 1].arrived = 1;
    near(Demand::of(&seconds, &now).seats_10s, 2_000.0);
}

#[test]
fn nonsense_in_shared_memory_is_harmless() {
    let seconds = [DemandSecond::from([u64::MAX; DemandSecond::COUNTS]); MINUTE];
    let demand = Demand::of(&seconds, &DemandNow::default());
    let few_served = DemandSecond {
        served: 1,
        ..seconds[0]
    };
    let held = Demand::of(&[few_served; MINUTE], &DemandNow::default());
    for figure in [
        demand.seats_10s,
        demand.load,
        held.seats_peak_60s,
        held.service_us,
    ] {
        assert!((0.0..=FIGURE_MAX).contains(&figure), "{figure}");
    }
    assert_eq!(DemandSecond::from(seconds[0].counts()), seconds[0]);
}
