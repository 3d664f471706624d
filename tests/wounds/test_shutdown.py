"""TERM serves each client that has connected by then, however little of its request has come, and loses no log line."""

import contextlib
import signal
import time
from pathlib import Path

import psutil
import pytest

from support.gate import Gate
from support.patience import eventually
from support.server import UNHURRIED, Serve, Server
from support.wire import Wire, request

HEAD_START, HEAD_REST = b"GET /pid?late HTTP/1.1\r\nHo", b"st: test\r\n\r\n"
IN_KERNEL = 30
KNOCK_S = 0.1
NEWCOMER_S = 1
"""So long a connection that has sent nothing is kept while the server leaves, as
crates/stanchion-connections/src/judging.rs has it."""
ATTEMPTS = 5
TOO_SLOW = f"the test itself took more than {NEWCOMER_S} s each time, which says nothing of the server"


def door_is_closed(server: Server) -> bool:
    """Whether the kernel drops new connections without an answer."""
    try:
        server.connect(KNOCK_S).close()
    except TimeoutError:
        return True
    return False


def occupy(wire: Wire, gate: Gate) -> None:
    """Hold the only worker."""
    wire.send(request("GET", "/wait?held"))
    gate.announcement()


def assert_is_served_last(wire: Wire) -> None:
    response = wire.response()
    assert response.status == 200
    assert response.closes()
    assert wire.closed()


@pytest.mark.own("gunicorn resets them")
@pytest.mark.privileges
def test_term_serves_clients_that_have_connected_or_are_sending_a_head(serve: Serve, gate: Gate) -> None:
    def is_in_time() -> bool:
        server = serve("waiting:app", env=gate.environment)
        with server.connect() as kept, server.connect() as held, server.connect() as first:
            assert kept.get("/pid").status == 200
            kept.send(HEAD_START)
            occupy(held, gate)
            first.send(HEAD_START)
            began_s = time.monotonic()
            with server.connect() as new:
                server.signal(signal.SIGTERM)
                eventually(lambda: door_is_closed(server), "nobody else can connect")
                new.send(request("GET", "/pid?late"))
                is_late = time.monotonic() - began_s > NEWCOMER_S
                kept.send(HEAD_REST)
                first.send(HEAD_REST)
                gate.let_pass(1)
                for wire in (held, *([] if is_late else [new]), kept, first):
                    assert_is_served_last(wire)
        assert server.exit_code() == 0
        return not is_late

    assert any(is_in_time() for _ in range(ATTEMPTS)), TOO_SLOW


@pytest.mark.own("gunicorn resets them")
def test_term_serves_clients_that_wait_in_the_kernel_and_have_sent_nothing(serve: Serve, gate: Gate) -> None:
    def is_in_time() -> bool:
        server = serve("waiting:app", env=gate.environment)
        acceptor: psutil.Process = server.acceptor()
        with server.connect() as held, contextlib.ExitStack() as wires_end:
            occupy(held, gate)
            acceptor.suspend()
            wires = [wires_end.enter_context(server.connect()) for _ in range(IN_KERNEL)]
            server.signal(signal.SIGTERM)
            server.log.wait("TERM: draining")
            began_s = time.monotonic()
            acceptor.resume()
            eventually(lambda: door_is_closed(server), "nobody else can connect")
            with contextlib.suppress(ConnectionError):
                for wire in wires:
                    wire.send(request("GET", "/pid?late"))
            is_late = time.monotonic() - began_s > NEWCOMER_S
            gate.let_pass(1)
            for wire in (held, *([] if is_late else wires)):
                assert_is_served_last(wire)
        assert server.exit_code() == 0
        return not is_late

    assert any(is_in_time() for _ in range(ATTEMPTS)), TOO_SLOW


@pytest.mark.own("gunicorn has no time limit on a graceful end with one thread")
def test_answers_cut_off_at_the_end_of_the_graceful_timeout_are_in_the_access_log(
    serve: Serve, gate: Gate, tmp_path: Path
) -> None:
    log = tmp_path / "access"
    server = serve(
        "waiting:app",
        *("--graceful-timeout", "1", "--threads", "3", "--access-logfile", str(log)),
        *("--access-logformat", "%(U)s %(s)s", *UNHURRIED),
        env=gate.environment,
    )
    with server.connect() as streamed, server.connect() as held, server.connect() as upload:
        streamed.send(request("GET", "/hold-stream"))
        held.send(request("GET", "/wait?held"))
        upload.send(request("POST", "/upload", ["Content-Length: 100000"]) + b"x" * 1000)
        gate.announcements(2)
        server.signal(signal.SIGTERM)
        assert streamed.torn_response().body == b"first"
        for wire in (held, upload):
            assert wire.response().status == 503
    server.exit_code()
    assert sorted(log.read_text().splitlines()) == ["/hold-stream 200", "/upload 503", "/wait 503"]
