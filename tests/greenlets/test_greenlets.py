"""WSGI apps in greenlets: what gevent's users expect, of gunicorn too, and how many run at once."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.gate import Gate
from support.greenlets import BOTH, GEVENT
from support.server import Kind, Serve
from support.wire import Wire, request


@pytest.fixture(params=BOTH)
def both(request: pytest.FixtureRequest) -> Kind:
    """Each server in turn: apps may rely on what holds for all of them."""
    return BOTH[request.param]


def test_modules_are_changed_before_the_app_is_imported(serve: Serve, gate: Gate, both: Kind) -> None:
    server = serve("frameworks.gevent:app", kind=both, env=gate.environment)
    with server.connect() as wire:
        assert wire.get("/patched").text == "socket ssl threading time True"


def test_requests_that_wait_run_at_once_in_one_worker(serve: Serve, gate: Gate, both: Kind) -> None:
    server = serve("frameworks.gevent:app", kind=both, env=gate.environment)
    with ExitStack() as stack:
        wires = [stack.enter_context(server.connect()) for _ in range(50)]
        for wire in wires:
            wire.send(request("GET", "/hold"))
        pids = {line.split()[0] for line in gate.announcements(50)}
        with server.connect() as other:
            pids.add(other.get("/release").text)
        assert len(pids) == 1
        assert {wire.response().text for wire in wires} == pids


def test_what_is_local_to_a_thread_is_local_to_a_request(serve: Serve, gate: Gate, both: Kind) -> None:
    server = serve("frameworks.gevent:app", kind=both, env=gate.environment)
    with ExitStack() as stack:
        wires = [stack.enter_context(server.connect()) for _ in range(9)]
        for number, wire in enumerate(wires):
            wire.send(request("GET", f"/local?{number}"))
        assert [wire.response().text for wire in wires] == [str(number) for number in range(9)]


def test_a_request_may_wait_for_another_one_of_its_worker(serve: Serve, gate: Gate, both: Kind) -> None:
    server = serve("frameworks.gevent:app", kind=both, env=gate.environment)
    with server.connect() as wire:
        pid = wire.get("/").text
        for _ in range(3):
            assert wire.get(f"/fetch?http://127.0.0.1:{server.address.port}/").text == f"{pid} {pid}"


def test_an_app_may_run_programs(serve: Serve, gate: Gate, both: Kind) -> None:
    server = serve("frameworks.gevent:app", kind=both, env=gate.environment)
    with server.connect() as wire:
        assert [wire.get("/spawn").text for _ in range(3)] == ["spoken"] * 3


@pytest.mark.own("gunicorn's gevent workers have no WebSockets either")
def test_what_is_for_asynchronous_apps_is_not_for_greenlets(serve: Serve, gate: Gate) -> None:
    """No handshake of a WebSocket, and no request before its body is whole."""
    server = serve("frameworks.gevent:app", *GEVENT, env=gate.environment)
    with server.connect() as wire:
        fields = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 12")
        assert wire.get("/", *fields, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==").status == 200
        sent = request("POST", "/hold", body=bytes(110_000))
        wire.send(sent[:80_000])
        assert wire.silent(0.3) and not gate.announced()
        wire.send(sent[80_000:])
        assert gate.announcement().endswith("holds")
        with server.connect() as other:
            other.get("/release")
        assert wire.response().status == 200


def test_bodies_and_files(serve: Serve, gate: Gate, both: Kind) -> None:
    server = serve("frameworks.gevent:app", kind=both, env=gate.environment)
    with server.connect() as wire:
        for length in (1, 70_000, 3_000_000):
            assert wire.post("/echo", bytes(length)).body == bytes(length)
        source = Path(__file__).parent.parent / "apps" / "frameworks" / "gevent.py"
        assert wire.get("/file").body == source.read_bytes()
        assert wire.get("/fail").status == 500
    with server.connect() as wire:
        assert wire.get("/stream?3").body == b"x" * (3 << 20)
        assert wire.get("/whole?3").body == b"x" * (3 << 20)
    assert gate.announcement() == "all is written"


@pytest.mark.own("gunicorn has no line")
def test_what_is_beyond_the_greenlets_of_all_workers_waits_in_the_line(serve: Serve, gate: Gate) -> None:
    server = serve("frameworks.gevent:app", *GEVENT, "-w", "2", "--worker-connections", "3", env=gate.environment)
    with ExitStack() as stack:
        wires = [stack.enter_context(server.connect()) for _ in range(8)]
        for wire in wires:
            wire.send(request("GET", "/pass"))
        running = Counter(line.split()[0] for line in gate.announcements(6))
        assert sorted(running.values()) == [3, 3]
        assert wires[0].silent(0.1)
        assert not gate.announced()
        gate.let_pass(8)
        assert sum(wire.response().status == 200 for wire in wires) == 8
    assert sum("may be let pass" in line for line in gate.announced()) == 2


@pytest.mark.own("the words of the log")
def test_the_log_says_why_the_app_is_not_preloaded(serve: Serve, gate: Gate) -> None:
    server = serve("frameworks.gevent:app", "--loop", "gevent", env=gate.environment)
    assert len(server.log.matches("the app is not preloaded: each worker has gevent change Python's modules")) == 1
    server = serve("frameworks.gevent:app", *GEVENT, "--preload", env=gate.environment)
    assert server.log.matches("`preload_app` from command line: it has no effect with gevent")
    with server.connect() as wire:
        assert wire.get("/patched").text == "socket ssl threading time True"


@pytest.mark.parametrize("path", ["stream", "whole", "two"])
def test_a_client_that_does_not_read_stops_no_other(serve: Serve, gate: Gate, both: Kind, path: str) -> None:
    server = serve("frameworks.gevent:app", kind=both, env=gate.environment)
    with server.connect() as slow, server.connect() as other:
        slow.send(request("GET", f"/{path}?30"))
        slow.head()
        for _ in range(20):
            assert other.get("/").status == 200
        assert not gate.announced()
        slow.close()


@pytest.mark.own("of one's own pieces: gunicorn has no order for them")
def test_pieces_of_two_greenlets_go_out_whole(serve: Serve, gate: Gate) -> None:
    server = serve("frameworks.gevent:app", *GEVENT, env=gate.environment)
    with server.connect() as wire:
        wire.read_slowly(1 << 16, 0.001)
        body = wire.get("/two?8").body
    found = Counter(body[at : at + (1 << 20)] for at in range(0, len(body), 1 << 20))
    assert found == {b"a" * (1 << 20): 8, b"b" * (1 << 20): 8}
    assert sorted(gate.announcements(2)) == ["a is written", "b is written"]


@pytest.mark.own("gunicorn may send the same bytes twice")
def test_an_answer_is_broken_off_when_a_timeout_comes_in_the_middle_of_a_piece(serve: Serve, gate: Gate) -> None:
    server = serve("frameworks.gevent:app", *GEVENT, env=gate.environment)
    with server.connect() as wire:
        wire.send(request("GET", "/impatient?64"))
        assert gate.announcement() == "the write has timed out"
        rest = wire.rest()
        assert not rest.endswith(b"0\r\n\r\n"), "the client sees that it is not whole"
        assert b"more" not in rest
    with server.connect() as wire:
        assert wire.get("/").status == 200


def test_a_client_that_has_gone_ends_its_stream(serve: Serve, gate: Gate, both: Kind) -> None:
    server = serve("frameworks.gevent:app", kind=both, env=gate.environment)
    mark = server.log.mark()
    wire = server.connect()
    wire.send(request("GET", "/stream?200"))
    wire.head()
    wire.reset()
    assert gate.announcement() == "the client has gone"
    with server.connect() as other:
        assert other.get("/").status == 200
    assert not server.log.matches("Traceback|the app failed", mark)


@pytest.mark.own("the words of the log")
def test_a_greenlet_that_is_killed_is_no_failure_of_the_app(serve: Serve, gate: Gate) -> None:
    server = serve("frameworks.gevent:app", *GEVENT, env=gate.environment)
    with server.connect() as wire:
        assert wire.get("/killed").status == 500
        assert wire.get("/").status == 200
    assert server.log.wait(r"INFO\] the greenlet of GET /killed .*was killed: the request ends there")
    assert not server.log.matches("GreenletExit|ERROR")


@pytest.mark.own("gunicorn's worker would not wait for others")
def test_greenlets_that_the_app_kills_before_they_begin_cost_their_requests_only(serve: Serve, gate: Gate) -> None:
    server = serve("frameworks.gevent:app", *GEVENT, "--worker-connections", "20", env=gate.environment)
    with ExitStack() as stack:
        wires: list[Wire] = [stack.enter_context(server.connect()) for _ in range(15)]
        assert wires[0].get("/kill?10").status == 200
        for wire in wires:
            wire.send(request("GET", "/"))
        assert Counter(wire.response().status for wire in wires) == {502: 10, 200: 5}
        again = [stack.enter_context(server.connect()) for _ in range(20)]
        for wire in again:
            wire.send(request("GET", "/hold"))
        gate.announcements(20)
        with server.connect() as full:
            full.send(request("GET", "/release"))
            assert full.silent(0.1), "all seats are taken, and there are as many as before"
        for wire in again[:1]:
            wire.reset()
