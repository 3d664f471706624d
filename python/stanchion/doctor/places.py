"""The name of the place where a process lives: its container, its systemd unit, or a name of `ip netns`."""

import re
from collections.abc import Iterator
from pathlib import Path

from stanchion.doctor import processes

NETNS = Path("/run/netns")
"""Here ip-netns(8) keeps the namespaces that have a name."""

HOSTNAME_CHARS_MAX = 64
"""HOST_NAME_MAX of gethostname(2)."""

_ID_CHARS = 12
"""The shown part of a container's id, which has 64: `docker ps` and `crictl ps` show no more."""

# Docker, containerd, CRI-O and Podman, whether systemd or the runtime itself makes the cgroups: `docker-ID.scope`,
# `/docker/ID`, `cri-containerd-ID.scope`, `/kubepods/…/ID`.
_CONTAINER = re.compile(r"(?:.*-)?([0-9a-f]{64})(?:\.scope)?")
_LXC = re.compile(r"lxc\.payload\.(.+)")
# systemd-machined: nspawn and libvirt.
_MACHINE = re.compile(r"machine-(.+)\.scope")
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")


def of_process(pid: int, network: str, proc: Path = Path("/proc"), netns: Path = NETNS) -> str:
    """The name of a network namespace, by a process in it and by its link, such as `net:[4026531833]`."""
    cgroup = processes.read(proc / str(pid) / "cgroup") or ""
    container = _container(cgroup)
    if container is not None:
        hostname = _hostname(processes.read(proc / str(pid) / "environ") or "")
        return f"container {container}" + (f" ({hostname})" if hostname and hostname != container else "")
    return _machine(cgroup) or _service(cgroup) or _of_ip(network, netns) or _of_process(pid, proc)


def _service(cgroup: str) -> str | None:
    """The outermost unit, as a container's own systemd has units too; a user's manager is no service of anything."""
    units = (name for name in _names(cgroup) if name.endswith(".service"))
    return next((name for name in units if not name.startswith("user@")), None)


def _container(cgroup: str) -> str | None:
    for name in _names(cgroup):
        if found := _CONTAINER.fullmatch(name):
            return found[1][:_ID_CHARS]
        if found := _LXC.fullmatch(name):
            return found[1]
    return None


def _machine(cgroup: str) -> str | None:
    found = next(filter(None, map(_MACHINE.fullmatch, _names(cgroup))), None)
    # As systemd-escape(1) writes a name.
    return None if found is None else "machine " + _ESCAPED.sub(lambda one: chr(int(one[1], 16)), found[1])


def _names(cgroup: str) -> Iterator[str]:
    """The parts of its paths, in every hierarchy (cgroups(7)), from the root on."""
    for line in cgroup.splitlines():
        yield from line.split(":", 2)[2].split("/")


def _hostname(environ: str) -> str:
    """Docker and the kubelet set it: to the name of the pod, for one."""
    found = next((text for text in environ.split("\0") if text.startswith("HOSTNAME=")), "")
    return found.removeprefix("HOSTNAME=")[:HOSTNAME_CHARS_MAX]


def _of_ip(network: str, netns: Path) -> str | None:
    """Each name is a file that is the namespace itself, so it has the number that the link shows (namespaces(7))."""
    try:
        for entry in netns.iterdir():
            if network == f"net:[{entry.stat().st_ino}]":
                return f"{entry.name} of ip netns"
    except OSError:
        return None
    return None


def _of_process(pid: int, proc: Path) -> str:
    name = (processes.read(proc / str(pid) / "comm") or "?").strip()
    # Kernel threads, which have no command line, are in the first namespace of all.
    if name == "kthreadd" and not processes.read(proc / str(pid) / "cmdline"):
        return "that of the host"
    return f"that of {name} ({pid})"
