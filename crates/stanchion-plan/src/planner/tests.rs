//! Questions and their answers, as a caller has them.

use serde_json::{Value, json};

use super::*;
use crate::seen::SeenRequest;

fn answer_of(question: &Value) -> Result<Value, NoAnswer> {
    let mut request = PlanRequest::read(&question.to_string()).map_err(NoAnswer::Wrong)?;
    let source = request.take_source().map_err(NoAnswer::Wrong)?;
    let source = PlanSource::of(source, |path| Err(format!("{path} cannot be read")))
        .map_err(NoAnswer::Wrong)?;
    let answer = plan(&request, source, &mut |_| true)?;
    Ok(serde_json::to_value(answer).unwrap())
}

fn answer(question: &Value) -> Value {
    answer_of(question).unwrap()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// Poisson arrivals of exponential services of 20 ms, before two seats, first come, first served; as a log has them.
fn log(per_s: f64, seconds: f64, seed: u64) -> Vec<Value> {
    let mut chance = Chance::of(seed);
    let (mut now_us, mut free_us) = (0.0, [0, 0]);
    let mut rows = Vec::new();
    while now_us < seconds * 1e6 {
        now_us += chance.exponential(1e6 / per_s);
        let (at_us, service_us) = (
            now_us as u64 + 1_700_000_000_000_000,
            chance.exponential(20_000.0) as u64 + 1,
        );
        free_us.sort_unstable();
        let begins_us = free_us[0].max(at_us);
        free_us[0] = begins_us + service_us;
        rows.push(json!([
            at_us,
            service_us,
            service_us / 4,
            0,
            0,
            begins_us - at_us,
            0
        ]));
    }
    rows
}

fn sentences(answer: &Value) -> String {
    answer["unknown"].to_string()
}

#[test]
fn a_replay_reproduces_what_was_measured_and_then_varies_it() {
    let answer = answer(&json!({
        "source": {"arrivals": log(80.0, 120.0, 3), "settings": {"workers": 2, "cores": 4}},
        "scenarios": [{"name": "now"}, {"name": "more", "workers": 3}, {"name": "recorded", "as_recorded": true}],
    }));
    let (measured, results) = (&answer["measured"], &answer["results"]);
    for index in [0, 2] {
        for figure in ["mean_us", "p50_us", "p90_us", "p99_us"] {
            let (seen, found) = (
                number(&measured["wait"][figure]),
                number(&results[index]["wait"][figure]),
            );
            assert!(
                (found / seen - 1.0).abs() < 0.01,
                "{figure}: {seen} measured, {found} here"
            );
        }
    }
    assert_eq!(results[1]["name"], "more");
    assert!(number(&results[1]["wait"]["p99_us"]) < number(&results[0]["wait"]["p99_us"]) / 2.0);
    assert_eq!(measured["busy"]["seats_max"], 2);
    assert_eq!(
        (&measured["requests"], &measured["requests"]),
        (
            &measured["served"],
            &json!(results[0]["requests"].as_f64().unwrap() as u64)
        )
    );
    let [low, high] = [0, 1].map(|end| number(&results[0]["wait_band"]["p99_us"][end]));
    let p99_us = number(&results[0]["wait"]["p99_us"]);
    assert!(
        low < p99_us && p99_us < high && high < 4.0 * low,
        "{low} {p99_us} {high}"
    );
    let used = number(&results[0]["utilization"]["seats"]);
    assert!((used - 0.8).abs() < 0.05, "{used}");
    assert!(sentences(&answer).contains("up to 3 requests"), "{answer}");
    assert_eq!(results[0]["knobs"]["workers"], 2);
    let points = results[0]["line"].as_array().unwrap();
    assert!((400..=500).contains(&points.len()));
}

/// Another draw of the same traffic, measured with the other number of seats, is in the band: nine of ten times, so most of ten here.
#[test]
fn a_later_measurement_is_in_the_band() {
    let mut inside = 0;
    for seed in 0..10 {
        let predicted = answer(&json!({
            "source": {"arrivals": log(80.0, 60.0, 2 * seed), "settings": {"workers": 2}},
            "scenarios": [{}],
        }));
        let measured = answer(&json!({"source": {"arrivals": log(80.0, 60.0, 2 * seed + 1)}}));
        let mean_us = number(&measured["measured"]["wait"]["mean_us"]);
        let band = &predicted["results"][0]["wait_band"]["mean_us"];
        inside += u32::from((number(&band[0])..=number(&band[1])).contains(&mean_us));
    }
    assert!(inside >= 7, "{inside} of 10");
}

#[test]
fn a_model_has_means_and_a_band() {
    let answer = answer(&json!({
        "source": {"model": {"rate_per_s": 100.0, "service": [[0.5, 20_000]], "seconds": 60.0, "cpu_share": 1.0,
                             "settings": {"threads": 2, "cores": 8}}},
        "scenarios": [{"workers": 3}, {"workers": 3, "gil": false}, {"workers": [1, 8]}],
        "seeds": 5,
    }));
    let results = &answer["results"];
    assert_eq!(answer["measured"], Value::Null);
    // Two erlangs on three locks, and on six seats with a core each.
    assert!(number(&results[0]["spent_us"]["gil"]) > 0.0);
    assert!(number(&results[1]["spent_us"]["gil"]) < 1.0);
    assert!(
        number(&results[0]["latency"]["p99_us"]) > 1.2 * number(&results[1]["latency"]["p99_us"])
    );
    let locks = number(&results[0]["utilization"]["gil"]);
    assert!((locks - 2.0 / 3.0).abs() < 0.03, "{locks}");
    assert!(
        number(&results[2]["forks"]) >= 1.0 && results[2]["workers"].as_array().unwrap().len() > 1
    );
    assert!(number(&results[0]["worker_seconds"]) > 170.0);
    assert!(results[0]["wait_band"]["p99_us"].is_array());
}

/// A recording says that requests waited for cores and for the lock. The part that the simulation has itself is not counted twice.
#[test]
fn waiting_that_the_simulation_explains_is_not_added_to_it() {
    let rows = |core_us: u64| {
        let mut chance = Chance::of(1);
        let mut now_us = 0.0;
        let row = |_| {
            now_us += chance.exponential(9_000.0);
            SeenRequest {
                at_us: now_us as u64,
                wait_us: Some(0),
                service_us: Some(8_000 + core_us as u32),
                cpu_us: Some(8_000),
                core_us: Some(core_us as u32),
                ..SeenRequest::default()
            }
        };
        let settings = json!({"workers": 4, "cores": 1.7});
        SeenTraffic {
            requests: (0..4_000).map(row).collect(),
            settings: settings.as_object().unwrap().clone(),
            ..SeenTraffic::default()
        }
    };
    let core_us = |measured_us: u64| {
        let request =
            PlanRequest::read(r#"{"source": {"recording": "a"}, "scenarios": [{}], "seeds": 1}"#)
                .unwrap();
        let answer = plan(
            &request,
            PlanSource::Seen(rows(measured_us), None),
            &mut |_| true,
        )
        .unwrap();
        answer.results[0].spent_us.core / 4_000.0
    };
    // By itself the simulation has some waiting; a recording with more has the rest from elsewhere, one with less cannot be had.
    let own_us = core_us(0);
    assert!((50.0..5_000.0).contains(&own_us), "{own_us}");
    for measured_us in [5_000, 9_000] {
        let found_us = core_us(measured_us);
        assert!(
            (found_us / measured_us as f64 - 1.0).abs() < 0.1,
            "{found_us} for {measured_us}"
        );
    }
}

#[test]
fn an_empty_window_has_no_results() {
    let answer = answer(&json!({
        "source": {"arrivals": log(80.0, 1.0, 3), "settings": {"workers": 2}},
        "from_us": 5, "until_us": 9, "scenarios": [{}],
    }));
    assert_eq!(
        (&answer["measured"]["requests"], &answer["results"]),
        (&json!(0), &json!([]))
    );
    assert_eq!(
        (&answer["measured"]["wait"], &answer["measured"]["line"][0]),
        (&Value::Null, &json!([0, 0]))
    );
}

#[test]
fn an_answer_says_what_it_does_not_know() {
    let row = |end: u8| json!([end, 1_000, null, 0, 0, null, end]);
    // (the source, the scenario, what is said)
    let table = [
        (
            json!({"arrivals": [row(0)]}),
            json!({"workers": 1}),
            "--cpu",
        ),
        (
            json!({"arrivals": [row(0)], "cpu_share": 0.1}),
            json!({"workers": 1}),
            "--cores",
        ),
        (
            json!({"arrivals": [row(0), row(1)]}),
            json!({"workers": 1}),
            "may come again",
        ),
        (
            json!({"arrivals": [row(0), row(1)]}),
            json!({"workers": 1}),
            "1 of 2 requests",
        ),
        (
            json!({"arrivals": [row(1)]}),
            json!({"workers": 1}),
            "No request",
        ),
        (
            json!({"arrivals": [row(0)]}),
            json!({"workers": 1, "event_loop": true}),
            "Event loops",
        ),
    ];
    for (source, scenario, said) in table {
        let answer = answer(&json!({"source": source, "scenarios": [scenario], "seeds": 1}));
        assert!(sentences(&answer).contains(said), "{said}: {answer}");
        assert_eq!(answer["measured"]["wait"], Value::Null);
    }
    let loops =
        json!({"source": {"arrivals": [row(0)]}, "scenarios": [{"event_loop": true, "cores": 1}]});
    let loops = answer(&loops);
    assert!(!sentences(&loops).contains("--cpu"), "{loops}");
    let used = &loops["results"][0]["utilization"];
    assert_eq!((&used["cores"], &used["gil"]), (&Value::Null, &Value::Null));
    let known = answer(&json!({
        "source": {"arrivals": [[1, 1_000, 30, 0, 0, 0, 0]], "settings": {"workers": 1, "cores": 1}},
        "scenarios": [{}],
    }));
    assert_eq!(known["unknown"], json!([]));
}

#[test]
fn a_question_that_makes_no_sense_gets_a_sentence() {
    let table = [
        (
            json!({"source": {"recording": "/nowhere"}}),
            "/nowhere cannot be read",
        ),
        (
            json!({"source": {"arrivals": [], "settings": {"workers": 0}}}),
            "workers",
        ),
        (
            json!({"source": {"arrivals": []}, "scenarios": [{"threads": 0}]}),
            "threads",
        ),
        (
            json!({"source": {"arrivals": [[u64::MAX, 1, null, 0, 0, null, 0]]}}),
            "at_us",
        ),
        (
            json!({"source": {"arrivals": [[0, 1, null, 0, 0, null, 0], [1_u64 << 50, 1, null, 0, 0, null, 0]]}, "scenarios": [{}]}),
            "window",
        ),
        (
            json!({"source": {"arrivals": vec![json!([0, u32::MAX - 1, null, 0, 0, null, 0]); 40_000]},
                   "scenarios": [{"queue_timeout_us": 0, "max_waiting": 99_999, "name": "few"}]}),
            "'few' takes years",
        ),
    ];
    for (question, word) in table {
        let none = answer_of(&question).unwrap_err();
        assert!(
            matches!(&none, NoAnswer::Wrong(why) if why.contains(word)),
            "{question}: {none:?}"
        );
    }
}

#[test]
fn progress_rises_to_the_end_and_can_stop_it() {
    let question = json!({
        "source": {"model": {"rate_per_s": 1e5, "service": [[0.5, 10]], "seconds": 2.0}},
        "scenarios": [{"workers": 4}, {"workers": 5}], "seeds": 1,
    });
    let ask = |stop: f64| {
        let mut request = PlanRequest::read(&question.to_string()).unwrap();
        let source =
            PlanSource::of(request.take_source().unwrap(), |_| Err(String::new())).unwrap();
        let mut shares = Vec::new();
        let answer = plan(&request, source, &mut |share| {
            shares.push(share);
            share < stop
        });
        (shares, answer.map(|answer| answer.results.len()))
    };
    let (shares, results) = ask(2.0);
    assert_eq!(results, Ok(2));
    assert!(
        shares.is_sorted()
            && shares.len() > 6
            && shares.iter().all(|share| (0.0..=1.0).contains(share))
    );
    let (shares, results) = ask(0.5);
    assert_eq!(
        (results, shares.last()),
        (Err(NoAnswer::Stopped), Some(&0.5))
    );
}
