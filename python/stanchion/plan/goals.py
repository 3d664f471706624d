"""Goals of a plan, such as `p99<50ms,refused<1%`, and whether figures meet them. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stanchion.plan.quantities import percent, plain_time, share, time_us
from stanchion.top.words import duration

_GOAL = re.compile(r"(\w+) ?< ?(.+)")

_TIMES = ("mean", "p50", "p90", "p99")
_REFUSED = "refused"

GOALS_MAX = 8
"""There are five kinds."""


class Goal(NamedTuple):
    """A figure stays below a bound."""

    what: str
    """Of the wait in the line `mean`, `p50`, `p90` or `p99`; or `refused`, a share of all requests."""
    below: float
    """Microseconds, or a share from 0 to 1."""

    def __str__(self) -> str:
        bound = f"{100 * self.below:g}%" if self.what == _REFUSED else plain_time(self.below)
        return f"{self.what}<{bound}"

    def shown(self, figure: float) -> str:
        """A figure of this kind as people read it."""
        return percent(figure) if self.what == _REFUSED else duration(figure)


DEFAULT = (Goal("p99", 50_000.0), Goal(_REFUSED, 0.001))
"""A wait that users hardly feel, and a server that answers."""


def parse(text: str) -> tuple[Goal, ...]:
    """ValueError, if it is not goals with commas between."""
    goals = tuple(map(_goal, text.split(",", GOALS_MAX)))
    if len({one.what for one in goals}) < len(goals):
        raise ValueError(f"each of {', '.join((*_TIMES, _REFUSED))} has one goal, got {text!r}")
    return goals


def _goal(text: str) -> Goal:
    found = _GOAL.fullmatch(text.strip())
    if found is None or found[1] not in (*_TIMES, _REFUSED):
        raise ValueError(f"expected goals such as p99<50ms, mean<5ms or refused<1%, got {text!r}")
    if found[1] == _REFUSED:
        return Goal(_REFUSED, share(found[2]))
    return Goal(found[1], float(time_us(found[2])))


def figure(result: Mapping[str, Any], what: str) -> float | None:
    """The figure in a result, or in what was measured; None if it has none."""
    if what == _REFUSED:
        return refused(result)
    wait = result["wait"]
    return None if wait is None else float(wait[f"{what}_us"])


def refused(result: Mapping[str, Any]) -> float:
    """The share of requests that the server refused, or that waited too long: clients of both get 503."""
    lost = result["refused"] + result["timed_out"] + result.get("shed", 0)
    return float(lost / result["requests"]) if result["requests"] else 0.0


def missed(result: Mapping[str, Any], goals: Sequence[Goal]) -> list[Goal]:
    """The goals that the figures do not meet; a figure that is unknown meets none."""
    known = ((goal, figure(result, goal.what)) for goal in goals)
    return [goal for goal, is_at in known if is_at is None or is_at >= goal.below]
