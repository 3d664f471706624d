"""The adaptive order: a line that stands is served from its other end, and its oldest get a 503."""

import select
from pathlib import Path

import pytest

from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.server import Serve
from support.wire import request

REQUESTS = 20


@pytest.mark.own("gunicorn's queue is the kernel's")
def test_a_line_that_stands_is_served_newest_first_and_sheds_its_oldest(
    serve: Serve, gate: Gate, tmp_path: Path, clock: Clock
) -> None:
    counts = Counts(tmp_path / "ctl")
    line = ("--queue-order", "adaptive", "--queue-target", "1000", "--queue-timeout", "0")
    times = ("--timeout", "0", "--keep-alive", "10000")
    server = serve("waiting:app", *line, *times, *counts.arguments, env=gate.environment | clock.environment)
    wires = [server.connect() for _ in range(1 + REQUESTS)]
    for wire in wires:
        assert wire.get("/pid").status == 200
    wires[0].send(request("GET", "/wait?held"))
    gate.announcement()
    arrived = counts.requests()["arrived"]
    for number, wire in enumerate(wires[1:], 1):
        wire.send(request("GET", f"/served?{number}"))
        eventually(lambda number=number: counts.requests()["arrived"] == arrived + number, "it has come")
    # It is over its target after one; after another one its oldest is shed, and the next one after a third.
    clock.advance(1900)
    assert not select.select([wire.sock for wire in wires], [], [], 0.5)[0]
    clock.advance(150)
    readable, _, _ = select.select([wire.sock for wire in wires], [], [], PATIENCE_S)
    gate.let_pass(1)
    responses = [wire.response() for wire in wires]
    statuses = [response.status for response in responses]
    # A few are ahead, in the exchange; the request that came after them is the oldest in the line.
    oldest = statuses.index(503)
    assert wires[oldest].sock in readable, "the first that was answered"
    assert oldest <= 8
    told = responses[oldest]
    assert "over its target" in told.text
    retry_after = told.header("Retry-After")
    assert retry_after is not None and 1 <= int(retry_after) <= 60
    assert not told.closes()
    shed = statuses.count(503)
    assert shed == 1
    assert statuses == [200] * oldest + [503] * shed + [200] * (1 + REQUESTS - oldest - shed)
    ahead, newest_first = range(1, oldest), range(REQUESTS, oldest + shed - 1, -1)
    order = [int(line.split()[0]) for line in gate.announcements(REQUESTS - shed)]
    assert order == [*ahead, *newest_first]
    server.log.wait(rf"503 GET /served\?{oldest} .*: the line is over its target")
    for wire in wires:
        assert wire.get("/pid").status == 200
        wire.close()
