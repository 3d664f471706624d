"""The outcome of each sequence of messages that an app may send, beside uvicorn's."""

import pytest

from support.asgi import Flavour
from support.server import Serve, Server
from support.wire import BrokenOff, Malformed, Response, Wire

BROKEN, MALFORMED = 0, -1
RETURNED = ["returned"]


def raises(number: int, kind: str) -> list[list[object]]:
    return [[number, kind]]


CASES: dict[str, tuple[int, str, list[object]]] = {
    # Status, or BROKEN after the body; the body; what the app has seen.
    "plain": (200, "plain", RETURNED),
    "in pieces": (200, "ab", RETURNED),
    "no body key": (200, "", RETURNED),
    "no headers key": (201, "x", RETURNED),
    "memoryview": (200, "memoryview", RETURNED),
    "bytearray": (200, "bytearray", RETURNED),
    "headers of a generator": (200, "x", RETURNED),
    "headers as lists": (200, "x", RETURNED),
    "headers twice": (200, "x", RETURNED),
    "hop-by-hop": (200, "x", RETURNED),
    "closes": (200, "last", RETURNED),
    "closes in pieces": (200, "ab", RETURNED),
    "204": (204, "", RETURNED),
    "304": (304, "", RETURNED),
    "length": (200, "abcd", RETURNED),
    "length too short": (200, "abc", RETURNED),
    "length too long": (BROKEN, "abcd", RETURNED),
    "no end": (BROKEN, "ab", RETURNED),
    "start alone": (500, "", RETURNED),
    "nothing": (500, "", RETURNED),
    "body first": (500, "", raises(0, "RuntimeError")),
    "two starts": (500, "", raises(1, "RuntimeError")),
    "after the end": (200, "whole", raises(2, "RuntimeError")),
    "start after the end": (200, "whole", raises(2, "RuntimeError")),
    "no status": (500, "", raises(0, "ValueError")),
    "status as text": (500, "", raises(0, "TypeError")),
    "status 99": (500, "", raises(0, "ValueError")),
    "status 1000": (500, "", raises(0, "ValueError")),
    "headers as text": (500, "", raises(0, "TypeError")),
    "not a pair": (500, "", raises(0, "ValueError")),
    "a header in a header": (500, "", raises(0, "ValueError")),
    "a bad name": (500, "", raises(0, "ValueError")),
    "a bad length": (500, "", raises(0, "ValueError")),
    "two lengths": (500, "", raises(0, "ValueError")),
    "body as text": (500, "", raises(1, "TypeError")),
    "body as number": (500, "", raises(1, "TypeError")),
    "unknown type": (500, "", raises(0, "RuntimeError")),
    "no type": (500, "", raises(0, "ValueError")),
    "not a dict": (500, "", raises(0, "TypeError")),
}

IN_GATE = ("in pieces", "closes", "no end", "nothing", "body first", "after the end")
"""crates/stanchion-py/src/asgi/tests/answers.rs has all; where uvicorn differs, the night shows."""

AT_ONCE = "its head is sent before there is a body, so there can be no 500"
NO_HEAD = "the connection ends without an answer"
KINDS = "the same, but another exception"
UVICORN_DIFFERS = {
    "204": "it holds the body against the app",
    "304": "it holds the body against the app",
    "length too short": "it sends no end where the body is longer than promised",
    "length too long": "it raises, too",
    "start alone": AT_ONCE,
    "two starts": AT_ONCE,
    "no status": KINDS,
    "status as text": NO_HEAD,
    "status 99": NO_HEAD,
    "status 1000": NO_HEAD,
    "headers as text": NO_HEAD,
    "not a pair": NO_HEAD,
    "a header in a header": NO_HEAD,
    "a bad name": NO_HEAD,
    "a bad length": "it is sent",
    "two lengths": "both are sent",
    "body as text": AT_ONCE,
    "body as number": AT_ONCE,
    "no type": KINDS,
}


@pytest.fixture(scope="module")
def served(flavour: Flavour, shared_serve: Serve) -> Server:
    return flavour.serve(shared_serve, "asgi_cases:app", "--lifespan", "off")


def asked(wire: Wire, case: str) -> tuple[int, Response]:
    nothing = Response("", BROKEN, "", [])
    try:
        response = wire.get(f"/messages?{case.replace(' ', '+')}")
        response.header("Content-Length")
        return response.status, response
    except BrokenOff as broken:
        return BROKEN, broken.response or nothing
    except (Malformed, AssertionError):
        return MALFORMED, nothing


@pytest.mark.own("it has servers of its own")
@pytest.mark.parametrize(
    "case", [case if case in IN_GATE else pytest.param(case, marks=pytest.mark.large) for case in CASES]
)
def test_messages(served: Server, flavour: Flavour, case: str) -> None:
    with served.connect() as wire:
        status, response = asked(wire, case)
        if case.startswith("closes"):
            assert response.closes() and wire.closed()
    with served.connect() as wire:
        seen = wire.get("/seen").json()
    came = (status, "" if status == 500 else response.text, seen)
    if not flavour.is_ours and case in UVICORN_DIFFERS:
        assert came != CASES[case]
        return
    assert came == CASES[case]
    if case in ("headers of a generator", "headers as lists"):
        own = [field for field in response.headers if field[0].startswith("x-")]
        assert own == [("x-one", "1"), ("x-two", "2")]
    if case == "headers twice":
        assert response.all("Set-Cookie") == ["a=1", "b=2"]
    if case == "hop-by-hop" and flavour.is_ours:
        assert (response.all("Connection"), response.framing) == ([], "length")
    if case == "304":
        assert response.header("Content-Length") == "5"
