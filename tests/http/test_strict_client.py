"""The judge judged: the client of these tests must see what a tolerant one would mend."""

import socket

import pytest

from support.wire import BrokenOff, Malformed, Response, Wire, chunked


def parse(data: bytes, method: str = "GET") -> Response:
    server, client = socket.socketpair()
    with server, Wire(client) as wire:
        server.sendall(data)
        server.shutdown(socket.SHUT_WR)
        return wire.response(method)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 200\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A : 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: 1\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: 1\0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +4\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x4\r\nbody\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\nbody\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody-\r\n0\r\n\r\n",
    ],
)
def test_what_the_rfc_forbids_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        parse(data)


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfour", b"four"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfour\r\n", b"four"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nfour", b"four"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfour\r\n0\r\n", b"four"),
    ],
)
def test_an_end_in_the_middle_is_not_an_end(data: bytes, body: bytes) -> None:
    with pytest.raises(BrokenOff) as broken:
        parse(data)
    assert broken.value.response is not None
    assert broken.value.response.body == body


def test_two_lengths_are_noticed() -> None:
    with pytest.raises(AssertionError, match="came 2 times"):
        parse(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nbody")


def test_a_whole_chunked_response_is_put_together() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    response = parse(head + chunked([b"one", b"two"], trailers=b"X-T: 1\r\n"))
    assert (response.body, response.chunk_sizes, response.trailers) == (b"onetwo", [3, 3], [("X-T", "1")])


def test_a_head_request_has_no_body_whatever_the_length_says() -> None:
    assert parse(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", "HEAD").body == b""
