"""A worker's memory is its app's to spoil: whatever a worker answers, no client takes one answer for two."""

import contextlib
import json
from collections.abc import Iterator

import pytest

from support.frames import CLOSE, FIN, OFFER, TEXT, Raw
from support.gate import Gate
from support.liar import let_lie
from support.server import Serve, Server
from support.wire import BrokenOff, Wire, request

pytestmark = pytest.mark.own("gunicorn's workers have the client's socket")

FORGED = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged"
"""An answer that a client must never take for one to its next request."""
LENGTH, TWICE = str(len(FORGED)), str(2 * len(FORGED))


def length(value: str) -> str:
    """The line of Content-Length in the head of an answer."""
    return f"Content-Length: {value}\r\n"


def status(code: str) -> str:
    return f"HTTP/1.1 {code} Odd\r\n"


FIELDS = [
    ("Content-Length", LENGTH),
    ("X-Other-Size-1", "6"),
    ("X-Transfer-Length", "chunked"),
    ("X-Nnection", "close"),
    ("X-Tails", "x"),
    ("X-Value", "b..ccc: d"),
]

LIES = {
    "a shorter length": (length(LENGTH), length("06")),
    "no length at all": (length(LENGTH), length("00")),
    "a longer length": (length(LENGTH), length("99")),
    "a length with a sign": (length(LENGTH), length("+9")),
    "another length": ("X-Other-Size-1: ", "Content-Length: "),
    "a coding": ("X-Transfer-Length: ", "Transfer-Encoding: "),
    "the connection": ("X-Nnection: ", "Connection: "),
    "trailers": ("X-Tails: ", "Trailer: "),
    "a name with a space": ("X-Tails: ", "X-Ta ls: "),
    "no name": ("X-Tails: ", ":-Tails: "),
    "another field": ("b..ccc: d", "b\r\nTE: gz"),
    "a line of its own": ("b..ccc: d", "b.\nccc: d"),
    "a CR alone": ("b..ccc: d", "b.\rccc: d"),
    "a folded line": ("b..ccc: d", "b\r\n cc: d"),
    "the end of the head": ("b..ccc: d", "b\r\n\r\nc: d"),
    "a NUL": ("b..ccc: d", "b\0.ccc: d"),
    "not the last word": (status("299"), status("103")),
    "another protocol": (status("299"), status("101")),
    "no status": (status("299"), status("000")),
    "another version": (status("299"), status("299").replace("1.1", "1.0")),
    "a length with none to have": (status("299"), status("204")),
    "a body with none to have": (status("299"), status("304")),
}


@pytest.fixture(scope="module")
def liar(shared_serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Gate]]:
    gate = Gate(tmp_path_factory.mktemp("liar") / "gate")
    yield shared_serve("spoiling:lying", "--keep-alive", "60", env=gate.environment), gate
    gate.close()


def tell(liar: tuple[Server, Gate], wire: Wire, old: str, new: str, more: str = "", said: str = LENGTH) -> None:
    """Ask for an answer of `FORGED` and `more`, in whose head, before the acceptor looks, `old` becomes `new`."""
    fields = [("Content-Length", said), *FIELDS[1:]]
    lie = {"status": "299 Odd", "fields": fields, "body": FORGED, "more": more, "old": old, "new": new}
    wire.send(request("POST", "/lie", body=json.dumps(lie).encode().hex().encode()))
    let_lie(*liar)


def assert_is_found_out(server: Server, times: int) -> None:
    found = server.log.wait_for(r"\((\d+)\) is replaced: it wrote where it should not", times)
    # Until the worker is killed it may take another request, whose client gets a 502.
    server.log.wait(rf"\({found[-1][1]}\) was killed by SIGKILL")
    with server.connect() as wire:
        assert wire.get("/").status == 200


def found_out(server: Server) -> int:
    return len(server.log.matches("is replaced: it wrote where it should not"))


@pytest.mark.parametrize("lie", LIES)
def test_a_worker_that_lies_about_its_answer_is_found_out(liar: tuple[Server, Gate], lie: str) -> None:
    server, _ = liar
    before = found_out(server)
    with server.connect() as wire:
        tell(liar, wire, *LIES[lie])
        response = wire.response()
        assert (response.status, b"forged" in response.body) == (502, False)
        assert_is_found_out(server, before + 1)
        assert wire.get("/").text.isdigit(), "the connection goes on, and the next answer is the next one"


def test_an_honest_answer_of_the_same_app_arrives(liar: tuple[Server, Gate]) -> None:
    """This shows that the server refuses the lies above, and not these fields."""
    _, gate = liar
    with liar[0].connect() as wire:
        tell(liar, wire, "X-Value: ", "X-Nicer: ")
        gate.let_pass(1)
        response = wire.response()
        assert (response.status, response.text, response.header("X-Nicer")) == (299, FORGED, "b..ccc: d")


@pytest.mark.parametrize("new", ["60", "99"], ids=["longer than it says", "shorter than it says"])
def test_a_stream_that_is_not_as_long_as_it_says_is_broken_off(liar: tuple[Server, Gate], new: str) -> None:
    server, gate = liar
    before = found_out(server)
    with server.connect() as wire:
        tell(liar, wire, length(TWICE), length(new), more=FORGED, said=TWICE)
        head = wire.head()
        assert head.header("Content-Length") == new
        gate.let_pass(1)
        with pytest.raises(BrokenOff), contextlib.suppress(ConnectionResetError):
            wire.read_body(head)
        assert wire.closed()
    assert_is_found_out(server, before + 1)


def test_of_a_stream_that_goes_on_after_its_end_nothing_is_sent(liar: tuple[Server, Gate]) -> None:
    server, gate = liar
    with server.connect() as wire:
        tell(liar, wire, length(TWICE), length(LENGTH), more=FORGED, said=TWICE)
        assert wire.response().text == FORGED
        gate.let_pass(1)
        for _ in range(2):
            assert wire.get("/").text.isdigit()


@pytest.fixture(scope="module")
def blamer(shared_serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Gate]]:
    gate = Gate(tmp_path_factory.mktemp("blamer") / "gate")
    # With few slots there is little memory to look through.
    few = ("--worker-concurrency", "2", "--worker-sessions", "2")
    arguments = ("--interface", "asgi", "--ws-per-message-deflate", *few)
    yield shared_serve("spoiling:lying_socket", *arguments, env=gate.environment), gate
    gate.close()


def told_after_blame(blamer: tuple[Server, Gate], offer: str | None, code: int) -> int:
    """The close code of a client that the worker accuses of a message that cannot be decompressed."""
    with blamer[0].connect() as wire:
        client = Raw(wire, offer)
        client.send(FIN | TEXT, str(code).encode())
        let_lie(*blamer)
        first, payload = client.frame()
        assert first == FIN | CLOSE
        return int.from_bytes(payload[:2], "big")


@pytest.mark.parametrize(
    ("offer", "code"),
    [(None, 1007), (None, 1009), (OFFER, 1000), (OFFER, 1002), (OFFER, 1012), (OFFER, 4000)],
)
def test_a_worker_that_blames_its_client_for_what_it_cannot_have_done_is_found_out(
    blamer: tuple[Server, Gate], offer: str | None, code: int
) -> None:
    before = found_out(blamer[0])
    assert told_after_blame(blamer, offer, code) == 1011
    assert_is_found_out(blamer[0], before + 1)


@pytest.mark.parametrize("code", [1007, 1009])
def test_a_client_may_be_blamed_for_what_it_has_compressed(blamer: tuple[Server, Gate], code: int) -> None:
    """This shows that the server does not refuse the record above as such."""
    before = found_out(blamer[0])
    assert told_after_blame(blamer, OFFER, code) == code
    assert found_out(blamer[0]) == before
