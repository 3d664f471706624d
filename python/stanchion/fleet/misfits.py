"""Settings with which a front cannot do what its file says, and what to do about each."""

from collections.abc import Iterator, Mapping
from typing import Any

from stanchion.effective import Effective
from stanchion.fleet import pod
from stanchion.fleet.facts import Asked, host_of
from stanchion.output import masked

_FRONT_WAIT_S_MAX = 60
"""`Demand::FRONT_US_MAX` of stanchion-line."""

_KEEPALIVE_LEAST_S = 10
"""A front asks again on a connection that has idled for less."""


def of(asked: Asked, effective: Effective) -> Iterator[str]:
    """A warning for each."""
    values = effective.values
    if asked.front not in pod.FRONTS:
        yield from _of_addresses(asked, values)
        yield from _of_protocols(values)
        yield from _of_checks(asked.front, values)
    yield from _of_times(asked.front, values)
    if values["interface"] == "auto" and values["loop"] == "auto":
        yield "interface is auto: the seats are those of a WSGI app; if it is asynchronous, give --interface asgi"
    if asked.front == "k8s":
        unsaid = pod.unsaid(effective)
        if unsaid:
            yield f"no argument of a pod says {', '.join(unsaid)}: mount a config file, or take `env` from a Secret"
        if any(masked(word) != word for word in pod.arguments(effective, pod.PORT, pod.ADMIN_PORT)):
            yield "the arguments of the pod have a secret that the Deployment shows: mount a config file from a Secret"
        files = pod.files(effective)
        if files:
            yield f"the image, or a volume, must have the files of {', '.join(files)}: a pod has none of this machine"
    if asked.front == "keda" and host_of(values["admin"]) is None:
        yield f"no --admin with a TCP port: the file takes {pod.ADMIN_PORT}, as `stanchion fleet k8s` does"


def _of_addresses(asked: Asked, values: Mapping[str, Any]) -> Iterator[str]:
    if not asked.hosts:
        yield "the file has the server of these settings alone: name the fleet with --hosts HOST:PORT,HOST:PORT"
    elif not all(host.is_here for host in asked.hosts):
        for name in ("bind", "admin", "agent"):
            given = values.get(name)
            hosts = [host_of(one) for one in (given if isinstance(given, list) else [given])]
            if any(hosts) and all(host is None or host.is_here for host in hosts):
                yield f"--{name} is on loopback, where only this machine reaches it: give an address of the network"
        if not set(values["forwarded_allow_ips"].split(",")) - {"127.0.0.1", "::1", "unix"}:
            yield (
                "forwarded_allow_ips has only this machine: of a front elsewhere no X-Forwarded-For and no "
                "X-Request-Start counts, and it gets no load_report: list its address"
            )


def _of_protocols(values: Mapping[str, Any]) -> Iterator[str]:
    if values["proxy_protocol"] in ("v1", "v2"):
        yield "proxy_protocol is on, and the front sends no PROXY header: give --proxy-protocol off"
    if values["certfile"]:
        yield "certfile is set, and the front speaks no TLS to the servers: add it to the file, or leave certfile out"
    if values["forwarded_header"] == "forwarded":
        yield "forwarded_header is forwarded, and the front sends X-Forwarded-For: leave it at x-forwarded-for"


def _of_checks(front: str, values: Mapping[str, Any]) -> Iterator[str]:
    if front != "nginx" and host_of(values["admin"]) is None and not values["health_path"]:
        yield "no --admin with a TCP port: the front cannot ask whether a server is ready; give --admin HOST:PORT"
    if front == "haproxy" and host_of(values.get("agent")) is None:
        yield "no --agent with a TCP port: maxconn stays what it is when a reload, TTIN or TTOU changes the seats"
    if values["ready_waiting_max"] or values["ready_wait_max"]:
        yield "ready_waiting_max and ready_wait_max take all servers out together when all are full: leave both at 0"


def _of_times(front: str, values: Mapping[str, Any]) -> Iterator[str]:
    keepalive_s = float(values["keepalive"])
    if keepalive_s < _KEEPALIVE_LEAST_S and front != "keda":
        yield f"keepalive is {keepalive_s:g} s: requests of a front meet closing connections; give --keep-alive 75"
    if front in pod.FRONTS:
        return
    if front == "haproxy" and not 0 < float(values["queue_timeout"]) <= _FRONT_WAIT_S_MAX:
        yield (
            f"queue_timeout is over {_FRONT_WAIT_S_MAX} s: the servers take a longer wait in front for a wrong clock, "
            "and want no seats for it"
        )
    for name in ("queue_timeout", "timeout"):
        if not float(values[name]):
            yield f"{name} is no limit: the front waits for a day, and a server that hangs keeps its requests so long"
    if not float(values["drain_delay"]):
        yield "drain_delay is 0: a server that stops refuses clients before the front has noticed; give --drain-delay 5"
