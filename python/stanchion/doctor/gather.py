"""Looks at the host: sockets by sock_diag(7), settings and counters by /proc. Needs no privilege for the network
namespace that it runs in; to enter others takes root.
"""

import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stanchion import _stanchion
from stanchion.doctor import asked, places, processes, systemd
from stanchion.doctor.facts import Facts, Listener, Network, Owner

SYSCTLS = (
    "net.core.somaxconn",
    "net.core.netdev_max_backlog",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_abort_on_overflow",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_migrate_req",
    "net.ipv4.tcp_syn_linear_timeouts",
    "net.ipv4.tcp_syn_retries",
    "net.ipv4.tcp_synack_retries",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_tw_reuse",
)
COUNTERS = ("ListenOverflows", "ListenDrops", "TCPReqQFullDoCookies", "TCPReqQFullDrop", "TCPAbortOnOverflow")

_TO_LOOK_INTO = (
    "Run it as root.",
    "Even root here may not: they hide from all but CAP_SYS_PTRACE of their own user namespace.",
)

# /proc/net would be that of the process, not of the thread that has entered a namespace (proc(5)).
NETSTAT = "/proc/thread-self/net/netstat"
SOCKSTAT = "/proc/thread-self/net/sockstat"


def look(all_networks: bool = True, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> Facts:
    """Everything there is to see now."""
    owners = processes.Owners(proc)
    networks, not_looked_at = _networks(proc, all_networks)
    networks = [_with_owners(network, owners) for network in networks]
    if owners.unseen:
        not_looked_at.append(
            f"processes that are not ours to look into, {len(owners.unseen)} of them: which sockets are theirs, "
            f"and whether they live in network namespaces of their own. {_TO_LOOK_INTO[os.geteuid() == 0]}"
        )
    open_now, _, files_max = (processes.read(proc / "sys/fs/file-nr") or "0 0 0").split()
    holders = [one for network in networks for listener in network.listeners for one in listener.owners]
    masters = {
        owner.pid: owner for one in networks[0].listeners for owner in one.owners if asked.stanchion(one) == owner.pid
    }
    own = processes.read(proc / "self/cgroup")
    memberships = {text for text in (own, *(holder.cgroup for holder in holders)) if text}
    return Facts(
        kernel=platform.release(),
        networks=tuple(networks),
        cgroups=tuple(processes.cgroups(cgroups, memberships)),
        pressure={
            name: found for name in processes.RESOURCES if (found := processes.pressure(proc / "pressure" / name))
        },
        files_open=int(open_now),
        files_max=int(files_max),
        worker_fds_max={pid: most for pid in masters if (most := processes.worker_fds_max(proc, pid)) is not None},
        stop_timeouts_s=_stop_timeouts_s(masters),
        stopped={pid: state for pid in masters if (state := processes.state(proc, pid)) in ("T", "t")},
        backlog_dropped=_softnet_drops(processes.read(proc / "net/softnet_stat") or ""),
        not_looked_at=tuple(not_looked_at),
    )


def _stop_timeouts_s(masters: Mapping[int, Owner]) -> dict[int, float]:
    units = {pid: unit for pid, owner in masters.items() if (unit := systemd.unit(owner.cgroup or ""))}
    return {pid: found for pid, unit in units.items() if (found := systemd.stop_timeout_s(unit)) is not None}


def _networks(proc: Path, all_networks: bool) -> tuple[list[Network], list[str]]:
    """Ours first; and why others are missing."""
    here = os.readlink(proc / "self/ns/net")
    networks = [network(None, here)]
    not_looked_at = []
    others = _others(proc, here) if all_networks else {}
    for link, pid in sorted(others.items()):
        name = places.of_process(pid, link, proc)
        try:
            networks.append(network(pid, link, proc))
        except FileNotFoundError:
            continue  # The process is gone, and most likely the namespace with it.
        except PermissionError:
            not_looked_at.append(f"network namespace {name}, {link}: to enter it takes root")
        except OSError as error:
            not_looked_at.append(f"network namespace {name}, {link}: {error.strerror or error}")
    return networks, not_looked_at


def _others(proc: Path, here: str) -> dict[str, int]:
    """Other network namespaces -> the lowest pid in there."""
    found: dict[str, int] = {}
    for pid in sorted(processes.pids(proc)):
        try:
            link = processes.link(proc / str(pid) / "ns/net")
        except PermissionError:
            continue  # It is among those whose descriptors are not for us: the same right (ptrace(2)).
        if link not in ("", here):
            found.setdefault(link, pid)
    return found


def network(pid: int | None, link: str, proc: Path = Path("/proc")) -> Network:
    """The namespace of a process, entered in a thread of its own; or ours."""
    entrance = None if pid is None else proc / str(pid) / "ns/net"
    paths = {sysctl: "/proc/sys/" + sysctl.replace(".", "/") for sysctl in SYSCTLS}
    view = json.loads(_stanchion.network_view([*paths.values(), NETSTAT, SOCKSTAT], entrance))
    files: Mapping[str, str | None] = view["files"]
    sysctls = {sysctl: " ".join(text.split()) for sysctl, path in paths.items() if (text := files[path]) is not None}
    tcp = _sockstat(files[SOCKSTAT] or "")
    return Network(
        "this one" if pid is None else places.of_process(pid, link, proc),
        pid,
        link,
        listeners(view),
        sysctls,
        _netstat(files[NETSTAT] or ""),
        tcp_in_use=tcp.get("inuse"),
        tcp_time_wait=tcp.get("tw"),
    )


def listeners(view: Mapping[str, Any]) -> tuple[Listener, ...]:
    """The sockets of a view of stanchion._stanchion.network_view."""
    found = []
    for socket in view["listening"]:
        address = socket["address"] or "(without a name)"
        found.append(
            Listener(
                socket["family"],
                address,
                socket["inode"],
                socket["waiting"],
                socket["backlog"],
                socket["drops"],
                _half_open(address, view["half_open"]) if socket["family"] == "tcp" else 0,
            )
        )
    return tuple(sorted(found, key=lambda one: (one.family, one.address, one.inode)))


def _half_open(address: str, counts: Mapping[str, int]) -> int:
    """The half-open connections of a listener: at its address, or at its port if it listens at every address."""
    host, _, port = address.rpartition(":")
    if host not in ("0.0.0.0", "[::]"):
        return counts.get(address, 0)
    of_port = ((at, count) for at, count in counts.items() if at.rpartition(":")[2] == port)
    return sum(count for at, count in of_port if at.startswith("[") == (host == "[::]"))


def _netstat(text: str) -> dict[str, int]:
    """Pairs of lines: names, then values (proc_pid_net(5))."""
    lines = [line.split() for line in text.splitlines()]
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        if names[0] == "TcpExt:":
            all_of_them = dict(zip(names, values, strict=True))
            return {name: int(all_of_them[name]) for name in COUNTERS if name in all_of_them}
    return {}


def _sockstat(text: str) -> dict[str, int]:
    found = re.search(r"^TCP: (.*)$", text, re.MULTILINE)
    words = found[1].split() if found else []
    return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}


def _softnet_drops(text: str) -> int:
    """The second column, in hexadecimal, one line for each processor."""
    return sum(int(line.split()[1], 16) for line in text.splitlines())


def _with_owners(network: Network, owners: processes.Owners) -> Network:
    known = (replace(listener, owners=owners.of(listener.inode)) for listener in network.listeners)
    somaxconn = network.number("net.core.somaxconn")
    return replace(network, listeners=tuple(asked.with_backlog_asked(listener, somaxconn) for listener in known))


def sockets(networks: Iterable[Network]) -> dict[tuple[str, int], Listener]:
    """By namespace and inode, for looks that are compared."""
    return {(network.link, one.inode): one for network in networks for one in network.listeners}
