"""The words of a plan: how well it reproduces what was measured, a table of settings, and what is not known. Pure."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stanchion.plan import goals
from stanchion.plan.goals import Goal
from stanchion.plan.quantities import between, clock, percent
from stanchion.top.words import duration

COLUMNS = 79

CHEAPEST, UNSEEN = "*", "?"
"""The marks of rows: the cheapest that meets the goals, and one with more requests at seats than were ever seen."""

_HEADS = ("p50 wait", "p99", "90 % band", "refused", "seats", "cores")
_WIDTHS = (9, 9, 14, 7, 6, 6)
_LABEL_COLUMNS_MAX = COLUMNS - 3 - sum(width + 1 for width in _WIDTHS)

_CAUSES = (("line", "line"), ("core", "core"), ("gil", "GIL"), ("cpu", "CPU"), ("elsewhere", "elsewhere"))

OFF_SHARE, OFF_US, OFF_REFUSED = 0.1, 1_000.0, 0.01
"""A figure that differs by more than this from what was measured is not reproduced."""

Figures = Mapping[str, Any]


def about(title: str, measured: Figures | None) -> Iterator[str]:
    """The source, and where the time of its requests went."""
    if measured is None:
        yield from wrapped(f"{title}.")
        return
    when = f"from {clock(measured['from_us'])} to {clock(measured['until_us'])}"
    lost = f" {measured['lost']:,} records are lost or torn." if measured.get("lost") else ""
    yield from wrapped(f"{title}: {measured['requests']:,} requests {when}.{lost}")
    spent = measured.get("spent_us")
    if spent and (whole := sum(spent.values())):
        shares = ", ".join(f"{title} {percent(spent.get(cause, 0) / whole)}" for cause, title in _CAUSES)
        yield from wrapped(f"Their time: {shares}.")


def reproduced(name: str, measured: Figures, replayed: Figures) -> str:
    """The figures measured, and those of the replay."""
    if measured["wait"] is None:
        return f"{name} now, as the plan has it: {_figures(replayed)}. No waits were measured to compare with."
    pairs = [
        f"{what} wait {duration(goals.figure(measured, what))} measured, {duration(goals.figure(replayed, what))} here"
        for what in ("p99", "mean")
    ]
    refused = f"refused {percent(goals.refused(measured))}, {percent(goals.refused(replayed))} here"
    return f"{name} now: {', '.join((*pairs, refused))}."


def _figures(result: Figures) -> str:
    return f"p99 wait {duration(goals.figure(result, 'p99'))}, refused {percent(goals.refused(result))}"


def doubts(measured: Figures, replayed: Figures, as_recorded: Figures) -> list[str]:
    """Why the plan is not to be trusted: figures that it does not reproduce."""
    if measured["wait"] is None or not (off := _off(measured, replayed)):
        return []
    where = (
        "the line with the recorded times at seats is not reproduced either, so something else held requests up, such "
        "as other programs on the cores, a reload, a stall, or workers that died"
        if _off(measured, as_recorded)
        else "the line with the recorded times at seats is reproduced, so cores and GIL are not modelled well"
    )
    return [f"the plan does not reproduce what was measured ({', '.join(off)}), so do not rely on it: {where}"]


def _off(measured: Figures, replayed: Figures) -> list[str]:
    off = []
    for what in ("mean", "p99"):
        was, found = goals.figure(measured, what) or 0.0, goals.figure(replayed, what) or 0.0
        if abs(found - was) > OFF_US + OFF_SHARE * was:
            off.append(f"{what} wait {duration(was)}, here {duration(found)}")
    was, found = goals.refused(measured), goals.refused(replayed)
    if abs(found - was) > OFF_REFUSED:
        off.append(f"refused {percent(was)}, here {percent(found)}")
    return off


def table(results: Sequence[Figures], now: str | None, cheapest: str | None, seen: int | None) -> Iterator[str]:
    """A row for each setting."""
    labels = [f"{one['name']} now" if one["name"] == now else str(one["name"]) for one in results]
    width = min(_LABEL_COLUMNS_MAX, max(map(len, [*labels, "workers x threads"])))
    yield _row("", f"{'workers x threads':{width}}", _HEADS)
    for label, one in zip(labels, results, strict=True):
        mark = CHEAPEST * (one["name"] == cheapest) + UNSEEN * is_unseen(one, seen)
        if len(label) > width:
            yield f"{mark:3}{label}"
            mark, label = "", ""
        yield _row(mark, f"{label:{width}}", _cells(one))


def is_unseen(result: Figures, seen: int | None) -> bool:
    """Whether it has had more requests at seats than were ever seen, so that nothing is known of what they share."""
    return seen is not None and result["busy_max"] > seen


def _cells(result: Figures) -> tuple[str, ...]:
    band = (result.get("wait_band") or {}).get("p99_us")
    utilization = result["utilization"]
    return (
        duration(goals.figure(result, "p50")),
        duration(goals.figure(result, "p99")),
        between(*band) if band else "-",
        percent(goals.refused(result)),
        percent(utilization["seats"]),
        percent(utilization["cores"]),
    )


def _row(mark: str, label: str, cells: Sequence[str]) -> str:
    shown = " ".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
    return f"{mark:3}{label} {shown}".rstrip()


def legend(aims: Sequence[Goal], cheapest: str | None, has_unseen: bool, seen: int | None) -> Iterator[str]:
    """The meaning of the marks."""
    wanted = ", ".join(map(str, aims))
    if cheapest is None:
        yield from wrapped(f"None of these meets {wanted}.")
    else:
        yield from wrapped(f"{CHEAPEST} the cheapest with {wanted}: {cheapest} (few workers first, then few threads).")
    if has_unseen:
        yield from wrapped(f"{UNSEEN} more requests at seats at once than were ever seen ({seen}).")


def unknown(sentences: Sequence[str], left_out: Sequence[str]) -> Iterator[str]:
    """The limits of the figures, and the lines that are not in them."""
    if sentences:
        yield "Not known here:"
        for one in sentences:
            yield from wrapped(one, "- ")
    if left_out:
        yield "Left out of the log:"
        for one in left_out:
            yield from wrapped(one, "- ")


def wrapped(text: str, begin: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        COLUMNS,
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_long_words=False,
        break_on_hyphens=False,
    )
