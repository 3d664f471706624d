"""A few clients that send as much as they can neither delay the other clients nor keep them out."""

import contextlib
import threading
from collections.abc import Iterator

import pytest

from support.gate import Gate
from support.patience import PATIENCE_S
from support.server import Serve, Server
from support.wire import request

FLOODING = 4
LEAVING = 1_100
"""Withdrawn requests: more than the ready ring has entries for two workers."""


@contextlib.contextmanager
def flood(server: Server) -> Iterator[None]:
    """Clients that send a body without end in chunks of one byte, once all of them are well under way."""
    over, under_way = threading.Event(), threading.Semaphore(0)
    chunks = b"1\r\nx\r\n" * 1_000_000

    def send() -> None:
        with server.connect() as wire, contextlib.suppress(OSError):
            wire.send(request("POST", "/", ["Transfer-Encoding: chunked"]))
            while not over.is_set():
                wire.send(chunks)
                under_way.release()

    threads = [threading.Thread(target=send) for _ in range(FLOODING)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(FLOODING):
            assert under_way.acquire(timeout=PATIENCE_S)
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@pytest.mark.privileges
def test_answers_go_out_while_bodies_flood_in_byte_by_byte(serve: Serve) -> None:
    server = serve("hello:app")
    with flood(server):
        for _ in range(5):
            with server.connect() as wire:
                assert wire.get("/").status == 200


@pytest.mark.timeout(300)
@pytest.mark.own("gunicorn answers nobody while its only worker is held")
def test_clients_that_ask_and_leave_at_once_do_not_trouble_others(serve: Serve, gate: Gate) -> None:
    """The third request is ready and not yet taken, so requests withdrawn behind it stay in the ready ring."""
    times = ("--timeout", "0", "--queue-timeout", "0")
    server = serve("waiting:app", "-w", "2", *times, env=gate.environment)
    with server.connect() as first, server.connect() as second, server.connect() as ready:
        for wire in (first, second):
            wire.send(request("GET", "/wait?held"))
            gate.announcement()
        ready.send(request("GET", "/pid?ready"))
        for _ in range(LEAVING):
            with server.connect() as leaving, server.connect() as witness:
                leaving.send(request("GET", "/pid?leaving"))
                # Answered by the acceptor itself, which has seen what was sent before by then.
                witness.send(b"nonsense\r\n\r\n")
                assert witness.response().status == 400
        with server.connect() as staying:
            staying.send(request("GET", "/pid?staying"))
            assert staying.silent(0.3), "it waits for a worker, like any other"
            gate.open()
            assert [wire.response().status for wire in (first, second, ready, staying)] == [200] * 4
