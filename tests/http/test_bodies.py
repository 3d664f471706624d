"""Request bodies of every size and framing arrive whole; large ones through a spool file that is gone afterwards."""

import hashlib
import random

import pytest

from support.patience import eventually
from support.server import STANCHION, UNHURRIED, Kind, Serve, Server
from support.wire import Wire, chunked, request

SIZES = [0, 1, 8191, 8192, 8193, 114_687, 114_688, 114_689, 1024 * 1024, 20 * 1024 * 1024]
"""Around the size of a read and around `--body-memory`, above which a body goes to a spool file; 1 and 20 MiB."""

CONTINUE = "Expect: 100-continue"


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.fixture(scope="module")
def echo(shared_serve: Serve, kind: Kind) -> Server:
    return shared_serve("echo:app", "-w", "2", *(UNHURRIED if kind is STANCHION else ()))


def assert_echoed(wire: Wire, body: bytes) -> None:
    response = wire.response()
    assert response.status == 200, response.body
    got = response.json()
    assert (got["length"], got["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())


@pytest.mark.parametrize("size", SIZES)
def test_a_body_by_length_arrives_whole(echo: Server, size: int) -> None:
    body = noise(size)
    with echo.connect() as wire:
        wire.send(request("POST", "/", [] if body else ["Content-Length: 0"], body))
        assert_echoed(wire, body)


@pytest.mark.parametrize("size", SIZES)
def test_a_chunked_body_arrives_whole(echo: Server, size: int) -> None:
    body = noise(size)
    parts = [body[at : at + 50_000] for at in range(0, size, 50_000)]
    with echo.connect() as wire:
        wire.send(request("POST", "/", ["Transfer-Encoding: chunked"]) + chunked(parts))
        assert_echoed(wire, body)


def test_a_body_in_many_tiny_chunks_arrives_whole(echo: Server) -> None:
    body = noise(20_000)
    with echo.connect() as wire:
        wire.send(request("POST", "/", ["Transfer-Encoding: chunked"]) + chunked([bytes([byte]) for byte in body]))
        assert_echoed(wire, body)


@pytest.mark.privileges
def test_two_spooled_bodies_on_one_connection_are_kept_apart(echo: Server) -> None:
    first, second = noise(300_000), noise(400_000)
    with echo.connect() as wire:
        wire.send(request("POST", "/", body=first) + request("POST", "/", body=second))
        assert_echoed(wire, first)
        assert_echoed(wire, second)


def test_trailers_do_not_become_headers(echo: Server) -> None:
    with echo.connect() as wire:
        wire.send(
            request("POST", "/", ["Transfer-Encoding: chunked"]) + chunked([b"body"], trailers=b"X-Admin: yes\r\n")
        )
        assert "HTTP_X_ADMIN" not in wire.response().json()["environ"]


@pytest.mark.own("gunicorn closes the connection then")
def test_a_body_the_app_did_not_read_does_not_disturb_the_next_request(serve: Serve) -> None:
    server = serve("echo:each_way_checked")
    with server.connect() as wire:
        for _ in range(3):
            assert wire.post("/nothing", noise(200_000)).status == 200


@pytest.mark.own("a gunicorn worker sits with the slow sender")
@pytest.mark.privileges
def test_a_slow_sender_does_not_hold_the_worker(echo: Server) -> None:
    with echo.connect() as first, echo.connect() as second, echo.connect() as quick:
        for slow in (first, second):
            slow.send(request("POST", "/", ["Content-Length: 5"]) + b"he")
        assert quick.get("/").status == 200, "as many slow senders as workers, and a third client is served"
        for slow in (first, second):
            slow.send(b"llo")
            assert_echoed(slow, b"hello")


@pytest.mark.own("gunicorn has no spool")
def test_the_spool_is_private_and_holds_nothing_after_the_requests(serve: Serve) -> None:
    server = serve("echo:app")
    with server.connect() as wire:
        wire.send(request("POST", "/", [f"Content-Length: {1024 * 1024}"]) + noise(600_000))
        eventually(server.spooled, "a body in progress is in a spool file")
        for directory in (path for path in server.tmp.rglob("*") if path.is_dir()):
            assert directory.stat().st_mode & 0o777 == 0o700
    # The client has left in the middle: its file goes too.
    eventually(lambda: not server.spooled(), "the spool file is removed and closed")


def test_100_continue_is_sent_when_the_body_is_wanted(echo: Server) -> None:
    with echo.connect() as wire:
        wire.send(request("POST", "/", [CONTINUE, "Content-Length: 5"]))
        interim = wire.response()
        assert (interim.status, interim.headers) == (100, [])
        wire.send(b"hello")
        assert_echoed(wire, b"hello")


def test_100_continue_is_sent_for_a_chunked_body_too(echo: Server) -> None:
    with echo.connect() as wire:
        wire.send(request("POST", "/", [CONTINUE, "Transfer-Encoding: chunked"]))
        assert wire.response().status == 100
        wire.send(chunked([b"hello"]))
        assert_echoed(wire, b"hello")


@pytest.mark.own("gunicorn has no limit of the body")
def test_100_continue_is_not_sent_when_the_body_is_refused(serve: Serve) -> None:
    server = serve("echo:app", "--limit-request-body", "1000")
    with server.connect() as wire:
        wire.send(request("POST", "/", [CONTINUE, "Content-Length: 1001"]))
        response = wire.response()
        assert response.status == 413, "RFC 9110 section 10.1.1: a final status instead of 100"
        assert response.closes()
        assert wire.closed()


@pytest.mark.own("gunicorn sends 100 to HTTP/1.0 too")
def test_100_continue_is_not_sent_to_an_http_1_0_client(echo: Server) -> None:
    with echo.connect() as wire:
        wire.send(request("POST", "/", [CONTINUE], b"hello", version="1.0"))
        assert_echoed(wire, b"hello")


def test_an_unknown_expectation_fails(echo: Server) -> None:
    with echo.connect() as wire:
        response = wire.get("/", "Expect: a miracle")
        assert response.status == 417, "RFC 9110 section 10.1.1"
