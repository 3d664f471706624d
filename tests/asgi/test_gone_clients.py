"""Clients that leave in the middle of a stream: as with uvicorn, the log has nothing but what the app has printed."""

import signal
from collections.abc import Callable

import pytest

from support.asgi import OURS, Flavour
from support.clock import Clock
from support.gate import Gate
from support.patience import eventually
from support.server import UNHURRIED, Serve, Server
from support.wire import Wire, request
from support.witness import acceptor_has_seen

pytestmark = pytest.mark.own("it has servers of its own")

APP = "frameworks.departing:app"
LEAVE: dict[str, Callable[[Wire], None]] = {"closes": Wire.close, "resets": Wire.reset}
ENDED = {
    # How the generator ends that gives the stream.
    "/streaming": ["CancelledError"],
    "/with-last-word": ["CancelledError"],
    "/with-task": ["CancelledError", "background task"],
    "/events": ["CancelledError"],
    "/fastapi/streaming": ["CancelledError"],
    "/stamped/streaming": ["CancelledError"],
    "/stamped/events": ["CancelledError"],
    "/gzipped/streaming": ["CancelledError"],
}
PASSED_ON = {"/events", "/stamped/streaming", "/stamped/events"}
"""Code between the generator and the server waits, too."""
CLIENTS = 5
"""So many leave, each at another moment of the stream's."""


def begun(server: Server, path: str) -> Wire:
    """A client that has got the start of a stream."""
    wire = server.connect()
    wire.send(request("GET", path, ["Accept-Encoding: gzip"]))
    assert wire.head().status == 200
    wire.body_bytes(1)
    return wire


def collected(server: Server) -> int:
    """The number of tasks, once what is left of streams is finalized."""
    with server.connect() as wire:
        return int(wire.get("/collect").text)


def heard_by_now(server: Server, gate: Gate, before: list[str]) -> list[str]:
    """The app's announcements, with those before, once what is left of streams is finalized."""
    collected(server)
    before += gate.announced()
    return before


def said(server: Server, since: int) -> list[str]:
    """The log since so many lines, but for lines about what `acceptor_has_seen` has sent."""
    return [line for line in server.log.lines()[since:] if "the method is not a token" not in line]


@pytest.mark.parametrize("how", LEAVE)
@pytest.mark.parametrize("path", ENDED)
def test_a_stream_ends_quietly(serve: Serve, gate: Gate, flavour: Flavour, path: str, how: str) -> None:
    server = flavour.serve(serve, APP, "--lifespan", "off", env=gate.environment)
    alone = collected(server)
    lines = len(server.log.lines())
    wires = [begun(server, path) for _ in range(CLIENTS)]
    for wire in wires:
        LEAVE[how](wire)
    # A generator that is cancelled where its framework passes on what it has yielded ends once it is collected.
    ended: list[str] = []
    eventually(lambda: len(heard_by_now(server, gate, ended)) == CLIENTS * len(ENDED[path]), "all have ended")
    ended = ["CancelledError" if end == "GeneratorExit" and path in PASSED_ON else end for end in ended]
    assert sorted(ended) == sorted(ENDED[path] * CLIENTS)
    # sse-starlette keeps a task of its own.
    eventually(lambda: collected(server) <= alone + 1, "no task of theirs is left")
    assert said(server, lines) == []


@pytest.mark.parametrize("how", LEAVE)
def test_a_stream_whose_client_does_not_read_ends_quietly(serve: Serve, gate: Gate, flavour: Flavour, how: str) -> None:
    """Its generator is suspended while the app waits for room."""
    server = flavour.serve(serve, APP, "--lifespan", "off", env=gate.environment)
    alone = collected(server)
    lines = len(server.log.lines())
    wire = begun(server, "/flood")
    LEAVE[how](wire)
    ended: list[str] = []
    eventually(lambda: heard_by_now(server, gate, ended), "it has ended")
    eventually(lambda: collected(server) == alone, "no task of it is left")
    assert said(server, lines) == []


@pytest.mark.parametrize("how", LEAVE)
def test_an_app_that_prints_each_failure_has_none_to_print(
    serve: Serve, gate: Gate, flavour: Flavour, how: str
) -> None:
    server = flavour.serve(serve, APP, "--lifespan", "off", env=gate.environment)
    lines = len(server.log.lines())
    wire = begun(server, "/raw/rows")
    assert gate.announcement() == "begun"
    LEAVE[how](wire)
    if flavour.is_ours:
        acceptor_has_seen(server.address)
    gate.let_pass(1)
    assert gate.announcement() == "over"
    collected(server)
    assert said(server, lines) == []


@pytest.mark.parametrize("path", ["/with-own-error", "/raw/with-own-error"])
def test_an_error_of_the_apps_own_is_told(serve: Serve, gate: Gate, flavour: Flavour, path: str) -> None:
    """It is raised in a `finally`, after what the client's leave has raised."""
    server = flavour.serve(serve, APP, "--lifespan", "off", env=gate.environment)
    wire = begun(server, path)
    mark = server.log.mark()
    LEAVE["closes"](wire)
    if path.startswith("/raw"):
        assert gate.announcement() == "begun"
        if flavour.is_ours:
            acceptor_has_seen(server.address)
        gate.let_pass(1)
    server.log.wait("the app failed at" if flavour.is_ours else "Exception in ASGI application", mark)
    server.log.wait("KeyError: 'own'", mark)
    # Its task is over.
    collected(server)
    assert len(server.log.matches("Exception in ASGI application|the app failed at")) == 1


@pytest.mark.parametrize("loop", OURS)
def test_an_app_that_sends_on_for_ten_seconds_is_told_by_an_oserror(
    serve: Serve, gate: Gate, clock: Clock, loop: str
) -> None:
    """Otherwise a stream without end would have its seat for ever, as with uvicorn."""
    server = OURS[loop].serve(serve, APP, *UNHURRIED, env=gate.environment | clock.environment)
    lines = len(server.log.lines())
    wire = begun(server, "/raw/until-it-raises")
    assert gate.announcement() == "begun"
    wire.close()
    acceptor_has_seen(server.address)
    gate.let_pass(1)
    assert gate.announcement() == "sent"
    clock.advance(9)
    collected(server)
    clock.advance(2)
    assert gate.announcement() == "raised"
    collected(server)
    assert said(server, lines) == []


def test_a_worker_that_leaves_waits_for_no_app_that_sends_in_vain(serve: Serve, gate: Gate) -> None:
    server = serve(APP, "--interface", "asgi", "--graceful-timeout", "3", env=gate.environment)
    wire = begun(server, "/raw/until-it-raises")
    assert gate.announcement() == "begun"
    wire.close()
    acceptor_has_seen(server.address)
    gate.let_pass(1)
    assert gate.announcement() == "sent"
    server.signal(signal.SIGTERM)
    assert gate.announcement() == "raised"
    assert server.exit_code() == 0
    server.log.wait_end()
    assert not server.log.matches("did not leave in time")


@pytest.mark.parametrize("loop", OURS)
def test_an_app_that_never_waits_lets_others_hear_that_its_client_has_left(serve: Serve, gate: Gate, loop: str) -> None:
    server = OURS[loop].serve(serve, APP, env=gate.environment)
    wire = begun(server, "/raw/tight")
    assert gate.announcement() == "begun"
    wire.close()
    assert gate.announcement() == "cancelled True"
