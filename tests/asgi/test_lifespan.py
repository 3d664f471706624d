"""The lifespan of an app: apps that start up, need not, or cannot; the state that requests get; the end."""

import signal
from pathlib import Path

import pytest

from asgi.conftest import ServeAsgi
from support.asgi import OURS
from support.gate import Gate
from support.patience import PATIENCE_S
from support.server import Serve
from support.wire import request

pytestmark = pytest.mark.own("it has servers of its own")

APP = "asgi_lifespan:app"


def environment(gate: Gate, mode: str = "") -> dict[str, str]:
    return {"MODE": mode, **gate.environment}


def test_it_starts_up_before_requests_and_shuts_down_after_them(serve_asgi: ServeAsgi, gate: Gate) -> None:
    server = serve_asgi(APP, env=environment(gate))
    assert gate.announcement() == "lifespan.startup"
    with server.connect() as wire:
        # Each request changes a copy of its own, whose values are shared.
        assert [wire.get("/state").json() for _ in range(2)] == [[2, 1], [2, 2]]
        wire.send(request("GET", "/wait"))
        assert gate.announcement() == "waits"
        server.signal(signal.SIGTERM)
        assert wire.response().status == 200
    assert gate.announcements(3) == ["waited", "lifespan.shutdown", "left"]
    assert server.exit_code() == 0


def test_each_worker_has_its_own(serve_asgi: ServeAsgi, gate: Gate) -> None:
    serve_asgi(APP, "--workers", "2", env=environment(gate))
    assert gate.announcements(2) == ["lifespan.startup"] * 2


@pytest.mark.parametrize("mode", ["raises at once", "returns at once"])
def test_an_app_that_knows_no_lifespan_is_served_without(serve_asgi: ServeAsgi, gate: Gate, mode: str) -> None:
    server = serve_asgi(APP, env=environment(gate, mode))
    with server.connect() as wire:
        assert wire.get("/state").json() == [1, 1]
    assert "ERROR" not in server.log.text()


def test_an_app_that_fails_at_its_startup_is_served_and_complained_of(serve_asgi: ServeAsgi, gate: Gate) -> None:
    """The specification wants it served, as uvicorn does, which says nothing of why."""
    server = serve_asgi(APP, env=environment(gate, "raises"))
    with server.connect() as wire:
        assert wire.get("/state").json() == [1, 1]
    server.log.wait("the app failed at lifespan.startup")
    assert "the database is away" in server.log.text()


@pytest.mark.parametrize(
    ("mode", "arguments", "said"),
    [
        ("fails", [], "no database"),
        ("exits", [], "SystemExit"),
        ("raises", ["--lifespan", "on"], "the app raised RuntimeError at lifespan.startup"),
        ("returns at once", ["--lifespan", "on"], "does not support lifespan"),
    ],
)
def test_an_app_that_cannot_start_up_ends_the_server(
    build: Serve, gate: Gate, mode: str, arguments: list[str], said: str
) -> None:
    server = build(APP, "--interface", "asgi", *arguments, env=environment(gate, mode)).launch()
    assert server.exit_code() != 0
    server.log.wait(said)
    assert "never retrieved" not in server.log.text()


def test_lifespan_off(serve_asgi: ServeAsgi, gate: Gate) -> None:
    server = serve_asgi(APP, "--lifespan", "off", env=environment(gate))
    with server.connect() as wire:
        assert wire.get("/state").json() == [1, 1]
    assert gate.announced() == []


def test_an_answer_out_of_order_is_refused(serve_asgi: ServeAsgi, gate: Gate) -> None:
    server = serve_asgi(APP, env=environment(gate, "twice"))
    assert gate.announcements(2) == ["lifespan.startup", "refused"]
    server.signal(signal.SIGTERM)
    # The second one has not passed for the answer to the shutdown.
    assert gate.announcements(2) == ["lifespan.shutdown", "left"]


def test_an_answer_to_what_was_not_sent_is_refused(serve_asgi: ServeAsgi, gate: Gate) -> None:
    server = serve_asgi(APP, env=environment(gate, "wrong order"))
    server.log.wait("'lifespan.shutdown.complete' is no answer to what the server sent last")


@pytest.mark.parametrize(
    ("mode", "said"),
    [("shutdown fails", "cannot flush"), ("shutdown raises", "cannot close"), ("dies", "died while serving")],
)
def test_what_goes_wrong_later_is_logged(serve_asgi: ServeAsgi, gate: Gate, mode: str, said: str) -> None:
    server = serve_asgi(APP, env=environment(gate, mode))
    with server.connect() as wire:
        assert wire.get("/state").status == 200
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    server.log.wait(said)


def test_an_app_that_waits_for_an_event_after_the_last_is_not_waited_for(serve: Serve, gate: Gate) -> None:
    server = OURS["asyncio"].serve(serve, APP, "--graceful-timeout", "100", env=environment(gate, "asks again"))
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    assert gate.announcements(2) == ["lifespan.startup", "lifespan.shutdown"]
    assert gate.announced() == []


@pytest.mark.parametrize("mode", ["shutdown hangs", "shutdown hangs on"])
@pytest.mark.parametrize("loop", OURS)
def test_a_shutdown_that_hangs_is_given_up_in_time(
    serve: Serve, gate: Gate, tmp_path: Path, loop: str, mode: str
) -> None:
    """Before the master would kill the worker: what comes at its end still does."""
    hooks = tmp_path / "hooks.conf.py"
    hooks.write_text("def worker_exit(server, worker):\n    worker.log.info('the hook has run')\n")
    # A tenth of it, and no more than a second, is for that: uvloop's clock is the kernel's.
    graceful_s, ahead_s = ("100", "99.1") if loop == "asyncio" else ("10", "0")
    env = environment(gate, mode) | {"AHEAD_S": ahead_s}

    def leaves_in_time() -> bool:
        server = OURS[loop].serve(serve, APP, "--graceful-timeout", graceful_s, "--config", str(hooks), env=env)
        server.signal(signal.SIGTERM)
        assert server.exit_code(2 * PATIENCE_S) == 0
        server.log.wait_end()
        if server.log.matches("did not leave in time"):
            gate.announced()
            return False
        assert gate.announcements(3) == ["lifespan.startup", "lifespan.shutdown", "cancelled"]
        server.log.wait("the app's lifespan.shutdown does not end within graceful_timeout, and is given up")
        server.log.wait("the hook has run")
        return True

    # A worker that gets no core in that second has no time to leave.
    assert any(leaves_in_time() for _ in range(3))


def test_a_worker_that_is_to_leave_gives_the_startup_up(build: Serve, gate: Gate) -> None:
    arguments = ("--interface", "asgi", "--graceful-timeout", "100")
    server = build(APP, *arguments, env=environment(gate, "startup hangs")).launch()
    assert gate.announcement() == "lifespan.startup"
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    assert gate.announcement() == "cancelled"
    server.log.wait("the worker leaves before its app has started up: it was asked to leave")


def test_one_more_worker_whose_startup_hangs_can_be_taken_back(serve_asgi: ServeAsgi, gate: Gate) -> None:
    server = serve_asgi(APP, "--graceful-timeout", "100", env=environment(gate, "startup hangs later"))
    assert gate.announcement() == "lifespan.startup"
    server.signal(signal.SIGTTIN)
    assert gate.announcement() == "lifespan.startup"
    server.signal(signal.SIGTTOU)
    assert gate.announcement() == "cancelled"
    with server.connect() as wire:
        assert wire.get("/state").status == 200
