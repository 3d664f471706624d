"""The files of examples/kubernetes, as far as they can be read without helm and kustomize: tests/chart has the rest."""

import copy
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.example import EXAMPLES, settings
from support.manifests import Manifests, complaints

pytestmark = pytest.mark.own("the examples are stanchion's")

ROOT = EXAMPLES.parent
KUBERNETES = EXAMPLES / "kubernetes"
CHART = KUBERNETES / "chart"


@pytest.fixture
def base() -> Manifests:
    listed = yaml.safe_load((KUBERNETES / "base/kustomization.yaml").read_text())["resources"]
    return Manifests.read("\n---\n".join((KUBERNETES / "base" / name).read_text() for name in listed))


def test_the_base_is_as_it_should_be(base: Manifests) -> None:
    assert complaints(base) == []


def test_the_server_takes_the_settings_of_the_base(base: Manifests, tmp_path: Path) -> None:
    chosen = settings(base.command, tmp_path)
    assert (chosen["bind"], chosen["admin"]) == (["0.0.0.0:8000"], "0.0.0.0:8299")
    # Where it writes, as the file system is read-only.
    assert chosen["tmp_upload_dir"] is None
    assert (chosen["drain_delay"], chosen["graceful_timeout"]) == (5, 30)


def set_args(*changed: str) -> Callable[[Manifests], None]:
    """Put arguments in the place of those of the same flags, or before the app."""

    def change(these: Manifests) -> None:
        args = these.container["args"]
        for word in changed:
            flag = word.partition("=")[0]
            args[:] = [one for one in args if not one.startswith(f"{flag}=")]
            args.insert(0, word)

    return change


def put(value: object, kind: str, *path: str | int) -> Callable[[Manifests], None]:
    """Set what is at a path of the first object of a kind; None removes it."""

    def change(these: Manifests) -> None:
        place: Any = these.of(kind)[0]
        for step in path[:-1]:
            place = place[step]
        if value is None:
            del place[path[-1]]
        else:
            place[path[-1]] = value

    return change


POD = ("spec", "template", "spec")
CONTAINER = (*POD, "containers", 0)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (set_args("--graceful-timeout=31"), "the kubelet kills before 41 s are over"),
        (set_args("--drain-delay=0"), "there is no drain_delay"),
        (put({"preStop": {"sleep": {"seconds": 5}}}, "Deployment", *CONTAINER, "lifecycle"), "a preStop hook"),
        (put("http", "Deployment", *CONTAINER, "livenessProbe", "httpGet", "port"), "livenessProbe does not ask"),
        (put("/ready", "Deployment", *CONTAINER, "livenessProbe", "httpGet", "path"), "livenessProbe does not ask"),
        (set_args("--ready-waiting-max=100"), "readiness depends on the line"),
        (put(None, "Deployment", *POD, "securityContext", "runAsUser"), "the pod may run as root"),
        (put(False, "Deployment", *CONTAINER, "securityContext", "readOnlyRootFilesystem"), "rights that it does not"),
        (put(True, "ServiceAccount", "automountServiceAccountToken"), "the pod gets a token"),
        (put(True, "Deployment", *POD, "hostNetwork"), "shares a namespace"),
        (put([{"ports": [{"port": "admin"}]}], "NetworkPolicy", "spec", "ingress"), "may reach the admin listener"),
        (put("cart", "Service", "spec", "selector", "app.kubernetes.io/name"), "Service shop does not choose the pods"),
        (set_args("--admin=0.0.0.0:8300"), "are not those that it listens on"),
        (put("admin", "Service", "spec", "ports", 0, "targetPort"), "a port has no Service"),
        (put("None", "Service", "spec", "clusterIP"), "is headless"),
        (put([{"name": "tmp", "mountPath": "/var"}], "Deployment", *CONTAINER, "volumeMounts"), "writes to ['/var']"),
        (put(1, "Deployment", "spec", "strategy", "rollingUpdate", "maxUnavailable"), "a rollout takes pods away"),
        (put("IfHealthyBudget", "PodDisruptionBudget", "spec", "unhealthyPodEvictionPolicy"), "the budget lets"),
        (
            put("DoNotSchedule", "Deployment", *POD, "topologySpreadConstraints", 0, "whenUnsatisfiable"),
            "pods are not spread",
        ),
        (put("2", "Deployment", *CONTAINER, "resources", "limits", "cpu"), "a limit of CPU"),
        (put(None, "Deployment", "spec", "replicas"), "either an autoscaler or the Deployment"),
    ],
)
def test_what_is_wrong_is_found(base: Manifests, change: Callable[[Manifests], None], complaint: str) -> None:
    change(base)
    [found] = complaints(base)
    assert complaint in found


SCALED_OBJECT = "ScaledObject"
TRIGGER = ("spec", "triggers", 0)


@pytest.mark.parametrize(
    "change",
    [
        put("1.5", SCALED_OBJECT, *TRIGGER, "metadata", "targetValue"),
        put("average", SCALED_OBJECT, *TRIGGER, "metadata", "aggregationType"),
        put("Value", SCALED_OBJECT, *TRIGGER, "metricType"),
        put("http://shop.default.svc:80/line", SCALED_OBJECT, *TRIGGER, "metadata", "url"),
        set_args("--threads=2"),
    ],
)
def test_a_target_that_is_not_that_of_the_seats_is_found(base: Manifests, change: Callable[[Manifests], None]) -> None:
    [scaler] = yaml.safe_load_all((KUBERNETES / "autoscaled/scaledobject.yaml").read_text())
    del base.deployment["spec"]["replicas"]
    scaled = Manifests([*base.objects, scaler])
    assert complaints(scaled) == []
    changed = Manifests(copy.deepcopy(scaled.objects))
    change(changed)
    [found] = complaints(changed)
    assert "seats is wanted for" in found


# ---- The chart


def values() -> dict[str, Any]:
    return dict(yaml.safe_load((CHART / "values.yaml").read_text()))


def templates() -> str:
    return "".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))


def test_the_chart_is_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == version


def test_each_flag_of_the_chart_is_a_setting() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text()
    given = set(re.findall(r"(?<=- )--[a-z-]+(?==)", templates()))
    assert len(given) >= 8
    # The schema keeps these from extraArgs: --ready-waiting-max is among them.
    schema = (CHART / "values.schema.json").read_text()
    [names] = re.findall(r'"pattern": "\^\(-\[bwD\]\.\*\|--\(([a-z|-]+)\)', schema)
    refused = {f"--{name}" for name in names.split("|")}
    assert given <= refused
    assert [flag for flag in sorted(refused) if not re.search(rf"`{flag}[ `]", page)] == []


def test_the_schema_has_each_value_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(closed(schema)) == set(paths(values())) | {"global"}


def closed(schema: dict[str, Any], above: str = "") -> Iterator[str]:
    """The paths of a schema's properties; an object with properties takes no others."""
    for name, one in schema["properties"].items():
        if "properties" in one and name != "resources":
            assert one["additionalProperties"] is False, name
            yield from closed(one, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def paths(given: dict[str, Any], above: str = "") -> Iterator[str]:
    for name, value in given.items():
        if isinstance(value, dict) and value and name != "resources":
            yield from paths(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def test_the_templates_use_each_value_and_no_other() -> None:
    used = set(re.findall(r"\.Values\.([\w.]+)", templates()))
    assert used == set(paths(values()))
