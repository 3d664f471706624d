"""Figures of WebSockets: how many are open, by which code they end, their messages, one line and one span each."""

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from support.collector import Collector, Span
from support.greenlets import GEVENT
from support.patience import eventually
from support.server import Serve, Server
from support.statsd import Statsd
from support.websocket import Open
from support.wire import ask

pytestmark = pytest.mark.own("gunicorn tells nothing of sessions")

ASGI = ("sockets:app", "--interface", "asgi")


def three_sessions(server: Server, opens: Open) -> None:
    """A session that the app closes by 4001, one that its client closes without a code, and one that is cut."""
    by_app, by_client, cut = (opens(server) for _ in range(3))
    for client in (by_app, by_client, cut):
        client.text("héllo")
        assert client.hear() == "héllo"
    by_app.text("close")
    assert by_app.until_end() == [(4001, "as asked")]
    by_client.bytes(bytes(300_000))
    assert by_client.hear() == bytes(300_000)
    by_client.close()
    assert by_client.until_end() == [(1000, "")]
    cut.drop()


def ended(admin: str) -> dict[str, int]:
    """How many by which code, but for those by which none was; by both pages."""
    told: dict[str, int] = json.loads(ask(admin, "/status").text)["sessions_ended"]
    samples = {
        one.labels["code"]: one.value
        for family in parse_prometheus(ask(admin, "/metrics").text)
        for one in family.samples
        if one.name == "stanchion_sessions_ended_total"
    }
    assert set(samples) == set(told)
    return {code: count for code, count in told.items() if count and samples[code] == count}


def test_codes_and_messages_are_counted(serve: Serve, opens: Open, admin: str) -> None:
    with Statsd() as statsd:
        server = serve(*ASGI, "--admin", admin, "--statsd-host", statsd.address)
        idle = opens(server)
        statsd.wait("stanchion.sessions.open", lambda count: count == 1)
        three_sessions(server, opens)
        eventually(lambda: ended(admin) == {"4xxx": 1, "1000": 1, "none": 1}, "all are counted by their codes")
        events = json.loads(ask(admin, "/status").text)["events"]
        # The word to close is a message, too.
        assert (events["session_messages_received"], events["session_messages_sent"]) == (5, 4)
        idle.drop()
        eventually(lambda: ended(admin).get("none") == 2, "it is counted")
        statsd.wait("stanchion.sessions.code.none", lambda count: count == 2)
        statsd.wait("stanchion.sessions.open", lambda count: count == 0)
        told = {name: count for name, count in statsd.sums().items() if name.startswith("stanchion.sessions.")}
        assert told == {
            "stanchion.sessions.begun": 4,
            "stanchion.sessions.closed_by_app": 1,
            "stanchion.sessions.closed_by_client": 1,
            "stanchion.sessions.cut": 2,
            "stanchion.sessions.messages_received": 5,
            "stanchion.sessions.messages_sent": 4,
            "stanchion.sessions.code.1000": 1,
            "stanchion.sessions.code.4xxx": 1,
            "stanchion.sessions.code.none": 2,
        }
        assert "stanchion.loop.lag_ms" in statsd.gauges()


def test_those_of_a_killed_acceptor_had_no_close_frame(serve: Serve, opens: Open, admin: str) -> None:
    server = serve(*ASGI, "--admin", admin)
    client = opens(server)
    client.text("pid")
    client.hear()
    server.acceptor().kill()
    eventually(lambda: client.hear() == "end", "its connection is gone")
    eventually(lambda: ended(admin) == {"none": 1}, "it is counted")


def test_of_threads_nothing_is_said_about_websockets(serve: Serve, admin: str) -> None:
    with Statsd() as statsd:
        serve("hello:app", "--admin", admin, "--statsd-host", statsd.address)
        assert json.loads(ask(admin, "/status").text)["sessions_ended"] is None
        assert "stanchion_sessions" not in ask(admin, "/metrics").text
        statsd.wait("gunicorn.workers", lambda count: count == 1)
        assert {name for name in statsd.gauges() if "session" in name or "loop" in name} == set()


def test_of_gevent_nothing_is_said_about_websockets(serve: Serve, admin: str) -> None:
    """Its workers have event loops, and no WebSockets."""
    with Statsd() as statsd:
        serve("hello:app", *GEVENT, "--admin", admin, "--statsd-host", statsd.address)
        told = json.loads(ask(admin, "/status").text)
        assert told["sessions_ended"] is None
        assert [worker["event_loop"]["sessions"] for worker in told["workers"]] == [None]
        metrics = ask(admin, "/metrics").text
        assert "stanchion_loop_lag_current_seconds" in metrics
        assert "stanchion_worker_sessions" not in metrics and "stanchion_sessions" not in metrics
        statsd.wait("gunicorn.workers", lambda count: count == 1)
        gauges = statsd.gauges()
        assert "stanchion.sessions.open" not in gauges
        assert {name for name in gauges if ".loop." in name}


def test_each_has_one_line_of_the_log_when_it_has_ended(serve: Serve, opens: Open, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    server = serve(*ASGI, "--access-logfile", str(log), "--access-log-json")
    three_sessions(server, opens)

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]

    eventually(lambda: len(lines()) == 3, "each has its line")
    told = {line["close_code"]: line for line in lines()}
    assert set(told) == {4001, 1000, None}
    assert {line["status"] for line in told.values()} == {101}
    keys = ("messages_received", "messages_sent", "bytes_received")
    assert [told[4001][key] for key in keys] == [2, 1, 11]
    assert [told[1000][key] for key in keys] == [2, 2, 300_006]
    assert told[1000]["bytes"] > 300_006
    assert told[None]["outcome"] == "abandoned_answering"
    assert all(line["duration_us"] > 0 for line in told.values())


def test_each_is_a_span_below_that_of_its_handshake(serve: Serve, opens: Open) -> None:
    collector = Collector()
    try:
        server = serve(*ASGI, "--otlp-endpoint", collector.endpoint)
        three_sessions(server, opens)
        spans = collector.spans(12)
    finally:
        collector.stop()
    requests = {span.trace_id: span for span in spans if span.kind == "SERVER"}
    sessions: dict[Any, Span] = {
        span.attributes.get("stanchion.session.close_code"): span for span in spans if span.name == "session"
    }
    assert len(requests) == 3 and set(sessions) == {4001, 1000, None}
    for span in sessions.values():
        request = requests[span.trace_id]
        assert (span.kind, span.parent_id) == ("INTERNAL", request.id)
        assert request.start_ns <= span.start_ns < span.end_ns == request.end_ns
        (run,) = [one for one in spans if one.name == "run" and one.trace_id == span.trace_id]
        assert span.start_ns >= run.start_ns
        assert request.attributes["http.response.status_code"] == 101
    worker = sessions[1000].attributes["stanchion.worker.pid"]
    assert sessions[1000].attributes == {
        "network.protocol.name": "websocket",
        "stanchion.session.messages_received": 2,
        "stanchion.session.bytes_received": 300_006,
        "stanchion.session.messages_sent": 2,
        "stanchion.session.bytes_sent": 300_006,
        "stanchion.session.close_code": 1000,
        "stanchion.worker.pid": worker,
    }
    assert {code: span.failed for code, span in sessions.items()} == {4001: False, 1000: False, None: True}
    assert sessions[None].attributes["error.type"] == "abandoned_answering"
