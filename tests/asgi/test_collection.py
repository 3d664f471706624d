"""Garbage is collected wherever an object is made, and may use the request that it is made for: nothing hangs by it."""

import pytest

from asgi.conftest import ServeAsgi
from support.gate import Gate
from support.server import Server
from support.websocket import HANDSHAKE, WebSocket
from support.wire import request

pytestmark = pytest.mark.own("it has servers of its own")

BODY = bytes(range(256)) * 1000
LARGE = 4 * (8 << 20)


@pytest.fixture
def server(serve_asgi: ServeAsgi, gate: Gate) -> Server:
    return serve_asgi("looping:collecting", "--lifespan", "off", env=gate.environment)


def test_a_request_may_be_used_by_what_is_collected_for_it(server: Server) -> None:
    with server.connect() as wire:
        for _ in range(5):
            assert wire.post("/echo", BODY).body == BODY
            assert len(wire.get("/large").body) == LARGE
        assert int(wire.get("/often").text) > 0


def test_so_may_a_websocket(server: Server) -> None:
    client = WebSocket(server)
    try:
        for text in ("text", "x" * 300_000):
            client.text(text)
            assert client.hear() == text
        for data in (b"bytes", BODY):
            client.bytes(data)
            assert client.hear() == data
    finally:
        client.drop()


def test_one_may_be_accepted_while_the_next_request_is_taken(server: Server, gate: Gate) -> None:
    with server.connect() as waiting, server.connect() as wire:
        waiting.send(request("GET", "/later", [f"{name}: {value}" for name, value in HANDSHAKE.items()]))
        gate.announcement()
        assert wire.get("/echo").status == 200
        assert waiting.head().status == 101
