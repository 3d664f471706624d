"""A reload as the operator sees it: one server, which is ready all the time."""

import signal

import pytest

from support.address import Address
from support.gate import Gate
from support.ports import LOOPBACK, row_of_ports
from support.server import Serve
from support.wire import Wire, request

NEWCOMERS = 20

pytestmark = pytest.mark.own("it has an admin listener")


def test_probes_and_scrapes_do_not_notice_an_acceptor_that_retires(serve: Serve, gate: Gate) -> None:
    with row_of_ports(1) as port:
        admin = Address(LOOPBACK, port)
        server = serve(
            "waiting:app",
            *("-w", "2", "--admin", f"{LOOPBACK}:{port}", "--admin-allowed-host", "test", "--health-path", "/health"),
            env=gate.environment,
        )
        with (
            server.connect() as held,
            server.connect() as kept,
            server.connect() as other,
            Wire.connect(admin) as old,
        ):
            held.send(request("GET", "/wait?held"))
            gate.announcement()
            assert kept.get("/health/ready").status == other.get("/health/live").status == 200
            assert old.get("/status").json()["generation"] == 1
            server.signal(signal.SIGHUP)
            server.log.wait("reloaded")
            while not other.get("/health/live").closes():
                pass
            generations = []
            for _ in range(NEWCOMERS):
                with Wire.connect(admin) as wire:
                    generations.append(wire.get("/status").json()["generation"])
            assert generations == [2] * NEWCOMERS
            last = old.get("/status")
            assert last.closes() and last.json()["state"] == "retiring", "the next one is asked of the other"
            assert kept.get("/health/ready").status == 200
            gate.open()
            assert held.response().status == 200
