"""A front's facts about the servers behind it, from their settings."""

import ipaddress
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stanchion import __version__, _stanchion
from stanchion.effective import Effective, UsageError
from stanchion.fleet import pod
from stanchion.output import as_json, masked, printable
from stanchion.usage import without_secrets

_FRONT_KEEPS_S_MAX = 60
_DAY_S = 86_400

_TARGET = 0.7
"""The part of the seats that an autoscaler keeps busy."""

_TRIES_MAX = 3
"""While all servers refuse, each request comes to so many of them and not to all."""


_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
"""Of a host: letters that no front's file takes for its own."""

_PATH = re.compile("[A-Za-z0-9._~/%-]+")


class Host(NamedTuple):
    """Where one server of the fleet answers clients."""

    host: str
    port: int

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_plain(self) -> bool:
        """Whether it is an address or a name, and so has no meaning of its own in a front's file."""
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            return _NAME.fullmatch(self.host) is not None
        return True

    @property
    def is_here(self) -> bool:
        """Whether only fronts on the same machine reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class Asked(NamedTuple):
    """The command line of `fleet`, settings apart."""

    words: Sequence[str]
    front: str
    hosts: Sequence[Host]
    """Empty: the server of these settings alone."""
    namespace: str


def host_of(address: str | None) -> Host | None:
    """Host and port of an address as `bind` takes it; None if it is not TCP, or has no fixed port."""
    bare = (address or "").partition("?")[0].removeprefix("tcp://")
    host, colon, port = bare.rpartition(":")
    if not host.startswith(("unix", "fd")) and colon and port.isdecimal() and 0 < int(port) <= 0xFFFF:
        return Host(host.strip("[]") or "0.0.0.0", int(port))
    return None


def gather(asked: Asked, effective: Effective) -> dict[str, Any]:
    """The facts, by the names that the files of fronts/ have for them."""
    values = effective.values
    hosts = asked.hosts or _alone(values, asked.front)
    workers, seats = _stanchion.seats(effective.json)
    admin, agent = (host_of(values.get(name)) for name in ("admin", "agent"))
    admin_port = admin.port if admin else pod.ADMIN_PORT
    return {
        "made_by": f"{_command(asked.words, effective)} (stanchion {__version__})",
        **_times(values, pod.drain_s(effective)),
        **_sizes(values, (workers, seats), len(hosts)),
        "hosts": [
            {"server": f"app{number}", **one._asdict(), "address": one.address, "check_port": (admin or one).port}
            for number, one in enumerate(hosts, 1)
        ],
        "addresses": " ".join(one.address for one in hosts),
        "check_path": "/ready" if admin else _health_path(values["health_path"]),
        "has_admin": admin is not None,
        "admin_port": admin_port,
        "agent_port": agent.port if agent else None,
        "orca": values.get("load_report") == "orca",
        "name": pod.name_of(values["proc_name"] or values["wsgi_app"]),
        "namespace": asked.namespace,
        "port": hosts[0].port,
        # JSON's texts are YAML's.
        "arguments": [{"word": as_json(word)} for word in pod.arguments(effective, hosts[0].port, admin_port)],
    }


def _health_path(prefix: str | None) -> str | None:
    if not prefix:
        return None
    if not _PATH.fullmatch(prefix):
        raise UsageError(f"fleet: health_path {prefix!r} has characters that a front's file would take for its own")
    return f"{prefix}/ready"


def _alone(values: Mapping[str, Any], front: str) -> list[Host]:
    """The server of these settings, for a front beside it."""
    for address in values["bind"]:
        host = host_of(address)
        if host:
            return [host._replace(host="127.0.0.1") if host.host in ("0.0.0.0", "::") else host]
    if front in pod.FRONTS:
        return [Host("0.0.0.0", pod.PORT)]
    raise UsageError("fleet: `bind` has no TCP port: name the servers, as in --hosts app1:8000,app2:8000")


def _times(values: Mapping[str, Any], drain_s: float) -> dict[str, Any]:
    """In seconds. A server gives up before its front does, and a front closes what idles before its server does."""
    queue_s, run_s, keepalive_s = (float(values[name]) for name in ("queue_timeout", "timeout", "keepalive"))
    graceful_s = float(values["graceful_timeout"] or 0)
    return {
        "queue_s": _whole(queue_s or _DAY_S),
        "server_s": _whole(queue_s + run_s + 1 if queue_s and run_s else _DAY_S),
        "limits": f"--queue-timeout ({queue_s:g} s) and --timeout ({run_s:g} s)",
        "keepalive_s": f"{keepalive_s:g}",
        "front_keeps_s": max(1, min(_FRONT_KEEPS_S_MAX, int(keepalive_s * 0.8))),
        "purge_s": max(1, min(5, int(keepalive_s / 15))),
        "drain_s": f"{drain_s:g}",
        "graceful_s": f"{graceful_s:g}",
        "grace_s": _whole(drain_s + graceful_s + 5),
    }


def _whole(seconds: float) -> int:
    """Rounded up: not all fronts know parts of a second."""
    return -int(-seconds // 1)


def _sizes(values: Mapping[str, Any], most: tuple[int, int], hosts: int) -> dict[str, Any]:
    workers, seats = most
    waiting = hosts * (values["max_waiting"] + seats)
    return {
        "seats": seats,
        "seats_why": f"{workers} worker{'s' * (workers > 1)} of {seats // workers}",
        "target": f"{_TARGET * seats:g}",
        "waiting": waiting,
        # Two connections for each, a client's and a server's.
        "connections": 2 * waiting,
        "files": 4 * waiting,
        "tries": min(hosts, _TRIES_MAX),
    }


def _command(words: Sequence[str], effective: Effective) -> str:
    """On one line, without secrets."""
    assignments = effective.values["raw_env"]
    secret = dict(zip(assignments, without_secrets("raw_env", assignments), strict=True))
    shown = [secret.get(word, masked(word)) for word in words]
    return printable(shlex.join(["stanchion", "fleet", *shown]))
