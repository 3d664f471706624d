"""A worker recognizes an answer's head that equals the one before: the client must still see each difference."""

import itertools
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from support.server import Serve, Server
from support.wire import Wire

KIND = ("Content-Type", "text/plain")
BY = ("X-By", "the app")


@dataclass(frozen=True)
class Head:
    status: int
    fields: tuple[tuple[str, str], ...] = ()
    """The app's fields, without Content-Length."""
    closes: bool = False


FAILED = Head(500)
HEADS = {
    "usual": Head(200, (KIND, BY)),
    "equal": Head(200, (KIND, BY)),
    "other-status": Head(404, (KIND, BY)),
    "other-name": Head(200, (KIND, ("X-For", "the app"))),
    "other-value": Head(200, (KIND, ("X-By", "another app"))),
    "other-order": Head(200, (BY, KIND)),
    "fewer": Head(200, (KIND,)),
    "more": Head(200, (KIND, BY, BY)),
    "none": Head(200),
    "told": Head(200, (KIND, BY)),
    "of-the-connection": Head(200, (KIND, BY), closes=True),
    "of-own-class": Head(200, (KIND, BY)),
    "long": Head(200, (KIND, BY, ("X-Long", "a" * 8192))),
    "many": Head(200, (BY,) * 40),
    "no-content": Head(204, (KIND, BY)),
    "half-a-pair": FAILED,
    "three-of-a-pair": FAILED,
    "a-list-for-a-pair": FAILED,
    "not-a-name": FAILED,
    "not-a-length": FAILED,
}


@pytest.fixture(scope="module")
def repeating(shared_serve: Serve) -> Server:
    return shared_serve("bodies:repeating")


def assert_answered(wire: Wire, name: str) -> None:
    response, expected = wire.get(f"/{name}"), HEADS[name]
    assert (response.status, response.closes()) == (expected.status, expected.closes), name
    if expected is FAILED:
        return
    fields = [field for field in response.headers if field[0].startswith(("X-", "Content-Type"))]
    assert fields == list(expected.fields), name
    assert response.all("Content-Length") == ([] if expected.status == 204 else ["4"]), name


@pytest.mark.parametrize("first", ["usual", "not-a-length"])
def test_each_head_is_its_own_whatever_came_before(repeating: Server, first: str) -> None:
    with ExitStack() as wires:
        wire = wires.enter_context(repeating.connect())
        for second in HEADS:
            for name in (first, first, second, second):
                assert_answered(wire, name)
                if HEADS[name].closes:
                    assert wire.closed()
                    wire = wires.enter_context(repeating.connect())


def test_a_list_that_has_grown_is_another_head(repeating: Server) -> None:
    with repeating.connect() as wire:
        numbers = [len(wire.get("/growing").all("X-By")) for _ in range(4)]
    assert [later - earlier for earlier, later in itertools.pairwise(numbers)] == [1, 1, 1]


def test_one_head_goes_with_bodies_of_different_lengths(repeating: Server) -> None:
    with repeating.connect() as wire:
        for body in (b"longer", b"four", b"the-longest", b"a"):
            response = wire.get(f"/usual?{body.decode()}")
            assert (response.body, response.header("Content-Length")) == (body, str(len(body)))
