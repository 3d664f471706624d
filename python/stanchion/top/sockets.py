"""Every listening socket of the host, of any process, and the growth between two looks."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from stanchion.doctor import gather
from stanchion.doctor.facts import Facts, Listener
from stanchion.top.source import Failed


@dataclass(frozen=True)
class Look:
    """One look at the host."""

    facts: Facts
    at_s: float
    """By the monotonic clock."""


@dataclass(frozen=True)
class Socket:
    """A listening socket as two looks show it."""

    listener: Listener
    network: str | None
    """The network namespace, such as `that of nginx (7)`; None for ours."""
    drops_grown: int | None
    """Between the two looks; None where the kernel does not count, or the socket was not in both."""


@dataclass(frozen=True)
class Host:
    """The comparison of two looks."""

    sockets: tuple[Socket, ...]
    over_s: float | None
    """The time between the two looks; None if there is only one."""
    not_looked_at: tuple[str, ...]


class Order(Enum):
    """The order of the sockets on the screen."""

    WAITING = "waiting"
    DROPS = "drops"
    ADDRESS = "address"


def look() -> Look:
    """One look. Failed if the kernel refuses it."""
    try:
        return Look(gather.look(), time.monotonic())
    except OSError as error:
        raise Failed(f"the kernel does not let us look: {error}") from error


def host(before: Look | None, now: Look) -> Host:
    """`before` is the look before this one, if there was one."""
    earlier = gather.sockets(before.facts.networks) if before else {}
    found = tuple(
        Socket(one, None if network.is_ours else network.name, _grown(earlier.get((network.link, one.inode)), one))
        for network in now.facts.networks
        for one in network.listeners
    )
    return Host(found, now.at_s - before.at_s if before else None, now.facts.not_looked_at)


def _grown(before: Listener | None, now: Listener) -> int | None:
    if before is None or before.drops is None or now.drops is None:
        return None
    # A count that fell is that of another socket, which got the same inode.
    return now.drops - before.drops if now.drops >= before.drops else None


def sort(sockets: Iterable[Socket], order: Order) -> list[Socket]:
    """The worst first: by how full they are, or by what is dropped now; or by address, which decides between equals."""
    return sorted(sockets, key=lambda one: (*_rank(one, order), one.network or "", one.listener.address))


def _rank(one: Socket, order: Order) -> tuple[float, ...]:
    at = one.listener
    match order:
        case Order.WAITING:
            return -at.waiting / at.room, -at.waiting
        case Order.DROPS:
            return -(one.drops_grown or 0), -(at.drops or 0)
        case Order.ADDRESS:
            return ()


def as_json(host: Host) -> Mapping[str, object]:
    return {
        "over_s": host.over_s,
        "listeners": [_socket_as_json(one) for one in host.sockets],
        "not_looked_at": list(host.not_looked_at),
    }


def _socket_as_json(one: Socket) -> Mapping[str, object]:
    at = one.listener
    return {
        "network": one.network,
        "family": at.family,
        "address": at.address,
        "inode": at.inode,
        "owners": [{"pid": owner.pid, "name": owner.name} for owner in at.owners],
        "waiting": at.waiting,
        "backlog": at.backlog,
        "full": at.is_full,
        "drops": at.drops,
        "drops_grown": one.drops_grown,
    }
