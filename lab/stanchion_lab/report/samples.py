"""Numbers before they are drawn: spreads, histograms, percentiles, thinned points. No colour, no markup."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stanchion_lab.result import LATE, OUTCOMES, SERVED, TOLD, Measured, Result, is_counted, median
from stanchion_lab.scenario import Trial

NAN = float("nan")
POINTS_MAX = 3_000
"""The most answered requests in one picture of one trial: each is some 30 bytes of the page, drawn twice."""

Point = tuple[float, float, str]


@dataclass(frozen=True)
class Spread:
    """A figure over the repeats of a trial."""

    middle: float
    least: float
    most: float

    @property
    def known(self) -> bool:
        return self.middle == self.middle

    @property
    def varies(self) -> bool:
        return self.least < self.most


def spread(values: Iterable[float]) -> Spread:
    known = [value for value in values if math.isfinite(value)]
    return Spread(median(known), min(known, default=NAN), max(known, default=NAN))


def figure_spread(result: Result, trial: str, figure: str) -> Spread:
    return spread(result.values(f"{trial}:{figure}"))


def table_figures(result: Result) -> list[str]:
    """The figures that the scenario wants in its table, or else those that say most about any load."""
    if result.scenario.table:
        return result.scenario.table
    found = {name for one in result.measured for name, value in one.figures.items() if value}
    ramps = [name for name in ("best_per_s",) if name in found]
    outcomes = [name for name in OUTCOMES if name in found]
    rest = ("per_s", "latency_ms.p50", "latency_ms.p99", "latency_ms.max", "kernel.ListenOverflows")
    return ["requests", *outcomes, *ramps, *(name for name in rest if name in found)]


def middle_repeat(repeats: Sequence[Measured]) -> Measured | None:
    """The repeat in the middle by its failures: one real repeat, for pictures whose parts must add up."""
    ordered = sorted(repeats, key=lambda one: (failures(one), one.figures.get(SERVED, 0.0)))
    return ordered[(len(ordered) - 1) // 2] if ordered else None


def failures(one: Measured) -> float:
    return sum(one.figures.get(name, 0.0) for name in OUTCOMES if name not in (SERVED, TOLD))


def latencies(result: Result, trial: str) -> list[float]:
    """The latencies of all repeats, in milliseconds."""
    return [ms for one in result.of(trial) for ms in one.latencies_ms if math.isfinite(ms) and ms >= 0]


# ---- Histograms


@dataclass(frozen=True)
class Histogram:
    """Counts by power of two. A bucket is named by its lower bound, as in the literature: 16 is from 16 to below 32,
    and 0 is all below 1."""

    bounds: list[int]
    counts: list[int]


def unit_of(samples: Iterable[Sequence[float]]) -> tuple[str, float]:
    """`ms`, or `µs` where powers of two of a millisecond would show next to nothing; and how many make 1 ms."""
    slowest = max((max(sample, default=0.0) for sample in samples), default=0.0)
    return ("ms", 1.0) if slowest >= 16 else ("µs", 1_000.0)


def histograms(samples: Sequence[Sequence[float]], per_ms: float) -> list[Histogram]:
    """All with the same buckets: from the lowest to the highest that any of them has a value in."""
    tallies = [Counter(_bucket(value * per_ms) for value in sample) for sample in samples]
    used = [bucket for tally in tallies for bucket in tally]
    if not used:
        return [Histogram([], []) for _ in samples]
    row = range(min(used), max(used) + 1)
    bounds = [1 << (bucket - 1) if bucket else 0 for bucket in row]
    return [Histogram(bounds, [tally[bucket] for bucket in row]) for tally in tallies]


def _bucket(value: float) -> int:
    return int(value).bit_length()


def deviation(values: Sequence[float]) -> float:
    if not values:
        return NAN
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))


# ---- Curves


def tail(values: Sequence[float], points: int = 240) -> tuple[list[float], list[float]]:
    """How slow the slowest one in N are: N from 1 (all) to as many as there are, evenly by its logarithm."""
    ordered = sorted(values)
    if not ordered:
        return [], []
    count = len(ordered)
    rarity, slowness, last = [], [], -1
    for step in range(points + 1):
        one_in = count ** (step / points)
        index = min(count - 1, math.floor(count * (1 - 1 / one_in) + 1e-9))
        if index != last:
            rarity.append(one_in)
            slowness.append(ordered[index])
            last = index
    return rarity, slowness


def by_rate(repeats: Sequence[Measured], figure: str) -> list[tuple[float, Spread]]:
    """A figure of each rate of a ramp, over the repeats."""
    found: dict[float, list[float]] = {}
    for one in repeats:
        for step in one.steps:
            if math.isfinite(step.get("rate_per_s", NAN)):
                found.setdefault(step["rate_per_s"], []).append(of_step(step, figure))
    return [(rate, spread(values)) for rate, values in sorted(found.items())]


def of_step(step: dict[str, float], figure: str) -> float:
    if figure == "failed_percent":
        requests = step.get("requests", 0.0)
        failed = step.get("failed", sum(step.get(name, 0.0) for name in OUTCOMES if name not in (SERVED, TOLD)))
        return 100 * failed / requests if requests > 0 else NAN
    return step.get(figure, 0.0 if is_counted(figure) else NAN)


# ---- Shares


def worker_shares(repeats: Sequence[Measured]) -> tuple[list[str], list[Spread]]:
    """Each worker's part of the work, in percent. Workers have the same names in every repeat, or else (they are pids)
    they are put in order, the busiest first."""
    parts = []
    for one in repeats:
        total = sum(value for value in one.shares.values() if value > 0)
        if total > 0:
            parts.append({name: 100 * max(value, 0.0) / total for name, value in one.shares.items()})
    if not parts:
        return [], []
    if all(part.keys() == parts[0].keys() for part in parts):
        names = sorted(parts[0], key=_naturally)
        return names, [spread(part[name] for part in parts) for name in names]
    ranked = [sorted(part.values(), reverse=True) for part in parts]
    most = max(map(len, ranked))
    rows = [[part[place] if place < len(part) else 0.0 for part in ranked] for place in range(most)]
    return [f"no. {place + 1}" for place in range(most)], [spread(row) for row in rows]


def _naturally(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name) if part]


# ---- Timelines


def stalls(trial: Trial, end_s: float) -> list[tuple[float, float, str]]:
    """From when to when a file was there that a deed touches, a server was stopped by a signal, or a link was down."""
    found: list[tuple[float, float, str]] = []
    for deed in trial.deeds:
        later = [other for other in trial.deeds if other.at_s > deed.at_s]
        if deed.touch:
            gone = [other.at_s for other in later if other.remove == deed.touch]
            found.append((deed.at_s, min(gone, default=end_s), deed.touch))
        elif deed.signal == "STOP":
            on = [
                other.at_s
                for other in later
                if other.signal == "CONT" and (other.server, other.whom) == (deed.server, deed.whom)
            ]
            whose = "a worker of " if deed.whom == "worker" else ""
            found.append((deed.at_s, min(on, default=end_s), f"{whose}{deed.server} is stopped"))
        elif deed.link == "down":
            back = [other.at_s for other in later if other.link == "up" and other.server == deed.server]
            found.append((deed.at_s, min(back, default=end_s), f"no link to {deed.server}"))
    return found


def thinned(points: Iterable[Point], across: float, up: float, floor_ms: float) -> tuple[list[Point], int]:
    """The points to draw, and how many points of served or told requests are left out though they would be seen.

    Points of one outcome that fall into the same cell would hide each other: one of them stays. `across` and `up` are
    the cells of a second, and of a factor of ten; a point below the floor is put on it. Of served or told requests at
    most POINTS_MAX points stay, at even distances; of failures, all."""
    cells: dict[tuple[int, int, str], Point] = {}
    for at_s, ms, outcome in points:
        if math.isfinite(at_s):
            slow = max(floored(ms), floor_ms)
            cell = (int(at_s * across), int(math.log10(slow) * up), outcome)
            cells.setdefault(cell, (at_s, slow, outcome))
    answered = [point for point in cells.values() if point[2] in (SERVED, TOLD)]
    failed = [point for point in cells.values() if point[2] not in (SERVED, TOLD)]
    kept = answered
    if len(answered) > POINTS_MAX:
        step = len(answered) / POINTS_MAX
        kept = [answered[int(number * step)] for number in range(POINTS_MAX)]
    return kept + failed, len(answered) - len(kept)


FLOOR_MS = 0.01


def floored(ms: float) -> float:
    """Put a value that a logarithmic scale cannot show on its floor."""
    return ms if math.isfinite(ms) and ms > FLOOR_MS else FLOOR_MS


def outcome_of(name: str) -> str:
    """The outcome of a request in a timeline. An unknown name counts as late: it was no answer."""
    return name if name in OUTCOMES else LATE
