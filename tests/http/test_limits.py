"""Each limit of a request has a name, a status, and an end of the connection."""

import contextlib

import pytest

from support.server import Serve, Server
from support.wire import BrokenOff, Response, Wire, chunked, request


def assert_refused(wire: Wire, status: int) -> Response:
    response = wire.response()
    assert response.status == status, response.body
    assert response.closes()
    assert wire.closed()
    return response


@pytest.fixture(scope="module")
def echo(shared_serve: Serve) -> Server:
    return shared_serve("echo:app")


def test_a_request_line_that_never_ends_is_refused_all_the_same(echo: Server) -> None:
    with echo.connect() as wire, contextlib.suppress(BrokenPipeError, ConnectionResetError, BrokenOff):
        wire.send(b"GET /" + b"a" * 4_000_000)
        assert wire.response().status in (414, 431)
    with echo.connect() as wire:
        assert wire.get("/").status == 200


def test_the_limit_of_the_request_line_can_be_set(serve: Serve) -> None:
    server = serve("echo:app", "--limit-request-line", "100")
    with server.connect() as wire:
        wire.send(request("GET", "/" + "a" * 100))
        assert_refused(wire, 414)
    with server.connect() as wire:
        assert wire.get("/" + "a" * 70).status == 200


def test_no_limit_of_the_request_line_still_serves_a_long_one(serve: Serve) -> None:
    server = serve("echo:app", "--limit-request-line", "0")
    with server.connect() as wire:
        assert wire.get("/?" + "q" * 40_000).json()["environ"]["QUERY_STRING"] == "q" * 40_000


def test_more_than_a_hundred_fields_are_refused_with_431(echo: Server) -> None:
    with echo.connect() as wire:
        wire.send(request("GET", "/", [f"X-{number}: v" for number in range(101)]))
        assert_refused(wire, 431)


def test_the_limit_of_fields_can_be_set(serve: Serve) -> None:
    server = serve("echo:app", "--limit-request-fields", "5")
    with server.connect() as wire:
        wire.send(request("GET", "/", ["X-A: v"] * 6))
        assert_refused(wire, 431)


@pytest.mark.parametrize("flag", ["--limit-request-field_size", "--limit-request-field-size"])
@pytest.mark.own("gunicorn knows the first spelling only")
def test_the_limit_of_a_field_can_be_set_in_both_spellings(serve: Serve, flag: str) -> None:
    server = serve("echo:app", flag, "50")
    with server.connect() as wire:
        wire.send(request("GET", "/", ["X-A: " + "v" * 60]))
        assert_refused(wire, 431)


def test_a_head_that_never_ends_is_refused(echo: Server) -> None:
    with echo.connect() as wire:
        wire.send(b"GET / HTTP/1.1\r\nHost: test\r\n")
        # The server may close while we still send; its answer is then lost with what we sent (RFC 9112 section 9.6).
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, BrokenOff):
            for number in range(2000):
                wire.send(b"X-%d: %s\r\n" % (number, b"v" * 1000))
            assert_refused(wire, 431)
    with echo.connect() as wire:
        assert wire.get("/").status == 200


@pytest.fixture(scope="module")
def limited(shared_serve: Serve) -> Server:
    return shared_serve("echo:app", "--limit-request-body", "200000")


@pytest.mark.own("gunicorn has no limit of the body")
class TestBodyLimit:
    def test_a_body_of_the_limit_is_served_in_both_framings(self, limited: Server) -> None:
        body = b"b" * 200_000
        with limited.connect() as wire:
            assert wire.post("/", body).json()["length"] == 200_000
            wire.send(request("POST", "/", ["Transfer-Encoding: chunked"]) + chunked([body]))
            assert wire.response().json()["length"] == 200_000

    def test_a_length_above_the_limit_is_refused_with_413_before_the_body_comes(self, limited: Server) -> None:
        with limited.connect() as wire:
            wire.send(request("POST", "/", ["Content-Length: 200001"]))
            assert_refused(wire, 413)

    def test_a_chunked_body_that_grows_above_the_limit_is_refused_with_413(self, limited: Server) -> None:
        with limited.connect() as wire:
            wire.send(request("POST", "/", ["Transfer-Encoding: chunked"]) + b"30d40\r\n" + b"b" * 200_000 + b"\r\n")
            wire.send(b"1\r\nb\r\n")
            assert_refused(wire, 413)

    def test_a_client_that_sends_on_regardless_still_reads_the_413(self, limited: Server) -> None:
        """The server lingers, or the reset would destroy the answer on its way (RFC 9112 section 9.6)."""
        with limited.connect() as wire:
            wire.send(request("POST", "/", ["Content-Length: 200001"]) + b"b" * 200_001)
            assert wire.response().status == 413

    def test_the_limit_has_a_short_name(self, serve: Serve) -> None:
        server = serve("echo:app", "--max-body", "512B")
        with server.connect() as wire:
            assert wire.post("/", b"b" * 512).status == 200
            wire.send(request("POST", "/", ["Content-Length: 513"]))
            assert_refused(wire, 413)


@pytest.mark.own("others have other bounds, and some have none")
@pytest.mark.parametrize(
    ("begun", "going_on"),
    [
        pytest.param(b"", b"1;" + b"a" * 1000 + b"\r\nx\r\n", id="an extension of each chunk"),
        pytest.param(b"0\r\n", b"X-Trailer: " + b"a" * 1000 + b"\r\n", id="trailers"),
    ],
)
def test_what_no_body_is_made_of_may_not_go_on_for_ever(echo: Server, begun: bytes, going_on: bytes) -> None:
    """None of it counts as body, so limit_request_body does not end it."""
    with echo.connect() as wire:
        wire.send(request("POST", "/", headers=["Transfer-Encoding: chunked"]) + begun)
        # The server waits 2 s for a client that pauses, and then resets: Linux gives its answer to the client even so.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(2000):
                wire.send(going_on)
        assert_refused(wire, 400)
    with echo.connect() as wire:
        assert wire.get("/").status == 200
