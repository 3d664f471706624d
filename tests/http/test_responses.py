"""How responses are framed, and what the server adds to them."""

import email.utils
import time

import pytest

from support.server import Serve, Server
from support.wire import Wire, request

LONG = 32
"""Chunks of 64 KiB: more than the server takes at once, so that it cannot know the length when it begins."""


@pytest.fixture(scope="module")
def answers(shared_serve: Serve) -> Server:
    return shared_serve("answers:app")


def test_a_body_of_unknown_length_is_chunked_for_http_1_1(answers: Server) -> None:
    with answers.connect() as wire:
        response = wire.get(f"/big?{LONG}")
        assert (response.framing, len(response.body)) == ("chunked", LONG * 65536)
        assert wire.get("/with-length").status == 200, "and the connection goes on"


def test_a_body_of_unknown_length_ends_with_the_connection_for_http_1_0(answers: Server) -> None:
    with answers.connect() as wire:
        response = wire.get(f"/big?{LONG}", version="1.0")
        assert (response.framing, len(response.body)) == ("close", LONG * 65536)


def test_head_is_answered_without_a_body(answers: Server) -> None:
    with answers.connect() as wire:
        response = wire.ask("HEAD", "/chunks")
        assert (response.status, response.body) == (200, b"")
        assert wire.get("/with-length").body == b"four", "not a byte of the body came after the head"


@pytest.mark.parametrize("target", ["/no-content-with-body", "/not-modified-with-body"])
def test_204_and_304_have_no_body_and_no_coding(answers: Server, target: str) -> None:
    with answers.connect() as wire:
        response = wire.get(target)
        assert response.status in (204, 304)
        assert not response.all("Transfer-Encoding"), "RFC 9112 section 6.1"
        if response.status == 204:
            assert response.header("Content-Length") is None, "RFC 9110 section 8.6"


@pytest.mark.own("gunicorn closes after a 204, or sends the body")
@pytest.mark.parametrize("target", ["/no-content-with-body", "/not-modified-with-body"])
def test_the_connection_goes_on_after_204_and_304(answers: Server, target: str) -> None:
    with answers.connect() as wire:
        wire.get(target)
        assert wire.get("/with-length").body == b"four"


def test_date_and_server_are_added(answers: Server, kind_name: str) -> None:
    before_s = time.time()
    with answers.connect() as wire:
        response = wire.get("/with-length")
    date = response.header("Date")
    assert date and date.endswith(" GMT"), "RFC 9110 section 6.6.1"
    assert before_s - 5 < email.utils.parsedate_to_datetime(date).timestamp() < time.time() + 5
    assert (response.header("Server") or "").startswith(kind_name)


@pytest.mark.own("gunicorn sends its own beside the app's")
def test_date_and_server_of_the_app_are_not_doubled(answers: Server) -> None:
    with answers.connect() as wire:
        response = wire.get("/own-server-and-date")
    assert response.all("Server") == ["mine/1"]
    assert response.all("Date") == ["Sun, 06 Nov 1994 08:49:37 GMT"]


def test_repeated_response_headers_stay_apart_and_in_order(answers: Server) -> None:
    with answers.connect() as wire:
        assert wire.get("/twice-the-same-header").all("Set-Cookie") == ["a=1", "b=2"]


def test_an_unusual_status_and_reason_pass_through(answers: Server) -> None:
    with answers.connect() as wire:
        response = wire.get("/unusual-status")
    assert (response.status, response.reason) == (299, "Something of its own")


def test_large_streamed_response_arrives_whole(answers: Server) -> None:
    with answers.connect() as wire:
        body = wire.get("/big?160").body
    assert len(body) == 160 * 65536
    assert all(body[n * 65536 : (n + 1) * 65536] == bytes([n]) * 65536 for n in range(160))


def test_large_response_in_one_piece_arrives_whole(answers: Server) -> None:
    with answers.connect() as wire:
        assert wire.get("/big-whole?20000000").body == b"w" * 20_000_000


@pytest.mark.own("a gunicorn worker is bound to the client it writes to")
def test_a_slow_reader_does_not_hold_the_worker(serve: Serve) -> None:
    """One worker; a client that takes nothing of an answer that fits the response buffer; others are served."""
    server = serve("answers:app", "--response-buffer", "4000000")
    # A small buffer, or the kernel would take all of the answer.
    with Wire(server.address.connect(receive_buffer_bytes=65_536)) as slow, server.connect() as quick:
        slow.send(request("GET", "/big-whole?3000000"))
        assert slow.head().status == 200
        assert quick.get("/with-length").body == b"four"
        assert len(slow.body_bytes(3_000_000)) == 3_000_000


def test_a_slow_reader_gets_every_byte_of_a_response_beyond_the_buffer(answers: Server) -> None:
    """Backpressure: the app is held up, not cut off, and memory stays bounded."""
    with answers.connect() as slow, answers.connect() as quick:
        slow.send(request("GET", "/big-whole?30000000"))
        assert slow.head().status == 200
        quick.send(request("GET", "/with-length"))
        assert len(slow.body_bytes(30_000_000)) == 30_000_000
        assert quick.response().body == b"four"
