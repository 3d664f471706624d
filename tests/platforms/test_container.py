"""The steps of examples/docker/Dockerfile, and what comes of them run by runc, as Docker and as Kubernetes do it."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import image as images
from support import netns
from support.address import Address
from support.example import EXAMPLES
from support.gate import Gate
from support.image import DOCKERS_CAPABILITIES, Cave, Container, Image
from support.manifests import Manifests
from support.patience import PATIENCE_S, eventually
from support.wire import Wire, request

pytestmark = [
    pytest.mark.own("the examples are stanchion's"),
    pytest.mark.skipif(bool(images.not_here()), reason=f"NOT TESTED IN A CONTAINER: {images.not_here()}"),
]

APP = """\
import os
def app(environ, start_response):
    if environ["PATH_INFO"] == "/held":
        with open("/run/gate/announcements", "wb", buffering=0) as fifo:
            fifo.write(b"held\\n")
        with open("/run/gate/passes", "rb", buffering=0) as fifo:
            fifo.read(1)
    body = environ["wsgi.input"].read()
    start_response("200 OK", [])
    return [b"%d %d %d" % (os.getppid(), os.getuid(), len(body))]
"""


@dataclass
class Shop:
    container: Container
    image: Image
    gate: Gate

    probe: tuple[int, str]
    """Where the platform asks whether it is ready: a port, and a path."""

    def connect(self, port: int = 8000) -> Wire:
        namespace = Path(f"/proc/{self.container.pid}/ns/net")
        return netns.inside(namespace, lambda: Wire.connect(Address("127.0.0.1", port)))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cave, Image]]:
    home = tmp_path_factory.mktemp("image")
    context = home / "context"
    (context / "dist").mkdir(parents=True)
    shutil.copy(images.wheel(), context / "dist")
    (context / "shop.py").write_text(APP)
    cave, image = images.build(EXAMPLES / "docker/Dockerfile", context, home)
    try:
        yield cave, image
    finally:
        cave.close()


def as_docker(image: Image) -> dict[str, object]:
    """docker run --read-only --tmpfs /tmp"""
    return {
        "args": [*image.entrypoint, *image.command],
        "capabilities": {"bounding": DOCKERS_CAPABILITIES, "effective": [], "permitted": []},
    }


def as_kubernetes(image: Image) -> dict[str, object]:
    """The container of examples/kubernetes."""
    base = Manifests.read((EXAMPLES / "kubernetes/base/deployment.yaml").read_text())
    rights = base.container["securityContext"]
    assert (base.pod["securityContext"]["runAsUser"], base.pod["securityContext"]["runAsGroup"]) == image.user
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert rights["readOnlyRootFilesystem"]
    return {
        "args": base.command,
        "capabilities": {},
        "noNewPrivileges": not rights["allowPrivilegeEscalation"],
    }


PROBED = {as_docker: (8000, "/-/ready"), as_kubernetes: (8299, "/ready")}


@pytest.fixture(params=PROBED)
def shop(request: pytest.FixtureRequest, built: tuple[Cave, Image], tmp_path: Path, gate: Gate) -> Iterator[Shop]:
    cave, image = built
    process = request.param(image)
    process["user"] = {"uid": image.user[0], "gid": image.user[1]}
    process["cwd"] = image.directory
    process["env"] = [f"{name}={value}" for name, value in image.environment.items()]
    for fifo in (tmp_path / "gate").iterdir():
        fifo.chmod(0o666)
    container = Container(cave, tmp_path / request.param.__name__, process, [(tmp_path / "gate", "/run/gate")])
    try:
        eventually(lambda: container.runc.poll() is not None or "ready: " in container.log(), "it is ready")
        assert container.runc.poll() is None, container.log()
        eventually(lambda: container.pid, "runc has said which process it is")
        yield Shop(container, image, gate, PROBED[request.param])
    finally:
        container.close()
        print(container.log())


def test_it_serves_without_root_on_a_read_only_root(shop: Shop) -> None:
    assert shop.image.base == "python:3.11-slim"
    with shop.connect() as wire:
        # The app's parent is the first process of the container: the master. A body of this size goes through a file.
        assert wire.post("/", b"x" * 300_000).text.split() == ["1", "10001", "300000"]
    port, path = shop.probe
    with shop.connect(port) as wire:
        # The app gives no type.
        assert wire.get(path).header("Content-Type") == "text/plain; charset=utf-8"
    assert shop.container.exec(*shop.image.health) == 0
    assert shop.container.exec("touch", "/srv/shop/new") != 0
    log = shop.container.log()
    warnings = [line for line in log.splitlines() if "WARNING" in line]
    # The NetworkPolicy is what keeps other clients away from the admin listener.
    of_admin = [line for line in warnings if "every client that can connect to http://0.0.0.0:8299" in line]
    assert warnings == of_admin and len(of_admin) == (1 if port == 8299 else 0), log
    assert "ERROR" not in log, log


def test_a_stop_answers_clients_that_have_come(shop: Shop) -> None:
    with shop.connect() as wire:
        wire.send(request("GET", "/held"))
        assert shop.gate.announcement() == "held"
        shop.container.kill(shop.image.stop_signal)
        eventually(lambda: "TERM: draining" in shop.container.log(), "it drains")
        shop.gate.let_pass(1)
        assert wire.response().status == 200
    assert shop.container.runc.wait(2 * PATIENCE_S) == 0
    assert "cannot be closed to new connections" not in shop.container.log()
