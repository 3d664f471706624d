"""A worker gone mad writes over the memory that it shares with the acceptor, which goes on."""

import contextlib
import threading

import psutil
import pytest

from support.clock import Clock
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.server import Serve, Server
from support.wire import BrokenOff, Malformed, request

pytestmark = pytest.mark.own("gunicorn's processes share no memory")

SCRIBBLED_S = 1.5
REQUESTS = 100


def served(server: Server, within_s: float) -> int:
    """How many requests, each over a connection of its own, get the app's answer, and the right one."""
    right = 0
    for number in range(REQUESTS):
        with contextlib.suppress(BrokenOff, ConnectionError, TimeoutError), server.connect() as wire:
            wire.sock.settimeout(within_s)
            response = wire.get(f"/?{number}")
            right += (response.status, response.text) == (200, str(number))
    return right


def ask_until(server: Server, stop: threading.Event) -> None:
    """A client that asks meanwhile, and takes any answer. Answers may be garbage, but their framing may not."""
    while not stop.is_set():
        with contextlib.suppress(BrokenOff, ConnectionError, TimeoutError), server.connect() as wire:
            wire.sock.settimeout(1)
            wire.get("/?meanwhile")


@pytest.mark.parametrize("seed", range(3))
def test_whatever_a_worker_scribbles_the_same_acceptor_serves_all_clients_afterwards(
    serve: Serve, gate: Gate, clock: Clock, seed: int
) -> None:
    arguments = ("--workers", "2", "--threads", "2", "--timeout", "100", "--keep-alive", "10000")
    server = serve("spoiling:garbage", *arguments, env=gate.environment | clock.environment)
    acceptor = server.acceptor()
    stop = threading.Event()
    malformed: list[Malformed] = []

    def ask() -> None:
        try:
            ask_until(server, stop)
        except Malformed as error:
            malformed.append(error)

    askers = [threading.Thread(target=ask) for _ in range(4)]
    with server.connect() as mad:
        for asker in askers:
            asker.start()
        try:
            mad.send(request("GET", f"/scribble?seed={seed}&for_s={SCRIBBLED_S}"))
            with contextlib.suppress(BrokenOff, ConnectionError, TimeoutError):
                mad.response()
            # Its answer may come before, from the acceptor, and it may be killed.
            scribbler = int(gate.announcement())
            eventually(lambda: gate.announced() or not psutil.pid_exists(scribbler), "it scribbles no more")
        finally:
            stop.set()
            for asker in askers:
                asker.join()
    assert not malformed, "an answer was not framed as HTTP"

    def are_served() -> bool:
        # A request that only looks as if it ran is past its deadline then.
        clock.advance(101)
        return served(server, 1) == REQUESTS

    eventually(are_served, "everybody is served again", 3 * PATIENCE_S)
    assert served(server, PATIENCE_S) == REQUESTS, "and stays so"
    assert server.acceptor().pid == acceptor.pid
    assert acceptor.is_running()
    assert not server.log.matches("panicked")
