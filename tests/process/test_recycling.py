"""Workers that have had enough: of memory, of time. One at a time, and the successor comes first."""

import itertools
import re

import pytest

from support.gate import Gate
from support.patience import eventually
from support.processes import gone
from support.server import Serve, Server
from support.wire import request

pytestmark = pytest.mark.own("gunicorn has no such settings")


def pid_at(server: Server) -> int:
    with server.connect() as wire:
        return int(wire.get("/").text)


@pytest.mark.privileges
def test_a_worker_past_max_memory_finishes_its_request_and_is_replaced(serve: Serve, gate: Gate) -> None:
    server = serve("memory:growing", "--max-memory", "100M", env=gate.environment)
    with server.connect() as wire:
        wire.send(request("GET", "/grow-and-wait?200"))
        grown = int(gate.announcement())
        # Its successor serves before it leaves.
        eventually(lambda: pid_at(server) != grown, "another worker answers")
        gate.let_pass(1)
        assert int(wire.response().text) == grown
    gone(grown)
    # It may be seen while it still grows.
    said = server.log.only(rf"\({grown}\) is to be replaced: it takes (\d+) MiB \(max_memory\)")
    assert 100 <= int(said[1]) < 300


def test_a_worker_that_takes_too_much_from_the_first_is_warned_of_and_stays(serve: Serve) -> None:
    limits = ("--max-memory", "1M", "--max-memory-hard", "2M")
    server = serve("memory:growing", *limits, "--keep-alive", "60")
    newborn = r"takes \d+ MiB before its first request, more than max_memory \(1 MiB\) and max_memory_hard \(2 MiB\)"
    server.log.wait(rf"WARNING.*worker 0 \(\d+\) {newborn}: the master replaces no worker for that")
    with server.connect() as wire:
        pid = int(wire.get("/grow?50").text)
        assert wire.silent(2.5), "two looks at its memory"
        assert int(wire.get("/").text) == pid
    assert not server.log.matches("is to be replaced|is killed")
    server.log.only(newborn)


def test_a_worker_below_max_memory_stays(serve: Serve) -> None:
    server = serve("memory:growing", "--max-memory", "300M", "--keep-alive", "60")
    with server.connect() as wire:
        pid = int(wire.get("/grow?50").text)
        assert wire.silent(2.5), "two looks at its memory"
        assert int(wire.get("/").text) == pid


@pytest.mark.privileges
def test_a_worker_past_max_memory_hard_is_killed_and_its_client_told(serve: Serve, gate: Gate) -> None:
    server = serve("memory:growing", "--max-memory-hard", "100M", env=gate.environment)
    grown = pid_at(server)
    with server.connect() as wire:
        wire.send(request("GET", "/grow-and-wait?200"))
        assert wire.response().status == 502
    gone(grown)
    # It may be seen while it still grows.
    said = server.log.wait(rf"\({grown}\) is killed: it takes (\d+) MiB \(max_memory_hard\)")
    assert 100 <= int(said[1]) < 300
    server.log.wait("grow-and-wait|wait_for_pass")
    assert pid_at(server) != grown


def test_lives_end_one_after_the_other_and_no_request_is_lost(serve: Serve) -> None:
    server = serve("memory:growing", "-w", "3", "--max-lifetime", "0.5")
    mark = server.log.mark()
    with server.connect() as wire:
        while len(server.log.matches(r"is to be replaced: it has lived for \d+ s \(max_lifetime\)")) < 6:
            assert wire.get("/").status == 200
    server.log.wait("max_lifetime", mark)
    # Between two of them a successor has become ready.
    events = re.findall(r"is to be replaced|worker ready", server.log.text().partition("ready: 3 workers")[2])
    replaced = [index for index, event in enumerate(events) if event == "is to be replaced"]
    for one, other in itertools.pairwise(replaced):
        assert "worker ready" in events[one:other]
