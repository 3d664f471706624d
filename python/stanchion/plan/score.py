"""`stanchion plan --score`: each hour as it was, beside what the hour before has predicted for it."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from stanchion.effective import UsageError
from stanchion.plan import engine, goals
from stanchion.plan.engine import Bar
from stanchion.plan.quantities import clock, percent
from stanchion.plan.source import Source
from stanchion.plan.words import OFF_US
from stanchion.top.words import duration

WINDOWS_MAX = 1_000
REQUESTS_LEAST = 1_000
"""Of fewer requests p99 is the wait of some ten of them."""

_END_US = 2**63 - 1

_FIGURE = "p99"
_WIDTHS = (19, 10, 10, 13, 9, 11)
_HEADS = ("", "requests", "measured", "one before", "off by", "itself")


class Window(NamedTuple):
    """One hour, or what --each says."""

    from_us: int
    measured: Mapping[str, Any]
    replayed: Mapping[str, Any]
    """With its own arrivals; so the next one is predicted to be like it."""


class Pair(NamedTuple):
    """A window, and the one right before it."""

    now: Window
    before: Window

    @property
    def off(self) -> float | None:
        """The prediction's error, as a share of what was measured; None if both are too short to matter."""
        was = goals.figure(self.now.measured, _FIGURE) or 0.0
        predicted = goals.figure(self.before.replayed, _FIGURE) or 0.0
        return None if max(was, predicted) < OFF_US else (predicted - was) / max(was, 1.0)


def windows(source: Source, whole: Mapping[str, Any], each_us: int, bar: Bar) -> list[Window]:
    """The windows with enough requests, on round times of the clock. UsageError, if they are too many."""
    if whole["wait"] is None:
        raise UsageError("plan: no waits were measured, so there is nothing to score: take a log of stanchion")
    first, last = whole["from_us"] // each_us, whole["until_us"] // each_us
    if last - first >= WINDOWS_MAX:
        raise UsageError(f"plan: these are {last - first + 1} windows, more than {WINDOWS_MAX}: give a longer --each")
    from_us, until_us = source.window_us[0] or 0, source.window_us[1] or _END_US
    found = []
    for number in range(first, last + 1):
        bar.shown("scoring", (number - first) / (last + 1 - first))
        # The window that --from and --until give may end within one of these.
        window_us = (max(number * each_us, from_us), min((number + 1) * each_us, until_us))
        answer = engine.simulate(source, [{"name": "now"}], 1, window_us=window_us)
        if answer["measured"]["requests"] >= REQUESTS_LEAST and answer["measured"]["wait"] is not None:
            found.append(Window(number * each_us, answer["measured"], answer["results"][0]))
    return found


def pairs(found: Sequence[Window], each_us: int) -> list[Pair]:
    """Each with the one before it, if that has enough requests too. UsageError, if there is none."""
    made = [Pair(b, a) for a, b in pairwise(found) if b.from_us - a.from_us == each_us]
    if not made:
        raise UsageError(
            f"plan: --score wants two windows after each other with {REQUESTS_LEAST} requests each: record for longer, "
            "or give a shorter --each"
        )
    return made


def words(scored: Sequence[Pair]) -> Iterator[str]:
    """A row for each, and the error in the middle."""
    yield f"{_FIGURE} of the wait in each window, and as the window before it has predicted it:"
    yield _row(_HEADS)
    for one in scored:
        yield _row(
            (
                clock(one.now.from_us),
                f"{one.now.measured['requests']:,}",
                duration(goals.figure(one.now.measured, _FIGURE)),
                duration(goals.figure(one.before.replayed, _FIGURE)),
                "-" if one.off is None else f"{100 * one.off:+,.0f} %",
                duration(goals.figure(one.now.replayed, _FIGURE)),
            )
        )
    known = [abs(one.off) for one in scored if one.off is not None]
    if known:
        yield f"Off by {percent(statistics.median(known))} in the median, of {len(known)}."
    yield "Itself: with the window's own arrivals, so that only the simulator may be off."


def _row(cells: Sequence[str]) -> str:
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()
