//! The simulation beside formulas of queueing theory.

use super::*;

/// The probability that a request waits, for `load` erlangs on so many servers (Erlang's C formula).
fn erlang_c(servers: u32, load: f64) -> f64 {
    let mut blocked = 1.0; // Erlang's B formula, by recursion
    for server in 1..=servers {
        blocked = load * blocked / (f64::from(server) + load * blocked);
    }
    let used = load / f64::from(servers);
    blocked / (1.0 - used + used * blocked)
}

#[test]
fn waits_are_those_of_erlangs_formula() {
    const SERVICE_US: f64 = 10_000.0;
    for (servers, used) in [(1, 0.5), (4, 0.8), (16, 0.9)] {
        let load = f64::from(servers) * used;
        let requests = poisson(300_000, SERVICE_US / load, |chance| {
            chance.exponential(SERVICE_US)
        });
        let outcome = run(&workers(servers as u16), &requests);
        let mean_us = erlang_c(servers, load) * SERVICE_US / (f64::from(servers) * (1.0 - used));
        assert_near(outcome.wait.figures().unwrap().mean_us, mean_us, 0.05);
        // Of an exponential wait the 99 % quantile is known too.
        let p99_us = (erlang_c(servers, load) * 100.0).ln() * SERVICE_US
            / (f64::from(servers) * (1.0 - used));
        assert_near(outcome.wait.figures().unwrap().p99_us, p99_us, 0.08);
        let busy = outcome.spent.service_us() as f64 / outcome.ended_us as f64;
        assert_near(busy, load, 0.02);
    }
}

#[test]
fn waits_before_one_constant_server_are_those_of_pollaczek_and_khinchine() {
    let outcome = run(&workers(1), &poisson(300_000, 12_500.0, |_| 10_000.0));
    assert_near(
        outcome.wait.figures().unwrap().mean_us,
        0.8 * 10_000.0 / (2.0 * 0.2),
        0.04,
    );
}

#[test]
fn requests_that_share_one_core_have_the_latency_of_processor_sharing() {
    // M/G/1 with processor sharing: S / (1 - load), whatever the law of S is.
    let requests = poisson(200_000, 20_000.0, |chance| chance.exponential(10_000.0));
    let requests: Vec<_> = requests
        .iter()
        .map(|one| on_core(one.at_us, one.elsewhere_us))
        .collect();
    let one_core = Scenario {
        cores: Some(1.0),
        ..workers(200)
    };
    let outcome = run(&one_core, &requests);
    assert_near(outcome.latency.figures().unwrap().mean_us, 20_000.0, 0.04);
    assert_near(outcome.spent.core_us as f64 / 200_000.0, 10_000.0, 0.08);
}
