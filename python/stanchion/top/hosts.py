"""Several hosts as one: the figures of each, their sums, and one line. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from stanchion.top.model import Latency, Model, Rates, Spread, spread
from stanchion.top.status import Line

TEXT_MAX = 200
"""Characters of a text that a host sends."""


@dataclass(frozen=True)
class Seen:
    """The latest look at a host, or at a name that has no address."""

    name: str
    """The host as top asks it: HOST:PORT or unix:PATH."""
    model: Model | None
    """None while the host does not answer."""
    trouble: str | None
    """Why the host does not answer."""
    silent_s: float
    """How long the host has not answered."""


@dataclass(frozen=True)
class Figures:
    """A row of the table: of one host, or of all that answer. None is unknown."""

    seats: int
    busy: int
    waiting: int
    waiting_max: int
    oldest_wait_us: int
    arrivals_per_s: float | None
    refused_per_s: float | None
    wait_p95_us: float | None
    """The seats took these requests between the last two looks; None also if there were none."""
    seats_wanted: float | None


@dataclass(frozen=True)
class AllHosts:
    """Several hosts, and the line that they are together."""

    hosts: tuple[Seen, ...]
    line: Line
    """The sums over the hosts that answer, with all of their lanes."""
    rates: Rates | None
    """None until two looks at one of the hosts can be compared."""
    wait: Latency
    service: Latency
    total: Figures

    @property
    def answering(self) -> list[tuple[str, Model]]:
        return [(host.name, host.model) for host in self.hosts if host.model is not None]

    @property
    def ready(self) -> int:
        """How many hosts are ready."""
        return sum(model.status.ready for _, model in self.answering)


class Order(Enum):
    """The order of the hosts on the screen."""

    ADDRESS = "address"
    WAITING = "waiting"
    OLDEST = "oldest"


def summed(hosts: Sequence[Seen]) -> AllHosts:
    models = [host.model for host in hosts if host.model is not None]
    line = Line(
        waiting=sum(one.status.line.waiting for one in models),
        waiting_max=sum(one.status.line.waiting_max for one in models),
        oldest_wait_us=max((one.status.line.oldest_wait_us for one in models), default=0),
        over_target=any(one.status.line.over_target for one in models),
        lanes=tuple(lane for one in models for lane in one.status.line.lanes),
    )
    rates = _rates([one.rates for one in models if one.rates is not None])
    wait, service = _latency([one.wait for one in models]), _latency([one.service for one in models])
    wanted = [one.status.seats_wanted for one in models if one.status.seats_wanted is not None]
    counts = [one.status.seat_counts for one in models]
    total = _figures(counts, line, rates, wait, sum(wanted) if wanted else None)
    return AllHosts(tuple(hosts), line, rates, wait, service, total)


def figures(model: Model) -> Figures:
    """The row of one host."""
    return _figures([model.status.seat_counts], model.status.line, model.rates, model.wait, model.status.seats_wanted)


def _figures(
    seats: Sequence[Mapping[str, int]], line: Line, rates: Rates | None, wait: Latency, seats_wanted: float | None
) -> Figures:
    return Figures(
        seats=sum(sum(counts.values()) for counts in seats),
        busy=sum(counts.get("busy", 0) for counts in seats),
        waiting=line.waiting,
        waiting_max=line.waiting_max,
        oldest_wait_us=line.oldest_wait_us,
        arrivals_per_s=None if rates is None else rates.arrived,
        refused_per_s=None if rates is None else sum(rates.refused.values(), 0.0),
        wait_p95_us=wait.lately.p95_us if wait.lately is not None and wait.lately.count else None,
        seats_wanted=seats_wanted,
    )


def sort(hosts: Iterable[Seen], order: Order) -> list[Seen]:
    """The worst first, or as they were given; of equals those first that came first."""
    return sorted(hosts, key=lambda host: -_rank(host, order))


def _rank(host: Seen, order: Order) -> int:
    if host.model is None or order is Order.ADDRESS:
        return 0
    line = host.model.status.line
    return line.waiting if order is Order.WAITING else line.oldest_wait_us


def as_json(all_hosts: AllHosts) -> Mapping[str, object]:
    """For scripts, and for the page."""
    counts = {"hosts": len(all_hosts.hosts), "answering": len(all_hosts.answering), "ready": all_hosts.ready}
    total = {**counts, **vars(all_hosts.total)}
    return {"total": total, "hosts": [_host_as_json(host) for host in all_hosts.hosts]}


def _host_as_json(host: Seen) -> Mapping[str, object]:
    named = {"host": host.name, "trouble": host.trouble, "silent_s": round(host.silent_s, 1)}
    if host.model is None:
        return named
    status = host.model.status
    return {
        **named,
        "version": cut(status.version),
        "pid": status.pid,
        "generation": status.generation,
        "state": cut(status.state),
        "ready": status.ready,
        "not_ready_because": status.not_ready_because and cut(status.not_ready_because),
        "standstill": status.standstill and cut(status.standstill.why),
        **vars(figures(host.model)),
    }


def cut(text: str) -> str:
    """As much of a host's text as is shown."""
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"


def _rates(of: Sequence[Rates]) -> Rates | None:
    if not of:
        return None
    return Rates(
        arrived=sum(one.arrived for one in of),
        answered=sum(one.answered for one in of),
        gone=sum(one.gone for one in of),
        by_server=_by_name(one.by_server for one in of),
        refused=_by_name(one.refused for one in of),
        broken=_by_name(one.broken for one in of),
    )


def _by_name(of: Iterable[Mapping[str, float]]) -> Mapping[str, float]:
    total: dict[str, float] = {}
    for one in of:
        for name, value in one.items():
            total[name] = total.get(name, 0.0) + value
    return total


def _latency(of: Sequence[Latency]) -> Latency:
    lately = [one.lately for one in of if one.lately is not None]
    return Latency(_together(lately) if lately else None, _together([one.ever for one in of]))


def _together(spreads: Sequence[Spread]) -> Spread:
    """Quantiles of hosts cannot be added up, the counts in their buckets can: nothing if they have other buckets."""
    if len({tuple(upper for upper, _ in one.counts) for one in spreads}) != 1:
        return spread((), None)
    counts = tuple(
        (column[0][0], sum(count for _, count in column))
        for column in zip(*(one.counts for one in spreads), strict=True)
    )
    known_us = max((one.max_us for one in spreads if one.count and one.max_us is not None), default=None)
    # Where a host says no more than its buckets, the longest may be in there.
    unknown = [one for one in spreads if one.count and one.max_us is None]
    longest_us = max((upper for one in unknown for upper, count in one.counts if count), default=0.0)
    return spread(counts, known_us if known_us is not None and known_us >= longest_us else None)
