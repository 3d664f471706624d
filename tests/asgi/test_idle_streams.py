"""The cost of a stream on which nothing happens."""

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.gate import Gate
from support.patience import eventually
from support.server import Serve
from support.wire import request

STREAMS = 50
SLACK_KIB = 64
"""So much all streams may take: the state of their slots, of which several share a page."""
UNUSED_KIB = 2048
"""The heads of the slots that four workers with 1,000 tasks each have would alone take four times as much."""


def exchange_kib(pid: int) -> int:
    """How much of the shared memory is there (proc(5), smaps): other processes see the same pages."""
    smaps = Path(f"/proc/{pid}/smaps").read_text()
    found = re.search(r"stanchion-exchange.*?^Rss:\s+(\d+) kB$", smaps, re.MULTILINE | re.DOTALL)
    assert found, "the shared memory has another name"
    return int(found[1])


@pytest.mark.own("gunicorn's processes share no memory")
def test_a_stream_that_idles_holds_no_shared_memory_and_goes_on(serve: Serve) -> None:
    server = serve("looping:app", "--interface", "asgi", "--loop", "asyncio", "--worker-concurrency", "100")
    with server.connect() as asking:
        pid = int(asking.get("/").text)
        before = exchange_kib(pid)
        with ExitStack() as stack:
            wires = [stack.enter_context(server.connect()) for _ in range(STREAMS)]
            for wire in wires:
                wire.send(request("GET", "/until-go", ["X-Long: " + "x" * 5000]))
                wire.head()
            eventually(
                lambda: exchange_kib(pid) < before + SLACK_KIB, "the memory of requests and answers is given back"
            )
            # The first connection may have idled for longer than keepalive.
            with server.connect() as going:
                going.get("/go")
            for wire in wires:
                assert wire.body_bytes(0x1770 + len("1770\r\n\r\n")).endswith(b"begun\n\r\n")
                assert wire.body_bytes(0x1770 + len("1770\r\n\r\n")).endswith(b"ended\n\r\n")


@pytest.mark.own("gunicorn's processes share no memory")
def test_unused_slots_take_no_shared_memory(serve: Serve, gate: Gate) -> None:
    """Not even after the acceptor has looked through the slots for deadlines, of which the first has passed."""
    app = ("looping:app", "--interface", "asgi", "--loop", "asyncio", "--timeout", "1")
    server = serve(*app, "-w", "4", env=gate.environment)
    with server.connect() as late:
        late.send(request("GET", "/late?0.1"))
        assert late.response().status == 504
    assert exchange_kib(server.acceptor().pid) < UNUSED_KIB
