//! Spans as OTLP has them, named by OpenTelemetry's semantic conventions for HTTP servers.

use std::borrow::Cow;
use std::collections::BTreeMap;

use stanchion_http::split_host;

use super::finished::Finished;
use super::proto::{
    CONTEXT_HAS_IS_REMOTE, CONTEXT_IS_REMOTE, ExportTraceServiceRequest, HexId,
    InstrumentationScope, KIND_INTERNAL, KIND_SERVER, KeyValue, Resource, ResourceSpans,
    ScopeSpans, Span, SpanStatus,
};
use stanchion_dispatch::random::Random;
use stanchion_generation::tally::Outcome;

/// The version of the conventions that the names are from.
const CONVENTIONS: &str = "https://opentelemetry.io/schemas/1.38.0";

/// The facts that all spans have in common.
pub(super) struct ResourceFacts {
    /// Attributes of the service.
    attributes: BTreeMap<String, String>,
    /// Names of the lanes.
    lanes: Vec<String>,
}

/// Turns times of the monotonic clock into times of the clock on the wall, in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    /// The difference to add to the monotonic clock.
    pub(super) offset_us: u64,
}

impl Clock {
    fn ns(self, us: u64) -> u64 {
        us.wrapping_add(self.offset_us).saturating_mul(1_000)
    }
}

impl ResourceFacts {
    /// Makes the origin of all spans, from attributes of the service and the names of the lanes.
    pub(super) fn new(attributes: BTreeMap<String, String>, lanes: Vec<String>) -> Self {
        Self { attributes, lanes }
    }

    /// Makes the message with all spans of these requests.
    pub(super) fn message<'a>(
        &'a self,
        finished: &'a [Finished],
        clock: Clock,
        random: &mut Random,
    ) -> ExportTraceServiceRequest<'a> {
        let attributes = self.attributes.iter();
        let attributes = attributes.map(|(key, value)| KeyValue::text(key, value));
        let spans = finished.iter().flat_map(|one| {
            let server = self.server(one, clock);
            let wait = wait(one, clock, random.take());
            let run = run(one, clock);
            let session = session(one, clock, random);
            [Some(server), wait, run, session].into_iter().flatten()
        });
        let scope = InstrumentationScope {
            name: "stanchion-acceptor",
            version: env!("CARGO_PKG_VERSION"),
        };
        ExportTraceServiceRequest {
            resource_spans: [ResourceSpans {
                resource: Resource {
                    attributes: attributes.collect(),
                },
                scope_spans: [ScopeSpans {
                    scope,
                    spans: spans.collect(),
                    schema_url: CONVENTIONS,
                }],
            }],
        }
    }

    fn server<'a>(&'a self, one: &'a Finished, clock: Clock) -> Span<'a> {
        let times = &one.times;
        let (name, method) = method(&one.method);
        let mut attributes = vec![
            KeyValue::text("http.request.method", method),
            KeyValue::text("url.path", &*one.path),
            KeyValue::text("url.scheme", one.scheme),
            KeyValue::text("network.protocol.name", "http"),
            KeyValue::text("network.protocol.version", one.version),
            KeyValue::text("stanchion.outcome", one.outcome.name()),
            KeyValue::text("stanchion.lane", &*self.lanes[one.lane]),
        ];
        if method != &*one.method {
            let original = KeyValue::text("http.request.method_original", &*one.method);
            attributes.push(original);
        }
        if let Some(left_us) = times.left_us {
            let wait_us = left_us - times.arrived_us;
            attributes.push(KeyValue::number("stanchion.wait_us", wait_us));
        }
        if let Some(status) = sent_status(one) {
            let status = KeyValue::number("http.response.status_code", status.into());
            attributes.push(status);
        }
        attributes.extend(server_address(&one.host));
        if !one.client_address.is_empty() {
            attributes.push(KeyValue::text("client.address", &*one.client_address));
            attributes.push(KeyValue::number("client.port", one.client_port.into()));
        }
        if let Some(agent) = &one.user_agent {
            attributes.push(KeyValue::text("user_agent.original", &**agent));
        }
        if let Some(id) = &one.request_id {
            attributes.push(KeyValue::text("stanchion.request_id", &**id));
        }
        attributes.extend(worker_pid(one));
        let error = error(one);
        let status = failed(error.is_some() && !is_clients(one));
        attributes.extend(error.map(error_type));
        let parent = one.parent_id.map(|id| (id, true));
        Span {
            name,
            kind: KIND_SERVER,
            attributes,
            status,
            ..span(
                one,
                one.server_id,
                parent,
                clock,
                [times.started_us, times.ended_us],
            )
        }
    }
}

/// The span in the line: from the arrival of the request until a seat took it, or until it was clear that none will.
fn wait(one: &Finished, clock: Clock, id: [u8; 8]) -> Option<Span<'_>> {
    let times = &one.times;
    let was_taken = times.run_until_us.is_some();
    let error = error(one).filter(|_| !was_taken);
    let status = failed(error.is_some());
    let parent = Some((one.server_id, false));
    Some(Span {
        name: "wait",
        attributes: error.map(error_type).into_iter().collect(),
        status,
        ..span(one, id, parent, clock, [times.arrived_us, times.left_us?])
    })
}

/// The span at a seat.
fn run(one: &Finished, clock: Clock) -> Option<Span<'_>> {
    let times = &one.times;
    let error = error(one);
    let status = failed(error.is_some());
    let names = ["stanchion.cpu_us", "stanchion.core_us", "stanchion.gil_us"];
    let measured = names.into_iter().zip(one.measured_us);
    let measured = measured.filter_map(|(name, us)| Some(KeyValue::number(name, us?)));
    let attributes = worker_pid(one)
        .into_iter()
        .chain(error.map(error_type))
        .chain(measured);
    let parent = Some((one.server_id, false));
    Some(Span {
        name: "run",
        attributes: attributes.collect(),
        status,
        ..span(
            one,
            one.run_id,
            parent,
            clock,
            [times.left_us?, times.run_until_us?],
        )
    })
}

/// The span of a session: from its begin to its end.
fn session<'a>(one: &'a Finished, clock: Clock, random: &mut Random) -> Option<Span<'a>> {
    let facts = one.session.as_deref()?;
    let mut attributes = vec![
        KeyValue::text("network.protocol.name", "websocket"),
        KeyValue::number("stanchion.session.messages_received", facts.received.count),
        KeyValue::number("stanchion.session.bytes_received", facts.received.bytes),
        KeyValue::number("stanchion.session.messages_sent", facts.sent.count),
        KeyValue::number("stanchion.session.bytes_sent", facts.sent.bytes),
    ];
    attributes.extend(
        facts
            .code
            .map(|code| KeyValue::number("stanchion.session.close_code", code.into())),
    );
    attributes.extend(worker_pid(one));
    let error = error(one);
    let status = failed(error.is_some());
    attributes.extend(error.map(error_type));
    let ended_us = one.times.ended_us;
    let times = [facts.begun_us.min(ended_us), ended_us];
    let parent = Some((one.server_id, false));
    Some(Span {
        name: "session",
        attributes,
        status,
        ..span(one, random.take(), parent, clock, times)
    })
}

/// A span within the server, without attributes. `parent` also says whether the parent is another system's span.
fn span(
    one: &Finished,
    id: [u8; 8],
    parent: Option<([u8; 8], bool)>,
    clock: Clock,
    [start_us, end_us]: [u64; 2],
) -> Span<'_> {
    let is_remote = parent.is_some_and(|(_, is_remote)| is_remote);
    let mut flags = u32::from(one.flags) | CONTEXT_HAS_IS_REMOTE;
    if is_remote {
        flags |= CONTEXT_IS_REMOTE;
    }
    Span {
        trace_id: HexId(one.trace_id),
        span_id: HexId(id),
        parent_span_id: parent.map(|(id, _)| HexId(id)),
        trace_state: &one.trace_state,
        name: "",
        kind: KIND_INTERNAL,
        start_time_unix_nano: clock.ns(start_us),
        end_time_unix_nano: clock.ns(end_us),
        attributes: Vec::new(),
        status: None,
        flags,
    }
}

/// The span's name and the method's. A method that is not among RFC 9110's, and not PATCH, is `_OTHER`, so that clients
/// cannot invent names without end.
fn method(method: &str) -> (&str, &str) {
    match method {
        "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE" | "PATCH" => {
            (method, method)
        }
        _ => ("HTTP", "_OTHER"),
    }
}

/// Host and port that the client asked, as far as a Host field names them.
fn server_address(host: &str) -> impl Iterator<Item = KeyValue<'_>> {
    let (address, port) = split_host(host.as_bytes(), b"");
    let address = String::from_utf8_lossy(address);
    let address = address.trim_matches(['[', ']']);
    let port = std::str::from_utf8(port).ok();
    let port = port.and_then(|port| port.parse::<u16>().ok());
    let address =
        (!address.is_empty()).then(|| KeyValue::text("server.address", address.to_owned()));
    let port = port.map(|port| KeyValue::number("server.port", port.into()));
    address.into_iter().chain(port)
}

/// The status that the client got; none if it left before.
fn sent_status(one: &Finished) -> Option<u16> {
    let is_untold = matches!(
        one.outcome,
        Outcome::AbandonedWaiting | Outcome::AbandonedHandedOut | Outcome::AbandonedRunning
    );
    (!is_untold).then_some(one.status)
}

/// The error of a request: the outcome, or the app's status.
fn error(one: &Finished) -> Option<Cow<'static, str>> {
    match one.outcome {
        Outcome::Answered => is_server_error(one.status).then(|| one.status.to_string().into()),
        outcome => Some(outcome.name().into()),
    }
}

fn error_type(error: Cow<'static, str>) -> KeyValue<'static> {
    KeyValue::text("error.type", error)
}

fn is_server_error(status: u16) -> bool {
    (500..600).contains(&status)
}

/// The conventions leave a server's span as it is when the fault is the client's.
fn is_clients(one: &Finished) -> bool {
    sent_status(one).is_some_and(|status| (400..500).contains(&status))
}

fn failed(is_failed: bool) -> Option<SpanStatus> {
    is_failed.then_some(SpanStatus::ERROR)
}

fn worker_pid(one: &Finished) -> Option<KeyValue<'static>> {
    one.worker_pid
        .map(|pid| KeyValue::number("stanchion.worker.pid", pid))
}
