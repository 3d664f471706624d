"""Long bodies of asynchronous apps. A request joins the line with the start of its body, and the rest follows."""

import hashlib
import os
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from support.asgi import OURS, Flavour
from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.haste import LINGERS_S, in_haste
from support.patience import PATIENCE_S, eventually
from support.processes import written_bytes
from support.server import UNHURRIED, Serve, Server
from support.unread import until_read
from support.wire import Wire, chunked, request

pytestmark = pytest.mark.own("uvicorn has no line")

EARLY_BYTES = 64 << 10
MIB = 1 << 20
ASGI = ("--interface", "asgi", "--loop", "asyncio")


@pytest.fixture(scope="module")
def shared_gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    gate = Gate(tmp_path_factory.mktemp("uploads") / "gate")
    yield gate
    gate.close()


@pytest.fixture(scope="module", params=OURS)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    return OURS[request.param]


@pytest.fixture(scope="module")
def counts(flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Counts:
    return Counts(tmp_path_factory.mktemp("control") / flavour.loop)


@pytest.fixture(scope="module")
def served(flavour: Flavour, shared_serve: Serve, shared_gate: Gate, counts: Counts) -> Server:
    arguments = ["--lifespan", "off", "--limit-request-body", str(300 * MIB), *UNHURRIED, *counts.arguments]
    return flavour.serve(shared_serve, "uploading:app", *arguments, env=shared_gate.environment)


def head(path: str, length: int, *headers: str) -> bytes:
    return request("POST", path, [f"Content-Length: {length}", *headers])


def told(gate: Gate, length: int, is_last: bool = False) -> list[int]:
    """The pieces that the app has got, until they have so many bytes; or until the last one, which may be empty."""
    lengths: list[int] = []
    more = "True"
    while sum(lengths) < length or (is_last and more == "True"):
        number, more = gate.announcement().split()
        lengths.append(int(number))
    assert sum(lengths) == length
    assert is_last or more == "True"
    return lengths


def push(wire: Wire, bytes_max: int, pause_s: float = PATIENCE_S) -> int:
    """Sends zeroes until the server takes no more for so long, or that many; gives how many."""
    piece, sent = bytes(EARLY_BYTES), 0
    wire.sock.settimeout(pause_s)
    while sent < bytes_max:
        try:
            sent += wire.sock.send(piece[: bytes_max - sent])
        except TimeoutError:
            break
    wire.sock.settimeout(PATIENCE_S)
    return sent


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_request_runs_with_the_first_64_kib_of_its_body(served: Server, shared_gate: Gate, is_chunked: bool) -> None:
    first, rest = os.urandom(EARLY_BYTES), os.urandom(10)
    with served.connect() as wire:
        if is_chunked:
            wire.send(request("POST", "/told", ["Transfer-Encoding: chunked"]) + b"%x\r\n%b\r\n" % (len(first), first))
        else:
            wire.send(head("/told", len(first) + len(rest)) + first)
        told(shared_gate, len(first))
        wire.send(chunked([rest]) if is_chunked else rest)
        response = wire.response()
        assert ("transfer-encoding" if is_chunked else "content-length") in response.json()
        assert not response.closes()
        told(shared_gate, len(rest), is_last=True)
        assert wire.get("/").status == 200
        assert shared_gate.announcement() == "called"


def test_a_request_runs_with_what_has_come_of_its_body_once_no_more_comes(served: Server, shared_gate: Gate) -> None:
    with served.connect() as wire:
        wire.send(head("/told", 6) + b"abc")
        assert shared_gate.announcement() == "3 True"
        wire.send(b"d")
        assert shared_gate.announcement() == "1 True"
        wire.send(b"ef")
        assert wire.response().status == 200
    told(shared_gate, 2, is_last=True)


def test_a_body_that_has_not_begun_to_come_costs_no_turn(served: Server, shared_gate: Gate) -> None:
    with served.connect() as slow, served.connect() as other:
        slow.send(head("/told", 3))
        # Longer than a body that has begun is waited for.
        assert slow.silent(0.2)
        assert other.get("/").status == 200
        assert shared_gate.announced() == ["called"]
        slow.send(b"abc")
        assert slow.response().status == 200
        assert shared_gate.announcement() == "3 False"


def test_a_client_that_waits_for_100_continue_gets_it_before_the_app_runs(served: Server, shared_gate: Gate) -> None:
    with served.connect() as wire:
        wire.send(head("/told", 6, "Expect: 100-continue"))
        assert wire.head().status == 100
        assert shared_gate.announced() == []
        wire.send(b"abc")
        assert shared_gate.announcement() == "3 True"
        wire.send(b"def")
        assert wire.response().status == 200
    told(shared_gate, 3, is_last=True)


def test_an_app_answers_while_the_body_comes(served: Server) -> None:
    with served.connect() as wire:
        wire.send(head("/echo", 6) + b"ab")
        response = wire.head()
        assert response.closes(), "whether the rest is read is not known yet"
        assert wire.body_bytes(len(b"2\r\nab\r\n")) == b"2\r\nab\r\n"
        wire.send(b"cd")
        assert wire.body_bytes(len(b"2\r\ncd\r\n")) == b"2\r\ncd\r\n"
        wire.send(b"ef")
        last = b"2\r\nef\r\n0\r\n\r\n"
        assert wire.rest() in (last, last.replace(b"ef\r\n", b"ef\r\n0\r\n\r\n"))


def test_behind_a_body_that_was_streamed_comes_the_next_request(served: Server) -> None:
    body = os.urandom(300_000)
    with served.connect() as wire:
        wire.send(request("POST", "/digest", [], body) * 3)
        for _ in range(3):
            answer = wire.response().json()
            assert answer["sha256"] == hashlib.sha256(body).hexdigest()
            assert answer["pieces"] > 1 and answer["longest"] <= 132 << 10, "what began it, and one reading"
        chunks = [body[at : at + 999] for at in range(0, len(body), 999)]
        wire.send(request("POST", "/digest", ["Transfer-Encoding: chunked"]) + chunked(chunks, b"X-Trailer: 1\r\n"))
        assert wire.response().json()["sha256"] == hashlib.sha256(body).hexdigest()
        assert wire.get("/digest").json()["pieces"] == 1


def test_what_the_app_does_not_receive_stays_with_the_client(served: Server, shared_gate: Gate) -> None:
    """Sockets have buffers of some megabytes."""
    total = 64 * MIB
    with served.connect() as wire:
        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
        wire.send(head("/late", total))
        sent = push(wire, total, pause_s=1)
        assert sent < 16 * MIB, "it is not read"
        assert shared_gate.announcement() == "runs"
        shared_gate.let_pass(1)
        assert sent + push(wire, total - sent) == total
        assert wire.response().json()["sha256"] == hashlib.sha256(bytes(total)).hexdigest()


@pytest.mark.parametrize("mib", [256, pytest.param(1024, marks=pytest.mark.large)])
def test_any_size_goes_through_in_little_memory(serve: Serve, gate: Gate, flavour: Flavour, mib: int) -> None:
    total = mib * MIB
    options = ("--lifespan", "off", "--limit-request-body", str(total))
    server = flavour.serve(serve, "uploading:app", *options, env=gate.environment)
    with server.connect() as wire:
        wire.send(head("/digest", total))
        assert push(wire, 8 * MIB) == 8 * MIB
        before = written_bytes(server.processes())
        most = 0
        for _ in range(8):
            part = (total - 8 * MIB) // 8
            assert push(wire, part) == part
            most = max(most, written_bytes(server.processes()))
        assert wire.response().json()["sha256"] == hashlib.sha256(bytes(total)).hexdigest()
        assert server.spooled() == []
    assert most - before < 4 * MIB, f"{before >> 20} MiB, then {most >> 20} MiB"


@pytest.mark.parametrize("how", ["close", "reset"])
def test_an_app_is_told_of_a_client_that_leaves_in_the_middle_of_its_body(
    served: Server, shared_gate: Gate, counts: Counts, how: str
) -> None:
    before = counts.settled()
    wire = served.connect()
    wire.send(head("/gone", 100_000) + bytes(EARLY_BYTES))
    assert shared_gate.announcement() == "begun"
    getattr(wire, how)()
    assert shared_gate.announcement() == "told, and sends in vain"
    after = counts.settled()
    assert after["abandoned_running"] == before["abandoned_running"] + 1


@pytest.mark.parametrize(("more", "status"), [(b"zz\r\n", 400), (b"%x\r\n" % (301 * MIB), 413)])
def test_an_app_is_told_of_a_body_that_turns_out_bad(
    served: Server, shared_gate: Gate, counts: Counts, more: bytes, status: int
) -> None:
    before = counts.settled()
    with served.connect() as wire:
        wire.send(request("POST", "/gone", ["Transfer-Encoding: chunked"]) + b"3\r\nabc\r\n")
        assert shared_gate.announcement() == "begun"
        # Its size is enough: the chunk itself does not come.
        wire.send(more)
        response = wire.response()
        assert (response.status, response.closes()) == (status, True)
    assert shared_gate.announcement() == "told, and sends in vain"
    name = {400: "refused_bad_request", 413: "refused_body_too_large"}[status]
    assert counts.settled()[name] == before[name] + 1


def test_an_answer_before_the_end_of_the_body_is_the_last(served: Server, shared_gate: Gate) -> None:
    def push_on() -> None:
        with served.connect() as wire:
            wire.send(head("/early", 32 * MIB) + bytes(EARLY_BYTES))
            assert shared_gate.announcement().endswith("True")
            response = wire.response()
            assert (response.json(), response.closes()) == ("early", True)
            # The server discards the rest of the upload: a reset could overtake the answer.
            assert push(wire, 4 * MIB) == 4 * MIB

    in_haste(push_on, LINGERS_S)


def test_an_app_that_does_not_read_a_short_body_keeps_the_connection(served: Server, shared_gate: Gate) -> None:
    with served.connect() as wire:
        for _ in range(2):
            wire.send(head("/", 100_000) + bytes(100_000))
            assert wire.response().status == 200
            assert shared_gate.announcement() == "called"


def test_whole_uploads_wait_for_the_end_of_the_body(serve: Serve, gate: Gate) -> None:
    server = serve("uploading:app", *ASGI, "--whole-uploads", env=gate.environment)
    with server.connect() as wire, server.connect() as other:
        wire.send(head("/told", 200_000) + bytes(190_000))
        assert wire.silent(0.2)
        assert other.get("/").status == 200
        assert gate.announcement() == "called"
        eventually(server.spooled, "it is in a file")
        wire.send(bytes(10_000))
        assert wire.response().status == 200
        assert told(gate, 200_000, is_last=True)[0] == EARLY_BYTES
        wire.send(request("POST", "/told", ["Transfer-Encoding: chunked"]) + chunked([b"abc"]))
        assert "content-length" in wire.response().json()
    assert gate.announcement() == "3 False"


def test_a_body_for_which_there_is_no_memory_is_read_to_its_end_first(serve: Serve, gate: Gate) -> None:
    server = serve("uploading:app", *ASGI, "--max-body-memory", "1000", env=gate.environment)
    with server.connect() as wire:
        wire.send(head("/told", 200_000) + bytes(190_000))
        eventually(server.spooled, "it is in a file")
        assert gate.announced() == []
        wire.send(bytes(10_000))
        assert wire.response().status == 200
        told(gate, 200_000, is_last=True)


def test_the_start_of_a_body_takes_no_memory_once_its_request_is_handed_out(serve: Serve, gate: Gate) -> None:
    server = serve("uploading:app", *ASGI, "--max-body-memory", "100000", env=gate.environment)
    with server.connect() as first, server.connect() as second:
        for wire in (first, second):
            wire.send(head("/late", 200_000) + bytes(EARLY_BYTES))
            assert gate.announcement() == "runs"
        assert server.spooled() == []
        gate.let_pass(2)
        for wire in (first, second):
            wire.send(bytes(200_000 - EARLY_BYTES))
            assert wire.response().status == 200


def test_a_slow_client_is_told_408_and_the_app_that_it_has_gone(serve: Serve, gate: Gate, clock: Clock) -> None:
    limits = ("--body-timeout", "100", "--timeout", "0", "--loop-timeout", "0", *UNHURRIED)
    server = serve("uploading:app", *ASGI, *limits, env=gate.environment | clock.environment)
    with server.connect() as wire:
        wire.send(head("/gone", 10) + b"abc")
        assert gate.announcement() == "begun"
        clock.advance(101)
        response = wire.response()
        assert (response.status, response.closes()) == (408, True)
    assert gate.announcement() == "told, and sends in vain"


def test_who_sends_hardly_fast_enough_gives_way_to_who_waits_for_a_turn(serve: Serve, gate: Gate) -> None:
    """An attack: each turn of all workers, held by a body that drips."""
    limits = ("--worker-concurrency", "1", "--min-body-rate", "1000")
    server = serve("uploading:app", *ASGI, *limits, env=gate.environment)
    with server.connect() as slow, server.connect() as other:
        slow.send(head("/gone", 1_000_000) + b"abc")
        assert gate.announcement() == "begun"
        other.send(request("GET", "/"))
        deadline_s = time.monotonic() + PATIENCE_S
        while slow.silent(0.2):
            assert time.monotonic() < deadline_s
            slow.send(b"b" * 240)
        response = slow.response()
        assert (response.status, response.closes()) == (408, True)
        assert b"too slowly" in response.body
        assert other.response().status == 200
    assert gate.announcements(2) == ["told, and sends in vain", "called"]


def test_the_time_of_a_request_does_not_run_while_its_client_is_waited_for(
    serve: Serve, gate: Gate, clock: Clock
) -> None:
    limits = ("--timeout", "100", "--body-timeout", "1000", "--loop-timeout", "0", *UNHURRIED)
    server = serve("uploading:app", *ASGI, *limits, env=gate.environment | clock.environment)
    with server.connect() as slow:
        slow.send(head("/told", 9))
        for part in (b"abc", b"def"):
            slow.send(part)
            assert gate.announcement() == "3 True"
            clock.advance(160)
            # The acceptor looks at the clock meanwhile, and the loop goes on.
            with server.connect() as other:
                assert other.get("/").status == 200
            assert gate.announcement() == "called"
            assert slow.silent(0.3)
        slow.send(b"ghi")
        assert slow.response().status == 200
        told(gate, 3, is_last=True)
    # The app is waited for.
    with server.connect() as stuck:
        stuck.send(head("/late", 2 * EARLY_BYTES) + bytes(2 * EARLY_BYTES))
        assert gate.announcement() == "runs"
        until_read(stuck)
        clock.advance(101)
        assert stuck.response().status == 504
        gate.let_pass(1)


def test_a_worker_that_dies_over_a_streamed_body_has_its_client_told(serve: Serve, gate: Gate) -> None:
    server = serve("uploading:app", *ASGI, *UNHURRIED, env=gate.environment)
    mark = server.log.mark()
    with server.connect() as wire:
        wire.send(request("PUT", "/gone", ["Content-Length: 9"]) + b"abc")
        assert gate.announcement() == "begun"
        os.kill(int(server.log.only(r"worker ready .* pid=(\d+)")[1]), signal.SIGKILL)
        response = wire.response()
        assert (response.status, response.closes()) == (502, True)
    assert not server.log.matches("another one gets the request", mark)


def test_who_uploads_while_the_server_leaves_is_waited_for(serve: Serve, gate: Gate) -> None:
    server = serve("uploading:app", *ASGI, env=gate.environment)
    with server.connect() as wire:
        wire.send(head("/digest", 200_000) + bytes(100_000))
        server.log.wait("worker ready")
        server.signal(signal.SIGTERM)
        server.log.wait("SIGTERM|TERM")
        wire.send(bytes(100_000))
        assert wire.response().json()["sha256"] == hashlib.sha256(bytes(200_000)).hexdigest()
    assert server.exit_code() == 0


def test_an_app_waits_for_a_client_that_does_not_read_and_others_do_not(served: Server, shared_gate: Gate) -> None:
    pieces, piece_bytes = 1024, 256 << 10
    before = written_bytes(served.processes())
    with served.connect() as slow, served.connect() as other:
        slow.send(request("GET", f"/stream?{pieces}"))
        waits, left = shared_gate.announcement().split()
        assert waits == "waits"
        # The app has sent no more than fits into sockets, the buffer of the answer and its slot.
        assert int(left) > pieces - 64
        for _ in range(3):
            assert other.get("/").status == 200
            assert shared_gate.announcement() == "called"
        assert served.spooled() == []
        most = written_bytes(served.processes())
        assert len(slow.response().body) == pieces * piece_bytes
    assert most - before < 8 * MIB, f"{before >> 20} MiB, then {most >> 20} MiB"


def test_a_stream_that_fails_after_a_while_is_named_in_the_log(served: Server, shared_gate: Gate) -> None:
    mark = served.log.mark()
    with served.connect() as wire:
        wire.send(request("GET", "/raises?late"))
        wire.head()
        assert wire.body_bytes(len(b"5\r\nbegun\r\n")) == b"5\r\nbegun\r\n"
        # Longer than the server keeps the record of a stream.
        assert wire.silent(2.5)
        shared_gate.let_pass(1)
        served.log.wait(r"the app failed at GET /raises\?late", mark)
