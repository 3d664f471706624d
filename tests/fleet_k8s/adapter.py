"""The external metric of an autoscaler: the seats that all pods together want.

Once a second it asks `/line` of each pod by its address, and it serves the sum as Kubernetes asks for external metrics.
It is a tool of the tests; in production KEDA or an adapter of Prometheus does this.
"""

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fleet_k8s.cluster import Cluster
from fleet_k8s.control_plane import NODES
from fleet_k8s.shop import ADMIN

METRIC = "stanchion-seats-wanted"
GROUP = "external.metrics.k8s.io/v1beta1"
PORT = 8443
ASKS_EVERY_S = 1

OBJECTS: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "metrics"},
        "spec": {"ports": [{"name": "https", "port": 443, "targetPort": PORT}]},
    },
    {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "metrics-1", "labels": {"kubernetes.io/service-name": "metrics"}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": PORT, "protocol": "TCP"}],
        "endpoints": [{"addresses": [NODES], "conditions": {"ready": True}}],
    },
    {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
        "spec": {
            "group": "external.metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"name": "metrics", "namespace": "default", "port": 443},
        },
    },
]


class Adapter:
    """It asks pods and answers the autoscaler until it is closed."""

    def __init__(self, cluster: Cluster, pods: Callable[[], Iterable[str]]) -> None:
        self._pods, self._closed = pods, threading.Event()
        self.sums: list[tuple[float, float]] = []
        """The time and the sum, once a second."""
        self.asked: list[tuple[float, float]] = []
        """The time at which the autoscaler looked, and what it saw."""
        serving = cluster.keys.ca.issue("metrics.default.svc")
        self._server = ThreadingHTTPServer((NODES, PORT), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(serving.certfile, serving.keyfile)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        for task in (self._server.serve_forever, self._ask):
            threading.Thread(target=task, daemon=True).start()
        cluster.apply(*OBJECTS)

    def _ask(self) -> None:
        while not self._closed.wait(ASKS_EVERY_S):
            self.sums.append((time.time(), sum(said(address) for address in self._pods())))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        adapter = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                status, answer = adapter.answer(self.path.partition("?")[0])
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler

    def answer(self, path: str) -> tuple[int, object]:
        if path == f"/apis/{GROUP}":
            kind = {
                "name": METRIC,
                "singularName": "",
                "namespaced": True,
                "kind": "ExternalMetricValueList",
                "verbs": ["get"],
            }
            return 200, {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP, "resources": [kind]}
        if not path.endswith(f"/{METRIC}") or not self.sums:
            return 404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}
        _, value = self.sums[-1]
        self.asked.append((time.time(), value))
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        item = {"metricName": METRIC, "metricLabels": {}, "timestamp": now, "value": f"{round(value * 1000)}m"}
        return 200, {"kind": "ExternalMetricValueList", "apiVersion": GROUP, "metadata": {}, "items": [item]}

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()


def said(address: str) -> float:
    """The seats that one pod wants; 0 for a pod that is gone."""
    try:
        return line(address)["seats_wanted"]
    except (OSError, http.client.HTTPException):
        return 0


def line(address: str) -> dict[str, float]:
    """/line of one pod."""
    with closing(http.client.HTTPConnection(address, ADMIN, timeout=1)) as link:
        link.request("GET", "/line")
        found: dict[str, float] = json.loads(link.getresponse().read())
        return found
