"""The settings that a plan tries: those that were asked for, or some around the present one. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from stanchion.effective import UsageError
from stanchion.plan.asked import WORKERS_MAX, Asked, Workers

Knobs = Mapping[str, Any]

SCENARIOS_MAX = 64
LOOP_SEATS_MAX = 65_535
"""Of workers times worker_concurrency, as in the server."""
CURVE_POINTS = 12
"""Numbers of workers on the page."""

_THREADS = 4
"""Without a present setting these are tried beside one: a worker's lock allows for some if a request mostly waits."""


class Present(NamedTuple):
    """The setting that the arrivals were measured with, and how many seats they keep busy."""

    knobs: Knobs
    """Empty: unknown."""
    busy: float
    """Seats that requests would keep busy if none waited for a core or the GIL."""

    @property
    def is_known(self) -> bool:
        return "workers" in self.knobs

    @property
    def threads(self) -> int:
        """The threads of one worker; 1 if it has an event loop."""
        return 1 if self.knobs.get("event_loop") else int(self.knobs.get("threads") or 1)

    @property
    def seats_each(self) -> int:
        """The seats of one worker."""
        return int(self.knobs["worker_concurrency"]) if self.knobs.get("event_loop") else self.threads

    @property
    def workers(self) -> int:
        """The most."""
        workers = self.knobs.get("workers") or 1
        return int(workers if isinstance(workers, int) else workers[1])


def tried(asked: Asked, present: Present) -> list[dict[str, Any]]:
    """The scenarios of the table, the present setting first. UsageError, if they are too many."""
    traffic = _traffic(asked)
    now: list[dict[str, Any]] = [{"name": label({}, present), **traffic}] if present.is_known else []
    lanes = _lanes(asked, present)
    common = {**traffic, **({"lanes": lanes} if lanes else {})}
    if asked.cores is not None:
        common["cores"] = asked.cores
    found = {label(knobs, present): knobs for knobs in _varied(asked, present, common)}
    for one in now:
        found.pop(one["name"], None)
    if len(found) > SCENARIOS_MAX:
        raise UsageError(f"plan: these are {len(found)} settings to try, more than {SCENARIOS_MAX}: name fewer values")
    return [*now, *({"name": name, **knobs} for name, knobs in found.items())]


def curve(asked: Asked, present: Present, known: Sequence[Knobs]) -> list[dict[str, Any]]:
    """More numbers of workers, with the other knobs as they are, for the page's curve."""
    if asked.workers:
        return []
    most = max([1, *(one["workers"] for one in known if isinstance(one.get("workers"), int))])
    points = {max(1, round(most * number / CURVE_POINTS)) for number in range(1, CURVE_POINTS + 1)}
    threads = {} if present.knobs.get("event_loop") else {"threads": present.threads}
    wanted = [{"workers": workers, **threads, **_traffic(asked)} for workers in sorted(points)]
    names = {one["name"] for one in known}
    return [{"name": name, **knobs} for knobs in wanted if (name := label(knobs, present)) not in names]


def _traffic(asked: Asked) -> dict[str, Any]:
    return {} if asked.traffic == 1 else {"rate_factor": asked.traffic}


def _varied(asked: Asked, present: Present, common: Knobs) -> Iterator[dict[str, Any]]:
    if not (asked.workers or asked.threads or asked.max_waiting or asked.queue_order or asked.lanes):
        for number, threads in _around(present):
            yield {"workers": number, **threads, **common}
        return
    is_loop = bool(present.knobs.get("event_loop"))
    if is_loop and asked.threads:
        raise UsageError("plan: the workers have event loops, so there are no --threads to try")
    mine: Sequence[Workers] = [_pair(present.knobs["workers"])] if present.is_known else [_seats(present.busy, 2.0)]
    waitings: Sequence[int | None] = asked.max_waiting or [None]
    orders: Sequence[str | None] = asked.queue_order or [None]
    for workers, count, waiting, order in product(
        asked.workers or mine, asked.threads or [present.threads], waitings, orders
    ):
        most = workers if isinstance(workers, int) else workers[1]
        if most * count > WORKERS_MAX:
            raise UsageError(f"plan: workers times threads is at most {WORKERS_MAX}, got {most} times {count}")
        yield {
            "workers": workers if isinstance(workers, int) else list(workers),
            **({} if is_loop else {"threads": count}),
            **({} if waiting is None else {"max_waiting": waiting}),
            **({} if order is None else {"queue_order": order}),
            **common,
        }


def _around(present: Present) -> Iterator[tuple[int, dict[str, int]]]:
    """Fewer, more, and as many as the arrivals need by the square-root rule: A busy seats and some times √A."""
    threads, workers = present.threads, present.workers
    is_loop = bool(present.knobs.get("event_loop"))
    needed = [math.ceil(_seats(present.busy, spare) / threads) for spare in (1.0, 2.0, 3.0)]
    mine = [math.ceil(workers / 2), workers, math.ceil(1.5 * workers), 2 * workers] if present.is_known else []
    for count in sorted({*mine, *([] if is_loop else needed)}):
        if count * present.seats_each <= (LOOP_SEATS_MAX if is_loop else WORKERS_MAX):
            yield count, {} if is_loop else {"threads": threads}
    if is_loop:
        return
    if not present.is_known:
        for count in sorted({math.ceil(one / _THREADS) for one in needed}):
            yield count, {"threads": _THREADS}
        return
    for count in sorted({max(1, threads // 2), 2 * threads, 4 * threads} - {threads}):
        if workers * count <= WORKERS_MAX:
            yield workers, {"threads": count}


def _seats(busy: float, spare: float) -> int:
    return min(WORKERS_MAX, max(1, math.ceil(busy + spare * math.sqrt(busy))))


def _lanes(asked: Asked, present: Present) -> list[dict[str, Any]]:
    """All lanes with what changes; empty, if nothing does."""
    if not asked.lanes:
        return []
    lanes = [dict(one) for one in present.knobs.get("lanes") or [{"name": "default"}]]
    if missing := asked.lanes.keys() - {one["name"] for one in lanes}:
        known = ", ".join(str(one["name"]) for one in lanes)
        raise UsageError(f"plan: there is no lane {min(missing)!r} among the arrivals, but {known}")
    return [{**one, **asked.lanes.get(one["name"], {})} for one in lanes]


def label(knobs: Knobs, present: Present) -> str:
    """`4x2`, and what else differs from the present setting."""
    now = present.knobs
    parts = [size({**now, **knobs})]
    waiting, order = knobs.get("max_waiting"), knobs.get("queue_order")
    if waiting is not None and waiting != now.get("max_waiting"):
        parts.append(f"waiting {waiting}")
    if order is not None and order != now.get("queue_order", "fifo"):
        parts.append(order)
    # The arguments give one change of lanes, and one of cores.
    if "lanes" in knobs:
        parts.append("lanes changed")
    if "cores" in knobs and knobs["cores"] != now.get("cores"):
        parts.append(f"cores {knobs['cores']:g}")
    return " ".join(parts)


def size(knobs: Knobs) -> str:
    """Workers and threads: `4x2`, `4..32x2`, of event loops `4`."""
    workers = knobs.get("workers", 1)
    count = str(workers) if isinstance(workers, int) else "..".join(map(str, workers))
    return count if knobs.get("event_loop") else f"{count}x{knobs.get('threads', 1)}"


def _pair(workers: Any) -> Workers:
    return workers if isinstance(workers, int) else (workers[0], workers[1])
