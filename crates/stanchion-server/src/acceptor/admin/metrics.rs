//! What `/metrics` says, made from the same [`Status`] as everything else.

use super::exposition::{Exposition, Flavour, seconds};
use super::status::{AcceptorMemory, Status};
use crate::acceptor::dispatch::status::Lags;
use crate::expiry::ServedCertificate;
use crate::tally::Traffic;

/// The whole page.
pub(super) fn metrics(status: &Status, flavour: Flavour) -> String {
    let mut page = Exposition::new(flavour);
    about_server(&mut page, status);
    about_line(&mut page, status);
    about_requests(&mut page, status);
    about_seats(&mut page, status);
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
        "Since the master process started.",
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
    let mut waiting = page.gauge("stanchion_line_waiting", "Requests in the line, by lane.");
    for lane in &line.lanes {
        waiting.sample(&[("lane", &lane.name)], lane.waiting);
    }
    page.gauge("stanchion_line_waiting_max", "Most that may wait.")
        .sample(&[], line.waiting_max);
    let mut oldest = page.gauge(
        "stanchion_line_oldest_wait_seconds",
        "How long the oldest has waited; 0 if nobody does.",
    );
    for lane in &line.lanes {
        oldest.sample(&[("lane", &lane.name)], seconds(lane.oldest_wait_us));
    }
    let mut drain = page.gauge(
        "stanchion_line_drain_per_second",
        "Requests that workers finish per second while others wait.",
    );
    for lane in &line.lanes {
        drain.sample(&[("lane", &lane.name)], lane.drain_per_s);
    }
    let mut standing = page.gauge(
        "stanchion_line_standing",
        "1 if the oldest has waited for longer than queue_target, with queue_order adaptive.",
    );
    for lane in &line.lanes {
        standing.sample(&[("lane", &lane.name)], u8::from(lane.standing));
    }
}

fn about_requests(page: &mut Exposition, status: &Status) {
    const ARRIVED: &str = "arrived";
    const IN_FLIGHT: &str = "in_flight";
    let count = |name| status.requests.get(name).copied().unwrap_or_default();
    page.counter(
        "stanchion_requests_arrived_total",
        "Requests whose head was read.",
    )
    .sample(&[], count(ARRIVED));
    page.gauge("stanchion_requests_in_flight", "Those that have not ended.")
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
    let mut events = page.counter("stanchion_events_total", "What else was counted.");
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
    for worker in &status.workers {
        busy.sample(&[("worker", &worker.worker.to_string())], worker.busy);
    }
    about_event_loops(page, status);
    let mut memory = page.gauge(
        "stanchion_worker_memory_bytes",
        "Resident memory of a worker, shared pages included.",
    );
    for worker in &status.workers {
        if let Some(bytes) = worker.memory_bytes {
            memory.sample(&[("worker", &worker.worker.to_string())], bytes);
        }
    }
}

fn about_event_loops(page: &mut Exposition, status: &Status) {
    let loops = status.workers.iter().filter_map(|worker| {
        let event_loop = worker.event_loop.as_ref()?;
        Some((worker.worker.to_string(), event_loop))
    });
    let loops: Vec<_> = loops.collect();
    if loops.is_empty() {
        return;
    }
    // Of none of gevent's.
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
        "How late it was, four times a second, and less often while it has nothing to do.",
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
            "The limit, max_client_memory; 0: any.",
            memory.max_bytes,
        ),
        (
            "stanchion_client_memory_largest_bytes",
            "Memory of the client that has most.",
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
    page.gauge("stanchion_connections_max", "Most there may be.")
        .sample(&[], connections.max);
    for (traffic, name, help) in [
        (
            Traffic::Received,
            "stanchion_received_bytes_total",
            "Read from clients' connections: heads, bodies and what frames them.",
        ),
        (
            Traffic::Sent,
            "stanchion_sent_bytes_total",
            "Written to clients' connections, as far as the kernel took it.",
        ),
    ] {
        let count = status.bytes.get(traffic.name());
        page.counter(name, help)
            .sample(&[], count.copied().unwrap_or_default());
    }
    let mut queued = page.gauge(
        "stanchion_listener_queue",
        "Connections in the kernel that were not accepted yet.",
    );
    for listener in &status.listeners {
        if let Some(count) = listener.queued {
            queued.sample(&[("listener", &listener.address)], count);
        }
    }
    let mut backlog = page.gauge(
        "stanchion_listener_backlog",
        "Most of these, as the kernel has it in force.",
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
            // A certificate that is given twice would be two samples with the same labels, which no scraper takes.
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
