"""Trailers over HTTP/2, by ASGI's extension http.response.trailers."""

import gzip
import hashlib
import json
import os
import re
import signal
from pathlib import Path

import pytest

from support.counts import Counts
from support.gate import Gate
from support.http2 import Talk
from support.liar import let_lie
from support.server import Serve, Server

pytestmark = pytest.mark.own("gunicorn's asynchronous workers want another way to be told of HTTP/2")

HTTP2 = ("--http-protocols", "h2,h1", "--http2-cleartext", "prior-knowledge", "--interface", "asgi", "--pathsend")
# With few slots there is little memory to look through.
FEW = ("--worker-concurrency", "4", "--worker-sessions", "2")
TE = ("te", "trailers")
INTERNAL_ERROR = 2
PIECE_BYTES = 65_536
LIE = "x-mark-of-this-lie"


@pytest.fixture
def trailing(serve: Serve, gate: Gate) -> Server:
    return serve("fields:trailers", *HTTP2, *FEW, env=gate.environment)


@pytest.mark.parametrize("query", ["", "?told"])
def test_trailers_come_behind_the_body(trailing: Server, query: str) -> None:
    with Talk(trailing.address) as talk:
        for _ in range(2):
            answer = talk.get(f"/some{query}", TE)
            assert (answer.status, answer.body) == (200, b"in three or" if query else b"in three pieces")
            # Not what concerns the connection, nor what says how a body is to be read.
            assert answer.trailers == [("x-sum", "1"), ("x-sum", "2"), ("grpc-status", "0")]
        answer = talk.get("/none", TE)
        assert (answer.body, answer.trailers, answer.is_over) == (b"none", None, True)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_who_takes_none_has_the_same_answer_without(trailing: Server, method: str) -> None:
    fields = [TE] if method == "HEAD" else []
    with Talk(trailing.address) as talk:
        for path in ("/some", "/some?told"):
            answer = talk.get(path, *fields, method=method)
            assert (answer.status, answer.trailers, answer.reset) == (200, None, None)
            assert len(answer.body) == (0 if method == "HEAD" else 11 if "told" in path else 15)
        assert talk.get("/").body == b"fine"
    assert not trailing.log.matches("app failed|app's fault")


def test_only_over_http2_apps_are_told_of_them(trailing: Server) -> None:
    with Talk(trailing.address) as talk:
        assert "http.response.trailers" in json.loads(talk.get("/offered").body)
    with trailing.connect() as wire:
        assert "http.response.trailers" not in wire.get("/offered").json()
        # The app promises trailers even so, and the client has its answer, as if the app had not.
        assert wire.get("/some", "TE: trailers").text == "in three pieces"
        trailing.log.wait('an extension that the scope does not name: "http.response.trailers"')
        assert wire.get("/").text == "fine"


@pytest.mark.parametrize("query", ["", "?told"])
def test_the_body_goes_ahead_and_the_end_waits_for_trailers(trailing: Server, gate: Gate, query: str) -> None:
    with Talk(trailing.address) as talk:
        number = talk.begin(f"/later{query}", TE)
        answer = talk.answers[number]
        talk.until(lambda: answer.body == b"body")
        talk.ping()
        assert not answer.is_over
        gate.let_pass(1)
        assert talk.answer(number).trailers == [("x-sum", "later")]
        assert gate.announcement() == "sent"


def test_a_client_that_takes_none_may_have_its_end_before_the_app_sends_them(trailing: Server, gate: Gate) -> None:
    with Talk(trailing.address) as talk:
        assert talk.get("/later?told").body == b"body"
        gate.let_pass(1)
        assert gate.announcement() == "sent"


def test_a_client_that_reads_slowly_holds_the_app_and_has_all_in_the_end(trailing: Server, gate: Gate) -> None:
    count = 80
    with Talk(trailing.address, is_slow=True) as talk:
        number = talk.begin(f"/large?{count}", TE)
        assert gate.announcement() == "waits"
        answer, taken = talk.answers[number], 0
        while not answer.is_over:
            talk.hear_on()
            if came := len(answer.body) - taken:
                talk.frames.acknowledge_received_data(came, number)
                talk.flush()
                taken += came
    digest = hashlib.sha256(b"x" * PIECE_BYTES * count).hexdigest()
    assert (len(answer.body), answer.trailers) == (PIECE_BYTES * count, [("x-sum", digest)])


@pytest.mark.parametrize("size", [0, 10, 3_000_000])
def test_trailers_come_behind_a_file(trailing: Server, tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(250)) * (size // 250) + bytes(size % 250))
    with Talk(trailing.address) as talk:
        answer = talk.get(f"/file?{path}", TE)
        assert (answer.body == path.read_bytes(), answer.trailers) == (True, [("x-sum", "file")])
        assert talk.get(f"/file?{path}").body == path.read_bytes()


def test_trailers_come_behind_a_body_that_is_compressed(serve: Serve, gate: Gate) -> None:
    compress = ("--compress", "gzip", "--compress-min-size", "0")
    server = serve("fields:trailers", *HTTP2, *compress, env=gate.environment)
    with Talk(server.address) as talk:
        for path, body in (("/some", b"in three pieces"), ("/large?40", b"x" * PIECE_BYTES * 40)):
            answer = talk.get(path, TE, ("accept-encoding", "gzip"))
            assert answer.trailers
            assert gzip.decompress(answer.body) == body


def test_an_app_may_send_trailers_in_vain(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    counts = Counts(tmp_path / "control")
    server = serve("fields:trailers", *HTTP2, *FEW, *counts.arguments, env=gate.environment)
    with Talk(server.address) as talk:
        number = talk.begin("/later", TE)
        talk.until(lambda: talk.answers[number].body == b"body")
        with counts.one_more("abandoned_answering"):
            talk.reset(number)
        gate.let_pass(1)
        # The message is dropped.
        assert gate.announcement() == "sent"
        assert talk.get("/").body == b"fine"
    assert not server.log.matches("app failed|app's fault")


def test_a_worker_that_dies_before_its_trailers_breaks_its_stream_off(trailing: Server) -> None:
    with Talk(trailing.address) as talk:
        worker = int(talk.get("/pid").body)
        number = talk.begin("/later", TE)
        talk.until(lambda: talk.answers[number].body == b"body")
        os.kill(worker, signal.SIGKILL)
        answer = talk.answer(number)
        assert (answer.reset, answer.trailers, answer.is_over) == (INTERNAL_ERROR, None, False)
        assert talk.get("/").body == b"fine"


def test_an_app_that_forgets_its_trailers_breaks_its_stream_off(trailing: Server) -> None:
    with Talk(trailing.address) as talk:
        answer = talk.get("/forgotten", TE)
        assert (answer.reset, answer.is_over) == (INTERNAL_ERROR, False)
    trailing.log.wait("the app's fault: it returned before its answer was whole, at GET /forgotten")


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ("pseudo", 'not a header name: ":status"'),
        ("name", 'not a header name: "a name"'),
        ("value", "a control character in the value of x-sum"),
        ("large", r"the response's trailers take \d+ bytes, over the limit of 16384"),
    ],
)
def test_trailers_that_are_none_are_the_apps_fault(trailing: Server, gate: Gate, odd: str, why: str) -> None:
    with Talk(trailing.address) as talk:
        number = talk.begin(f"/odd?{odd}", TE)
        assert re.match(why, gate.announcement())
        assert talk.answer(number).trailers == [("x-sum", "even")]


def test_trailers_are_sent_once_behind_the_body(trailing: Server, gate: Gate) -> None:
    with Talk(trailing.address) as talk:
        assert talk.get("/order", TE).body == b"body"
    once = "http.response.trailers is expected once, behind the last http.response.body, if http.response.start had"
    told = gate.announcements(4)
    assert [one.startswith(once) for one in told] == [True, True, False, True]
    assert told[2] == "http.response.body came after the last one"


def piece(length: int) -> str:
    """The head of a record before a piece of the body, and before the trailers: see the worker's records."""
    return (bytes(4) + (4).to_bytes(4, "little") + bytes(8) + length.to_bytes(8, "little")).decode("latin-1")


LIES = {
    "the length": ("x-other-length: ", "content-length: "),
    "a name with a space": ("x-other-length: ", "x-other length: "),
    "a pseudo-header": ("x-other-length: ", ":-other-length: "),
    "a line of its own": ("b..ccc: d", "b.\nccc: d"),
    "framing": ("b..ccc: d", "b\r\nte: gz"),
    "a longer piece": (piece(6), piece(7)),
    "a shorter piece": (piece(6), piece(5)),
    "an endless piece": (piece(6), piece(2**64 - 1)),
    "two heads": (piece(6), "\0\0\0\0\3" + piece(6)[5:]),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_worker_that_lies_about_its_trailers_is_found_out(trailing: Server, gate: Gate, lie: str) -> None:
    old, new = LIES[lie]
    told = json.dumps({"old": old, "new": new, "mark": LIE}).encode().hex()
    with Talk(trailing.address) as talk:
        number = talk.begin(f"/lie?{told}", TE)
        let_lie(trailing, gate)
        answer = talk.answer(number)
        assert answer.status == 502 or answer.reset == INTERNAL_ERROR
        assert answer.trailers is None
        trailing.log.wait(r"\(\d+\) is replaced: it wrote where it should not")
        # Until the worker is killed it may take another request, whose client gets a 502.
        trailing.log.wait(r"\(\d+\) was killed by SIGKILL")
        assert talk.get("/").body == b"fine"
