"""wsgi.input in every way of reading, on bodies of every size, in both framings, in memory and from the spool."""

import hashlib
import random

import pytest

from support.gate import Gate
from support.server import Serve, Server
from support.wire import chunked, request

SIZES = [0, 1, 8191, 8192, 8193, 200_000, 3_000_000]
WAYS_OF_THE_VALIDATOR = ["/read-count?4096", "/readline", "/readline-count?100", "/readlines", "/iterate"]
WAYS_BEYOND_IT = ["/read-all", "/read-negative", "/readlines-hint?5000", "/mixed?1000"]
"""PEP 3333 allows them, wsgiref.validate does not."""


def text_like(size: int) -> bytes:
    """Lines of all lengths, some empty, some longer than any buffer; the last without a newline."""
    dice = random.Random(size)
    body = bytearray()
    while len(body) < size:
        body += dice.randbytes(dice.choice([0, 1, 10, 100, 1000, 20_000])).replace(b"\n", b"\r") + b"\n"
    return bytes(body[: size - 1] + b"." if size else b"")


@pytest.fixture(scope="module")
def validated(shared_serve: Serve) -> Server:
    return shared_serve("echo:each_way_checked")


@pytest.fixture(scope="module")
def raw(shared_serve: Serve) -> Server:
    return shared_serve("echo:each_way")


def read_back(server: Server, way: str, body: bytes, framing: str) -> dict[str, int | str]:
    with server.connect() as wire:
        if framing == "length":
            wire.send(request("POST", way, [f"Content-Length: {len(body)}"]) + body)
        else:
            parts = [body[at : at + 10_007] for at in range(0, len(body), 10_007)]
            wire.send(request("POST", way, ["Transfer-Encoding: chunked"]) + chunked(parts))
        response = wire.response()
    assert response.status == 200, response.body
    got: dict[str, int | str] = response.json()
    assert (got["length"], got["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
    return got


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS_OF_THE_VALIDATOR)
def test_every_way_of_reading_gives_the_whole_body(validated: Server, way: str, size: int, framing: str) -> None:
    body = text_like(size)
    got = read_back(validated, way, body, framing)
    lines = body.splitlines(keepends=True) if way != "/read-count?4096" else []
    if way in ("/readline", "/readlines", "/iterate"):
        lines = body.replace(b"\r", b"_").splitlines(keepends=True)
        assert got["pieces"] == len(lines)
        assert got["longest"] == max(map(len, lines), default=0)
    elif way.startswith("/readline-count"):
        assert int(got["longest"]) <= 100
        assert got["lines"] == body.count(b"\n")
    else:
        assert int(got["longest"]) <= 4096


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS_BEYOND_IT)
def test_every_way_the_validator_does_not_know_too(raw: Server, way: str, size: int, framing: str) -> None:
    read_back(raw, way, text_like(size), framing)


def test_input_is_terminated_for_chunked_bodies_too(shared_serve: Serve) -> None:
    server = shared_serve("echo:app")
    with server.connect() as wire:
        wire.send(request("POST", "/", ["Transfer-Encoding: chunked"]) + chunked([b"body"]))
        got = wire.response().json()
    assert got["environ"]["wsgi.input_terminated"] is True
    assert got["length"] == 4


def test_wsgi_errors_goes_to_the_error_log(shared_serve: Serve) -> None:
    server = shared_serve("answers:app")
    with server.connect() as wire:
        assert wire.get("/errors").body == b"logged"
        assert wire.get("/print-to-errors").body == b"logged"
    server.log.wait("a line of the app")
    server.log.wait("in two parts é")
    server.log.wait("printed by the app")
    server.log.wait("printed to stderr")


def test_the_next_request_does_not_see_what_the_last_left_unread(serve: Serve, gate: Gate) -> None:
    server = serve("echo:each_way")
    with server.connect() as wire:
        wire.post("/nothing", b"secret" * 10, "X-First: 1")
    with server.connect() as wire:
        assert wire.post("/read-all", b"mine").json()["length"] == 4
