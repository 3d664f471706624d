"""The log names a worker that the kernel killed for memory (finding N13 of an operator's first day)."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing

import pytest

from support.control_group import NEEDS_CONTROL_GROUPS, MemoryGroup
from support.processes import gone
from support.server import Serve, Server
from support.wire import request

pytestmark = [pytest.mark.own("gunicorn says 'Perhaps out of memory?' of any SIGKILL"), NEEDS_CONTROL_GROUPS]

MIB = 1 << 20


@pytest.fixture
def container() -> Iterator[MemoryGroup]:
    with closing(MemoryGroup("workers", 90 * MIB)) as group:
        yield group


def pid_at(server: Server) -> int:
    with server.connect() as wire:
        return int(wire.get("/").text)


def test_a_worker_that_memory_ended_and_one_that_a_signal_ended(container: MemoryGroup, build: Serve) -> None:
    server = build("memory:growing", "--interface", "wsgi", prefix=container.prefix).start()
    grown = pid_at(server)
    with server.connect() as wire:
        wire.send(request("GET", "/grow?200"))
        assert wire.response().status == 502
    server.log.only(rf"worker 0 \({grown}\) was killed by SIGKILL: out of memory: 90 MiB is the limit")

    # The count of the control group has grown, and not by this one.
    following = pid_at(server)
    os.kill(following, signal.SIGKILL)
    gone(following)
    said = server.log.only(rf"\({following}\) was killed by SIGKILL")
    assert said.string.endswith("was killed by SIGKILL")
    server.stop()
