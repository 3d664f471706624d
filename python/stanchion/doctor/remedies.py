"""Steps that help, spelled so that they can be pasted."""

from collections.abc import Mapping

from stanchion.doctor import asked
from stanchion.doctor.facts import Listener, Network

DROP_IN = "/etc/sysctl.d/60-stanchion-doctor.conf"

SOMAXCONN_MIN = 4096
"""The default of kernels since 5.4; an entry of the queue is a few hundred bytes, and only while used."""


def somaxconn(backlog_asked: int | None) -> str:
    return str(max(backlog_asked or 0, SOMAXCONN_MIN))


def sysctl_now(name: str, value: str, network: Network) -> tuple[str, ...]:
    """For the namespace at hand, as long as it is there."""
    enter = "" if network.is_ours else f"nsenter --net=/proc/{network.pid}/ns/net "
    return (f"$ {enter}sysctl -w {assigned(name, value)}",)


def in_containers(sysctls: Mapping[str, str]) -> list[str]:
    """For containers, which have network namespaces of their own: the host's /etc/sysctl.d does not reach them."""
    steps = ["A container has a network namespace of its own, with the kernel's defaults, not the host's. For one:"]
    for name, value in sysctls.items():
        steps += [
            f"$ docker run --sysctl {assigned(name, value)} …",
            f'compose:     sysctls: {{{name}: "{value}"}}',
            f'Kubernetes:  securityContext: {{sysctls: [{{name: {name}, value: "{value}"}}]}}',
            *_kubernetes_gate(name),
        ]
    return steps if sysctls else []


def assigned(name: str, value: str) -> str:
    return f"{name}='{value}'" if " " in value else f"{name}={value}"


# The sysctls that the kubelet lets a pod set without a flag.
_SAFE_IN_KUBERNETES = ("net.ipv4.tcp_syncookies", "net.ipv4.ip_local_port_range")


def _kubernetes_gate(name: str) -> tuple[str, ...]:
    if name in _SAFE_IN_KUBERNETES:
        return ()
    return (f"             (the kubelet must be started with --allowed-unsafe-sysctls={name})",)


def sysctl_for_good(name: str, value: str) -> tuple[str, ...]:
    return (f"$ echo '{name} = {value}' >> {DROP_IN}",)


def by_sysctl(name: str, value: str, network: Network) -> tuple[tuple[str, ...], tuple[str, ...], str, dict[str, str]]:
    """The last fields of a Finding that a sysctl alone helps: now, for good, where, and the sysctl."""
    return sysctl_now(name, value, network), sysctl_for_good(name, value), network.link, {name: value}


def listen_again(listener: Listener) -> str:
    """The step that makes the server call listen(2) again, which alone changes a backlog."""
    # Each was tried with the real server, as docs/diagnosis.md describes.
    words = {
        "nginx": "restart nginx: a reload keeps the backlog as it is, unless `backlog=` of its `listen` changes",
        "gunicorn": "restart gunicorn: HUP keeps the socket and its backlog",
        "stanchion": "let stanchion reload (`stanchion ctl reload`, or HUP): it calls listen(2) again",
    }
    names = (asked.server(owner) for owner in listener.owners)
    name = next((name for name in names if name is not None), None)
    generic = "restart the server: a reload mostly keeps the socket as it is"
    return f"Then {words.get(name or '', generic)}. The kernel cuts a backlog at listen(2), not later."


def ask_for_more(listener: Listener, value: str) -> str:
    names = {asked.server(owner) for owner in listener.owners}
    if "nginx" in names:
        return f"nginx.conf:  listen {listener.address} backlog={value};"
    if names & {"gunicorn", "stanchion"}:
        return f"Start the server with --backlog {value}."
    return f"Let the server ask for {value} at listen(2), if it has a setting for it (backlog, tcp-backlog, listen)."
