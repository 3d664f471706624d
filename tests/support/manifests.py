"""Objects for Kubernetes as YAML, and what must hold of each set of them, whichever tool has made it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

SPARE_S = 5
"""The time that a pod has beyond drain_delay and graceful_timeout: for threads of the app, and for the kubelet."""
LOAD = 0.7
"""The share of a pod's seats that an autoscaler plans to be wanted."""
PROBES = {"startupProbe": "/ready", "readinessProbe": "/ready", "livenessProbe": "/live"}
BY_THE_LINE = ("--ready-waiting-max", "--ready-wait-max")
"""These take all pods out of the service at once."""

Object = dict[str, Any]


@dataclass
class Manifests:
    """The objects of one app."""

    objects: list[Object]

    @classmethod
    def read(cls, text: str) -> "Manifests":
        return cls([one for one in yaml.safe_load_all(text) if one])

    def of(self, kind: str) -> list[Object]:
        return [one for one in self.objects if one["kind"] == kind]

    def named(self) -> dict[tuple[str, str], Object]:
        return {(one["kind"], one["metadata"]["name"]): one for one in self.objects}

    @property
    def deployment(self) -> Object:
        [found] = self.of("Deployment")
        return found

    @property
    def pod(self) -> Object:
        return dict(self.deployment["spec"]["template"]["spec"])

    @property
    def container(self) -> Object:
        [found] = self.pod["containers"]
        return dict(found)

    @property
    def command(self) -> list[str]:
        return [*self.container["command"], *self.container["args"]]

    def given(self, flag: str) -> str:
        """The value of a flag in the container's arguments, which are written --flag=value."""
        [value] = [word.removeprefix(f"{flag}=") for word in self.container["args"] if word.startswith(f"{flag}=")]
        return value

    @property
    def seats(self) -> int:
        of_worker = "--threads" if self.given("--interface") == "wsgi" else "--worker-concurrency"
        return int(self.given("--workers")) * int(self.given(of_worker))

    def ports(self) -> dict[str, int]:
        return {one["name"]: one["containerPort"] for one in self.container["ports"]}


def complaints(these: Manifests) -> list[str]:
    """The list is empty if they are as docs/kubernetes.md says."""
    return [
        *_times(these),
        *_probes(these),
        *_rights(these),
        *_references(these),
        *_rollouts(these),
        *_autoscaler(these),
    ]


def _times(these: Manifests) -> Iterator[str]:
    least = int(these.given("--drain-delay")) + int(these.given("--graceful-timeout")) + SPARE_S
    if these.pod["terminationGracePeriodSeconds"] < least:
        yield f"the kubelet kills before {least} s are over"
    if int(these.given("--drain-delay")) < 1:
        yield "there is no drain_delay"
    if "lifecycle" in these.container:
        yield "drain_delay stands in place of a preStop hook"


def _probes(these: Manifests) -> Iterator[str]:
    for name, path in PROBES.items():
        if these.container.get(name, {}).get("httpGet") != {"path": path, "port": "admin"}:
            yield f"{name} does not ask the admin listener for {path}"
    if by_line := [word for word in these.container["args"] if word.startswith(BY_THE_LINE)]:
        yield f"readiness depends on the line: {by_line}"


def _rights(these: Manifests) -> Iterator[str]:
    pod, container = these.pod, these.container
    of_pod = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if not of_pod.items() <= pod["securityContext"].items() or not pod["securityContext"].get("runAsUser"):
        yield "the pod may run as root, or without seccomp"
    if container["securityContext"] != {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }:
        yield "the container has rights that it does not need"
    accounts = {one["metadata"]["name"]: one for one in these.of("ServiceAccount")}
    account = accounts.get(pod.get("serviceAccountName"), {})
    if (pod.get("automountServiceAccountToken"), account.get("automountServiceAccountToken")) != (False, False):
        yield "the pod gets a token"
    if {"hostNetwork", "hostPID", "hostIPC"} & pod.keys():
        yield "the pod shares a namespace with its node"
    for one in these.of("NetworkPolicy"):
        for rule in one["spec"]["ingress"]:
            if {"port": "admin"} in rule["ports"] and not rule.get("from"):
                yield "each pod of the cluster may reach the admin listener"


def _references(these: Manifests) -> Iterator[str]:
    labels = these.deployment["spec"]["template"]["metadata"]["labels"]
    for one in these.objects:
        chosen = one["spec"].get("podSelector", one["spec"].get("selector", {})) if "spec" in one else {}
        chosen = chosen.get("matchLabels", chosen)
        if not chosen.items() <= labels.items():
            yield f"{one['kind']} {one['metadata']['name']} does not choose the pods"
    flags = {"http": "--bind", "admin": "--admin"}
    listening = {name: int(these.given(flag).rpartition(":")[2]) for name, flag in flags.items()}
    if these.ports() != listening:
        yield f"the container's ports are not those that it listens on: {listening}"
    served = {port["targetPort"]: one for one in these.of("Service") for port in one["spec"]["ports"]}
    if served.keys() != listening.keys():
        yield "a port has no Service"
    elif served["admin"]["spec"].get("clusterIP") != "None" or served["http"]["spec"].get("clusterIP") == "None":
        yield "only the Service of the admin listener is headless"
    # Kubernetes wants texts here.
    if not all(isinstance(word, str) for word in these.command):
        yield "a word of the command is no text"
    written = {one["mountPath"] for one in these.container["volumeMounts"] if not one.get("readOnly")}
    if written != {"/tmp"}:
        yield f"the container writes to {sorted(written)}, not to /tmp alone"


def _rollouts(these: Manifests) -> Iterator[str]:
    if these.deployment["spec"]["strategy"]["rollingUpdate"] != {"maxSurge": "25%", "maxUnavailable": 0}:
        yield "a rollout takes pods away first"
    [budget] = these.of("PodDisruptionBudget")
    if (budget["spec"]["maxUnavailable"], budget["spec"]["unhealthyPodEvictionPolicy"]) != (1, "AlwaysAllow"):
        yield "the budget lets more than one pod go at once, or keeps one that is not ready"
    [spread] = these.pod["topologySpreadConstraints"]
    if (spread["topologyKey"], spread["whenUnsatisfiable"]) != ("kubernetes.io/hostname", "ScheduleAnyway"):
        yield "pods are not spread over hosts, or must be"
    limits = these.container["resources"].get("limits", {})
    if "cpu" in limits:
        yield "a limit of CPU stops probes"


def _autoscaler(these: Manifests) -> Iterator[str]:
    scalers = [*these.of("ScaledObject"), *these.of("HorizontalPodAutoscaler")]
    if bool(scalers) == ("replicas" in these.deployment["spec"]):
        yield "either an autoscaler or the Deployment says how many pods there are"
    for one in scalers:
        spec = one["spec"]
        targets = list(_targets_of_keda(these, spec) if one["kind"] == "ScaledObject" else _targets_of_hpa(spec))
        if [round(target, 3) for target in targets] != [round(LOAD * these.seats, 3)]:
            yield f"a pod of {these.seats} seats is wanted for {targets}"
        behavior = spec.get("behavior") or spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        if behavior["scaleDown"]["stabilizationWindowSeconds"] < 300:
            yield "pods are taken away before a load can come back"


def _targets_of_keda(these: Manifests, spec: Object) -> Iterator[float]:
    [headless] = [one for one in these.of("Service") if one["spec"].get("clusterIP") == "None"]
    where = rf"http://{headless['metadata']['name']}\.[a-z0-9-]+\.svc:{these.ports()['admin']}/line"
    for trigger in spec["triggers"]:
        data = trigger["metadata"]
        asked = (trigger["metricType"], data["aggregationType"], data["aggregateFromKubeServiceEndpoints"])
        # KEDA takes pods' addresses only from a Service that has this number among its ports.
        if asked == ("AverageValue", "sum", "true") and re.fullmatch(where, data["url"]):
            yield float(data["targetValue"])


def _targets_of_hpa(spec: Object) -> Iterator[float]:
    for metric in spec["metrics"]:
        target = metric[metric["type"].lower()]["target"]
        if target["type"] == "AverageValue":
            value = str(target["averageValue"])
            yield float(value.removesuffix("m")) / 1000 if value.endswith("m") else float(value)
