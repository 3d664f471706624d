"""The manifest of examples/kubernetes: it is whole, the server takes its command, and answers its probes."""

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.clock import Clock
from support.example import EXAMPLES, SCRIPTS, settings
from support.gate import Gate
from support.patience import eventually
from support.ports import row_of_ports
from support.server import STANCHION, Serve, Server
from support.wire import request

pytestmark = pytest.mark.own("the example is stanchion's")

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


@dataclass
class Manifest:
    deployment: dict[str, Any]
    service: dict[str, Any]

    @property
    def pod(self) -> dict[str, Any]:
        pod: dict[str, Any] = self.deployment["spec"]["template"]["spec"]
        return pod

    @property
    def container(self) -> dict[str, Any]:
        [container] = self.pod["containers"]
        return dict(container)

    @property
    def command(self) -> list[str]:
        return [*self.container["command"], *self.container["args"]]

    @property
    def environment(self) -> dict[str, str]:
        return {one["name"]: one["value"] for one in self.container["env"]}


@pytest.fixture
def manifest() -> Manifest:
    deployment, service = yaml.safe_load_all((EXAMPLES / "kubernetes/shop.yaml").read_text())
    assert (deployment["kind"], service["kind"]) == ("Deployment", "Service")
    return Manifest(deployment, service)


def test_its_parts_refer_to_one_another(manifest: Manifest) -> None:
    labels = manifest.deployment["spec"]["template"]["metadata"]["labels"]
    assert manifest.deployment["spec"]["selector"]["matchLabels"] == manifest.service["spec"]["selector"] == labels
    ports = {one["name"]: one["containerPort"] for one in manifest.container["ports"]}
    assert [one["targetPort"] for one in manifest.service["spec"]["ports"]] == list(ports)
    assert {manifest.container[probe]["httpGet"]["port"] for probe in PROBES} <= set(ports)
    # Kubernetes wants texts here.
    assert all(isinstance(word, str) for word in [*manifest.command, *manifest.environment.values()])
    mounted = {one["name"]: one["mountPath"] for one in manifest.container["volumeMounts"]}
    assert mounted == {"tmp": "/tmp"}
    assert [volume["name"] for volume in manifest.pod["volumes"]] == list(mounted)


def test_the_server_takes_its_settings_and_its_times_fit(manifest: Manifest, tmp_path: Path) -> None:
    chosen = settings(manifest.command, tmp_path, manifest.environment)
    [port] = manifest.container["ports"]
    assert chosen["bind"] == [f"0.0.0.0:{port['containerPort']}"]
    # Where it writes, as the file system is read-only.
    assert chosen["tmp_upload_dir"] is None
    # As long as the Service may go on sending clients: what preStop hooks are for elsewhere.
    assert chosen["drain_delay"] == 5
    assert manifest.pod["terminationGracePeriodSeconds"] > chosen["drain_delay"] + chosen["graceful_timeout"]


def test_its_probes_are_answered_while_every_worker_is_busy(
    build: Serve, gate: Gate, clock: Clock, manifest: Manifest
) -> None:
    with row_of_ports(1) as port:
        given = {**manifest.environment, **gate.environment, **clock.environment, "PORT": str(port)}
        path = {"PATH": f"{SCRIPTS}:{os.environ['PATH']}"}
        pod = replace(STANCHION, command=tuple(manifest.command), arguments=())
        server = build("", bind=None, kind=pod, env={**given, **path})
        server.start()
    wires = [server.connect() for _ in range(3)]
    for wire in wires:
        wire.send(request("GET", "/held"))
    assert gate.announcements(2) == ["held"] * 2
    with server.connect() as kubelet:
        for probe in PROBES:
            assert kubelet.get(manifest.container[probe]["httpGet"]["path"]).status == 200
    server.signal(signal.SIGTERM)
    server.log.wait("TERM: draining in 5 s")
    with server.connect() as kubelet:
        assert kubelet.get("/-/ready").status == 503
    clock.advance(5)
    server.log.wait("drain_delay: draining, then leaving")
    # The kubelet opens a connection for each probe.
    eventually(lambda: not opens(server), "no probe gets through any more")
    gate.let_pass(3)
    assert [wire.response().status for wire in wires] == [200] * 3
    for wire in wires:
        wire.close()
    assert server.exit_code() == 0


def opens(server: Server) -> bool:
    try:
        server.address.connect(timeout_s=0.5).close()
    except (TimeoutError, ConnectionRefusedError):
        return False
    return True
