"""Plots with axes: percentile curves, ramps, timelines."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from stanchion_lab.report import colours, samples, words
from stanchion_lab.report.canvas import Sheet, wrapped
from stanchion_lab.result import OUTCOMES, Measured
from stanchion_lab.scenario import Trial

DASHES: list[Any] = ["-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)), (0, (3, 1, 1, 1, 1, 1))]
DOT = 3.2


@dataclass(frozen=True)
class Line:
    trial: Trial
    title: str
    colour: str
    dash: Any


def latencies(sheet: Sheet, found: Sequence[tuple[Line, list[float]]]) -> None:
    known = [(line, sample) for line, sample in found if sample]
    if not known:
        return nothing(sheet)
    rarest = max(len(sample) for _, sample in known)
    ends = [(line, max(sample)) for line, sample in known]
    least = min(samples.floored(min(sample)) for _, sample in known)
    most = max(samples.floored(end) for _, end in ends)
    axes, width, height = _field(sheet, [line for line, _ in known], 280)
    axes.set_xscale("log")
    axes.set_xlim(1, max(rarest, 10))
    _logarithmic(axes, least, most)
    for line, sample in known:
        rarity, slowness = samples.tail(sample)
        slowness = [samples.floored(value) for value in slowness]
        axes.plot([*rarity, len(sample)], [*slowness, max(slowness)], color=line.colour, linestyle=line.dash, lw=2)
    ticks = [*([] if sheet.narrow else [1]), 2, *(10**power for power in range(1, 8) if 10**power <= max(rarest, 10))]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda one_in, _: _percent(one_in)))
    axes.grid(True)
    _end_labels(sheet, axes, [(line, samples.floored(end)) for line, end in ends], width, height)
    return _under(
        sheet, "so many of the served requests were at least as fast · latency in ms, both scales logarithmic"
    )


def _percent(one_in: float) -> str:
    return f"{100 * (1 - 1 / one_in):.6g} %"


def ramp(sheet: Sheet, found: Sequence[tuple[Line, list[Measured]]]) -> None:
    known = [(line, repeats) for line, repeats in found if any(one.steps for one in repeats)]
    if not known:
        return nothing(sheet)
    panels = {"per_s": "Replies per second", "failed_percent": "Failed, percent of the requests"}
    for number, (figure, title) in enumerate(panels.items()):
        rows = [(line, samples.by_rate(repeats, figure)) for line, repeats in known]
        rows = [(line, [(rate, spread) for rate, spread in row if spread.known]) for line, row in rows]
        rows = [(line, row) for line, row in rows if row]
        if not rows:
            continue
        sheet.paragraph(title, weight="bold")
        axes, width, height = _field(sheet, [line for line, _ in rows] if number == 0 else [], 200 - 50 * number)
        fastest = max(row[-1][0] for _, row in rows)
        highest = max(spread.most for _, row in rows for _, spread in row)
        axes.set_xlim(0, max(fastest, 1.0) * 1.02)
        axes.set_ylim(0, (max(highest, 1.0)) * 1.08)
        if figure == "per_s":
            axes.plot([0, fastest], [0, fastest], color=colours.MUTED, linewidth=1, linestyle=(0, (1, 2)))
        for line, row in rows:
            rates = [rate for rate, _ in row]
            if any(spread.varies for _, spread in row):
                low, high = [spread.least for _, spread in row], [spread.most for _, spread in row]
                axes.fill_between(rates, low, high, color=line.colour, alpha=0.18, linewidth=0)
            middle = [spread.middle for _, spread in row]
            axes.plot(rates, middle, color=line.colour, linestyle=line.dash, lw=2, marker="o", markersize=3.5)
        axes.grid(True)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: words.number(rate)))
        _end_labels(sheet, axes, [(line, row[-1][1].middle) for line, row in rows], width, height)
        note = " · dotted: every request answered" if figure == "per_s" else ""
        _under(sheet, f"requests offered per second{note}")
    return None


def timelines(sheet: Sheet, found: Sequence[tuple[Line, list[Measured]]]) -> None:
    known = [(line, samples.middle_repeat([one for one in repeats if one.timeline])) for line, repeats in found]
    rows = [(line, one) for line, one in known if one is not None]
    if not rows:
        return nothing(sheet)
    points = {
        line.trial.name: [
            (at, ms, samples.outcome_of(outcome)) for at, ms, outcome in one.timeline if math.isfinite(at)
        ]
        for line, one in rows
    }
    flat = [point for each in points.values() for point in each]
    if not flat:
        return nothing(sheet)
    used = [name for name in OUTCOMES if any(outcome == name for _, _, outcome in flat)]
    sheet.legend([(words.OUTCOMES[name][0], colours.OUTCOMES[name]) for name in used])
    slow = [ms for _, ms, _ in flat if math.isfinite(ms) and ms > samples.FLOOR_MS] or [1.0]
    left, height = 46, 150
    width = sheet.width - left - 10
    for line, _ in rows:
        sheet.paragraph(line.title, gap=2)
        sheet.top += 16 if line.trial.deeds else 0
        axes = sheet.axes(left, sheet.top, width, height)
        end_s = max((at for at, _, _ in points[line.trial.name]), default=0.0) * 1.01 or 1.0
        axes.set_xlim(0, end_s)
        _logarithmic(axes, min(slow), max(slow))
        low, high = axes.get_ylim()
        for begin, end, file in samples.stalls(line.trial, end_s):
            axes.axvspan(begin, min(end, end_s), color=colours.STALL, linewidth=0, zorder=0)
            _mark(sheet, left + width * min(begin, end_s) / end_s, file, width)
        for deed in line.trial.deeds:
            if deed.start or deed.signal not in ("", "STOP", "CONT"):
                axes.axvline(deed.at_s, color=colours.INK, linewidth=1, linestyle=(0, (4, 3)))
                whom = "a worker of " if deed.whom == "worker" else ""
                text = f"{deed.signal or 'start'} → {whom}{deed.server}"
                _mark(sheet, left + width * min(deed.at_s, end_s) / end_s, text, width)
        axes.grid(True, axis="y")
        kept, left_out = samples.thinned(
            points[line.trial.name], across=width / 2 / end_s, up=height / 2 / math.log10(high / low), floor_ms=low
        )
        for name in used:
            dots = [(at, ms) for at, ms, outcome in kept if outcome == name]
            _dots(axes, dots, colours.OUTCOMES[name], end_s / width / 50)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{words.number(at)} s"))
        sheet.top += height + 24
        if left_out:
            text = f"{words.number(left_out)} served requests are left out for the size of the picture; no failure is."
            sheet.paragraph(text, size=10.5, color=colours.MUTED)
        sheet.top += 4
    return _under(sheet, "latency in ms (logarithmic) of each request, by the second in which it was due", 0)


def _mark(sheet: Sheet, left: float, text: str, width: float) -> None:
    at_right = left > sheet.width * 0.6
    sheet.text(left, sheet.top - 15, text, fontsize=10.5, color=colours.INK, ha="right" if at_right else "left")


def _dots(axes: Axes, points: Sequence[tuple[float, float]], colour: str, length: float) -> None:
    """One path for all: lines of next to no length with round ends, a third of what as many markers would take."""
    if not points:
        return
    vertices = [place for at, ms in points for place in ((at, ms), (at + length, ms))]
    outline = Outline(vertices, [Outline.MOVETO, Outline.LINETO] * len(points))
    axes.add_artist(PathPatch(outline, fill=False, edgecolor=colour, linewidth=DOT, capstyle="round"))


def _field(sheet: Sheet, lines: Sequence[Line], height: float) -> tuple[Axes, float, float]:
    """Axes with room for names at the ends of the lines; on a phone, they are named above."""
    if sheet.narrow and lines:
        for line in lines:
            middle = sheet.top + 7
            sheet.line([(8, middle), (34, middle)], color=line.colour, linestyle=line.dash, linewidth=2.2)
            sheet.paragraph(line.title, size=11, left=42, gap=2)
    left = 52
    width = sheet.width - left - (12 if sheet.narrow else 190)
    axes = sheet.axes(left, sheet.top + 4, width, height)
    sheet.top += height + 4 + 24
    return axes, width, height


def _under(sheet: Sheet, text: str, gap: float = 6) -> None:
    sheet.paragraph(text, size=10.5, left=52 if not sheet.narrow else 8, color=colours.MUTED, gap=gap)


def _end_labels(sheet: Sheet, axes: Axes, ends: Sequence[tuple[Line, float]], width: float, height: float) -> None:
    """Beside the ends of the lines, each at its height as far as they do not touch."""
    if sheet.narrow:
        return
    low, high = axes.get_ylim()
    scale = math.log10 if axes.get_yscale() == "log" else float
    top = sheet.top - 24 - height
    rows = []
    for line, value in ends:
        at = top + height * (1 - (scale(value) - scale(low)) / (scale(high) - scale(low)))
        text = wrapped(line.title, 178, 11)
        rows.append((at, line.colour, text))
    rows.sort(key=lambda row: row[0])
    # From the top down each below the one before it; then, if that runs out at the bottom, all of them up.
    heights = [len(text) * 14.0 + 3 for _, _, text in rows]
    places: list[float] = []
    for (at, _, _), size in zip(rows, heights, strict=True):
        lowest = places[-1] + heights[len(places) - 1] if places else top - 8
        places.append(max(at - size / 2, lowest))
    limit = top + height + 12
    for index in range(len(places) - 1, -1, -1):
        places[index] = min(places[index], limit - heights[index])
        limit = places[index]
    left = 52 + width + 8
    for place, (_, colour, text) in zip(places, rows, strict=True):
        sheet.box(left, place + 1, 3, len(text) * 14.0 - 3, colour)
        for number, piece in enumerate(text):
            sheet.text(left + 9, place + number * 14, piece, fontsize=11)


def _logarithmic(axes: Axes, least: float, most: float) -> None:
    """At least one whole decade, with a little air."""
    axes.set_yscale("log")
    low, high = least / 1.3, most * 1.5
    if high / low < 12:
        low, high = low / 2, high * 2
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(LogLocator(base=10, numticks=12))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms:,g}"))


def nothing(sheet: Sheet) -> None:
    sheet.paragraph("Nothing was measured for this picture.", color=colours.MUTED)
