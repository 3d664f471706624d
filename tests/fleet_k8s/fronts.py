"""HAProxy and Envoy before the pods, which hear from Kubernetes about the endpoints, late if the test wants it."""

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fleet_k8s.cluster import Cluster
from fleet_k8s.shop import HTTP, SLICES
from support.patience import eventually
from support.proxies import program

PORT, ADMIN = 8080, 9901
SLOTS = 16

HAPROXY = """\
global
  maxconn 4000
  nbthread 1
  stats socket {socket} mode 600 level admin
defaults
  mode http
  option redispatch 1
  retries 3
  # A request that reached no pod may go to another one, whatever its method is.
  retry-on conn-failure
  timeout connect 1s
  timeout client 120s
  timeout server 120s
  timeout queue 60s
frontend clients
  bind 127.0.0.1:{port}
  http-request set-header X-Request-Start t=%[date(0,us)]
  default_backend shop
backend shop
  balance leastconn
  # As `stanchion fleet haproxy` prints: a dead pod refuses fast, so it would get the most.
  default-server check inter 1s fastinter 500ms downinter 500ms fall 2 rise 1
  default-server observe layer4 error-limit 1 on-error mark-down
  server-template pod 1-{slots} 127.0.0.2:{http} disabled {limit}
"""


class Endpoints:
    """Follows the Service's endpoints, and calls `tell` with the ready ones so long after each change."""

    def __init__(self, cluster: Cluster, tell: Callable[[frozenset[str]], None], late_s: float = 0) -> None:
        self._cluster, self._tell, self._late_s = cluster, tell, late_s
        self._slices: dict[str, frozenset[str]] = {}
        self._over = False
        self.ready: frozenset[str] = frozenset()
        threading.Thread(target=self._follow, daemon=True).start()
        eventually(lambda: self.ready, "endpoints are known", every_s=0.1)

    def close(self) -> None:
        self._over = True

    def _say(self, ready: frozenset[str]) -> None:
        if not self._over:
            self._tell(ready)

    def _follow(self) -> None:
        for event in self._cluster.api.watch(SLICES):
            if self._over:
                return
            found = event["object"].get("endpoints") or []
            gone = event["type"] == "DELETED"
            ready = () if gone else (one["addresses"][0] for one in found if one["conditions"].get("ready"))
            self._slices[event["object"]["metadata"]["name"]] = frozenset(ready)
            now = frozenset().union(*self._slices.values())
            if now != self.ready:
                late_s = self._late_s if self.ready else 0
                self.ready = now
                threading.Timer(late_s, self._say, [now]).start()


class Haproxy:
    """HAProxy, whose servers are set by commands while it runs."""

    def __init__(self, cluster: Cluster, home: Path, limit: str = "", late_s: float = 0) -> None:
        """`limit` is what each server's line ends with, such as `maxconn 2`."""
        self._socket = home / "haproxy.sock"
        self._slots: dict[str, int] = {}
        self._lock = threading.Lock()
        config = home / "haproxy.cfg"
        config.write_text(HAPROXY.format(socket=self._socket, port=PORT, slots=SLOTS, http=HTTP, limit=limit))
        cluster.programs.start("haproxy", ["haproxy", "-db", "-f", config])
        eventually(self._socket.exists, "HAProxy listens", every_s=0.1)
        self.endpoints = Endpoints(cluster, self._set, late_s)
        eventually(lambda: self._slots, "HAProxy has servers", every_s=0.1)

    def _set(self, ready: frozenset[str]) -> None:
        with self._lock:
            for address in set(self._slots) - ready:
                self.command(f"set server shop/pod{self._slots.pop(address)} state maint")
            for address in ready - set(self._slots):
                slot = min(set(range(1, SLOTS + 1)) - set(self._slots.values()))
                self._slots[address] = slot
                self.command(f"set server shop/pod{slot} addr {address} port {HTTP}")
                self.command(f"set server shop/pod{slot} state ready")

    def close(self) -> None:
        self.endpoints.close()

    def command(self, words: str) -> str:
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(self._socket))
            link.sendall(f"{words}\n".encode())
            return b"".join(iter(lambda: link.recv(65536), b"")).decode()


class Envoy:
    """Envoy, which reads its endpoints from a file and notices that another file takes its place."""

    def __init__(self, cluster: Cluster, home: Path, late_s: float = 0) -> None:
        self._home = home / "envoy"
        self._home.mkdir()
        self.endpoints = Endpoints(cluster, self._set, late_s)
        eventually((self._home / "endpoints.json").exists, "endpoints are written", every_s=0.1)
        config = self._home / "envoy.json"
        config.write_text(json.dumps(self._config()))
        found = program("envoy")
        assert found
        words = ["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"]
        cluster.programs.start("envoy", [found, "-c", config, *words])
        eventually(self._listens, "Envoy listens", every_s=0.1)

    def close(self) -> None:
        self.endpoints.close()

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", PORT), 1).close()
        except OSError:
            return False
        return True

    def _config(self) -> object:
        kind = "type.googleapis.com/envoy.extensions.filters"
        router = {"name": "router", "typed_config": {"@type": f"{kind}.http.router.v3.Router"}}
        # As for HAProxy: a request that reached no pod.
        retries = {
            "retry_on": "connect-failure,refused-stream",
            "num_retries": 3,
            "host_selection_retry_max_attempts": 3,
        }
        route = {"match": {"prefix": "/"}, "route": {"cluster": "shop", "timeout": "120s", "retry_policy": retries}}
        manager = {
            "@type": f"{kind}.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "clients",
            "route_config": {"virtual_hosts": [{"name": "shop", "domains": ["*"], "routes": [route]}]},
            "http_filters": [router],
        }
        listener = {
            "name": "clients",
            "address": _address("127.0.0.1", PORT),
            "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
        }
        cluster = {
            "name": "shop",
            "type": "EDS",
            "connect_timeout": "1s",
            "lb_policy": "LEAST_REQUEST",
            "eds_cluster_config": {
                "service_name": "shop",
                "eds_config": {"path_config_source": {"path": str(self._home / "endpoints.json")}},
            },
        }
        return {
            "node": {"id": "front", "cluster": "fronts"},
            "static_resources": {"listeners": [listener], "clusters": [cluster]},
        }

    def _set(self, ready: frozenset[str]) -> None:
        hosts = [{"endpoint": {"address": _address(address, HTTP)}} for address in sorted(ready)]
        assignment = {
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": "shop",
            "endpoints": [{"lb_endpoints": hosts}],
        }
        fresh = self._home / "fresh.json"
        fresh.write_text(json.dumps({"version_info": str(time.time()), "resources": [assignment]}))
        fresh.rename(self._home / "endpoints.json")


def _address(host: str, port: int) -> object:
    return {"socket_address": {"address": host, "port_value": port}}
