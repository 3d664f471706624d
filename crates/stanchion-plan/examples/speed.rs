//! Measures how many requests the planner simulates in a second of one core: `cargo run --release -p stanchion-plan --example speed`.

#![allow(clippy::print_stdout)] // it is a program for people

use std::error::Error;
use std::fs;

use serde_json::json;
use stanchion_plan::{PlanRequest, PlanSource, plan};

/// Requests of one run.
const REQUESTS: f64 = 4e6;

/// For how long this thread has been on a core, in seconds (Documentation/scheduler/sched-stats.rst in Linux): other programs do not count.
fn on_core_s() -> f64 {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel shows it");
    let ns = stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ns.expect("its first figure is a time") / 1e9
}

fn main() -> Result<(), Box<dyn Error>> {
    // (what it is, erlangs, the scenario)
    let cases = [
        (
            "4 workers, hardly a request waits",
            0.5,
            json!({"workers": 4}),
        ),
        ("4 workers, half full", 2.0, json!({"workers": 4})),
        ("4 workers, 95 % full", 3.8, json!({"workers": 4})),
        ("32 workers, 95 % full", 30.4, json!({"workers": 32})),
        (
            "an adaptive line, 95 % full",
            3.8,
            json!({"workers": 4, "queue_order": "adaptive"}),
        ),
        (
            "two lanes, half full",
            2.0,
            json!({"workers": 4, "lanes": [{}, {"seats": 1}]}),
        ),
        ("2 to 8 workers, half full", 2.0, json!({"workers": [2, 8]})),
        (
            "4 workers on 2 cores, half full",
            2.0,
            json!({"workers": 4, "cores": 2}),
        ),
        (
            "2 workers of 2 threads, half full",
            2.0,
            json!({"workers": 2, "threads": 2}),
        ),
    ];
    for (what, erlangs, scenario) in cases {
        let per_s = erlangs / 0.001_94;
        let question = json!({
            "source": {"model": {"rate_per_s": per_s, "service": [[0.5, 1_668], [0.99, 6_000]],
                                 "seconds": REQUESTS / per_s, "cpu_share": 0.4}},
            "scenarios": [scenario],
            "seeds": 1,
        });
        let mut request = PlanRequest::read(&question.to_string())?;
        let source = PlanSource::of(request.take_source()?, |path| {
            Err(format!("{path} is not read here"))
        })?;
        // The first report comes when the requests are made and the simulation begins.
        let mut began = None;
        let mut progress = |_| {
            began.get_or_insert_with(on_core_s);
            true
        };
        let answer = plan(&request, source, &mut progress).map_err(|none| format!("{none:?}"))?;
        let took_s = on_core_s() - began.ok_or("nothing was simulated")?;
        let served = answer.results[0].counts.served;
        println!("{what:36} {:6.2} M requests/s", served / took_s / 1e6);
    }
    Ok(())
}
