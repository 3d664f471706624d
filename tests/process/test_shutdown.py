"""TERM serves the requests that have come, INT and QUIT are quick, and no client is reset without an answer."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from support.ctl import ctl
from support.gate import Gate
from support.server import Serve, Server
from support.wire import Wire, request

NEVER_S = "600"
"""Far longer than a test waits: what takes this long is not quick."""


def hold_one(server: Server, gate: Gate) -> Wire:
    """Occupy the only worker."""
    wire = server.connect()
    wire.send(request("GET", "/wait?held"))
    assert gate.announcement().endswith("held")
    return wire


def test_an_idle_server_ends_at_once_on_term_even_with_idle_connections(serve: Serve) -> None:
    server = serve("hello:app", "--keep-alive", NEVER_S, "--graceful-timeout", NEVER_S)
    with server.connect() as idle:
        assert idle.get("/", "Connection: keep-alive").status == 200
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0
        assert idle.closed()


@pytest.mark.privileges
def test_term_lets_the_running_request_finish(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", env=gate.environment)
    held = hold_one(server, gate)
    server.signal(signal.SIGTERM)
    assert held.silent(0.5)
    gate.open()
    assert held.response().text.endswith("held")
    assert held.closed()
    held.close()
    assert server.exit_code() == 0


@pytest.mark.own("gunicorn resets what it has not accepted")
@pytest.mark.privileges
def test_term_serves_what_waits_in_the_line_and_in_the_kernel(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", env=gate.environment)
    acceptor: psutil.Process = server.acceptor()
    held = hold_one(server, gate)
    in_line = [server.connect() for _ in range(20)]
    for number, wire in enumerate(in_line):
        wire.send(request("GET", f"/pid?line-{number}"))
    with server.connect() as last_known:
        # Answered by the acceptor itself: all that was sent before on this loopback has been seen by then.
        last_known.send(b"nonsense\r\n\r\n")
        assert last_known.response().status == 400
    acceptor.suspend()
    in_kernel = [server.connect() for _ in range(20)]
    for number, wire in enumerate(in_kernel):
        wire.send(request("GET", f"/pid?kernel-{number}"))
    server.signal(signal.SIGTERM)
    acceptor.resume()
    gate.open()
    responses = [wire.response() for wire in [held, *in_line, *in_kernel]]
    assert [response.status for response in responses] == [200] * 41
    assert [response.text.split()[1] for response in responses[1:21]] == [f"line-{number}" for number in range(20)]
    for wire in [held, *in_line, *in_kernel]:
        assert wire.closed()
        wire.close()
    assert server.exit_code() == 0


@pytest.mark.own("gunicorn resets them")
def test_what_cannot_be_served_within_the_graceful_timeout_gets_a_503(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "--graceful-timeout", "1", env=gate.environment)
    held = hold_one(server, gate)
    waiting = [server.connect() for _ in range(10)]
    for wire in waiting:
        wire.send(request("GET", "/pid?late"))
    started_s = time.monotonic()
    server.signal(signal.SIGTERM)
    refused = [wire.response() for wire in waiting]
    assert [(one.status, one.header("Stanchion-Not-Run")) for one in refused] == [(503, "1")] * 10
    cut_off = held.response()
    assert cut_off.status in (502, 503), "the running one is cut off, and told so"
    assert cut_off.header("Stanchion-Not-Run") is None
    for wire in [held, *waiting]:
        assert wire.closed()
        wire.close()
    server.exit_code()
    assert time.monotonic() - started_s > 0.9


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_int_and_quit_do_not_wait_for_the_running_request(serve: Serve, gate: Gate, number: signal.Signals) -> None:
    server = serve("waiting:app", "--graceful-timeout", NEVER_S, env=gate.environment)
    held = hold_one(server, gate)
    server.signal(number)
    server.exit_code()
    held.close()


@pytest.mark.own("gunicorn resets them")
def test_int_answers_waiting_clients(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", env=gate.environment)
    held = hold_one(server, gate)
    waiting = server.connect()
    waiting.send(request("GET", "/pid"))
    with server.connect() as last_known:
        last_known.send(b"nonsense\r\n\r\n")
        assert last_known.response().status == 400
    server.signal(signal.SIGINT)
    cut_off, refused = held.response(), waiting.response()
    assert cut_off.status in (502, 503) and cut_off.header("Stanchion-Not-Run") is None
    assert refused.status == 503 and refused.header("Stanchion-Not-Run") == "1"
    for wire in (held, waiting):
        wire.close()
    assert server.exit_code() == 0


def test_int_during_a_drain_makes_it_quick(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "--graceful-timeout", NEVER_S, env=gate.environment)
    held = hold_one(server, gate)
    server.signal(signal.SIGTERM)
    assert held.silent(0.3)
    server.signal(signal.SIGINT)
    server.exit_code()
    held.close()


@pytest.mark.own("gunicorn's workers leave, and what they have not accepted is reset")
def test_term_to_all_processes_at_once_replaces_no_worker_and_serves_all(serve: Serve, gate: Gate) -> None:
    """systemd does so with KillMode=control-group, and supervisord with stopasgroup."""
    server = serve("waiting:app", "-w", "2", env=gate.environment)
    wires = [server.connect() for _ in range(6)]
    for wire in wires:
        wire.send(request("GET", "/wait?here"))
    workers = {gate.announcement().split()[0] for _ in range(2)}
    for process in server.processes():
        process.send_signal(signal.SIGTERM)
    server.log.wait("TERM: draining, then leaving")
    gate.open()
    answered = [wire.response() for wire in wires]
    assert [response.status for response in answered] == [200] * 6
    assert {response.text.split()[0] for response in answered} == workers
    for wire in wires:
        wire.close()
    assert server.exit_code() == 0
    assert len(list(server.log.matches("worker ready"))) == 2


@pytest.mark.own("gunicorn's lines are others")
def test_ctrl_c_ends_all_processes_and_replaces_no_worker(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "-w", "2", env=gate.environment)
    held = server.connect()
    held.send(request("GET", "/wait?held"))
    gate.announcement()
    os.killpg(os.getpgid(server.pid), signal.SIGINT)
    assert server.exit_code() == 0
    held.close()
    assert len(list(server.log.matches("worker ready"))) == 2


def test_a_second_term_does_not_make_it_quick(serve: Serve, gate: Gate) -> None:
    """Heroku and others send it more than once."""
    server = serve("waiting:app", "--graceful-timeout", NEVER_S, env=gate.environment)
    held = hold_one(server, gate)
    for _ in range(2):
        server.signal(signal.SIGTERM)
        assert held.silent(0.3)
    gate.open()
    assert held.response().text.endswith("held")
    held.close()
    assert server.exit_code() == 0


@pytest.mark.own("gunicorn announces nothing")
def test_during_a_drain_every_response_says_that_the_connection_ends(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", env=gate.environment)
    held = hold_one(server, gate)
    server.signal(signal.SIGTERM)
    assert held.silent(0.3)
    gate.open()
    assert held.response().closes()
    held.close()
    assert server.exit_code() == 0


@pytest.mark.own("gunicorn's control is another")
def test_ctl_drain_answers_when_it_has_begun_or_waits_for_the_end(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    control = tmp_path / "control"
    server = serve("waiting:app", "--control", f"unix:{control}", env=gate.environment)
    with server.connect() as held:
        held.send(request("GET", "/wait?held"))
        gate.announcement()
        begun = ctl(control, "drain")
        assert (begun.returncode, begun.stdout) == (0, "draining\n")
        # A master that gets no core for that second has not even answered.
        while "no answer within 1 s" in (too_long := ctl(control, "drain", "--wait", "--timeout", "1")).stderr:
            pass
        assert too_long.returncode == 1
        assert "the server has not ended within 1 s; it goes on to leave" in too_long.stderr
        with ThreadPoolExecutor() as pool:
            mark = server.log.mark()
            waits = pool.submit(ctl, control, "drain", "--wait")
            server.log.wait("draining already", mark)
            gate.open()
            assert held.response().status == 200
            assert waits.result().returncode == 0
    # Not a moment later: after `--wait` an operator may start the next server.
    assert server.process.poll() == 0
