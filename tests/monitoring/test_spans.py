"""Spans of requests at an OpenTelemetry collector: what they say, and what becomes of them when it does not listen."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from support.clock import Clock
from support.collector import HAS_IS_REMOTE, IS_REMOTE, SAMPLED, Collector, Span
from support.counts import Counts
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.server import Serve, Server
from support.wire import request

pytestmark = pytest.mark.own("gunicorn exports no spans")

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
QUEUE_MAX = 2048
"""Requests that may wait to be sent."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.stop()


@pytest.fixture
def echo(serve: Serve, collector: Collector) -> Server:
    return serve("echo:app", "--otlp-endpoint", collector.endpoint)


def environ_of(server: Server, *headers: str) -> dict[str, Any]:
    with server.connect() as wire:
        environ: dict[str, Any] = wire.get("/", *headers).json()["environ"]
    return environ


def of_one(spans: list[Span]) -> dict[str, Span]:
    """The spans of one request by name, once it is sure that they belong together."""
    named = {span.name if span.kind == "INTERNAL" else "server": span for span in spans}
    assert len(named) == len(spans)
    server, wait = named["server"], named.get("wait")
    children = [span for name, span in named.items() if name != "server"]
    assert server.kind == "SERVER"
    assert all((span.trace_id, span.parent_id) == (server.trace_id, server.id) for span in children)
    assert len({span.id for span in spans}) == len(spans)
    moments = [server.start_ns]
    for span in (wait, named.get("run")):
        moments += [span.start_ns, span.end_ns] if span else []
    moments.append(server.end_ns)
    assert moments == sorted(moments)
    if "run" in named:
        assert wait is not None
        assert wait.end_ns == named["run"].start_ns
    return named


def test_a_request_is_a_span_with_its_wait_and_its_run(serve: Serve, collector: Collector) -> None:
    server = serve("echo:app", "--otlp-endpoint", collector.endpoint, "--otlp-service-name", "shop")
    before_ns = time.time_ns()
    with server.connect() as wire:
        port = wire.sock.getsockname()[1]
        host = f"Host: shop.example:{server.address.port}"
        wire.send(request("POST", "/cart?secret=1", [host, "User-Agent: t/1", "X-Request-Id: me-1"], b"x", host=None))
        environ = wire.response().json()["environ"]
    spans = of_one(collector.spans(3))
    after_ns = time.time_ns()
    root, wait, run = spans["server"], spans["wait"], spans["run"]
    worker = run.attributes["stanchion.worker.pid"]
    assert root.name == "POST"
    assert root.parent_id == ""
    assert environ["HTTP_TRACEPARENT"] == f"00-{root.trace_id}-{run.id}-01"
    assert {span.flags for span in spans.values()} == {SAMPLED | HAS_IS_REMOTE}
    assert not any(span.failed for span in spans.values())
    assert root.attributes == {
        "http.request.method": "POST",
        "url.path": "/cart",
        "url.scheme": "http",
        "server.address": "shop.example",
        "server.port": server.address.port,
        "client.address": "127.0.0.1",
        "client.port": port,
        "network.protocol.name": "http",
        "network.protocol.version": "1.1",
        "user_agent.original": "t/1",
        "http.response.status_code": 200,
        "stanchion.outcome": "answered",
        "stanchion.lane": "default",
        "stanchion.worker.pid": worker,
        "stanchion.request_id": "me-1",
        "stanchion.wait_us": (wait.end_ns - wait.start_ns) // 1000,
    }
    assert wait.attributes == {}
    # The kernel may hide how long a thread waits for a core.
    assert run.attributes.keys() - {"stanchion.core_us"} == {"stanchion.worker.pid", "stanchion.cpu_us"}
    assert 0 < run.attributes["stanchion.cpu_us"] <= (run.end_ns - run.start_ns) // 1000
    assert worker in [process.pid for process in server.processes()]
    assert root.resource == {"service.name": "shop"}
    # The monotonic clock is made one on the wall when spans are sent: only then may that be set in between.
    assert before_ns - 10**9 < root.start_ns <= root.end_ns < after_ns + 10**9


def test_the_environment_says_whose_spans_they_are(serve: Serve, collector: Collector) -> None:
    variables = {
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test,service.name=a,team=caf%C3%A9%2C bar",
        "OTEL_SERVICE_NAME": "b",
    }
    environ_of(serve("echo:app", "--otlp-endpoint", collector.endpoint, env=variables))
    said = {"deployment.environment.name": "test", "service.name": "b", "team": "café, bar"}
    assert collector.spans(3)[0].resource == said


def test_an_environment_that_cannot_be_read_is_left_out_and_named(serve: Serve, collector: Collector) -> None:
    """All of it, as OpenTelemetry's specification has it: half of the attributes would be taken for all of them."""
    server = serve(
        "echo:app", "--otlp-endpoint", collector.endpoint, env={"OTEL_RESOURCE_ATTRIBUTES": "a=1,service.name=%zz"}
    )
    environ_of(server)
    assert collector.spans(3)[0].resource == {"service.name": "stanchion"}
    server.log.wait("OTEL_RESOURCE_ATTRIBUTES is ignored: entry 2 is not percent-encoded UTF-8")


def test_the_apps_endpoint_is_not_the_servers(serve: Serve, collector: Collector) -> None:
    """Its exporter may speak gRPC, and its sampler be another."""
    server = serve("echo:app", env={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint})
    assert "HTTP_TRACEPARENT" not in environ_of(server)
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    collector.spans(0)


@pytest.mark.parametrize(("flags", "passed_on"), [("01", "01"), ("03", "03"), ("ff", "03")])
def test_it_continues_the_senders_trace(echo: Server, collector: Collector, flags: str, passed_on: str) -> None:
    environ = environ_of(echo, f"traceparent: {TRACEPARENT[:-2]}{flags}", "tracestate: a=1", "tracestate: b=2")
    spans = of_one(collector.spans(3))
    root = spans["server"]
    assert (root.trace_id, root.parent_id) == (TRACE, PARENT)
    assert environ["HTTP_TRACEPARENT"] == f"00-{TRACE}-{spans['run'].id}-{passed_on}"
    assert environ["HTTP_TRACESTATE"].replace(" ", "") == "a=1,b=2"
    assert {span.trace_state for span in spans.values()} == {"a=1,b=2"}
    own = int(passed_on, 16) | HAS_IS_REMOTE
    assert {name: span.flags for name, span in spans.items()} == {"server": own | IS_REMOTE, "wait": own, "run": own}


def test_what_is_no_traceparent_begins_a_trace(echo: Server, collector: Collector) -> None:
    environ = environ_of(echo, "traceparent: nonsense", "tracestate: a=1")
    spans = of_one(collector.spans(3))
    root = spans["server"]
    assert root.parent_id == ""
    assert root.trace_id != TRACE
    assert environ["HTTP_TRACEPARENT"] == f"00-{root.trace_id}-{spans['run'].id}-01"
    assert "HTTP_TRACESTATE" not in environ
    assert root.trace_state == ""


def test_who_is_not_sampled_is_left_alone(echo: Server, collector: Collector) -> None:
    fields = {"TRACEPARENT": f"{TRACEPARENT[:-2]}00", "TRACESTATE": "a=1"}
    environ = environ_of(echo, *(f"{name}: {value}" for name, value in fields.items()))
    assert {name: environ[f"HTTP_{name}"] for name in fields} == fields
    environ_of(echo, f"traceparent: {'00-' + 'a' * 32}-{PARENT}-01")
    # They are sent in the order in which requests end.
    assert {span.trace_id for span in collector.spans(3)} == {"a" * 32}


def test_one_in_many_is_sampled_and_the_app_knows_which(serve: Serve, collector: Collector) -> None:
    server = serve("echo:app", "--otlp-endpoint", collector.endpoint, "--otlp-sample-one-in", "4")
    sampled = []
    with server.connect() as wire:
        for _ in range(200):
            _, trace, _, flags = wire.get("/").json()["environ"]["HTTP_TRACEPARENT"].split("-")
            sampled += [trace] if flags == "01" else []
    # 50 are expected; less than 10 or more than 110 is as likely as 1 in 10^12.
    assert 10 < len(sampled) < 110
    spans = collector.spans(3 * len(sampled))
    assert [span.trace_id for span in spans if span.kind == "SERVER"] == sampled


def test_a_request_that_is_turned_away_has_only_waited(
    serve: Serve, collector: Collector, gate: Gate, counts: Counts, clock: Clock
) -> None:
    arguments = ("--otlp-endpoint", collector.endpoint, "--queue-timeout", "100", "--timeout", "0")
    server = serve("waiting:app", *arguments, *counts.arguments, env=gate.environment | clock.environment)
    with server.connect() as busy, server.connect() as waits:
        busy.send(request("GET", "/wait"))
        gate.announcement()
        waits.send(request("GET", "/late"))
        eventually(lambda: counts.requests()["in_flight"] == 2, "it waits")
        clock.advance(101)
        assert waits.response().status == 503
        spans = of_one(collector.spans(2))
        gate.let_pass(1)
        assert busy.response().status == 200
    root, wait = spans["server"], spans["wait"]
    assert root.attributes["stanchion.outcome"] == "refused_waited_too_long"
    assert root.attributes["error.type"] == wait.attributes["error.type"] == "refused_waited_too_long"
    assert root.attributes["http.response.status_code"] == 503
    assert "stanchion.worker.pid" not in root.attributes
    assert root.failed
    assert wait.failed


def test_a_client_that_leaves_the_line_was_told_nothing(
    serve: Serve, collector: Collector, gate: Gate, counts: Counts
) -> None:
    arguments = ["--otlp-endpoint", collector.endpoint, *counts.arguments]
    server = serve("waiting:app", *arguments, env=gate.environment)
    with server.connect() as busy:
        busy.send(request("GET", "/wait"))
        gate.announcement()
        with server.connect() as leaves:
            leaves.send(request("GET", "/early"))
            eventually(lambda: counts.requests()["in_flight"] == 2, "it waits")
        spans = of_one(collector.spans(2))
        gate.let_pass(1)
        assert busy.response().status == 200
    root = spans["server"]
    assert root.attributes["error.type"].startswith("abandoned_")
    assert "http.response.status_code" not in root.attributes
    assert root.failed
    assert spans["wait"].failed


def test_a_head_that_is_refused_has_neither(serve: Serve, collector: Collector) -> None:
    server = serve("echo:app", "--otlp-endpoint", collector.endpoint, "--limit-request-line", "30")
    with server.connect() as wire:
        assert wire.get("/" + "a" * 30).status == 414
    root = of_one(collector.spans(1))["server"]
    assert root.attributes["error.type"] == "refused_line_too_long"
    assert not root.failed, "the conventions count what the client did wrong as no failure of the server"


def test_a_run_that_its_worker_did_not_survive_has_failed(serve: Serve, collector: Collector, gate: Gate) -> None:
    server = serve("waiting:app", "--otlp-endpoint", collector.endpoint, env=gate.environment)
    with server.connect() as wire:
        wire.send(request("POST", "/wait", body=b"x"))
        pid = int(gate.announcement().split()[0])
        os.kill(pid, signal.SIGKILL)
        assert wire.response().status == 502
    spans = of_one(collector.spans(3))
    assert {name: span.failed for name, span in spans.items()} == {"server": True, "wait": False, "run": True}
    assert spans["run"].attributes == {"stanchion.worker.pid": pid, "error.type": "refused_worker_died"}


def test_what_the_app_fails_at_is_its_status(serve: Serve, collector: Collector) -> None:
    server = serve("answers:app", "--otlp-endpoint", collector.endpoint)
    with server.connect() as wire:
        wire.ask("BREW", "/raises")
    spans = of_one(collector.spans(3))
    root = spans["server"]
    assert (root.name, root.attributes["http.request.method"]) == ("HTTP", "_OTHER")
    assert root.attributes["http.request.method_original"] == "BREW"
    assert root.attributes["error.type"] == "500"
    assert root.failed
    assert spans["run"].failed


def test_probes_leave_no_spans(serve: Serve, collector: Collector) -> None:
    server = serve("echo:app", "--otlp-endpoint", collector.endpoint, "--health-path", "/-")
    with server.connect() as wire:
        assert wire.get("/-/live").status == 200
        wire.get("/")
    assert of_one(collector.spans(3))["server"].attributes["url.path"] == "/"


def leaves(server: Server) -> bool:
    """Whether its exporter has come to an end in the half second that it has, in which it may get no core."""
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    server.log.wait_end()
    return not server.log.matches("spans were not sent: the collector did not take them in time")


def test_what_waits_is_sent_before_the_server_leaves(serve: Serve) -> None:
    def is_sent() -> bool:
        collector = Collector()
        try:
            server = serve("echo:app", "--otlp-endpoint", collector.endpoint)
            environ_of(server)
            in_time = leaves(server)
            if in_time:
                of_one(collector.spans(3))
            return in_time
        finally:
            collector.stop()

    assert any(is_sent() for _ in range(5))


def test_a_reload_sends_what_the_old_house_has(echo: Server, collector: Collector) -> None:
    environ_of(echo)
    mark = echo.log.mark()
    echo.signal(signal.SIGHUP)
    echo.log.wait("reloaded: generation 2 serves", mark)
    of_one(collector.spans(3))
    environ_of(echo)
    collector.spans(6)


def test_no_client_notices_that_there_is_no_collector(serve: Serve) -> None:
    # Bound, so that no other process gets the port, and without a listener.
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{deaf.getsockname()[1]}"

        def is_told() -> bool:
            server = serve("echo:app", "--otlp-endpoint", endpoint)
            environ_of(server)
            server.log.wait(f"{endpoint}/v1/traces does not take spans: .*refused")
            for _ in range(20):
                environ_of(server)
            in_time = leaves(server)
            assert len(server.log.matches("does not take spans")) == 1
            return in_time and bool(server.log.matches("took no spans until the server left; 63 were dropped"))

        assert any(is_told() for _ in range(5))


def test_a_collector_that_comes_back_gets_them(serve: Serve, collector: Collector, counts: Counts) -> None:
    collector.says(503)
    server = serve("echo:app", "--otlp-endpoint", collector.endpoint, *counts.arguments)
    environ_of(server)
    server.log.wait("does not take spans: 503")
    assert collector.wait_asked(2)[:2] == [503, 503]
    collector.says(200)
    of_one(collector.spans(3))
    server.log.wait("takes spans again; 0 were dropped")
    assert len(server.log.matches("does not take spans")) == 1
    assert counts.events()["spans_dropped"] == 0


@pytest.mark.parametrize(("status", "rejects", "dropped"), [(400, 0, 3), (500, 0, 3), (200, 2, 2)])
def test_what_the_collector_refuses_is_counted(
    serve: Serve, collector: Collector, counts: Counts, status: int, rejects: int, dropped: int
) -> None:
    collector.says(status, rejects)
    server = serve("echo:app", "--otlp-endpoint", collector.endpoint, *counts.arguments)
    environ_of(server)
    server.log.wait("does not take spans")
    eventually(lambda: counts.events()["spans_dropped"] == dropped, "they are counted")
    assert collector.wait_asked(1) == [status], "it is not asked again"


def fill(server: Server) -> int:
    """Sends as many requests as may wait to be sent to a collector, and so many more."""
    more, clients = 100, 12
    each = (QUEUE_MAX + more) // clients
    with ExitStack() as stack:
        wires = [stack.enter_context(server.connect()) for _ in range(clients)]
        for wire in wires:
            wire.send(request("GET", "/") * each)
        for wire in wires:
            assert [wire.response().status for _ in range(each)] == [200] * each
    return more


def test_what_is_dropped_while_a_slow_collector_answers_is_told(
    serve: Serve, collector: Collector, counts: Counts
) -> None:
    collector.hold()
    server = serve("hello:app", "--otlp-endpoint", collector.endpoint, "--keep-alive", "60", *counts.arguments)
    dropped = 3 * fill(server)
    eventually(lambda: counts.events()["spans_dropped"] == dropped, "those beyond the queue are dropped")
    collector.go_on()
    # The second, if the requests have taken longer than an answer is waited for.
    server.log.wait(rf"takes spans too slowly: {dropped} were dropped\.|takes spans again; {dropped} were dropped")


def test_a_collector_that_never_answers_holds_no_request_up(serve: Serve, collector: Collector, counts: Counts) -> None:
    collector.hold()
    server = serve("hello:app", "--otlp-endpoint", collector.endpoint, "--keep-alive", "60", *counts.arguments)
    more = fill(server)
    eventually(lambda: counts.events()["spans_dropped"] == 3 * more, "those beyond the queue are dropped")
    if server.log.matches("does not take spans"):
        # All that has taken longer than an answer is waited for: it pauses for a while, and then asks again.
        asked = len(collector.wait_asked(1))
        eventually(lambda: len(collector.wait_asked(asked)) > asked, "it asks again", 4 * PATIENCE_S)
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    server.log.wait(f"{3 * QUEUE_MAX} spans were not sent")
