"""The app as a Deployment with its Service, as docs/containers.md advises, and what a test does with it."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet_k8s import image
from fleet_k8s.cluster import Cluster
from fleet_k8s.control_plane import Object
from fleet_k8s.judge import Load
from support.patience import eventually

HTTP, ADMIN = 8000, 9100
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/shop"
SERVICE = "/api/v1/namespaces/default/services/shop"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name=shop"
COUNTS = "/counts"

SERVES = ("--interface", "wsgi", "--graceful-timeout", "30", "--keep-alive", "75", "--admin", f"0.0.0.0:{ADMIN}")
WORKERS = 2


def deployment(arguments: tuple[str, ...], replicas: int, counts: Path, memory: str) -> Object:
    probes = {
        "startupProbe": {"httpGet": {"path": "/ready", "port": "admin"}, "periodSeconds": 1, "failureThreshold": 120},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "admin"}, "periodSeconds": 5, "timeoutSeconds": 2},
        "livenessProbe": {"httpGet": {"path": "/live", "port": "admin"}, "periodSeconds": 10, "timeoutSeconds": 2},
    }
    container = {
        "name": "shop",
        "image": image.SHOP,
        "imagePullPolicy": "Never",
        "command": [image.PYTHON, "-m", "stanchion", "serve"],
        "args": [*SERVES, *arguments, "shop:app"],
        "workingDir": "/app",
        "env": [
            {"name": "PORT", "value": str(HTTP)},
            {"name": "WEB_CONCURRENCY", "value": str(WORKERS)},
            {"name": "SHOP_COUNTS", "value": COUNTS},
        ],
        "ports": [{"name": "http", "containerPort": HTTP}, {"name": "admin", "containerPort": ADMIN}],
        **probes,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": memory}},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "counts", "mountPath": COUNTS}],
    }
    user = {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = {
        "terminationGracePeriodSeconds": 45,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": user,
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "counts", "hostPath": {"path": str(counts)}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "shop"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "shop"}},
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": {"app": "shop"}}, "spec": pod},
        },
    }


SHOP_SERVICE: Object = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "shop"},
    "spec": {"selector": {"app": "shop"}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]},
}


class Shop:
    """A Deployment that is ready."""

    def __init__(self, cluster: Cluster, home: Path, arguments: tuple[str, ...], replicas: int, memory: str) -> None:
        self.cluster, self._home, self.counts = cluster, home, home / "counts"
        self.counts.mkdir()
        self.counts.chmod(0o777)
        cluster.apply(deployment(arguments, replicas, self.counts, memory), SHOP_SERVICE)
        self.settled(replicas)
        self._loads: list[Load] = []
        self.address: str = cluster.api.get(SERVICE)["spec"]["clusterIP"]
        eventually(self._is_reached, "kube-proxy knows the Service", every_s=0.1)

    def _is_reached(self) -> bool:
        try:
            socket.create_connection((self.address, 80), 1).close()
        except OSError:
            return False
        return True

    def pods(self) -> list[Object]:
        """All pods, also those that are about to end."""
        found: list[Object] = self.cluster.api.get(f"{PODS}?labelSelector=app=shop")["items"]
        return found

    def ready(self) -> int:
        """How many pods the Service sends clients to."""
        slices = self.cluster.api.get(SLICES)["items"]
        return sum(bool(one["conditions"].get("ready")) for found in slices for one in found.get("endpoints") or [])

    def settled(self, replicas: int, within_s: float = 180) -> None:
        """Wait until there are so many pods, all of them ready, and no other ones."""
        eventually(
            lambda: self.ready() == len(self.pods()) == replicas,
            f"{replicas} pods are ready, and no others",
            within_s,
            0.3,
        )

    def load(self, *plan: str, host: str = "", port: int = 80, what: str = "/sleep") -> Load:
        """Begin to send requests, by default to the Service's address, which kube-proxy spreads over the pods."""
        out = self._home / f"load-{len(self._loads)}.json"
        self._loads.append(Load(out, self.counts, host or self.address, port, *plan, what=what))
        return self._loads[-1]

    def roll_out(self) -> float:
        """Replace all pods by new ones; how many seconds it took."""
        began = time.monotonic()
        self.cluster.kubectl("rollout", "restart", "deployment/shop")
        self.cluster.kubectl("rollout", "status", "deployment/shop", "--timeout=180s", within_s=200)
        return time.monotonic() - began

    def scale(self, replicas: int) -> None:
        self.cluster.api.patch(DEPLOYMENT, {"spec": {"replicas": replicas}})

    def restarts(self) -> int:
        statuses = [status for pod in self.pods() for status in pod["status"].get("containerStatuses", [])]
        return sum(status["restartCount"] for status in statuses)

    def close(self) -> None:
        for load in self._loads:
            load.kill()
        said = self.cluster.kubectl("logs", "--selector=app=shop", "--prefix", "--tail=-1", "--max-log-requests=20")
        (self.cluster.home / "logs" / self._home.name).write_text(said)
        words = (
            "deployment,service,horizontalpodautoscaler,poddisruptionbudget",
            "shop",
            "--ignore-not-found",
            "--wait=false",
        )
        self.cluster.kubectl("delete", *words)
        self.cluster.kubectl("delete", "pods", "--selector=app=shop", "--force", "--grace-period=0")
        eventually(lambda: not self.pods(), "no pod is left", 60, 0.3)


@contextmanager
def shop(cluster: Cluster, home: Path, *arguments: str, replicas: int = 1, memory: str = "512Mi") -> Iterator[Shop]:
    made = Shop(cluster, home, arguments, replicas, memory)
    try:
        yield made
    finally:
        made.close()
