"""From requests to figures, the same for every tool."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stanchion_lab.result import BROKEN, ERROR, GATEWAY, OUTCOMES, SERVED, TOLD

PERCENTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}


@dataclass(slots=True)
class Request:
    """One, and what became of it."""

    due_s: float
    """From the start of the load; in a closed loop, when it was begun."""
    path: str
    """Empty, where the tool does not say."""
    outcome: str = ""
    """In the end, one of `result.OUTCOMES`."""
    latency_s: float = 0.0
    """From when it was due until its answer was whole, or until it was known that there will be none."""
    status: int = 0
    worker: str = ""


def outcome_of(status: int) -> str:
    """The outcome of a whole answer."""
    if 200 <= status < 400:
        return SERVED
    if status in (429, 503):
        return TOLD
    return GATEWAY if status in (502, 504) else ERROR if status else BROKEN


def outcomes_of(statuses: Mapping[int, int]) -> Counter[str]:
    """How many became what, of so many whole answers."""
    outcomes: Counter[str] = Counter()
    for status, count in statuses.items():
        outcomes[outcome_of(status)] += count
    return outcomes


def served_ms(requests: Iterable[Request]) -> list[float]:
    """The latencies of those served, in their order."""
    return [one.latency_s * 1e3 for one in requests if one.outcome == SERVED]


def of_requests(requests: Sequence[Request], took_s: float | None = None) -> dict[str, float]:
    """All figures of the client. `requests` are in order of their arrival, and took as long as until the last outcome
    where the tool does not say."""
    if took_s is None:
        took_s = max((one.due_s + one.latency_s for one in requests), default=0.0)
    figures = of_counts(
        Counter(one.outcome for one in requests), Counter(one.status for one in requests if one.status), took_s
    )
    figures["over_1s"] = float(sum(one.outcome == SERVED and one.latency_s > 1 for one in requests))
    figures |= of_latencies(served_ms(requests))
    paths = {one.path for one in requests} - {""}
    for path in sorted(paths) if len(paths) > 1 else ():
        of_path = of_latencies(served_ms(one for one in requests if one.path == path))
        figures |= {f"{name}{path}": value for name, value in of_path.items()}
    return figures


def of_counts(outcomes: Mapping[str, int], statuses: Mapping[int, int], took_s: float) -> dict[str, float]:
    """How many became what. `per_s` are those served, over the whole time until the last answer."""
    unknown = set(outcomes) - set(OUTCOMES)
    assert not unknown, f"{unknown} is not what becomes of a request"
    counts: dict[str, float] = {outcome: float(outcomes.get(outcome, 0)) for outcome in OUTCOMES}
    requests = sum(counts.values())
    return {
        "requests": requests,
        **counts,
        "failed": requests - counts[SERVED] - counts[TOLD],
        **{f"status.{status}": float(statuses[status]) for status in sorted(statuses)},
        "per_s": counts[SERVED] / took_s if took_s > 0 else 0.0,
    }


def of_latencies(latencies_ms: Sequence[float]) -> dict[str, float]:
    """None of nothing."""
    if not latencies_ms:
        return {}
    ordered = sorted(latencies_ms)
    return {
        "latency_ms.min": ordered[0],
        "latency_ms.mean": statistics.fmean(ordered),
        **{f"latency_ms.{name}": percentile(ordered, share) for name, share in PERCENTILES.items()},
        "latency_ms.max": ordered[-1],
        "latency_ms.stddev": statistics.pstdev(ordered),
    }


def percentile(ordered: Sequence[float], share: float) -> float:
    """By nearest rank: the smallest that `share` of all do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def shares_of(requests: Iterable[Request]) -> dict[str, float]:
    """Answers by worker, where they say which it was."""
    counts = Counter(one.worker for one in requests if one.worker)
    return {worker: float(counts[worker]) for worker in sorted(counts)}
