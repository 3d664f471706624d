"""The half of a Kubernetes that needs neither rights nor a network: an etcd and a kube-apiserver on loopback.

It holds manifests to the real schema, defaults and admission of Kubernetes, by kubectl's `--dry-run=server` and
`--validate=strict`.
"""

import http.client
import json
import os
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from fleet_k8s.programs import HYPERKUBE, Programs
from support.patience import PATIENCE_S, eventually
from support.ports import row_of_ports
from support.tls import Authority, Pair, openssl

STARTS_WITHIN_S = 6 * PATIENCE_S
NODES = "10.10.0.1"
"""The address of the machine in the network of nodes; an apiserver alone announces it and does not use it."""

Object = dict[str, Any]


class Api:
    """Requests to the apiserver with all rights, without starting a kubectl for each."""

    def __init__(self, port: int, tls: ssl.SSLContext) -> None:
        self._port, self._tls = port, tls

    def ask(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        """The answer; an error is raised with what the apiserver says about it."""
        with closing(
            http.client.HTTPSConnection("127.0.0.1", self._port, context=self._tls, timeout=PATIENCE_S)
        ) as link:
            link.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": kind})
            answer = link.getresponse()
            text = answer.read()
        if answer.status >= 300:
            raise Refused(answer.status, f"{method} {path}: {text.decode()[:500]}")
        return json.loads(text) if text.startswith(b"{") else {}

    def get(self, path: str) -> Object:
        return self.ask("GET", path)

    def patch(self, path: str, change: Object) -> Object:
        return self.ask("PATCH", path, change, "application/merge-patch+json")

    def watch(self, path: str) -> Iterator[Object]:
        """Events of a list, first of all that is in it, until the apiserver ends.

        Version 0 lets the apiserver begin with what it knows: Debian's etcd cannot tell it how new that is.
        """
        link = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._tls)
        with closing(link), suppress(OSError, http.client.HTTPException):
            link.request("GET", f"{path}{'&' if '?' in path else '?'}watch=1&resourceVersion=0")
            for line in link.getresponse():
                yield json.loads(line)


class Refused(Exception):
    """The apiserver has answered with an error."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status}: {said}")
        self.status = status


class Keys:
    """Certificates of each part of a cluster, and the files by which the parts find the apiserver."""

    def __init__(self, home: Path, port: int) -> None:
        self._home, self._port = home, port
        for name in ("ca", "front"):
            (home / name).mkdir(parents=True)
        self.ca, front = Authority(home / "ca"), Authority(home / "front")
        names = ("kubernetes", "kubernetes.default.svc", "localhost", "127.0.0.1", "10.96.0.1", NODES)
        self.apiserver = self.ca.issue(*names, subject="/CN=kube-apiserver")
        self.admin = self._client("/O=system:masters/CN=admin")
        self.front, self.front_ca = front.issue(subject="/CN=front-proxy-client", client=True), front.own.certfile
        self.accounts, self.accounts_public = home / "accounts.key", home / "accounts.pub"
        openssl("genpkey", "-algorithm", "RSA", "-out", self.accounts)
        openssl("pkey", "-in", self.accounts, "-pubout", "-out", self.accounts_public)

    def _client(self, subject: str) -> Pair:
        return self.ca.issue(subject=subject, client=True)

    def kubeconfig(self, name: str, subject: str = "") -> Path:
        """A file for kubectl or a part of the cluster, by default with all rights."""
        pair = self._client(subject) if subject else self.admin
        server = {"server": f"https://127.0.0.1:{self._port}", "certificate-authority": str(self.ca.own.certfile)}
        user = {"client-certificate": str(pair.certfile), "client-key": str(pair.keyfile)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "this", "cluster": server}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "this", "context": {"cluster": "this", "user": name}}],
            "current-context": "this",
        }
        file = self._home / f"{name}.json"
        file.write_text(json.dumps(config))
        return file


class ControlPlane:
    """An apiserver that is ready, and what asks it."""

    def __init__(self, home: Path, ports: int) -> None:
        """Its three ports in a row begin with `ports`."""
        self.home = home
        self.keys = Keys(home / "keys", ports)
        self.programs = Programs(home / "logs")
        self.config = self.keys.kubeconfig("admin")
        self.api = Api(ports, self.keys.ca.context(self.keys.admin))
        self._start_etcd(ports + 1)
        self._start_apiserver(ports, ports + 1)
        eventually(self._ready, "the apiserver is ready", STARTS_WITHIN_S, 0.2)

    def _start_etcd(self, port: int) -> None:
        clients, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}"
        listen = [
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
        ]
        peer = [f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}"]
        self.programs.start("etcd", ["etcd", f"--data-dir={self.home / 'etcd'}", *listen, *peer])

    def _start_apiserver(self, port: int, etcd: int) -> None:
        keys = self.keys
        flags = {
            "etcd-servers": f"http://127.0.0.1:{etcd}",
            "secure-port": port,
            "advertise-address": NODES,
            "endpoint-reconciler-type": "none",
            "cert-dir": self.home / "apiserver",
            "tls-cert-file": keys.apiserver.certfile,
            "tls-private-key-file": keys.apiserver.keyfile,
            "client-ca-file": keys.ca.own.certfile,
            "authorization-mode": "AlwaysAllow",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-signing-key-file": keys.accounts,
            "service-account-key-file": keys.accounts_public,
            "service-cluster-ip-range": "10.96.0.0/24",
            "allow-privileged": "true",
            # The metrics of a test are an aggregated API, which has no Service address that the apiserver could reach.
            "enable-aggregator-routing": "true",
            "requestheader-client-ca-file": keys.front_ca,
            "requestheader-allowed-names": "front-proxy-client",
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "proxy-client-cert-file": keys.front.certfile,
            "proxy-client-key-file": keys.front.keyfile,
            "kubelet-preferred-address-types": "InternalIP",
            "kubelet-client-certificate": keys.admin.certfile,
            "kubelet-client-key": keys.admin.keyfile,
        }
        words = [f"--{name}={value}" for name, value in flags.items()]
        self.programs.start("kube-apiserver", [HYPERKUBE, "kube-apiserver", *words])

    def _ready(self) -> bool:
        try:
            self.api.get("/readyz")
            self.api.get("/api/v1/namespaces/default")
        except (OSError, Refused):
            return False
        return True

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which kubectl asks this apiserver, and keeps its cache here."""
        return {**os.environ, "KUBECONFIG": str(self.config), "KUBECACHEDIR": str(self.home / "cache")}

    def kubectl(self, *words: str, given: str = "", within_s: float = STARTS_WITHIN_S) -> str:
        """What kubectl prints; with `given` as its standard input."""
        done = subprocess.run(
            [HYPERKUBE, "kubectl", *words],
            env=self.environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=within_s,
        )
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout


@contextmanager
def control_plane(home: Path) -> Iterator[ControlPlane]:
    """An apiserver alone, on ports of its own, for as long as the `with` lasts."""
    with row_of_ports(3) as ports:
        plane = ControlPlane(home, ports)
        try:
            yield plane
        finally:
            plane.programs.stop()
