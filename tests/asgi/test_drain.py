"""Streams and sessions end by themselves when the server, their generation or their worker begins to leave."""

import re
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.asgi import OURS
from support.ctl import ctl
from support.gate import Gate
from support.server import Serve, Server
from support.websocket import Open
from support.wire import Wire, request

pytestmark = pytest.mark.own("uvicorn tells streams nothing")

ASGI = ("--interface", "asgi")
# Far longer than a test may take: a stream that does not end by itself fails the test.
LONG = ("--graceful-timeout", "1000")
WHOLE = "begun, leaving"


def begin(server: Server, stack: ExitStack, gate: Gate, target: str = "/stream", said: str = "streams") -> Wire:
    wire = stack.enter_context(server.connect())
    wire.send(request("GET", target))
    assert gate.announcement() == said
    return wire


def is_leaving(server: Server) -> str:
    with server.connect() as wire:
        return wire.get("/").text


def lost(server: Server) -> list[re.Match[str]]:
    return server.log.matches(r"\[ERROR\]|breaks off| 503 ")


@pytest.mark.parametrize(("loop", "way"), [("asyncio", "TERM"), ("uvloop", "TERM"), ("asyncio", "ctl drain")])
def test_streams_end_when_the_server_begins_to_leave_and_not_at_the_end_of_its_grace(
    serve: Serve, gate: Gate, tmp_path: Path, loop: str, way: str
) -> None:
    control = tmp_path / "control"
    words = ("-w", "2", *LONG, "--control", f"unix:{control}")
    server = OURS[loop].serve(serve, "departing:app", *words, env=gate.environment)
    with ExitStack() as stack:
        wires = [begin(server, stack, gate) for _ in range(6)]
        assert is_leaving(server) == "False"
        if way == "TERM":
            server.signal(signal.SIGTERM)
        else:
            ctl(control, "drain").check_returncode()
        assert [wire.response().text for wire in wires] == [WHOLE] * 6
        assert server.exit_code() == 0
    assert lost(server) == []


def test_streams_of_the_old_generation_end_at_a_reload(serve: Serve, gate: Gate) -> None:
    server = serve("departing:app", *ASGI, *LONG, env=gate.environment)
    with ExitStack() as stack:
        old = begin(server, stack, gate)
        mark = server.log.mark()
        server.signal(signal.SIGHUP)
        server.log.wait("reloaded: generation 2 serves", mark)
        assert old.response().text == WHOLE
        assert is_leaving(server) == "False", "the new one stays"
    assert lost(server) == []


def test_streams_of_a_worker_that_is_replaced_end_when_its_successor_is_there(serve: Serve, gate: Gate) -> None:
    server = serve("departing:app", *ASGI, *LONG, "--max-requests", "3", env=gate.environment)
    with ExitStack() as stack:
        wire = begin(server, stack, gate)
        assert [is_leaving(server) for _ in range(3)] == ["False"] * 3
        assert wire.response().text == WHOLE
        assert is_leaving(server) == "False"
    assert lost(server) == []


def test_a_stream_that_waits_in_the_line_begins_and_ends(serve: Serve, gate: Gate) -> None:
    server = serve("departing:app", *ASGI, *LONG, "--worker-concurrency", "1", env=gate.environment)
    with ExitStack() as stack:
        first = begin(server, stack, gate)
        second = stack.enter_context(server.connect())
        second.send(request("GET", "/stream"))
        assert second.silent(0.05)
        server.signal(signal.SIGTERM)
        assert [wire.response().text for wire in (first, second)] == [WHOLE] * 2
        assert server.exit_code() == 0
    assert lost(server) == []


def test_streams_go_on_as_long_as_the_server_accepts_clients(serve: Serve, gate: Gate) -> None:
    """A client that comes again would meet the same server: `drain_delay` is for balancers to notice first."""
    server = serve("departing:app", *ASGI, *LONG, "--drain-delay", "1000", env=gate.environment)
    with ExitStack() as stack:
        wire = begin(server, stack, gate)
        mark = server.log.mark()
        server.signal(signal.SIGTERM)
        server.log.wait("draining in 1000 s", mark)
        assert is_leaving(server) == "False"
        # The second ends the delay.
        server.signal(signal.SIGTERM)
        assert wire.response().text == WHOLE
        assert server.exit_code() == 0
    assert lost(server) == []


@pytest.mark.parametrize("loop", OURS)
def test_a_task_may_give_up_waiting_and_one_that_comes_late_does_not_wait(serve: Serve, gate: Gate, loop: str) -> None:
    server = OURS[loop].serve(serve, "departing:app", *LONG, env=gate.environment)
    with ExitStack() as stack:
        wire = begin(server, stack, gate, "/crowd", "a crowd waits")
        server.signal(signal.SIGTERM)
        assert wire.response().text == "50 of 100, and True"
        assert server.exit_code() == 0
    assert lost(server) == []


def test_an_app_says_goodbye_in_its_sessions(serve: Serve, opens: Open) -> None:
    server = serve("departing:app", *ASGI, *LONG, "--session-grace", "600")
    # The server closes the session of its first connection at once, and others in the course of the grace.
    with server.connect() as first:
        assert first.get("/").text == "False"
        clients = [opens(server) for _ in range(3)]
        server.signal(signal.SIGTERM)
        assert [client.until_end() for client in clients] == [["leaving", (1001, "")]] * 3
    assert server.exit_code() == 0


def test_the_events_of_a_framework_end(serve: Serve, gate: Gate) -> None:
    server = serve("frameworks.leaving:app", *ASGI, *LONG, env=gate.environment)
    with ExitStack() as stack:
        wire = begin(server, stack, gate, "/events")
        with server.connect() as other:
            assert other.get("/say/hello").status == 200
        server.signal(signal.SIGTERM)
        assert wire.response().text == "data: hello\n\nretry: 2000\n\n"
        assert server.exit_code() == 0
    assert lost(server) == []
