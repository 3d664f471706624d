"""The chart and the kustomization of examples/kubernetes, made by helm and kustomize: `make test-chart` builds both."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart.tools_of_kubernetes import CHART, NOT_HERE, SETS, helm, rendered, run
from support.example import EXAMPLES, settings
from support.manifests import Manifests, complaints

KUBERNETES = EXAMPLES / "kubernetes"
OF_HELM = ("app.kubernetes.io/managed-by", "helm.sh/chart")
ALWAYS = {"Deployment": 1, "Service": 2, "ServiceAccount": 1, "PodDisruptionBudget": 1, "NetworkPolicy": 1}

pytestmark = [
    pytest.mark.own("the chart is stanchion's"),
    pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE),
]


def test_there_are_six_sets() -> None:
    assert SETS == ["asgi", "hardened", "hpa", "keda", "minimal", "wsgi"]


@pytest.mark.parametrize("name", SETS)
def test_helm_has_no_complaint(name: str, tmp_path: Path) -> None:
    done = run(tmp_path, "helm", "lint", "--strict", str(CHART), "--values", str(CHART / f"ci/{name}-values.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 chart(s) linted, 0 chart(s) failed" in done.stdout


@pytest.mark.parametrize("name", SETS)
def test_the_objects_of_each_set_are_as_they_should_be(name: str, tmp_path: Path) -> None:
    these = rendered(tmp_path, name)
    given = yaml.safe_load((CHART / f"ci/{name}-values.yaml").read_text())
    by = given.get("autoscaling", {}).get("by")
    scaler = {"keda": {"ScaledObject": 1}, "hpa": {"HorizontalPodAutoscaler": 1}}.get(by, {})
    monitor = {"PodMonitor": 1} if "podMonitor" in given else {}
    kinds = [one["kind"] for one in these.objects]
    assert {kind: kinds.count(kind) for kind in kinds} == {**ALWAYS, **scaler, **monitor}
    assert complaints(these) == []
    chosen = settings(these.command, tmp_path)
    assert chosen["interface"] == given.get("interface", "wsgi")
    assert chosen["drain_delay"] + chosen["graceful_timeout"] < these.pod["terminationGracePeriodSeconds"]
    for flag in given.get("extraArgs", []):
        assert flag in these.command
    assert these.container["image"].startswith(given["image"]["repository"])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (["app="], "app"),
        (["image.repository="], "repository"),
        (["replica=3"], "additional properties 'replica' not allowed"),
        (["autoscaling.keda.poll=3"], "'poll' not allowed"),
        (["interface=rack"], "interface"),
        # Helm reads it as a number: a tag is given by --set-string, or in quotes.
        (["image.tag=1"], "tag"),
        (["workers=two"], "workers"),
        (["workers=0"], "workers"),
        (["drainDelay=-1"], "drainDelay"),
        (["listen=10.0.0.1"], "listen"),
        (["uid=0"], "uid"),
        (["extraArgs={--ready-waiting-max=100}"], "extraArgs"),
        (["extraArgs={--ready-wait-max,9}"], "extraArgs"),
        (["extraArgs={--graceful-timeout=300}"], "extraArgs"),
        (["extraArgs={-b,0.0.0.0:9000}"], "extraArgs"),
        (["service.type=ExternalName"], "service"),
        (["autoscaling.by=cpu"], "autoscaling"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_the_schema_refuses_what_is_wrong(changed: Sequence[str], said: str, tmp_path: Path) -> None:
    done = helm(tmp_path, "minimal", *(word for one in changed for word in ("--set", one)))
    assert done.returncode != 0, done.stdout
    assert "don't meet the specifications of the schema" in done.stderr
    assert re.search(said, done.stderr), done.stderr


def test_what_the_schema_lets_through_is_needed(tmp_path: Path) -> None:
    """The default values alone are not enough: neither an image nor an app can be guessed."""
    done = run(tmp_path, "helm", "template", "shop", str(CHART))
    assert done.returncode != 0
    assert "image" in done.stderr and "app" in done.stderr


@pytest.mark.parametrize(("seats", "keda", "hpa"), [(1, "0.7", "700m"), (3, "2.1", "2100m"), (50, "35.0", "35000m")])
def test_an_autoscaler_counts_in_seats(seats: int, keda: str, hpa: str, tmp_path: Path) -> None:
    given = ("--set", f"workers=1,threads={seats}")
    [scaled] = rendered(tmp_path, "keda", *given).of("ScaledObject")
    assert scaled["spec"]["triggers"][0]["metadata"]["targetValue"] == keda
    [scaler] = rendered(tmp_path, "hpa", *given).of("HorizontalPodAutoscaler")
    assert scaler["spec"]["metrics"][0]["external"]["target"] == {"type": "AverageValue", "averageValue": hpa}


def test_openshift_chooses_the_user_and_ipv6_the_addresses(tmp_path: Path) -> None:
    these = rendered(tmp_path, "minimal", "--set", "uid=null", "--set", "listen=[::]")
    assert these.pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    chosen = settings(these.command, tmp_path)
    assert (chosen["bind"], chosen["admin"]) == (["[::]:8000"], "[::]:8299")


# ---- The kustomization


def built(home: Path, name: str) -> Manifests:
    done = run(home, "kustomize", "build", str(KUBERNETES / name))
    assert done.returncode == 0, done.stderr
    return Manifests.read(done.stdout)


def plain(these: Manifests) -> dict[tuple[str, str], Any]:
    """The objects without what only one of the two tools writes."""
    for one in these.objects:
        one["metadata"].pop("namespace", None)
        for label in OF_HELM:
            one["metadata"]["labels"].pop(label, None)
    return these.named()


@pytest.mark.parametrize(
    ("kustomization", "values"),
    [
        ("base", ("minimal", "--set-string", "image.tag=1")),
        ("autoscaled", ("keda",)),
    ],
)
def test_the_chart_and_the_kustomization_are_the_same_objects(
    kustomization: str, values: Sequence[str], tmp_path: Path
) -> None:
    of_kustomize = built(tmp_path, kustomization)
    assert complaints(of_kustomize) == []
    assert plain(of_kustomize) == plain(rendered(tmp_path, *values))
