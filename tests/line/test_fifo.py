"""First come, first served."""

from pathlib import Path

import pytest

from support.counts import Counts
from support.gate import Gate
from support.patience import eventually
from support.server import Serve
from support.wire import request

REQUESTS = 50


@pytest.mark.own("a worker of gunicorn takes connections as the kernel offers them")
def test_requests_of_separate_connections_are_served_in_the_order_they_came(
    serve: Serve, gate: Gate, tmp_path: Path
) -> None:
    counts = Counts(tmp_path / "ctl")
    server = serve("waiting:app", "--keep-alive", "60", *counts.arguments, env=gate.environment)
    wires = [server.connect() for _ in range(REQUESTS + 1)]
    for wire in wires:
        # Every connection is accepted and known before the first request that counts.
        assert wire.get("/pid").status == 200
    wires[0].send(request("GET", "/wait?first"))
    gate.announcement()
    # Neither the order of the connections nor its reverse.
    order = [(number * 37) % REQUESTS + 1 for number in range(REQUESTS)]
    assert sorted(order) == list(range(1, REQUESTS + 1))
    arrived = counts.requests()["arrived"]
    for place, number in enumerate(order, 1):
        wires[number].send(request("GET", f"/served?{number}"))
        eventually(lambda place=place: counts.requests()["arrived"] == arrived + place, "it has come")
    gate.let_pass(1)
    for wire in wires:
        assert wire.response().status == 200
        wire.close()
    # When they joined is not compared: the app could only tell it from when it began, and that may be late.
    assert [int(line.split()[0]) for line in gate.announcements(REQUESTS)] == order
