"""Long answers go out from where their workers wrote them: whole and in order, however they are framed and read."""

import hashlib
import random
import struct

import psutil
import pytest

from support.gate import Gate
from support.patience import eventually
from support.server import Serve, Server
from support.wire import Wire, request

COPIED_BYTES = 64 << 10
"""Whole answers up to this are copied."""
RING_BYTES = (1024 + 64) << 10
"""How much a worker can write before the acceptor takes any of it."""
AROUND = [
    length + more
    for length in (COPIED_BYTES, RING_BYTES, 2 * RING_BYTES)
    # The head and what stands before it are in there, too.
    for more in (-1_000, -200, -1, 0, 1, 1_000)
]
PATTERN = b"".join(struct.pack(">I", number) for number in range(1 << 20))
"""The app's pattern: the bytes show at which offset they stand."""


@pytest.fixture(scope="module")
def server(shared_serve: Serve) -> Server:
    return shared_serve("bodies:patterned", "--workers", "2", "--threads", "2")


def check(wire: Wire, target: str, version: str = "1.1") -> None:
    wire.send(request("GET", target, version=version))
    response = wire.response()
    length = int(target.split("/")[2])
    assert (response.status, len(response.body)) == (200, length), target
    # Their sums, since pytest would take minutes to show how such bodies differ.
    assert hashlib.sha256(response.body).digest() == hashlib.sha256(PATTERN[:length]).digest(), target


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("how", ["whole", "iterated", "measured"])
def test_answers_around_every_limit_arrive_as_they_were_written(server: Server, how: str, version: str) -> None:
    with server.connect() as kept:
        for length in AROUND:
            each = random.Random(length).choice([1_000, 65_536, 300_000, length])
            if version == "1.1":
                check(kept, f"/{how}/{length}/{each}")
            else:
                with server.connect() as wire:
                    check(wire, f"/{how}/{length}/{each}", version)


@pytest.mark.parametrize("how", ["whole", "iterated", "measured"])
def test_so_do_those_that_are_read_late_and_little_by_little(server: Server, how: str) -> None:
    lengths = [COPIED_BYTES + 1, RING_BYTES - 1_000, RING_BYTES + 1, 3 << 20]
    wires = [Wire(server.address.connect(receive_buffer_bytes=4_096)) for _ in lengths]
    for wire, length in zip(wires, lengths, strict=True):
        wire.send(request("GET", f"/{how}/{length}/70000"))
    with server.connect() as other:
        # Clients that read late are behind by now, and keep no seat from others.
        for _ in range(10):
            check(other, f"/{how}/100000/70000")
    for wire, length in zip(wires, lengths, strict=True):
        with wire:
            body = wire.response().body
            assert hashlib.sha256(body).digest() == hashlib.sha256(PATTERN[:length]).digest(), length


@pytest.mark.parametrize("how", ["whole", "iterated", "measured"])
def test_so_do_those_of_a_worker_that_ends_when_it_has_written_them(serve: Serve, how: str) -> None:
    server = serve("bodies:patterned", "--workers", "2", "--max-requests", "1")
    for number in range(12):
        with server.connect() as wire:
            check(wire, f"/{how}/{RING_BYTES - 5_000 + number * 1_000}/70000")


@pytest.mark.own("gunicorn has no acceptor")
@pytest.mark.parametrize("length", [COPIED_BYTES + 1_000, RING_BYTES - 1_000])
def test_so_do_those_whose_worker_is_dead_before_the_acceptor_has_looked(serve: Serve, gate: Gate, length: int) -> None:
    server = serve("bodies:patterned", env=gate.environment)
    acceptor = server.acceptor()
    with server.connect() as wire:
        wire.send(request("GET", f"/whole/{length}?wait"))
        worker = psutil.Process(int(gate.announcement()))
        acceptor.suspend()
        try:
            eventually(lambda: worker.status() == psutil.STATUS_SLEEPING, "it waits for a pass")
            before = worker.num_ctx_switches().voluntary
            gate.let_pass(1)
            # It has been woken, and has nothing more to do: the answer is written.
            eventually(
                lambda: worker.num_ctx_switches().voluntary > before and worker.status() == psutil.STATUS_SLEEPING,
                "it has answered",
            )
            worker.kill()
            server.log.wait("was killed by SIGKILL")
        finally:
            acceptor.resume()
        body = wire.response().body
        assert hashlib.sha256(body).digest() == hashlib.sha256(PATTERN[:length]).digest()


def test_no_answer_is_behind_that_of_another_request(server: Server) -> None:
    targets = [
        "/whole/40000",
        "/iterated/400000/65536",
        "/measured/1400000/10000",
        "/whole/10",
        "/iterated/1200000/1000",
    ]
    with server.connect() as wire:
        wire.send(b"".join(request("GET", target) for target in targets))
        for target in targets:
            length = int(target.split("/")[2])
            assert hashlib.sha256(wire.response().body).digest() == hashlib.sha256(PATTERN[:length]).digest(), target
