"""Fields of log lines that gunicorn lacks: where the time went, how a request ended, and which request it was."""

import contextlib
import json
import os
import re
import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from support.counts import Counts
from support.gate import Gate
from support.patience import eventually
from support.processes import standing_still
from support.server import Serve, Server
from support.wire import Wire, request

pytestmark = pytest.mark.own("gunicorn has none of this")

SHOWN = 10
"""Lines of one reason in a second."""

KEYS = [
    "time",
    "remote_addr",
    "user",
    "method",
    "host",
    "path",
    "query",
    "protocol",
    "status",
    "bytes",
    "referer",
    "user_agent",
    "duration_us",
    "wait_us",
    "service_us",
    "proxy_us",
    "outcome",
    "lane",
    "worker",
    "pid",
    "request_id",
    "trace_id",
    "client",
    "cpu_us",
    "core_us",
    "gil_us",
    "arrived_us",
]
OWN = "%({wait_us}x)s %({service_us}x)s %({proxy_us}x)s %({worker}x)s %({outcome}x)s %({request_id}x)s %({trace_id}x)s"
MADE = re.compile(r"[0-9a-f]{32}")
TRACE = "0af7651916cd43dd8448eb211c80319c"


def logged(server: Server, pattern: str, since: int = 0) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(server.stdout.wait(pattern, since).string)
    return line


class TestJson:
    @pytest.fixture
    def counts(self, tmp_path: Path) -> Counts:
        return Counts(tmp_path / "ctl")

    @pytest.fixture
    def server(self, serve: Serve, gate: Gate, counts: Counts) -> Server:
        arguments = ("--access-logfile", "-", "--access-log-json", *counts.arguments)
        return serve("waiting:app", *arguments, env=gate.environment)

    def test_every_key_is_there_in_order(self, server: Server) -> None:
        asked_s = time.time()
        began_s = asked_s - 2
        with server.connect() as wire:
            response = wire.get(
                "/pid?a=b%20c",
                "Referer: http://r/",
                "User-Agent: u/1",
                "Authorization: Basic YnJvd246Zm94",
                "X-Request-Id: given-1",
                f"Traceparent: 00-{TRACE}-b7ad6b7169203331-01",
                f"X-Request-Start: t={began_s:.3f}",
            )
        took_us = (time.time() - began_s) * 1e6
        line = logged(server, "given-1")
        assert list(line) == KEYS
        said = line.pop("time")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", said)
        # Its milliseconds are cut off, not rounded.
        assert asked_s - 0.001 <= datetime.fromisoformat(said).timestamp() <= time.time()
        duration, wait, service, proxy = (line.pop(f"{name}_us") for name in ("duration", "wait", "service", "proxy"))
        assert 0 <= wait + service <= duration
        assert asked_s <= line.pop("arrived_us") / 1e6 <= asked_s + took_us / 1e6
        # The only thread of a worker waits for no other one's GIL.
        cpu, core, gil = (line.pop(f"{name}_us") for name in ("cpu", "core", "gil"))
        assert gil is None and 0 < cpu + (core or 0) <= service
        assert 1_900_000 <= proxy <= took_us + 1_000
        assert line == {
            "remote_addr": "127.0.0.1",
            "user": "brown",
            "method": "GET",
            "host": "test",
            "path": "/pid",
            "query": "a=b%20c",
            "protocol": "HTTP/1.1",
            "status": 200,
            "bytes": len(response.body),
            "referer": "http://r/",
            "user_agent": "u/1",
            "outcome": "answered",
            "lane": "default",
            "worker": 0,
            "pid": int(response.text.split()[0]),
            "request_id": "given-1",
            "trace_id": TRACE,
            "client": "127.0.0.1",
        }

    def test_what_is_not_known_is_null(self, server: Server) -> None:
        with server.connect() as wire:
            wire.send(request("GET", "/" + "a" * 5000, version="1.0", host=None))
            assert wire.response().status == 414
        line = logged(server, "aaaaa")
        unknown = {key for key, value in line.items() if value is None}
        sometimes = {"query", "referer", "user_agent", "user", "host", "trace_id", "proxy_us"}
        assert unknown == sometimes | {"service_us", "worker", "pid", "cpu_us", "core_us", "gil_us"}
        assert line["outcome"] == "refused_line_too_long"

    def test_any_bytes_become_one_line_of_json(self, server: Server) -> None:
        with server.connect() as wire:
            wire.send(b'GET /pid?odd HTTP/1.1\r\nHost: test\r\nUser-Agent: "\\\xe9\x85\xc3\xa9\t</script>\r\n\r\n')
            assert wire.response().status == 200
        assert logged(server, "odd")["user_agent"] == '"\\\\xe9\\x85é\t</script>'

    def test_a_killed_worker(self, server: Server, gate: Gate) -> None:
        with server.connect() as wire:
            wire.send(request("GET", "/wait?killed"))
            pid = int(gate.announcement().split()[0])
            os.kill(pid, signal.SIGKILL)
            assert wire.response().status == 502
        line = logged(server, "killed")
        assert (line["outcome"], line["pid"], line["worker"]) == ("refused_worker_died", pid, 0)

    def test_a_request_ahead_of_a_seat_and_one_that_runs_and_their_clients_leave(
        self, server: Server, gate: Gate, counts: Counts
    ) -> None:
        with Wire.connect(server.address) as running:
            running.send(request("GET", "/wait?running"))
            pid = int(gate.announcement().split()[0])
            with Wire.connect(server.address) as waiting:
                waiting.send(request("GET", "/wait?ahead"))
                eventually(lambda: counts.requests()["arrived"] == 2, "it is handed out")
            waited = logged(server, "ahead")
        ran = logged(server, "running")
        gate.let_pass(1)
        assert (waited["outcome"], waited["pid"], waited["service_us"]) == ("abandoned_handed_out", None, None)
        assert (ran["outcome"], ran["pid"], ran["worker"]) == ("abandoned_running", pid, 0)
        assert waited["wait_us"] <= waited["duration_us"] and ran["service_us"] <= ran["duration_us"]


def test_our_atoms(serve: Serve) -> None:
    server = serve("waiting:app", "--access-logfile", "-", "--access-logformat", OWN)
    began_s = time.time()
    with server.connect() as wire:
        wire.get("/pid", f"Traceparent: 00-{TRACE}-b7ad6b7169203331-01")
        wire.get("/pid", "Traceparent: nonsense", f"X-Request-Start: {time.time() * 1000:.0f}")
    took_us = (time.time() - began_s) * 1e6
    first, second = (match.string.split() for match in server.stdout.wait_for("answered", 2))
    assert first[2:5] == ["-", "0", "answered"] and first[6] == TRACE
    assert MADE.fullmatch(first[5]) and MADE.fullmatch(second[5]) and first[5] != second[5]
    assert int(second[2]) <= took_us + 1_000 and second[6] == "-"
    assert all(int(line[0]) + int(line[1]) <= took_us for line in (first, second))


def test_an_atom_of_ours_that_is_misspelt_is_refused(build: Serve) -> None:
    server = build("hello:app", "--access-logformat", "%({wait}x)s").launch()
    assert server.exit_code() == 2
    server.log.wait(r"there is no %\(\{wait\}x\)s")


class TestRequestId:
    @staticmethod
    def of(response: Any) -> tuple[str, str]:
        environ = response.json()["environ"]
        return environ["HTTP_X_REQUEST_ID"], environ["stanchion.request_id"]

    def test_a_trusted_proxy_names_it(self, serve: Serve) -> None:
        server = serve("echo:app")
        with server.connect() as wire:
            assert self.of(wire.get("/", "X-Request-Id: abc/1=")) == ("abc/1=", "abc/1=")
            for nonsense in ("a b", '"', "a" * 129, "\xe9", "<b>", ""):
                one, other = self.of(wire.get("/", f"X-Request-Id: {nonsense}"))
                assert one == other and MADE.fullmatch(one)

    def test_other_clients_do_not(self, serve: Serve) -> None:
        server = serve("echo:app", "--forwarded-allow-ips", "10.0.0.1")
        with server.connect() as wire:
            one, other = self.of(wire.get("/", "X-Request-Id: mine", f"X-Request-Start: {time.time():.3f}"))
            assert one == other and MADE.fullmatch(one)
            assert "stanchion.proxy_wait" not in wire.get("/", "X-Request-Start: 1").json()["environ"]

    def test_another_field_or_none(self, serve: Serve) -> None:
        with serve("echo:app", "--request-id-header", "X-Correlation").connect() as wire:
            environ = wire.get("/", "X-Correlation: c", "X-Request-Id: passed on").json()["environ"]
            assert (environ["stanchion.request_id"], environ["HTTP_X_CORRELATION"]) == ("c", "c")
            assert environ["HTTP_X_REQUEST_ID"] == "passed on"
        with serve("echo:app", "--request-id-header", "").connect() as wire:
            environ = wire.get("/", "X-Request-Id: passed on").json()["environ"]
            assert environ["HTTP_X_REQUEST_ID"] == "passed on" and "stanchion.request_id" not in environ

    def test_it_is_in_both_logs(self, serve: Serve) -> None:
        server = serve("answers:app", "--access-logfile", "-", "--access-logformat", "%(s)s %({request_id}x)s")
        with server.connect() as wire:
            assert wire.get("/raises", "X-Request-Id: failed-1").status == 500
        server.log.wait(r"\[ERROR\] the app failed at GET /raises request_id=failed-1$")
        assert server.stdout.wait("failed-1").string == "500 failed-1"

    def test_our_own_answers_say_it_and_the_apps_are_the_apps(self, serve: Serve) -> None:
        server = serve("answers:app", "--limit-request-line", "100")
        with server.connect() as wire:
            assert wire.get("/with-length", "X-Request-Id: fine").header("X-Request-Id") is None
            assert wire.get("/" + "a" * 200, "X-Request-Id: long").header("X-Request-Id") == "long"
        server.log.wait(r"\[INFO\] 414 GET /a+ request_id=long: a client's fault: ")


class TestTimes:
    def test_server_timing_is_off_unless_asked_for(self, serve: Serve) -> None:
        with serve("hello:app").connect() as wire:
            assert wire.get("/").header("Server-Timing") is None

    def test_server_timing(self, serve: Serve) -> None:
        server = serve("waiting:app", "--server-timing", "--limit-request-line", "100")
        number = r"(\d+\.\d{3})"
        with server.connect() as wire:
            said = wire.get("/nap?50-").header("Server-Timing")
            found = re.fullmatch(rf"wait;dur={number}, run;dur={number}", said or "")
            assert found and float(found[2]) >= 50
            said = wire.get("/pid", f"X-Request-Start: t={time.time() - 3:.3f}").header("Server-Timing")
            found = re.fullmatch(rf"wait;dur={number}, run;dur={number}, proxy;dur={number}", said or "")
            assert found and float(found[3]) >= 2900
            said = wire.get("/" + "a" * 200).header("Server-Timing")
            assert re.fullmatch(rf"wait;dur={number}", said or "")

    def test_the_time_in_the_proxies(self, serve: Serve) -> None:
        server = serve("echo:app")
        with server.connect() as wire:
            for unit in (1, 1e3, 1e6):
                start_s = time.time() - 5
                environ = wire.get("/", f"X-Request-Start: t={start_s * unit:.0f}").json()["environ"]
                assert 4 <= environ["stanchion.proxy_wait"] <= time.time() - start_s + 1
            for nonsense in ("soon", "t=", f"{time.time() + 60:.3f}", "t=12"):
                environ = wire.get("/", f"X-Request-Start: {nonsense}").json()["environ"]
                assert "stanchion.proxy_wait" not in environ
                assert environ["HTTP_X_REQUEST_START"] == nonsense

    def test_a_trace_passes_as_it_is(self, serve: Serve) -> None:
        value = f"00-{TRACE}-b7ad6b7169203331-01"
        with serve("echo:app").connect() as wire:
            environ = wire.get("/", f"Traceparent: {value}", "Tracestate: a=1").json()["environ"]
        assert (environ["HTTP_TRACEPARENT"], environ["HTTP_TRACESTATE"]) == (value, "a=1")


def test_the_logging_of_the_app_is_its_own(serve: Serve, tmp_path: Path) -> None:
    server = serve("logs:set_up()", "--access-logfile", str(tmp_path / "access.log"))
    with server.connect() as wire:
        answer = wire.get("/here").json()
    lent = ["gunicorn.error", "stanchion.error", "gunicorn.access", "stanchion.access"]
    assert answer == {"untouched": True, "with handlers": lent, "lastResort": True, "disabled": 0}
    assert server.log.wait("a word").string == "of the app: a word at /here"


def test_nonsense_is_not_logged_without_end(serve: Serve) -> None:
    server = serve("echo:app")
    acceptor = server.acceptor()
    with contextlib.ExitStack() as stack:
        # All of them at once: there is no second between them.
        with standing_still(acceptor):
            wires = [stack.enter_context(server.connect()) for _ in range(3 * SHOWN)]
            for wire in wires:
                wire.send(b"nonsense\r\n\r\n")
        for wire in wires:
            assert wire.response().status == 400
    server.log.wait("more like that in a second: refused_bad_request")
    assert len(server.log.matches("a client's fault")) < 3 * SHOWN
