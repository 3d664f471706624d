"""Fixtures of the tests of asynchronous apps."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from support.asgi import FLAVOURS, OURS, Flavour
from support.server import Serve, Server
from support.websocket import Ask, Open, WebSocket
from support.wire import Response, request

ServeAsgi = Callable[..., Server]


@pytest.fixture(scope="module", params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    """Each server in turn: what holds for all of them is what the specification says."""
    return FLAVOURS[request.param]


@pytest.fixture(params=OURS)
def serve_asgi(serve: Serve, request: pytest.FixtureRequest) -> ServeAsgi:
    """Start stanchion on each event loop in turn."""
    chosen = OURS[request.param]

    def started(app: str, *arguments: str, **options: Any) -> Server:
        return chosen.serve(serve, app, *arguments, **options)

    return started


@pytest.fixture
def opens() -> Iterator[Open]:
    """Open WebSockets, which end with the test."""
    with ExitStack() as clients:

        def opened(*arguments: Any, **options: Any) -> WebSocket:
            client = WebSocket(*arguments, **options)
            clients.callback(client.drop)
            return client

        yield opened


@pytest.fixture
def asked() -> Iterator[Ask]:
    """Get the answer to a handshake of these fields."""
    with ExitStack() as wires:

        def answered(server: Server, **fields: str) -> Response:
            wire = wires.enter_context(server.connect())
            wire.send(request("GET", "/", [f"{name}: {value}" for name, value in fields.items() if value]))
            return wire.response()

        yield answered
