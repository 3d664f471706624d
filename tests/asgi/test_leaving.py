"""The app learns at once that a client has left, whatever the app was doing."""

from contextlib import ExitStack

import pytest

from support.asgi import OURS
from support.gate import Gate
from support.server import UNHURRIED, Serve
from support.websocket import HANDSHAKE
from support.wire import Wire, request
from support.witness import acceptor_has_seen

pytestmark = pytest.mark.own("uvicorn's loop has the client's socket")

DOING = {
    "waits": request("GET", "/"),
    "is answered": request("GET", "/answers"),
    "sends a body": request("POST", "/", ["Content-Length: 200000"]) + bytes(100_000),
    "has a session": request("GET", "/", [f"{name}: {value}" for name, value in HANDSHAKE.items()]),
}


@pytest.mark.parametrize("loop", OURS)
def test_an_app_hears_of_clients_that_leave_before_a_timer_that_begins_afterwards(
    serve: Serve, gate: Gate, loop: str
) -> None:
    """A timer of one second, once the acceptor has noticed: whatever slows the loop down slows both."""
    server = OURS[loop].serve(serve, "looping:leaving", *UNHURRIED, env=gate.environment)
    ways = [(doing, leave) for doing in DOING for leave in (Wire.close, Wire.reset)]
    with ExitStack() as stack:
        wires = []
        for doing, _ in ways:
            wire = stack.enter_context(server.connect())
            wire.send(DOING[doing])
            assert gate.announcement() == "listens"
            wires.append(wire)
        for wire, (_, leave) in zip(wires, ways, strict=True):
            leave(wire)
        acceptor_has_seen(server.address)
        gate.let_pass(len(ways))
        heard = ["http.disconnect"] * 6 + ["websocket.disconnect"] * 2
        assert sorted(gate.announcements(len(ways))) == heard
        assert gate.announcements(len(ways)) == ["the timer"] * len(ways)
