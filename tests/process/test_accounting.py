"""Every request ends in exactly one count, and the counts outlive reloads and acceptors."""

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator

import psutil
import pytest

from support.address import Address
from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.patience import eventually
from support.ports import LOOPBACK, row_of_ports
from support.processes import gone
from support.server import UNHURRIED, Serve, Server
from support.unread import until_read
from support.wire import BrokenOff, Wire, chunked, request

pytestmark = pytest.mark.own("gunicorn counts nothing")

FORM = "Content-Type: application/octet-stream"


@pytest.fixture(scope="module")
def strict_counts(tmp_path_factory: pytest.TempPathFactory) -> Counts:
    return Counts(tmp_path_factory.mktemp("strict") / "ctl")


@pytest.fixture(scope="module")
def strict_clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clock]:
    clock = Clock(tmp_path_factory.mktemp("strict") / "clock")
    yield clock
    clock.close()


@pytest.fixture(scope="module")
def strict(shared_serve: Serve, strict_counts: Counts, strict_clock: Clock) -> Server:
    limits = ["--limit-request-line", "500", "--limit-request-field-size", "500", "--limit-request-body", "1000"]
    times = ["--header-timeout", "100", "--body-timeout", "100", *UNHURRIED]
    return shared_serve("echo:app", *limits, *times, *strict_counts.arguments, env=strict_clock.environment)


@pytest.mark.parametrize(
    ("sent", "status", "name"),
    [
        (b"nonsense\r\n\r\n", 400, "refused_bad_request"),
        (request("GET", "/", host=None), 400, "refused_bad_request"),
        (request("GET", "/", ["Host: other"]), 400, "refused_bad_request"),
        (request("POST", "/", ["Transfer-Encoding: chunked"]) + b"x\r\n", 400, "refused_bad_request"),
        (request("CONNECT", "a:1"), 501, "refused_unimplemented"),
        (request("POST", "/", ["Transfer-Encoding: gzip, chunked"]), 501, "refused_unimplemented"),
        (request("GET", "/", ["Expect: miracles"]), 417, "refused_unknown_expectation"),
        (request("GET", "/" + "x" * 500), 414, "refused_line_too_long"),
        (request("GET", "/", ["X-Long: " + "x" * 500]), 431, "refused_field_too_large"),
        (request("GET", "/", [f"X-{number}: x" for number in range(101)]), 431, "refused_head_too_large"),
        (request("POST", "/", ["Content-Length: 1001"]), 413, "refused_body_too_large"),
        (b"GET / HT", 408, "refused_head_timeout"),
        (request("POST", "/", ["Content-Length: 10"]) + b"half", 408, "refused_body_timeout"),
        (request("GET", "/"), 200, "answered"),
        (request("POST", "/", ["Transfer-Encoding: chunked"]) + chunked([b"a", b"b"]), 200, "answered"),
        (request("GET", "/", version="1.0"), 200, "answered"),
    ],
)
def test_a_request_is_counted_by_what_it_was_told(
    strict: Server, strict_counts: Counts, strict_clock: Clock, sent: bytes, status: int, name: str
) -> None:
    with strict_counts.one_more(name), strict.connect() as wire:
        wire.send(sent)
        if status == 408:
            until_read(wire)
            strict_clock.advance(101)
        assert wire.response().status == status


@pytest.mark.parametrize("leave", [Wire.close, Wire.reset, Wire.half_close])
@pytest.mark.parametrize("framing", ["Content-Length: 10", "Transfer-Encoding: chunked"])
def test_a_client_that_leaves_its_body_half_sent_is_counted_so(
    strict: Server, strict_counts: Counts, leave: Callable[[Wire], None], framing: str
) -> None:
    with strict_counts.one_more("abandoned_reading"):
        wire = strict.connect()
        wire.send(request("POST", "/", [framing]) + b"5\r\nhel")
        leave(wire)
        wire.close()


@pytest.mark.parametrize(
    ("app", "path"),
    [
        ("answers:app", "/chunks"),
        ("answers:app", "/with-length"),
        ("answers:app", "/no-content-with-body"),
        ("answers:app", "/raises"),
        ("waiting:app", "/hold-stream"),
        ("bodies:flowing", "/told?400000"),
        ("bodies:files", "/"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_answer_that_is_whole_is_counted_as_answered(
    serve: Serve, gate: Gate, counts: Counts, app: str, path: str, method: str
) -> None:
    server = serve(app, *counts.arguments, env={**gate.environment, "FILE": __file__})
    gate.let_pass(1)
    with counts.one_more("answered"), server.connect() as wire:
        assert wire.ask(method, path).status in (200, 204, 500)


def hold(server: Server, gate: Gate, query: str = "held") -> Wire:
    """Have a request run, until it is let pass."""
    wire = server.connect()
    wire.send(request("GET", f"/wait?{query}"))
    gate.announcement()
    return wire


def wait_behind(server: Server, counts: Counts, how_many: int) -> list[Wire]:
    """Have requests wait behind those that run, in this order; the first is handed out ahead to the only seat."""
    wires = []
    for _ in range(how_many):
        before = counts.requests()["arrived"]
        wire = server.connect()
        wire.send(request("GET", "/pid?behind"))
        eventually(lambda before=before: counts.requests()["arrived"] == before + 1, "it has arrived")
        wires.append(wire)
    return wires


@pytest.mark.parametrize("leave", [Wire.close, Wire.reset])
def test_a_client_that_leaves_is_counted_by_where_its_request_was(
    serve: Serve, gate: Gate, counts: Counts, leave: Callable[[Wire], None]
) -> None:
    server = serve("waiting:app", *counts.arguments, env=gate.environment)
    running = hold(server, gate)
    handed_out, in_line = wait_behind(server, counts, 2)
    for wire, name in [
        (in_line, "abandoned_waiting"),
        (handed_out, "abandoned_handed_out"),
        (running, "abandoned_running"),
    ]:
        with counts.one_more(name):
            leave(wire)
    gate.let_pass(1)
    with counts.one_more("abandoned_answering"):
        wire = server.connect()
        wire.send(request("GET", "/hold-stream"))
        assert wire.head().status == 200
        leave(wire)
    gate.let_pass(1)
    assert counts.settled()["arrived"] == 4


def test_clients_that_the_line_turns_away_are_counted_by_why(
    serve: Serve, gate: Gate, counts: Counts, clock: Clock
) -> None:
    limits = ("--max-waiting", "1", "--queue-timeout", "100", "--timeout", "0")
    server = serve("waiting:app", *limits, *counts.arguments, env=gate.environment | clock.environment)
    running = hold(server, gate)
    handed_out, in_line = wait_behind(server, counts, 2)
    with counts.one_more("refused_line_full"), server.connect() as wire:
        assert wire.get("/pid").status == 503
    leaving_first = counts.requests()["refused_waited_too_long"]
    clock.advance(101)
    for wire in (handed_out, in_line):
        assert wire.response().status == 503
        wire.close()
    assert counts.requests()["refused_waited_too_long"] == leaving_first + 2
    gate.let_pass(1)
    assert running.response().status == 200
    running.close()
    assert counts.settled()["answered"] == 1


def test_the_status_says_how_many_seats_are_busy_and_for_how_long(serve: Serve, gate: Gate, counts: Counts) -> None:
    """All that `ctl status` shows of a jam, beside what the line has turned away."""
    server = serve("waiting:app", "-w", "2", "--threads", "2", *counts.arguments, env=gate.environment)

    def seats() -> tuple[int, int, bool]:
        status = counts.status()
        return status["seats_busy"], status["seats_total"], status["running_longest_us"] is not None

    assert seats() == (0, 4, False)
    held = [hold(server, gate) for _ in range(3)]
    assert seats() == (3, 4, True)
    gate.let_pass(3)
    for wire in held:
        assert wire.response().status == 200
        wire.close()
    eventually(lambda: seats() == (0, 4, False), "all seats are idle")


def test_a_request_too_many_of_one_client_is_counted_so(serve: Serve, gate: Gate, counts: Counts) -> None:
    server = serve("waiting:app", "--max-waiting-per-client", "1", *counts.arguments, env=gate.environment)
    held = [hold(server, gate), *wait_behind(server, counts, 2)]
    with counts.one_more("refused_too_many_of_client"), server.connect() as wire:
        assert wire.get("/pid").status == 429
    gate.let_pass(1)
    for wire in held:
        assert wire.response().status == 200
        wire.close()
    assert counts.settled()["answered"] == 3


def test_the_oldest_of_a_line_that_stands_is_counted_so(serve: Serve, gate: Gate, counts: Counts) -> None:
    adaptive = ("--queue-order", "adaptive", "--queue-target", "0.5")
    server = serve("waiting:app", *adaptive, *counts.arguments, env=gate.environment)
    running = hold(server, gate)
    handed_out, in_line = wait_behind(server, counts, 2)
    assert in_line.response().status == 503
    assert counts.requests()["refused_shed"] == 1
    gate.let_pass(1)
    for wire in (running, handed_out):
        assert wire.response().status == 200
        wire.close()
    in_line.close()
    assert counts.settled()["answered"] == 2


def test_clients_that_wait_at_the_port_of_an_absent_worker_are_counted_so(
    serve: Serve, gate: Gate, counts: Counts, clock: Clock
) -> None:
    with row_of_ports(1) as base:
        arguments = ["--worker-port-base", str(base), "--queue-timeout", "100"]
        server = serve("waiting:app", *arguments, *counts.arguments, env=gate.environment | clock.environment)
        own = Address(LOOPBACK, base)
        with Wire.connect(own) as wire:
            pid = int(wire.get("/pid").text.split()[0])
        server.signal(signal.SIGWINCH)
        gone(pid)
        eventually(lambda: counts.workers() == [], "the master knows")
        arrived = counts.requests()["arrived"]
        with counts.one_more("refused_worker_absent"), Wire.connect(own) as wire:
            wire.send(request("GET", "/pid"))
            eventually(lambda: counts.requests()["arrived"] == arrived + 1, "it waits")
            clock.advance(101)
            assert wire.response().status == 503


def test_a_request_whose_worker_dies_is_counted_by_what_there_was_of_its_answer(
    serve: Serve, gate: Gate, counts: Counts
) -> None:
    server = serve("waiting:app", *counts.arguments, env=gate.environment)
    with counts.one_more("refused_worker_died"), server.connect() as wire:
        wire.send(request("GET", "/wait?killed"))
        os.kill(int(gate.announcement().split()[0]), signal.SIGKILL)
        assert wire.response().status == 502
    with counts.one_more("broken_off"), server.connect() as wire:
        wire.send(request("GET", "/hold-stream"))
        os.kill(int(gate.announcement().split()[0]), signal.SIGKILL)
        with pytest.raises(BrokenOff):
            wire.response()


def test_an_answer_that_the_app_breaks_off_is_counted_so(serve: Serve, gate: Gate, counts: Counts) -> None:
    server = serve("answers:app", *counts.arguments, env=gate.environment)
    with counts.one_more("broken_off"), server.connect() as wire, pytest.raises(BrokenOff):
        wire.get("/start-again-after-the-head")


def test_a_request_past_its_deadline_is_counted_so(serve: Serve, gate: Gate, counts: Counts) -> None:
    server = serve("waiting:app", "--timeout", "1", *counts.arguments, env=gate.environment)
    with counts.one_more("refused_worker_timed_out"), server.connect() as wire:
        assert wire.get("/wait?stuck").status == 504


def test_a_request_whose_answer_the_acceptor_cannot_take_is_counted_so(
    serve: Serve, gate: Gate, counts: Counts
) -> None:
    """Without a descriptor left it does not get the file that the worker hands over (unix(7), SCM_RIGHTS)."""
    server = serve("keeping:hoarding", *counts.arguments, env=gate.environment)
    acceptor = server.acceptor()
    with counts.one_more("refused_no_answer"), server.connect() as wire:
        wire.send(request("GET", "/file-on-pass"))
        assert gate.announcement() == "waits"
        _, most = acceptor.rlimit(psutil.RLIMIT_NOFILE)
        # Below what it has, so that a connection which it closes in this moment makes no room.
        acceptor.rlimit(psutil.RLIMIT_NOFILE, (3, most))
        gate.let_pass(1)
        assert wire.response().status == 502


def test_a_body_that_cannot_be_spooled_is_counted_so(serve: Serve, counts: Counts) -> None:
    server = serve("echo:app", "--body-memory", "1000", *counts.arguments)
    for directory in server.tmp.glob("stanchion-*"):
        shutil.rmtree(directory)
    with counts.one_more("refused_spool_failed"), server.connect() as wire:
        assert wire.post("/", b"b" * 10_000, FORM).status == 503


def test_who_is_told_and_who_is_cut_off_at_shutdown_is_in_the_last_log(
    serve: Serve, gate: Gate, counts: Counts
) -> None:
    server = serve("waiting:app", "--graceful-timeout", "1", *counts.arguments, env=gate.environment)
    with server.connect() as streaming:
        streaming.send(request("GET", "/hold-stream"))
        assert streaming.head().status == 200
        gate.announcement()
        waiting = wait_behind(server, counts, 2)
        server.signal(signal.SIGTERM)
        for wire in waiting:
            assert wire.response().status == 503
            wire.close()
        with contextlib.suppress(ConnectionResetError):
            assert not streaming.rest().endswith(b"0\r\n\r\n")
    gate.open()
    server.log.wait("requests arrived=3 cut_at_shutdown=1 refused_shutting_down=2$")
    assert server.exit_code() == 0
    assert not server.log.matches("do not add up")


def test_what_an_acceptor_had_in_hand_when_it_was_killed_is_counted_by_the_next(
    serve: Serve, gate: Gate, counts: Counts
) -> None:
    server = serve("waiting:app", "-w", "2", *counts.arguments, env=gate.environment)
    acceptor = server.acceptor()
    with server.connect() as wire:
        assert wire.get("/pid").status == 200
    eventually(lambda: counts.open_connections() == 0, "the acceptor has seen these leave")
    lost = [hold(server, gate) for _ in range(2)] + wait_behind(server, counts, 3)
    acceptor.kill()
    for wire in lost:
        with pytest.raises((BrokenOff, ConnectionResetError)):
            wire.response()
        wire.close()
    gate.let_pass(2)
    with server.connect() as wire:
        assert wire.get("/pid").status == 200
    after = counts.settled()
    assert {name: count for name, count in after.items() if count} == {
        "arrived": 7,
        "answered": 2,
        "lost_with_acceptor": 5,
    }
    server.log.wait("requests lost with an acceptor that was killed: 5")
    assert counts.events()["connections_lost"] == 5


def test_no_count_goes_back_when_a_reload_replaces_the_house(serve: Serve, gate: Gate, counts: Counts) -> None:
    server = serve("waiting:app", *counts.arguments, env=gate.environment)
    for number in range(1, 4):
        with server.connect() as wire:
            assert wire.get("/pid").status == 200
        mark = server.log.mark()
        server.signal(signal.SIGHUP)
        server.log.wait(f"reloaded: generation {number + 1} serves", since=mark)
        eventually(lambda: counts.status()["retiring"] == [], "the old house has gone")
        assert counts.settled()["answered"] == number


def test_connections_are_counted_when_they_come_and_when_they_go(serve: Serve, counts: Counts) -> None:
    server = serve("hello:app", *counts.arguments)
    before = counts.events()
    wires = [server.connect() for _ in range(5)]
    for wire in wires:
        assert wire.get("/").status == 200
    assert counts.events()["connections_accepted"] == before["connections_accepted"] + 5
    for wire in wires:
        wire.close()
    closed = before["connections_closed"] + 5
    eventually(lambda: counts.events()["connections_closed"] == closed, "all have gone")
