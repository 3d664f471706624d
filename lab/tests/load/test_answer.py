"""Where an answer ends, however it is cut into pieces."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stanchion_lab.load.answer import Answer, Malformed

LENGTH = b"HTTP/1.1 200 OK\r\nX-Worker: 7\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n"
TRAILERS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\nX: 1\r\nY: 2\r\n\r\n"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + LENGTH
EMPTY = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
BODILESS = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"

WHOLE = pytest.mark.parametrize(
    ("text", "status"),
    [(LENGTH, 200), (CHUNKED, 200), (TRAILERS, 200), (INTERIM, 200), (EMPTY, 503), (BODILESS, 304)],
    ids=["length", "chunked", "trailers", "interim", "empty", "no body"],
)


@WHOLE
@settings(deadline=None)
@given(data=st.data())
def test_ends_with_its_last_byte_however_it_is_cut(text: bytes, status: int, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(text) - 1), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    answer = Answer()
    assert [answer.feed(piece) for piece in pieces] == [False] * len(cuts) + [True]
    assert (answer.status, answer.keeps) == (status, True)


@WHOLE
def test_what_ends_before_is_not_whole(text: bytes, status: int) -> None:
    for length in range(len(text)):
        answer = Answer()
        assert not answer.feed(text[:length])
        assert not answer.end()


def test_a_worker_is_named_by_its_header() -> None:
    answer = Answer()
    answer.feed(LENGTH)
    assert answer.worker == "7"


def test_without_a_length_it_ends_with_the_connection() -> None:
    answer = Answer()
    assert not answer.feed(b"HTTP/1.1 200 OK\r\n\r\nso")
    assert not answer.feed(b"me")
    assert answer.end() and not answer.keeps


@pytest.mark.parametrize(
    ("head", "keeps"),
    [
        ("HTTP/1.1 200 OK", True),
        ("HTTP/1.1 200 OK\r\nConnection: Close", False),
        ("HTTP/1.0 200 OK", False),
        ("HTTP/1.0 200 OK\r\nConnection: Keep-Alive", True),
    ],
)
def test_whether_the_connection_goes_on(head: str, keeps: bool) -> None:
    answer = Answer()
    assert answer.feed(f"{head}\r\nContent-Length: 0\r\n\r\n".encode())
    assert answer.keeps is keeps


@pytest.mark.parametrize("text", [LENGTH, CHUNKED, EMPTY], ids=["length", "chunked", "empty"])
def test_a_connection_with_more_than_was_asked_for_does_not_go_on(text: bytes) -> None:
    answer = Answer()
    assert answer.feed(text + b"H")
    assert not answer.keeps


@pytest.mark.parametrize(
    "text",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfive\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 5000,
        b"HTTP/1.1 200 OK\r\n" + b"X" * 70_000,
    ],
)
def test_what_is_no_http(text: bytes) -> None:
    with pytest.raises(Malformed):
        Answer().feed(text)
