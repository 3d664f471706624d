"""Fixtures of the tests of asynchronous apps."""

from collections.abc import Callable
from typing import Any

import pytest

from support.asgi import FLAVOURS, OURS, Flavour
from support.server import Serve, Server

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
