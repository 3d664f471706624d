"""Files that an app sends by http.response.pathsend: by the acceptor, or through the exchange."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from support.server import Server
from support.wire import request

LARGE = 3_000_000
"""Bytes: more than the ring of an answer holds."""


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(random.Random(1).randbytes(LARGE))
    return path


@pytest.fixture(params=["--sendfile", "--no-sendfile"])
def server(request: pytest.FixtureRequest, serve_asgi: Callable[..., Server]) -> Server:
    return serve_asgi("asgi_cases:pathsend", "--lifespan", "off", "--pathsend", request.param)


def test_a_large_file_arrives_whole_and_head_tells_its_length(server: Server, large: Path) -> None:
    with server.connect() as wire:
        assert wire.get(str(large)).body == large.read_bytes()
        wire.send(request("HEAD", str(large)))
        assert wire.response("HEAD").header("content-length") == str(LARGE)
        assert wire.get(f"{large}?1000").body == large.read_bytes()[:1000]


def test_what_is_no_file_is_the_apps_failure_and_holds_up_no_request(server: Server, large: Path) -> None:
    fifo = large.parent / "fifo"
    os.mkfifo(fifo)
    with server.connect() as wire:
        for missing in (fifo, large.parent, large.parent / "nothing"):
            assert wire.get(str(missing)).status == 500
        assert wire.get(str(large)).body == large.read_bytes()
