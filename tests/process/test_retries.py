"""With --retry-idempotent a request whose worker is killed before it has answered goes to another one, once."""

import os
import signal

import pytest

from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.server import Serve, Server
from support.wire import Response, Wire, chunked, request

pytestmark = pytest.mark.own("gunicorn resets the clients of a killed worker")

BODY = bytes(range(256)) * 400


@pytest.fixture
def server(serve: Serve, gate: Gate, counts: Counts) -> Server:
    return serve("waiting:app", "-w", "2", "--retry-idempotent", *counts.arguments, env=gate.environment)


def running(gate: Gate, query: str) -> int:
    """The worker in which it runs now."""
    pid, _, seen = gate.announcement().split()
    assert seen == query
    return int(pid)


def kill_once(server: Server, gate: Gate, wire: Wire, sent: bytes) -> tuple[int, int]:
    """Send a request and kill its worker; gives that and the next one it runs in."""
    wire.send(sent)
    first = running(gate, "again")
    os.kill(first, signal.SIGKILL)
    return first, running(gate, "again")


def assert_counted(counts: Counts, retried: int, **ended: int) -> None:
    settled = counts.settled()
    settled.pop("arrived")
    assert {name: count for name, count in settled.items() if count} == ended
    assert counts.events()["requests_retried"] == retried


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"])
def test_one_that_may_be_repeated_is_answered_by_another_worker(
    server: Server, gate: Gate, counts: Counts, method: str
) -> None:
    with server.connect() as wire:
        first, second = kill_once(server, gate, wire, request(method, "/wait?again"))
        gate.let_pass(1)
        answer = wire.response(method)
    assert first != second
    assert answer.status == 200
    if method != "HEAD":
        assert answer.text == f"{second} again"
    assert_counted(counts, 1, answered=1)
    server.log.wait(f"{method} /wait\\?again.*: the worker died before it had answered.* worker=\\d+ pid={first}$")


def test_one_whose_second_worker_dies_too_is_told_so(server: Server, gate: Gate, counts: Counts) -> None:
    with server.connect() as wire:
        _, second = kill_once(server, gate, wire, request("GET", "/wait?again"))
        os.kill(second, signal.SIGKILL)
        assert wire.response().status == 502
    assert_counted(counts, 1, refused_worker_died=1)


def assert_told_at_once(server: Server, gate: Gate, sent: bytes) -> Response:
    with server.connect() as wire:
        wire.send(sent)
        os.kill(running(gate, "again"), signal.SIGKILL)
        answer = wire.response()
    assert answer.status == 502
    return answer


@pytest.mark.parametrize("method", ["POST", "PATCH", "LOCK"])
def test_one_that_may_not_be_repeated_is_told_at_once(server: Server, gate: Gate, counts: Counts, method: str) -> None:
    assert_told_at_once(server, gate, request(method, "/wait?again"))
    assert_counted(counts, 0, refused_worker_died=1)


def test_one_whose_body_is_in_a_file_is_told_at_once(server: Server, gate: Gate, counts: Counts) -> None:
    assert_told_at_once(server, gate, request("PUT", "/wait?again", body=b"b" * 1_000_000))
    assert_counted(counts, 0, refused_worker_died=1)


def test_without_the_setting_no_request_is_given_to_a_second_worker(serve: Serve, gate: Gate, counts: Counts) -> None:
    server = serve("waiting:app", "-w", "2", *counts.arguments, env=gate.environment)
    assert_told_at_once(server, gate, request("GET", "/wait?again"))
    assert_counted(counts, 0, refused_worker_died=1)


@pytest.mark.parametrize(
    "sent",
    [
        request("PUT", "/echo?again", body=BODY),
        request("PUT", "/echo?again", ["Transfer-Encoding: chunked"]) + chunked([BODY[:50_000], BODY[50_000:]]),
    ],
    ids=["length", "chunked"],
)
def test_a_body_in_memory_is_there_whole_the_second_time(
    server: Server, gate: Gate, counts: Counts, sent: bytes
) -> None:
    with server.connect() as wire:
        kill_once(server, gate, wire, sent)
        gate.let_pass(1)
        assert wire.response().body == BODY
    assert_counted(counts, 1, answered=1)


def test_one_whose_answer_has_begun_is_broken_off(server: Server, gate: Gate, counts: Counts) -> None:
    with server.connect() as wire:
        wire.send(request("GET", "/hold-stream"))
        assert wire.head().status == 200
        os.kill(running(gate, "stream"), signal.SIGKILL)
        assert not wire.rest().endswith(b"0\r\n\r\n")
    assert_counted(counts, 0, broken_off=1)


def test_one_that_ran_into_its_timeout_is_told_so_and_not_repeated(
    serve: Serve, gate: Gate, counts: Counts, clock: Clock
) -> None:
    arguments = ["-w", "2", "--retry-idempotent", "--timeout", "100", *counts.arguments]
    server = serve("waiting:app", *arguments, env=gate.environment | clock.environment)
    with server.connect() as wire:
        wire.send(request("GET", "/wait?again"))
        running(gate, "again")
        clock.advance(101)
        assert wire.response().status == 504
    server.log.wait_for("worker ready", 3)
    assert_counted(counts, 0, refused_worker_timed_out=1)
    assert gate.announced() == []


def test_it_goes_before_requests_that_wait_in_the_line(serve: Serve, gate: Gate, counts: Counts) -> None:
    server = serve("waiting:app", "--retry-idempotent", *counts.arguments, env=gate.environment)
    wires = []
    for query in ("again", "handed-out", "waiting"):
        wire = server.connect()
        wire.send(request("GET", f"/wait?{query}"))
        wires.append(wire)
        if query == "again":
            first = running(gate, "again")
        with server.connect() as witness:
            # Answered by the acceptor itself, which has read by then what came before.
            witness.send(b"nonsense\r\n\r\n")
            assert witness.response().status == 400
    os.kill(first, signal.SIGKILL)
    # One was handed out ahead to the seat; it stays where it is.
    for query in ("handed-out", "again", "waiting"):
        running(gate, query)
        gate.let_pass(1)
    for wire in wires:
        assert wire.response().status == 200
        wire.close()


def test_a_client_that_leaves_before_its_second_worker_comes_is_gone(serve: Serve, gate: Gate, counts: Counts) -> None:
    server = serve("waiting:app", "--preload", "--retry-idempotent", *counts.arguments, env=gate.environment)
    with server.connect() as wire:
        wire.send(request("GET", "/wait?again"))
        worker = running(gate, "again")
        template = next(
            child for child in server.processes() if child.pid not in (server.pid, server.acceptor().pid, worker)
        )
        template.suspend()
        os.kill(worker, signal.SIGKILL)
        server.log.wait("another one gets the request")
    try:
        assert counts.settled()["abandoned_waiting"] == 1
    finally:
        template.resume()
    server.log.wait_for("worker ready", 2)
    assert gate.announced() == []
