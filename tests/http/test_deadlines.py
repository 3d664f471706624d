"""A client that takes too long is told so (408), and costs nothing meanwhile."""

import time

import pytest

from support.server import Serve, Server
from support.wire import Wire, request

pytestmark = pytest.mark.own("gunicorn has no deadlines for reading a request")


@pytest.fixture(scope="module")
def hurried(shared_serve: Serve) -> Server:
    return shared_serve("echo:app", "--header-timeout", "1", "--body-timeout", "1", "--keep-alive", "30")


def assert_timed_out(wire: Wire, since_s: float) -> None:
    response = wire.response()
    assert response.status == 408, response.body
    assert response.closes()
    assert 0.9 <= time.monotonic() - since_s < 5
    assert wire.closed()


def test_a_head_that_stops_in_the_middle_gets_408(hurried: Server) -> None:
    with hurried.connect() as wire:
        since_s = time.monotonic()
        wire.send(b"GET / HTTP/1.1\r\nHost: te")
        assert_timed_out(wire, since_s)


def test_a_head_that_dribbles_gets_408_all_the_same(hurried: Server) -> None:
    """The deadline is for the whole head: a byte now and then does not push it on (the attack called slow-loris)."""
    with hurried.connect() as wire:
        since_s = time.monotonic()
        wire.send(b"GET / HTTP/1.1\r\n")
        for _ in range(3):
            time.sleep(0.25)
            wire.send(b"X-A: 1\r\n")
        assert_timed_out(wire, since_s)


def test_the_second_request_of_a_connection_has_its_own_deadline(hurried: Server) -> None:
    with hurried.connect() as wire:
        assert wire.get("/").status == 200
        since_s = time.monotonic()
        wire.send(b"GET /")
        assert_timed_out(wire, since_s)


def test_a_body_that_stops_in_the_middle_gets_408(hurried: Server) -> None:
    with hurried.connect() as wire:
        wire.send(request("POST", "/", ["Content-Length: 10"]) + b"half")
        assert_timed_out(wire, time.monotonic())


def test_a_chunked_body_that_stops_in_the_middle_gets_408(hurried: Server) -> None:
    with hurried.connect() as wire:
        wire.send(request("POST", "/", ["Transfer-Encoding: chunked"]) + b"5\r\nhel")
        assert_timed_out(wire, time.monotonic())


def test_a_slow_body_that_keeps_coming_is_served(hurried: Server) -> None:
    """The deadline of the body is for a pause, so that a long upload over a thin line gets through."""
    with hurried.connect() as wire:
        wire.send(request("POST", "/", ["Content-Length: 5"]))
        for byte in b"hello":
            time.sleep(0.4)
            wire.send(bytes([byte]))
        assert wire.response().json()["length"] == 5


def test_a_connection_that_never_says_a_word_is_closed(hurried: Server) -> None:
    with hurried.connect() as wire:
        since_s = time.monotonic()
        rest = wire.rest()
        assert rest == b"" or b" 408 " in rest, "before the first byte both are right"
        assert 0.9 <= time.monotonic() - since_s < 5


def test_many_slow_clients_do_not_keep_a_quick_one_waiting(hurried: Server) -> None:
    slow = [hurried.connect() for _ in range(100)]
    for wire in slow:
        wire.send(b"GET / HTTP/1.1\r\n")
    with hurried.connect() as quick:
        assert quick.get("/").status == 200
    for wire in slow:
        assert wire.response().status == 408
        wire.close()
