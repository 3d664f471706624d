"""The comparison of two looks at a server: rates, and recent latencies. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from stanchion.top.status import Histogram, Seat, Status


@dataclass(frozen=True)
class Rates:
    """Requests a second between two looks."""

    arrived: float
    answered: float
    """By the app."""
    gone: float
    """The client left before it had its whole answer."""
    by_server: Mapping[str, float]
    """Answered by the server as its settings say: probes, static files; only kinds that occurred."""
    refused: Mapping[str, float]
    """Refused by the server, by reason; only reasons that occurred."""
    broken: Mapping[str, float]
    """Ended in any other way; only ways that occurred."""


@dataclass(frozen=True)
class SessionRates:
    """WebSockets a second between two looks."""

    opened: float
    ended: Mapping[str, float]
    """By how they ended; only ways that occurred."""
    received: float
    """Messages of clients."""
    sent: float
    """Messages to clients."""


@dataclass(frozen=True)
class Spread:
    """A distribution of durations: how many fell into each bucket, and what that means."""

    counts: tuple[tuple[float, int], ...]
    """Upper end in µs, and how many lie in this bucket alone."""
    count: int
    p50_us: float
    p90_us: float
    p99_us: float
    max_us: float | None
    """None where only the buckets are known."""

    @property
    def p95_us(self) -> float:
        return min(_quantile(self.counts, 0.95), math.inf if self.max_us is None else self.max_us)


@dataclass(frozen=True)
class Latency:
    lately: Spread | None
    """Between the two looks, of service with those that run; None before there are two that can be compared."""
    ever: Spread
    """Since the server's start."""


@dataclass(frozen=True)
class Model:
    status: Status
    over_s: float | None
    """Between the two looks."""
    rates: Rates | None
    session_rates: SessionRates | None
    """None before there are two looks that can be compared."""
    wait: Latency
    service: Latency


_SESSION_ENDS = ("sessions_closed_by_app", "sessions_closed_by_client", "sessions_closed_by_server", "sessions_cut")


_BY_SERVER = ("probed", "redirected", "static")
"""Outcomes that are no trouble, though no app had to do with them."""


class Order(Enum):
    """The order of the seats on the screen."""

    AGE = "age"
    WORKER = "worker"
    SERVED = "served"


def model(before: Status | None, now: Status) -> Model:
    """`before` is the look before this one, if there was one."""
    over_s = None if before is None else _over_s(before, now)
    if before is None or over_s is None:
        return Model(now, None, None, None, Latency(None, _ever(now.wait)), Latency(None, _ever(now.service)))
    return Model(
        now,
        over_s,
        _rates(before.requests, now.requests, over_s),
        _session_rates(before.events, now.events, over_s),
        Latency(_between(before.wait, now.wait), _ever(now.wait)),
        Latency(_with_running(_between(before.service, now.service), now.running), _ever(now.service)),
    )


def sort(seats: tuple[Seat, ...], order: Order) -> list[Seat]:
    """Longest running first, most served first, or by number, which also decides between equals."""
    return sorted(seats, key=lambda seat: (-_rank(seat, order), seat.worker, seat.seat))


def _rank(seat: Seat, order: Order) -> int:
    match order:
        case Order.AGE:
            return -1 if seat.running_us is None else seat.running_us
        case Order.SERVED:
            return seat.served
        case Order.WORKER:
            return 0


def _over_s(before: Status, now: Status) -> float | None:
    """None if the second does not follow the first of the same master: a master that took over counts from 0."""
    elapsed_us = now.now_us - before.now_us
    return elapsed_us / 1e6 if elapsed_us > 0 and before.pid == now.pid else None


def _rates(before: Mapping[str, int], now: Mapping[str, int], over_s: float) -> Rates | None:
    """None if a count went back: it was counted from 0 again in between."""
    grown = {key: count - before.get(key, 0) for key, count in now.items() if key != "in_flight"}
    if any(growth < 0 for growth in grown.values()):
        return None
    ended = {key: growth / over_s for key, growth in grown.items() if key != "arrived" and growth}
    families = {key: key.partition("_")[0] for key in ended}
    return Rates(
        arrived=grown.get("arrived", 0) / over_s,
        answered=ended.get("answered", 0.0),
        gone=sum(rate for key, rate in ended.items() if families[key] == "abandoned"),
        by_server={key: rate for key, rate in ended.items() if key in _BY_SERVER},
        refused={key.removeprefix("refused_"): rate for key, rate in ended.items() if families[key] == "refused"},
        broken={
            key: rate
            for key, rate in ended.items()
            if families[key] not in ("answered", "abandoned", "refused", *_BY_SERVER)
        },
    )


def _session_rates(before: Mapping[str, int], now: Mapping[str, int], over_s: float) -> SessionRates | None:
    grown = {key: count - before.get(key, 0) for key, count in now.items() if key.startswith("session")}
    if any(growth < 0 for growth in grown.values()):
        return None
    ended = {key.removeprefix("sessions_closed_"): grown.get(key, 0) for key in _SESSION_ENDS}
    return SessionRates(
        opened=grown.get("sessions_begun", 0) / over_s,
        ended={key.removeprefix("sessions_"): growth / over_s for key, growth in ended.items() if growth},
        received=grown.get("session_messages_received", 0) / over_s,
        sent=grown.get("session_messages_sent", 0) / over_s,
    )


def _ever(of: Histogram) -> Spread:
    alone = _alone([count for _, count in of.buckets])
    counts = tuple((upper, count) for (upper, _), count in zip(of.buckets, alone, strict=True))
    return Spread(counts, of.count, of.p50_us, of.p90_us, of.p99_us, of.max_us)


def _between(before: Histogram, now: Histogram) -> Spread | None:
    """None if the two cannot be subtracted, as when another acceptor began to count."""
    uppers = [upper for upper, _ in now.buckets]
    if uppers != [upper for upper, _ in before.buckets]:
        return None
    alone = _alone([count - old for (_, old), (_, count) in zip(before.buckets, now.buckets, strict=True)])
    if any(count < 0 for count in alone):
        return None
    return spread(tuple(zip(uppers, alone, strict=True)), None)


def _with_running(ended: Spread | None, running: Histogram) -> Spread | None:
    """With the requests that run at this moment: in a jam none ends. None if there is nothing to compare."""
    if ended is None or [upper for upper, _ in ended.counts] != [upper for upper, _ in running.buckets]:
        return ended
    alone = _alone([count for _, count in running.buckets])
    counts = tuple((upper, count + more) for (upper, count), more in zip(ended.counts, alone, strict=True))
    # The server says no more of requests that have ended than their buckets.
    longest_us = max((upper for upper, count in ended.counts if count), default=0.0)
    return spread(counts, running.max_us if running.count and running.max_us >= longest_us else None)


def spread(counts: tuple[tuple[float, int], ...], max_us: float | None) -> Spread:
    """The distribution of such counts; `max_us` bounds what is estimated from them."""
    most_us = math.inf if max_us is None else max_us
    p50_us, p90_us, p99_us = (min(_quantile(counts, share), most_us) for share in (0.5, 0.9, 0.99))
    return Spread(counts, sum(count for _, count in counts), p50_us, p90_us, p99_us, max_us)


def _alone(cumulative: list[int]) -> list[int]:
    return [count - below for below, count in zip([0, *cumulative], cumulative, strict=False)]


def _quantile(counts: tuple[tuple[float, int], ...], share: float) -> float:
    """Where in its bucket the one of that rank would be if those there were spread evenly; 0 of none.

    The same as Prometheus' histogram_quantile() says of such buckets, so that two screens do not contradict each other.
    """
    rank = share * sum(count for _, count in counts)
    below = 0
    lower = 0.0
    for upper, count in counts:
        if count and below + count >= rank:
            # The last bucket has no upper bound: only its lower one is known.
            return lower if upper == float("inf") else lower + (upper - lower) * (rank - below) / count
        below += count
        lower = upper
    return 0.0
