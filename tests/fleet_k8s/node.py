"""A node: a containerd, a kubelet, and a bridge for its pods. Several nodes share one network and kernel."""

import json
import subprocess
from pathlib import Path

from fleet_k8s import image
from fleet_k8s.control_plane import ControlPlane
from fleet_k8s.programs import CNI, HYPERKUBE
from support.patience import eventually

GROUPS = Path("/sys/fs/cgroup")

CONTAINERD = """\
version = 2
root = "{home}/containerd"
state = "{home}/containerd-state"
disabled_plugins = [
    "io.containerd.internal.v1.opt",
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
]
[grpc]
address = "{home}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni}"
conf_dir = "{home}/cni"
"""


class Node:
    """It registers itself, and is ready when it can run pods."""

    def __init__(self, plane: ControlPlane, number: int, images: list[Path]) -> None:
        self.name, self.address = f"node{number}", f"10.10.0.{number}"
        self._plane, self._number = plane, number
        self._home = plane.home / self.name
        self._home.mkdir()
        _ip("addr", "replace", f"{self.address}/24", "dev", "nodes")
        self._start_containerd(images)
        self._start_kubelet()
        eventually(self.is_ready, f"{self.name} is ready", 120, 0.2)

    def _start_containerd(self, images: list[Path]) -> None:
        home, socket = self._home, self._home / "containerd.sock"
        (home / "cni").mkdir()
        network = {
            "cniVersion": "0.4.0",
            "name": self.name,
            "type": "bridge",
            "bridge": f"pods{self._number}",
            "isGateway": True,
            "ipam": {
                "type": "host-local",
                "dataDir": str(home / "addresses"),
                "ranges": [[{"subnet": f"10.244.{self._number}.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        (home / "cni/10-pods.conf").write_text(json.dumps(network))
        (home / "containerd.toml").write_text(CONTAINERD.format(home=home, pause=image.PAUSED, cni=CNI))
        self._plane.programs.start(f"{self.name}-containerd", ["containerd", "--config", home / "containerd.toml"])
        ctr = ["ctr", "--address", str(socket), "--namespace", "k8s.io"]
        eventually(lambda: socket.exists() and _done([*ctr, "version"]), "containerd answers", 60, 0.2)
        for tar in images:
            subprocess.run([*ctr, "images", "import", str(tar)], check=True, capture_output=True)

    def _start_kubelet(self) -> None:
        # The second kubelet must not clean up the pods of the first.
        for hierarchy in GROUPS.iterdir():
            group = hierarchy / self.name
            if (hierarchy / "cgroup.procs").exists() and not hierarchy.is_symlink():
                group.mkdir()
                for file in ("cpuset.cpus", "cpuset.mems"):
                    if (hierarchy / file).exists():
                        (group / file).write_text((hierarchy / file).read_text())
        keys = self._plane.keys
        serving = keys.ca.issue(self.name, self.address)
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "healthzPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(keys.ca.own.certfile)},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "tlsCertFile": str(serving.certfile),
            "tlsPrivateKeyFile": str(serving.keyfile),
            "containerRuntimeEndpoint": f"unix://{self._home}/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.name}",
            "enforceNodeAllocatable": ["none"],
            "failCgroupV1": False,
            "failSwapOn": False,
            # Root of a container may lack rights (CAP_SYS_RESOURCE) and sysctls; the kubelet then goes on without them.
            "featureGates": {"KubeletInUserNamespace": True},
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            "evictionHard": {"memory.available": "100Mi"},
            "resolvConf": "",
            "podLogsDir": str(self._home / "pods"),
            "volumePluginDir": str(self._home / "plugins"),
        }
        (self._home / "kubelet.json").write_text(json.dumps(config))
        subject = f"/O=system:nodes/CN=system:node:{self.name}"
        flags = {
            "config": self._home / "kubelet.json",
            "kubeconfig": keys.kubeconfig(self.name, subject),
            "root-dir": self._home / "kubelet",
            "cert-dir": self._home / "kubelet-keys",
            "hostname-override": self.name,
            "node-ip": self.address,
        }
        words = [f"--{name}={value}" for name, value in flags.items()]
        self._plane.programs.start(f"{self.name}-kubelet", [HYPERKUBE, "kubelet", *words])

    def is_ready(self) -> bool:
        nodes = self._plane.api.get("/api/v1/nodes")["items"]
        mine = [node for node in nodes if node["metadata"]["name"] == self.name]
        # The taint goes some time after the condition, and until then no pod comes here.
        return any(
            condition["type"] == "Ready" and condition["status"] == "True" and not node["spec"].get("taints")
            for node in mine
            for condition in node["status"].get("conditions", [])
        )


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _done(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
