"""A client that reads slowly holds no worker: what it has not taken waits in memory, and past that in the spool."""

import contextlib
import hashlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.counts import Counts
from support.gate import Gate
from support.patience import eventually
from support.server import Serve, Server
from support.unread import until_read
from support.wire import Response, Wire, request

SEGMENT_BYTES = 1_460
"""The segment size over Ethernet."""
CHUNKS = 320
"""Chunks of 64 KiB: 20 MiB, far more than socket buffers and `--response-buffer` hold."""

STUCK = "a worker waits for a slow client"
WORKER_WAITS_S = 0.05
QUICK_BYTES_PER_S = 32 << 20
"""A worker waits so long for its client, and as much longer as this rate allows
(crates/stanchion-dispatch/src/outflow.rs)."""

pytestmark = pytest.mark.own("a gunicorn worker is bound to the client it writes to")


def noise(count: int) -> bytes:
    """The body of the app's `/noise`."""
    return b"".join(random.Random(number).randbytes(65536) for number in range(count))


@pytest.fixture(scope="module")
def expected() -> str:
    return hashlib.sha256(noise(CHUNKS)).hexdigest()


@contextlib.contextmanager
def slow_reader(server: Server, target: str, method: str = "GET", version: str = "1.1") -> Iterator[Wire]:
    """Asks, and reads nothing yet.

    With so small a buffer, and short segments, the server's kernel takes 360 KB at once and hardly more later. With
    64 KiB it takes as much again with the first delayed acknowledgement, after 40 ms.
    """
    with Wire(server.address.connect(receive_buffer_bytes=8_192, segment_bytes=SEGMENT_BYTES)) as wire:
        wire.send(request(method, target, version=version))
        yield wire


def spooled_bytes(server: Server) -> int:
    """The bytes in spool files that have a name."""
    return sum(path.stat().st_size for path in server.tmp.rglob("*") if path.is_file())


def assert_whole(response: Response, expected: str, framing: str) -> None:
    assert (response.status, response.framing) == (200, framing)
    assert hashlib.sha256(response.body).hexdigest() == expected


def assert_others_are_served(server: Server) -> None:
    with server.connect() as quick:
        assert quick.get("/with-length").body == b"four"


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "unix:answers.sock"], ids=["tcp", "unix"])
def test_the_only_worker_is_free_while_many_read_nothing_and_all_get_every_byte(
    serve: Serve, bind: str, counts: Counts, expected: str
) -> None:
    server = serve("answers:app", *counts.arguments, bind=bind)
    with contextlib.ExitStack() as stack:
        slow = [
            (stack.enter_context(slow_reader(server, f"/noise?{CHUNKS}")), "chunked"),
            (stack.enter_context(slow_reader(server, f"/noise-with-length?{CHUNKS}")), "length"),
            (stack.enter_context(slow_reader(server, f"/noise?{CHUNKS}", version="1.0")), "close"),
        ]
        eventually(lambda: len(server.spooled()) == len(slow), "what they have not taken of each answer is in a file")
        assert_others_are_served(server)
        for wire, framing in slow:
            assert_whole(wire.response(), expected, framing)
    assert (counts.events()["answers_spooled"], counts.events()["workers_held"]) == (len(slow), 0)
    assert counts.settled()["answered"] == len(slow) + 1
    eventually(lambda: not server.spooled(), "the files are closed")
    assert not [path for path in server.tmp.rglob("*") if path.is_file()], "and never had a name for long"


def test_a_reader_that_keeps_up_costs_no_disk(serve: Serve, counts: Counts) -> None:
    """However quick the worker is: it fills every buffer on the way at once."""
    server = serve("answers:app", *counts.arguments)
    with server.connect() as wire:
        for _ in range(3):
            before = counts.events()["answers_spooled"]
            kept_up = reads_quickly(wire, "/big-whole?50000000", 50_000_000)
            assert not kept_up or counts.events()["answers_spooled"] == before
    assert counts.events()["workers_held"] == 0


def reads_quickly(wire: Wire, target: str, count: int) -> bool:
    """Whether all the time it had taken as much as the server may expect: a reader that gets no core does not."""
    began_s, taken, kept_up = time.monotonic(), 0, True
    wire.send(request("GET", target))
    assert wire.head().status == 200
    while taken < count:
        kept_up &= time.monotonic() - began_s < WORKER_WAITS_S + taken / QUICK_BYTES_PER_S
        taken += len(wire.body_bytes(min(count - taken, 100_000)))
    return kept_up


def test_readers_of_every_pace_get_every_byte_from_one_connection(serve: Serve, expected: str) -> None:
    """Slow, then quick, then slow again: from memory to the file and back, twice."""
    server = serve("answers:app")
    with slow_reader(server, f"/noise-with-length?{CHUNKS}") as wire:
        for _ in range(2):
            assert_others_are_served(server)
            assert_whole(wire.response(), expected, "length")
            wire.send(request("GET", f"/noise-with-length?{CHUNKS}"))
        wire.response()


def test_a_slow_reader_that_leaves_takes_its_file_along(serve: Serve) -> None:
    server = serve("answers:app")
    with slow_reader(server, f"/noise?{CHUNKS}"):
        eventually(server.spooled, "its answer is spooled")
        assert_others_are_served(server)
    eventually(lambda: not server.spooled(), "the file is closed")


def test_a_slow_reader_of_an_endless_answer_that_leaves_frees_the_worker(serve: Serve, gate: Gate) -> None:
    server = serve("answers:app", "--response-spool", "4000000", env=gate.environment)
    with slow_reader(server, "/endless"):
        assert gate.announcement() == "started"
        eventually(server.spooled, "its answer is spooled")
    assert gate.announcement() == "closed"
    eventually(lambda: not server.spooled(), "the file is closed")
    assert_others_are_served(server)


def test_a_head_request_spools_nothing(serve: Serve) -> None:
    server = serve("answers:app")
    with slow_reader(server, f"/noise?{CHUNKS}", method="HEAD") as wire:
        assert_others_are_served(server)
        assert wire.response("HEAD").body == b""
        assert not server.spooled()


@pytest.mark.privileges
def test_a_file_that_goes_through_the_worker_is_spooled_too(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    content = noise(CHUNKS)
    path = tmp_path / "content"
    path.write_bytes(content)
    server = serve("bodies:files", "--no-sendfile", env={"FILE": str(path), **gate.environment})
    with slow_reader(server, "/") as slow, server.connect() as quick:
        assert gate.announcement() == "file closed", "the app is done with it"
        assert quick.get(f"/?offset={len(content) - 10}").body == content[-10:]
        assert slow.response().body == content


def test_without_a_spool_the_worker_waits_and_nothing_is_lost(serve: Serve, counts: Counts, expected: str) -> None:
    server = serve("answers:app", "--response-spool", "0", *counts.arguments)
    with slow_reader(server, f"/noise?{CHUNKS}") as slow, server.connect() as quick:
        server.log.wait(STUCK)
        quick.send(request("GET", "/with-length"))
        until_read(quick)
        assert quick.silent(for_s=0.1)
        assert not server.spooled()
        assert (counts.events()["answers_spooled"], counts.events()["workers_held"]) == (0, 1)
        assert_whole(slow.response(), expected, "chunked")
        assert quick.response().body == b"four"


@pytest.mark.parametrize("option", ["--response-spool", "--max-spool"])
def test_past_a_limit_of_the_spool_the_worker_waits_and_nothing_is_lost(
    serve: Serve, option: str, counts: Counts, expected: str
) -> None:
    server = serve("answers:app", option, "2000000", *counts.arguments)
    with slow_reader(server, f"/noise?{CHUNKS}") as slow, server.connect() as quick:
        server.log.wait(STUCK)
        assert server.spooled(), "what fits"
        assert (counts.events()["answers_spooled"], counts.events()["workers_held"]) == (1, 1)
        quick.send(request("GET", "/with-length"))
        until_read(quick)
        assert quick.silent(for_s=0.1)
        assert_whole(slow.response(), expected, "chunked")
        assert quick.response().body == b"four"


def test_answers_that_wait_for_room_in_the_spool_are_spooled_when_another_has_left(
    serve: Serve, gate: Gate, expected: str
) -> None:
    """However they share it, for that of the longest is enough for both of the others."""
    server = serve("answers:app", "-w", "2", "--max-spool", "45000000", env=gate.environment)
    with contextlib.ExitStack() as stack, slow_reader(server, f"/noise-and-wait?{2 * CHUNKS}") as longest:
        gate.announcement()
        gate.let_pass(1)
        others = [stack.enter_context(slow_reader(server, f"/noise?{CHUNKS}")) for _ in range(2)]
        server.log.wait_for(STUCK, 2)
        quick = stack.enter_context(server.connect())
        quick.send(request("GET", "/with-length"))
        assert quick.silent(for_s=0.1), "both workers wait"
        longest.close()
        assert quick.response().body == b"four"
        for other in others:
            assert_whole(other.response(), expected, "chunked")


def test_an_upload_past_max_spool_is_told_so(serve: Serve, counts: Counts) -> None:
    server = serve("echo:app", "--max-spool", "2000000", *counts.arguments)
    with server.connect() as first, server.connect() as second:
        first.send(request("POST", "/", ["Content-Length: 1500001"]) + bytes(1_500_000))
        eventually(lambda: spooled_bytes(server) > 1_000_000, "most of the first is spooled")
        with counts.one_more("refused_spool_full"):
            refused = second.post("/", bytes(1_500_000))
        assert (refused.status, refused.closes()) == (503, True)
        assert refused.text == "503 Service Unavailable: there is no room for the body in the spool\n"
        first.send(b"\0")
        assert first.response().json()["length"] == 1_500_001
    with server.connect() as third:
        assert third.post("/", bytes(1_500_000)).status == 200, "there is room again"
    assert counts.events()["bodies_spooled"] == 3


def test_past_max_body_memory_small_bodies_are_spooled_too(serve: Serve) -> None:
    server = serve("echo:app", "--max-body-memory", "20000")
    with server.connect() as first, server.connect() as second:
        for wire in (first, second):
            wire.send(request("POST", "/", ["Content-Length: 15001"]) + bytes(15_000))
        eventually(server.spooled, "one of them is in a file")
        for wire in (first, second):
            wire.send(b"\0")
            assert wire.response().json()["length"] == 15_001


def test_past_max_response_memory_answers_go_to_the_spool_before_their_buffer_is_full(serve: Serve) -> None:
    # More than twice what a socket's buffer may grow to.
    chunks = 160
    server = serve("answers:app", "--response-buffer", "100000000", "--max-response-memory", "0")
    with slow_reader(server, f"/noise?{chunks}") as slow:
        eventually(server.spooled, "its answer is spooled")
        assert_others_are_served(server)
        assert slow.response().body == noise(chunks)


def test_an_answer_whose_worker_dies_is_delivered_as_far_as_it_came(serve: Serve, gate: Gate) -> None:
    server = serve("answers:app", env=gate.environment)
    with slow_reader(server, f"/noise-and-wait?{CHUNKS}") as slow:
        worker = int(gate.announcement())
        assert server.spooled()
        os.kill(worker, signal.SIGKILL)
        assert_others_are_served(server)
        assert slow.torn_response().body == noise(CHUNKS)
    eventually(lambda: not server.spooled(), "the file is closed")


def test_an_acceptor_that_is_killed_leaves_nothing_of_what_it_spooled(serve: Serve) -> None:
    server = serve("answers:app")
    acceptor = server.acceptor()
    with slow_reader(server, f"/noise?{CHUNKS}"), server.connect() as upload:
        eventually(server.spooled, "an answer is spooled")
        assert_others_are_served(server)
        upload.send(request("POST", "/", ["Content-Length: 1000000"]) + bytes(600_000))
        eventually(lambda: spooled_bytes(server) > 0, "a body is spooled, in a file that has a name")
        assert [path for path in server.spooled() if path.endswith(" (deleted)")], "and an answer, in one without"
        acceptor.kill()
        server.log.wait("acceptor")
        eventually(lambda: not server.spooled(), "nothing is left")
    assert_others_are_served(server)


@pytest.mark.parametrize(("workers", "file_bytes"), [(1, 4_000_000), (2, 1)], ids=["in the middle", "at once, twice"])
def test_a_disk_that_refuses_makes_workers_wait_and_loses_nothing(
    serve: Serve, workers: int, file_bytes: int, expected: str
) -> None:
    """A limit of file sizes (setrlimit(2)) stands for a full disk: Python ignores SIGXFSZ, so writing fails."""
    server = serve("answers:app", "-w", str(workers))
    acceptor = server.acceptor()
    acceptor.rlimit(psutil.RLIMIT_FSIZE, (file_bytes, 100_000_000))
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(slow_reader(server, f"/noise?{CHUNKS}")) for _ in range(workers)]
        server.log.wait_for(STUCK, workers)
        quick = stack.enter_context(server.connect())
        quick.send(request("GET", "/with-length"))
        assert quick.silent(for_s=0.1)
        for wire in slow:
            assert_whole(wire.response(), expected, "chunked")
        assert quick.response().body == b"four"
    # However many answers it has hit.
    server.log.only(r"\[ERROR\] bodies and answers cannot be written")
    acceptor.rlimit(psutil.RLIMIT_FSIZE, (100_000_000, 100_000_000))
    with slow_reader(server, f"/noise?{CHUNKS}") as again:
        assert_others_are_served(server)
        eventually(server.spooled, "the disk takes answers again")
        assert_whole(again.response(), expected, "chunked")
