//! The text of `/metrics`, made from the same [`Status`] as the other pages.

use std::collections::BTreeMap;

use super::exposition::{Exposition, Flavour, seconds};
use super::status::{AcceptorMemory, Status, WorkerStatus};
use stanchion_dispatch::status::{ElasticStatus, HeldBack, Lags, LaneStatus, LoopStatus};
use stanchion_generation::expiry::ServedCertificate;
use stanchion_generation::named_counts::IN_FLIGHT;
use stanchion_generation::tally::Traffic;

/// The whole page.
pub(super) fn metrics(status: &Status, flavour: Flavour) -> String {
    let mut page = Exposition::new(flavour);
    about_server(&mut page, status);
    about_line(&mut page, status);
    about_requests(&mut page, status);
    about_seats(&mut page, status);
    about_demand(&mut page, status);
    about_causes(&mut page, status);
    about_connections(&mut page, status);
    if let Some(memory) = &status.memory {
        about_memory(&mut page, memory);
    }
    about_certificates(&mut page, status);
    page.finish()
}

fn about_server(page: &mut Exposition, status: &Status) {
    page.gauge("stanchion_build_info", "Always 1; the version that runs.")
        .sample(&[("version", status.version)], 1);
    page.gauge("stanchion_ready", "1 if /ready says yes.")
        .sample(&[], u8::from(status.ready));
    page.gauge(
        "stanchion_generation",
        "How many times settings and code were loaded.",
    )
    .sample(&[], status.generation);
    page.gauge(
        "stanchion_uptime_seconds",
        "Seconds since the master process started.",
    )
    .sample(&[], status.uptime_s);
    page.gauge(
        "stanchion_logs_failing",
        "Logs that take no lines at present; /status says which and why.",
    )
    .sample(&[], status.failing_logs.len());
    let server = &status.server;
    let mut restarts = page.counter(
        "stanchion_worker_restarts_total",
        "Workers that were replaced, by cause.",
    );
    for (cause, count) in &server.restarts {
        restarts.sample(&[("cause", cause)], count);
    }
    for (name, help, attempts) in [
        (
            "stanchion_reloads_total",
            "Reloads, by how they ended.",
            &server.reloads,
        ),
        (
            "stanchion_upgrades_total",
            "Upgrades to another master, by how they ended.",
            &server.upgrades,
        ),
    ] {
        page.counter(name, help)
            .sample(&[("result", "done")], attempts.done)
            .sample(&[("result", "failed")], attempts.failed);
    }
}

fn about_line(page: &mut Exposition, status: &Status) {
    let line = &status.line;
    let mut by_lane = |name, help, value: fn(&LaneStatus) -> Option<String>| {
        let mut gauge = page.gauge(name, help);
        for lane in &line.lanes {
            if let Some(value) = value(lane) {
                gauge.sample(&[("lane", &lane.name)], value);
            }
        }
    };
    by_lane(
        "stanchion_line_waiting",
        "Requests in the line, by lane.",
        |lane| Some(lane.waiting.to_string()),
    );
    by_lane(
        "stanchion_line_in_exchange",
        "Requests that have a seat or are handed out ahead, by lane.",
        |lane| Some(lane.in_exchange.to_string()),
    );
    by_lane(
        "stanchion_line_seats_max",
        "The most of these that a lane may have, of each lane with seats_max.",
        |lane| lane.seats_max.map(|max| max.to_string()),
    );
    by_lane(
        "stanchion_line_oldest_wait_seconds",
        "How long the oldest request has waited; 0 if none waits.",
        |lane| Some(seconds(lane.oldest_wait_us)),
    );
    by_lane(
        "stanchion_line_drain_per_second",
        "Requests that workers finish per second while others wait.",
        |lane| Some(lane.drain_per_s.to_string()),
    );
    by_lane(
        "stanchion_line_over_target",
        "1 if the oldest request has waited for longer than queue_target, with queue_order adaptive.",
        |lane| Some(u8::from(lane.over_target).to_string()),
    );
    page.gauge(
        "stanchion_line_waiting_max",
        "The most requests that may wait.",
    )
    .sample(&[], line.waiting_max);
}

fn about_requests(page: &mut Exposition, status: &Status) {
    const ARRIVED: &str = "arrived";
    let count = |name| status.requests.get(name).copied().unwrap_or_default();
    page.counter(
        "stanchion_requests_arrived_total",
        "Requests whose head was read.",
    )
    .sample(&[], count(ARRIVED));
    page.gauge(
        "stanchion_requests_in_flight",
        "Requests that have not ended.",
    )
    .sample(&[], count(IN_FLIGHT));
    let mut ended = page.counter(
        "stanchion_requests_total",
        "Requests that have ended, each in one way.",
    );
    for (outcome, count) in &status.requests {
        if ![ARRIVED, IN_FLIGHT].contains(outcome) {
            ended.sample(&[("outcome", outcome)], count);
        }
    }
    let mut events = page.counter("stanchion_events_total", "Other events, by name.");
    for (event, count) in &status.events {
        events.sample(&[("event", event)], count);
    }
    page.histogram(
        "stanchion_wait_seconds",
        "From the arrival of a request until a worker took it.",
        &status.wait_us,
    );
    page.histogram(
        "stanchion_service_seconds",
        "From when a worker took a request until its answer was complete.",
        &status.service_us,
    );
    page.gauge(
        "stanchion_running_longest_seconds",
        "How long the request that runs for longest has run; 0 if none runs.",
    )
    .sample(&[], seconds(status.running_us.max_us));
}

fn about_seats(page: &mut Exposition, status: &Status) {
    let mut seats = page.gauge(
        "stanchion_seats",
        "Seats by state. A seat runs one request at a time: a worker's thread, or a task of its event loop.",
    );
    let counts = &status.seat_counts;
    for (name, count) in [
        ("busy", counts.busy),
        ("idle", counts.idle),
        ("empty", counts.empty),
    ] {
        seats.sample(&[("state", name)], count);
    }
    page.gauge(
        "stanchion_seats_stuck_seconds",
        "How long no seat has taken a request while all were busy; 0 while one is idle.",
    )
    .sample(&[], seconds(status.seats_stuck_us));
    let mut busy = page.gauge(
        "stanchion_worker_busy_seats",
        "Requests that a worker runs.",
    );
    let workers = by_number(&status.workers);
    for (number, worker) in &workers {
        busy.sample(&[("worker", number)], worker.busy);
    }
    if let Some(elastic) = &status.elastic {
        about_elastic(page, elastic);
    }
    about_event_loops(page, status, &workers);
    let mut memory = page.gauge(
        "stanchion_worker_memory_bytes",
        "Resident memory of a worker, shared pages included.",
    );
    for (number, worker) in &workers {
        if let Some(bytes) = worker.memory_bytes {
            memory.sample(&[("worker", number)], bytes);
        }
    }
}

/// For operators of a server whose number of workers changes by itself.
fn about_elastic(page: &mut Exposition, elastic: &ElasticStatus) {
    for (name, help, workers) in [
        (
            "stanchion_workers_wanted",
            "Workers that there should be now.",
            elastic.wanted,
        ),
        (
            "stanchion_workers_wanted_max",
            "The most workers that there may be.",
            elastic.max,
        ),
    ] {
        page.gauge(name, help).sample(&[], workers);
    }
    let mut held_back = page.gauge(
        "stanchion_workers_held_back",
        "1 if requests wait and this keeps the number of workers from growing.",
    );
    for because in HeldBack::ALL.map(HeldBack::name) {
        let is_so = elastic.held_back == Some(because);
        held_back.sample(&[("because", because)], u8::from(is_so));
    }
}

/// For autoscalers: what a server wants, and what it has.
fn about_demand(page: &mut Exposition, status: &Status) {
    let demand = &status.demand;
    page.gauge(
        "stanchion_seats_wanted",
        "Seats wanted by the requests that arrive or wait: by the rate of ten seconds, or by the largest rate of six seconds in a longer window.",
    )
    .sample(&[("window", "10s")], demand.seats_wanted_10s)
    .sample(&[("window", "peak12s")], demand.seats_wanted_peak12s)
    .sample(&[("window", "peak60s")], demand.seats_wanted_peak60s);
    page.gauge("stanchion_seats_total", "Seats that workers have.")
        .sample(&[], status.seat_counts.there());
    page.gauge(
        "stanchion_utilization",
        "Busy seats of the seats that there were, from 0 to 1, over ten seconds; of event loops the share of a core, if that is more.",
    )
    .sample(&[], demand.utilization);
    page.histogram(
        "stanchion_front_wait_seconds",
        "From X-Request-Start, when the first proxy had a request, until this server began to read it.",
        &status.front_us,
    );
}

/// Where the time of requests goes.
fn about_causes(page: &mut Exposition, status: &Status) {
    let mut spent = page.counter(
        "stanchion_request_spent_seconds_total",
        "Time of the requests that have left their seats, by lane: waiting in the line, for a core or for the GIL, own CPU, elsewhere, or at a seat that measures nothing.",
    );
    for lane in &status.causes.lanes {
        for (on, us) in &lane.spent_us {
            spent.sample(&[("lane", &lane.name), ("on", on)], seconds(*us));
        }
    }
}

/// The processes of one worker number: one, or a worker that leaves and its successor.
#[derive(Debug, Default)]
struct Numbered {
    busy: usize,
    memory_bytes: Option<u64>,
    event_loop: Option<LoopStatus>,
}

/// Sums the workers by number, which is their label. While the master replaces a worker there are two processes of its
/// number, and Prometheus refuses a whole page that has two samples with the same labels. A label for the pid would tell
/// them apart, and be a new series for each worker that there ever was. The successor alone would hide running requests and
/// memory in use from every sum over workers. So both processes count: their requests and their memory are added up, and the
/// lag is that of the loop that is later.
fn by_number(workers: &[WorkerStatus]) -> Vec<(String, Numbered)> {
    let mut numbered = BTreeMap::<u16, Numbered>::new();
    for worker in workers {
        let all = numbered.entry(worker.worker).or_default();
        all.busy += worker.busy;
        if let Some(bytes) = worker.memory_bytes {
            *all.memory_bytes.get_or_insert(0) += bytes;
        }
        match (&mut all.event_loop, &worker.event_loop) {
            (Some(all), Some(one)) => all.and(one),
            (all, one) => *all = all.take().or_else(|| one.clone()),
        }
    }
    let named = numbered.into_iter();
    named
        .map(|(number, all)| (number.to_string(), all))
        .collect()
}

fn about_event_loops(page: &mut Exposition, status: &Status, workers: &[(String, Numbered)]) {
    let loops = workers
        .iter()
        .filter_map(|(number, worker)| Some((number, worker.event_loop.as_ref()?)));
    let loops: Vec<_> = loops.collect();
    if loops.is_empty() {
        return;
    }
    // The event loops of gevent have no WebSockets.
    if let Some(ended) = &status.sessions_ended {
        let mut open = page.gauge(
            "stanchion_worker_sessions",
            "WebSockets that a worker has open.",
        );
        for (worker, event_loop) in &loops {
            open.sample(&[("worker", worker)], event_loop.sessions.unwrap_or(0));
        }
        let mut sessions = page.counter(
            "stanchion_sessions_ended_total",
            "WebSockets that have ended, by the code of the close frame; none: without one.",
        );
        for (code, count) in ended {
            sessions.sample(&[("code", code)], count);
        }
    }
    let mut lag = page.gauge(
        "stanchion_loop_lag_current_seconds",
        "How late the event loop of a worker is, or was the last time: what in the app does not await keeps it.",
    );
    for (worker, event_loop) in &loops {
        lag.sample(&[("worker", worker)], seconds(event_loop.lag_us));
    }
    page.histograms(
        "stanchion_loop_lag_seconds",
        "How late the event loop of a worker was, measured four times a second, and less often while the loop has nothing to do.",
        "worker",
        loops.iter().map(|(worker, event_loop)| {
            let Lags {
                count,
                sum_us,
                buckets,
            } = &event_loop.lags;
            (worker.as_str(), (*count, *sum_us, buckets.as_slice()))
        }),
    );
}

fn about_memory(page: &mut Exposition, memory: &AcceptorMemory) {
    let most = memory.most.first().map_or(0, |most| most.bytes);
    for (name, help, bytes) in [
        (
            "stanchion_client_memory_bytes",
            "Memory that the acceptor has allocated for clients.",
            memory.bytes,
        ),
        (
            "stanchion_client_memory_max_bytes",
            "The limit of that memory, max_client_memory; 0: no limit.",
            memory.max_bytes,
        ),
        (
            "stanchion_client_memory_largest_bytes",
            "Memory that the acceptor has allocated for the client that has most.",
            most,
        ),
        (
            "stanchion_acceptor_memory_bytes",
            "Memory that the acceptor has allocated for itself since it began to count.",
            memory.own_bytes,
        ),
    ] {
        page.gauge(name, help).sample(&[], bytes);
    }
}

fn about_connections(page: &mut Exposition, status: &Status) {
    let connections = &status.connections;
    page.gauge("stanchion_connections", "Connections, by what they do.")
        .sample(&[("state", "new")], connections.new)
        .sample(&[("state", "reading")], connections.reading)
        .sample(&[("state", "busy")], connections.busy)
        .sample(&[("state", "idle")], connections.idle)
        .sample(&[("state", "leaving")], connections.leaving);
    page.gauge(
        "stanchion_connections_max",
        "The most connections that there may be.",
    )
    .sample(&[], connections.max);
    for (traffic, name, help) in [
        (
            Traffic::Received,
            "stanchion_received_bytes_total",
            "Bytes that the acceptor read from clients' connections: heads, bodies and what frames them.",
        ),
        (
            Traffic::Sent,
            "stanchion_sent_bytes_total",
            "Bytes that the kernel took for clients' connections.",
        ),
    ] {
        let count = status.bytes.get(traffic.name());
        page.counter(name, help)
            .sample(&[], count.copied().unwrap_or_default());
    }
    let mut queued = page.gauge(
        "stanchion_listener_queue",
        "Connections in the kernel's queue that the acceptor has not accepted yet.",
    );
    for listener in &status.listeners {
        if let Some(count) = listener.queued {
            queued.sample(&[("listener", &listener.address)], count);
        }
    }
    let mut backlog = page.gauge(
        "stanchion_listener_backlog",
        "The most connections that the kernel queues, as it has the limit in force.",
    );
    for listener in &status.listeners {
        if let Some(count) = listener.backlog {
            backlog.sample(&[("listener", &listener.address)], count);
        }
    }
}

fn about_certificates(page: &mut Exposition, status: &Status) {
    type Time = fn(&ServedCertificate) -> u64;
    if status.certificates.is_empty() {
        return;
    }
    let times: [(_, _, Time); 2] = [
        (
            "stanchion_tls_certificate_begins_seconds",
            "When clients begin to accept a certificate, in seconds since 1970.",
            |certificate| certificate.not_before_s,
        ),
        (
            "stanchion_tls_certificate_expires_seconds",
            "When clients refuse a certificate from then on, in seconds since 1970.",
            |certificate| certificate.not_after_s,
        ),
    ];
    for (name, help, time) in times {
        let mut gauge = page.gauge(name, help);
        for (index, certificate) in status.certificates.iter().enumerate() {
            let certfile = certificate.certfile.to_string_lossy();
            // A certificate that the settings name twice would give two samples with the same labels, and no scraper takes
            // such a page.
            let is_said = status.certificates[..index]
                .iter()
                .any(|earlier| earlier.certfile == certificate.certfile);
            if !is_said {
                let labels = [("certfile", &*certfile), ("subject", &certificate.subject)];
                gauge.sample(&labels, time(certificate));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stanchion_generation::messages::WorkerRef;
    use stanchion_requests::rig::{S, requests};

    const SETTINGS: &str = r#"{"interface": "asgi"}"#;

    fn event_loop(lag_us: u64, sessions: u32) -> LoopStatus {
        LoopStatus {
            sessions: Some(sessions),
            lag_us,
            lag_max_us: lag_us,
            lags: Lags {
                count: 3,
                sum_us: lag_us,
                buckets: vec![(1_000, 1), (2_500, 2)],
            },
        }
    }

    fn worker(number: u16, pid: i32, busy: usize, lag_us: u64) -> WorkerStatus {
        WorkerStatus {
            worker: number,
            pid,
            memory_bytes: (pid != 9).then_some(100),
            seats: 4,
            busy,
            event_loop: Some(event_loop(lag_us, 2)),
        }
    }

    #[test]
    fn a_worker_and_its_successor_are_one_series() {
        let workers = vec![
            worker(1, 7, 1, 50),
            worker(0, 8, 3, 400),
            worker(1, 9, 2, 70),
        ];
        let status = Status {
            sessions_ended: Some(BTreeMap::new()),
            workers,
            ..Status::default()
        };
        let page = metrics(&status, Flavour::Prometheus);
        let of_workers = page.lines().filter(|line| line.contains("worker=\""));
        let expected = [
            "stanchion_worker_busy_seats{worker=\"0\"} 3",
            "stanchion_worker_busy_seats{worker=\"1\"} 3",
            "stanchion_worker_sessions{worker=\"0\"} 2",
            "stanchion_worker_sessions{worker=\"1\"} 4",
            "stanchion_loop_lag_current_seconds{worker=\"0\"} 0.0004",
            "stanchion_loop_lag_current_seconds{worker=\"1\"} 0.00007",
            "stanchion_loop_lag_seconds_bucket{worker=\"0\",le=\"0.001\"} 1",
            "stanchion_loop_lag_seconds_bucket{worker=\"0\",le=\"0.0025\"} 2",
            "stanchion_loop_lag_seconds_bucket{worker=\"0\",le=\"+Inf\"} 3",
            "stanchion_loop_lag_seconds_sum{worker=\"0\"} 0.0004",
            "stanchion_loop_lag_seconds_count{worker=\"0\"} 3",
            "stanchion_loop_lag_seconds_bucket{worker=\"1\",le=\"0.001\"} 2",
            "stanchion_loop_lag_seconds_bucket{worker=\"1\",le=\"0.0025\"} 4",
            "stanchion_loop_lag_seconds_bucket{worker=\"1\",le=\"+Inf\"} 6",
            "stanchion_loop_lag_seconds_sum{worker=\"1\"} 0.00012",
            "stanchion_loop_lag_seconds_count{worker=\"1\"} 6",
            "stanchion_worker_memory_bytes{worker=\"0\"} 100",
            "stanchion_worker_memory_bytes{worker=\"1\"} 100",
        ];
        assert_eq!(of_workers.collect::<Vec<_>>(), expected);
    }

    /// The inbox of a worker's place in the exchange counts on when a successor takes the place.
    #[test]
    fn how_late_loops_were_is_counted_for_the_number_and_once() {
        let mut requests = requests(SETTINGS);
        let inbox = requests
            .common
            .exchange
            .inbox(0)
            .expect("there are event loops");
        let beat = |times| (0..times).for_each(|_| inbox.beat(S, 5, S));
        let count = |requests: &stanchion_requests::Requests| {
            let workers = requests.dispatch.view().workers();
            workers.loop_status(0, S).expect("a loop").lags.count
        };
        let mut counted = Vec::new();
        for (epoch, number, beats) in [(1, 0, 4), (2, 1, 3), (3, 0, 2), (4, 1, 1)] {
            let worker = WorkerRef { index: 0, epoch };
            requests.dispatch.worker_ready(worker, (number, 1, 1), S);
            counted.push(count(&requests));
            beat(beats);
            counted.push(count(&requests));
            requests.dispatch.worker_gone(worker, S);
        }
        assert_eq!(counted, [0, 4, 0, 3, 4, 6, 3, 4]);
    }
}
