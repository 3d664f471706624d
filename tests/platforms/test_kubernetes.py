"""The container of examples/kubernetes: its command serves, answers its probes, and stops as the kubelet stops it."""

import os
import signal
from dataclasses import replace

import pytest

from support.address import Address
from support.clock import Clock
from support.example import EXAMPLES, SCRIPTS
from support.gate import Gate
from support.manifests import PROBES, Manifests
from support.patience import eventually
from support.ports import row_of_ports
from support.server import STANCHION, Serve, Server
from support.wire import Wire, request

pytestmark = pytest.mark.own("the example is stanchion's")


@pytest.fixture
def manifest() -> Manifests:
    return Manifests.read((EXAMPLES / "kubernetes/base/deployment.yaml").read_text())


def test_its_probes_are_answered_while_every_worker_is_busy(
    build: Serve, gate: Gate, clock: Clock, manifest: Manifests
) -> None:
    with row_of_ports(2) as port:
        ports = {"8000": str(port), "8299": str(port + 1)}
        command = manifest.command
        for given, here in ports.items():
            command = [word.replace(f"0.0.0.0:{given}", f"0.0.0.0:{here}") for word in command]
        given = {**gate.environment, **clock.environment, "PATH": f"{SCRIPTS}:{os.environ['PATH']}"}
        server = build("", bind=None, kind=replace(STANCHION, command=tuple(command), arguments=()), env=given)
        server.start()
    kubelet = Address("127.0.0.1", port + 1)
    wires = [server.connect() for _ in range(3)]
    for wire in wires:
        wire.send(request("GET", "/held"))
    assert gate.announcements(2) == ["held"] * 2
    # The kubelet opens a connection for each probe.
    assert [status(kubelet, path) for path in PROBES.values()] == [200] * 3
    server.signal(signal.SIGTERM)
    server.log.wait("TERM: draining in 5 s")
    # The acceptor hears of it after the log.
    eventually(lambda: status(kubelet, "/ready") == 503, "it is not ready")
    assert status(kubelet, "/live") == 200
    # A client whose node has not heard of it yet.
    wires.append(server.connect())
    wires[-1].send(request("GET", "/held"))
    clock.advance(5)
    server.log.wait("drain_delay: draining, then leaving")
    eventually(lambda: not opens(server), "no client gets through any more")
    # A pod that drains for long is not killed for it.
    assert status(kubelet, "/live") == 200
    gate.let_pass(4)
    assert [wire.response().status for wire in wires] == [200] * 4
    for wire in wires:
        wire.close()
    assert server.exit_code() == 0


def status(kubelet: Address, path: str) -> int:
    with Wire.connect(kubelet) as wire:
        return wire.get(path).status


def opens(server: Server) -> bool:
    try:
        server.address.connect(timeout_s=0.5).close()
    except (TimeoutError, ConnectionRefusedError):
        return False
    return True
