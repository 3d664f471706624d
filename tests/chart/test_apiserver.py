"""A real apiserver takes the objects of examples/kubernetes, and knows each of their fields."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart.tools_of_kubernetes import NOT_HERE, SETS, TOOLS, helm, run
from fleet_k8s import programs
from fleet_k8s.control_plane import ControlPlane, control_plane
from support.example import EXAMPLES
from support.patience import PATIENCE_S

pytestmark = [
    pytest.mark.own("the chart is stanchion's"),
    pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE),
    pytest.mark.skipif(bool(programs.missing("etcd")), reason=programs.missing("etcd")),
]

STRICT = ("apply", "--dry-run=server", "--validate=strict", "--filename=-")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """It knows the kinds of KEDA and of Prometheus's operator, too."""
    with control_plane(tmp_path_factory.mktemp("kubernetes")) as made:
        made.kubectl("apply", "--server-side", "--filename", str(TOOLS / "crds"))
        made.kubectl("wait", "--for=condition=Established", "--timeout=60s", "customresourcedefinitions", "--all")
        yield made


def printed(front: str) -> subprocess.CompletedProcess[str]:
    """The objects that `stanchion fleet` prints."""
    words = [sys.executable, "-m", "stanchion", "fleet", front, "--interface", "wsgi", "--workers", "2", "shop:app"]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def test_it_takes_each_set_of_values_each_kustomization_and_what_fleet_prints(
    plane: ControlPlane, tmp_path: Path
) -> None:
    made = {name: helm(tmp_path, name) for name in SETS}
    for name in ("base", "autoscaled"):
        made[name] = run(tmp_path, "kustomize", "build", str(EXAMPLES / "kubernetes" / name))
    for name in ("k8s", "keda"):
        made[f"fleet {name}"] = printed(name)
    for name, done in made.items():
        assert done.returncode == 0, done.stderr
        said = plane.kubectl(*STRICT, given=done.stdout).splitlines()
        assert len(said) == done.stdout.count("\nkind:"), (name, said)
        assert all(line.endswith("created (server dry run)") for line in said), (name, said)


@pytest.mark.parametrize(
    ("values", "written", "instead"),
    [
        ("minimal", "maxSkew: 1", "maxSkews: 1"),
        ("minimal", "path: /live, port: admin", "path: /live, port: -1"),
        ("keda", "minReplicaCount: 2", "minReplicas: 2"),
        ("hpa", "averageValue: 5600m", "averageValue: many"),
    ],
)
def test_it_refuses_what_it_does_not_know(
    plane: ControlPlane, values: str, written: str, instead: str, tmp_path: Path
) -> None:
    text = helm(tmp_path, values).stdout
    assert written in text
    with pytest.raises(AssertionError, match=r"strict decoding error|unknown field|Invalid value|cannot be handled"):
        plane.kubectl(*STRICT, given=text.replace(written, instead))
