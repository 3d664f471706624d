"""A whole Kubernetes on the host of its own that scripts/own-host makes."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleet_k8s import image
from fleet_k8s.control_plane import NODES, ControlPlane, Object, Refused
from fleet_k8s.node import Node
from fleet_k8s.programs import HYPERKUBE
from support.patience import eventually

PORTS = 6443
"""The apiserver's, and two more for etcd: no other program is in this network."""

LOOKS_EVERY_S = 15
"""The time between two looks of the autoscaler, as everywhere."""


class Cluster(ControlPlane):
    """A cluster of one node, to which tests may add another one."""

    def __init__(self, home: Path) -> None:
        _network()
        super().__init__(home, PORTS)
        for name in ("kube-controller-manager", "kube-scheduler"):
            flags = [f"--kubeconfig={self.keys.kubeconfig(name, f'/CN=system:{name}')}", "--leader-elect=false"]
            if name == "kube-controller-manager":
                flags += [
                    f"--service-account-private-key-file={self.keys.accounts}",
                    f"--root-ca-file={self.keys.ca.own.certfile}",
                    f"--horizontal-pod-autoscaler-sync-period={LOOKS_EVERY_S}s",
                ]
            self.programs.start(name, [HYPERKUBE, name, *flags])
        self._start_proxy()
        _tuned(home)
        self.images = [home / "shop.tar", home / "pause.tar"]
        image.shop(self.images[0])
        image.pause(self.images[1])
        self.nodes = [Node(self, 1, self.images)]
        eventually(self._has_account, "pods may be made", 60, 0.2)

    def add_node(self) -> Node:
        self.nodes.append(Node(self, len(self.nodes) + 1, self.images))
        return self.nodes[-1]

    def _start_proxy(self) -> None:
        config = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clusterCIDR": "10.244.0.0/16",
            "clientConnection": {"kubeconfig": str(self.keys.kubeconfig("kube-proxy"))},
            # Otherwise it wants to change a setting of the kernel that only the machine has.
            "conntrack": {"maxPerCore": 0},
            "hostnameOverride": "node1",
        }
        file = self.home / "kube-proxy.json"
        file.write_text(json.dumps(config))
        self.programs.start("kube-proxy", [HYPERKUBE, "kube-proxy", f"--config={file}"])

    def _has_account(self) -> bool:
        try:
            return bool(self.api.get("/api/v1/namespaces/default/serviceaccounts/default"))
        except Refused:
            return False

    def apply(self, *objects: Object) -> None:
        listed: dict[str, Any] = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=json.dumps(listed))


TUNED = {"vm/overcommit_memory": 1, "kernel/panic": 10, "kernel/panic_on_oops": 1}
"""Settings of the kernel that a kubelet changes unless they are so, for the whole machine."""


def _tuned(home: Path) -> None:
    """Show the kubelet these settings as it wants them, so that it leaves the machine's alone."""
    for name, value in TUNED.items():
        shown = home / name.replace("/", "-")
        shown.write_text(f"{value}\n")
        subprocess.run(["mount", "--bind", shown, f"/proc/sys/{name}"], check=True, capture_output=True)


def _network() -> None:
    """A bridge for the nodes, with a way out that leads nowhere: an apiserver wants one."""
    for words in (
        "link add nodes type bridge",
        "link set nodes up",
        f"addr add {NODES}/24 dev nodes",
        f"route add default via {NODES}",
    ):
        subprocess.run(["ip", *words.split()], check=True, capture_output=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


@contextmanager
def cluster(home: Path) -> Iterator[Cluster]:
    made = Cluster(home)
    try:
        yield made
    finally:
        made.programs.stop()
