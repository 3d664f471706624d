"""The clock that a test sets forward is that of the whole server, and nothing but the named file moves it."""

from pathlib import Path

from support.clock import Clock
from support.gate import Gate
from support.server import Serve
from support.wire import request


def test_a_test_sets_the_clock_of_master_acceptor_and_workers_forward(serve: Serve, gate: Gate, clock: Clock) -> None:
    """The acceptor closes an idle connection; the master replaces a worker whose request takes too long."""
    server = serve(
        "waiting:app",
        *("--timeout", "3600", "--keep-alive", "1000", "--log-level", "info"),
        env=gate.environment | clock.environment,
    )
    with server.connect() as idle, server.connect() as stuck:
        assert idle.get("/pid").status == 200
        stuck.send(request("GET", "/wait?held"))
        gate.announcement()
        clock.advance(1001)
        assert idle.closed()
        assert stuck.silent(0.1), "its own deadline has not come"
        clock.advance(2600)
        assert stuck.response().status == 504
        server.log.wait("worker 0 .*timeout")


def test_a_clock_that_cannot_be_read_stops_the_start(build: Serve, tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(bytes(7))
    for file, why in (("short", "shorter than eight bytes"), ("gone", "No such file")):
        server = build("hello:app", env={"STANCHION_CLOCK": str(tmp_path / file)}).launch()
        assert server.exit_code() == 2
        server.log.wait_end()
        assert f"cannot follow the clock in {tmp_path / file}, which STANCHION_CLOCK names for tests: {why}" in (
            server.log.text()
        )
