"""Every kind of plot that a scenario may ask for, drawn on a sheet of a given width."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stanchion_lab.report import colours, curves, samples, setup, words
from stanchion_lab.report.canvas import SIZE, Sheet, wrapped
from stanchion_lab.result import OUTCOMES, Result
from stanchion_lab.scenario import Plot, Trial

BAR = 20
"""How high a bar is."""


@dataclass(frozen=True)
class Subject:
    """A plot with the trials that it shows."""

    result: Result
    plot: Plot
    trials: list[Trial]

    @classmethod
    def of(cls, result: Result, plot: Plot) -> "Subject":
        wanted = plot.trials or [trial.name for trial in result.scenario.trials]
        known = {trial.name: trial for trial in result.scenario.trials}
        return cls(result, plot, [known[name] for name in wanted if result.of(name)])

    @property
    def titles(self) -> dict[str, str]:
        return words.trial_titles(self.trials)


def kind_of(result: Result, trial: Trial) -> str:
    """The kind of the server that does the work: the one behind all others. With hosts the front's: it decides which of
    them works."""
    path = [result.scenario.servers[name] for name in setup.chain(result, trial)]
    return path[0 if path[-1].hosts else -1].kind


def colour_of(result: Result, trial: Trial) -> str:
    return colours.of_kind(kind_of(result, trial))


def kinds_legend(sheet: Sheet, subject: Subject) -> None:
    """Where trials have different kinds of servers."""
    kinds = list(dict.fromkeys(kind_of(subject.result, trial) for trial in subject.trials))
    if len(kinds) > 1:
        sheet.legend([(kind, colours.of_kind(kind)) for kind in kinds])


def outcomes(sheet: Sheet, subject: Subject) -> None:
    rows = []
    for trial in subject.trials:
        one = samples.middle_repeat(subject.result.of(trial.name))
        counts = {name: max(one.figures.get(name, 0.0), 0.0) for name in OUTCOMES} if one else {}
        if sum(counts.values()) > 0:
            rows.append((subject.titles[trial.name], counts))
    if not rows:
        return curves.nothing(sheet)
    used = [name for name in OUTCOMES if any(counts[name] for _, counts in rows)]
    sheet.legend([(words.OUTCOMES[name][0], colours.OUTCOMES[name]) for name in used])
    left, width = 8, sheet.width - 16
    for title, counts in rows:
        total = sum(counts.values())
        sheet.paragraph(f"{title} · {words.number(total)} requests", gap=1)
        start = 0.0
        for name in used:
            part = counts[name] / total
            if part <= 0:
                continue
            # A single failure among thousands must still be seen.
            drawn = max(part, 2.5 / width)
            begin = min(start, 1 - drawn)
            sheet.box(left + begin * width, sheet.top, drawn * width, BAR, colours.OUTCOMES[name])
            label = _fitting(counts[name], part, words.OUTCOMES[name][0], part * width)
            if label:
                place = left + (start + part / 2) * width
                ink = colours.ON.get(name, colours.ON_MOST)
                sheet.text(place, sheet.top + BAR / 2, label, ha="center", va="center", fontsize=11, color=ink)
            start += part
        sheet.top += BAR + 8
    return None


def _fitting(count: float, part: float, name: str, width: float) -> str:
    percent = f"{100 * part:.0f} %" if 0.01 <= part < 0.995 else ""
    texts = [f"{words.number(count)} {name}{f', {percent}' if percent else ''}", f"{words.number(count)} {name}"]
    return next((text for text in [*texts, words.number(count)] if len(text) * 6.6 + 6 < width), "")


def bars(sheet: Sheet, subject: Subject) -> None:
    figure = subject.plot.of or samples.table_figures(subject.result)[0]
    found = [(trial, samples.figure_spread(subject.result, trial.name, figure)) for trial in subject.trials]
    known = [(trial, spread) for trial, spread in found if spread.known]
    if not known:
        return curves.nothing(sheet)
    kinds_legend(sheet, subject)
    most = max(max(spread.most for _, spread in known), 0.0) or 1.0
    left, room = 8, 190
    width = sheet.width - 16 - room
    for trial, spread in known:
        sheet.paragraph(subject.titles[trial.name], gap=1)
        long, least, end = (
            left + width * max(value, 0.0) / most for value in (spread.middle, spread.least, spread.most)
        )
        middle = sheet.top + BAR / 2
        sheet.box(left, sheet.top, max(long - left, 1), BAR, colour_of(subject.result, trial))
        if spread.varies:
            sheet.line([(least, middle), (end, middle)], color=colours.INK, linewidth=1.4, marker="|", markersize=8)
        value = words.amount(spread.middle, figure)
        sheet.text(end + 8, middle, value, va="center_baseline", weight="bold")
        if spread.varies:
            range_left = end + 8 + (len(value) + 1) * 8.2
            extent = words.extent(spread)
            sheet.text(range_left, middle, extent, va="center_baseline", fontsize=10, color=colours.MUTED)
        sheet.top += BAR + 8
    if any(spread.varies for _, spread in known):
        sheet.paragraph(
            "Bars: medians. Thin lines: from the least to the most of the repeats.", 11, color=colours.MUTED
        )
    return None


def histogram(sheet: Sheet, subject: Subject) -> None:
    found = [(trial, samples.latencies(subject.result, trial.name)) for trial in subject.trials]
    known = [(trial, sample) for trial, sample in found if sample]
    if not known:
        return curves.nothing(sheet)
    unit, per_ms = samples.unit_of([sample for _, sample in known])
    counted = samples.histograms([sample for _, sample in known], per_ms)
    tallest = max(count / sum(one.counts) for one in counted for count in one.counts)
    columns = 1 if sheet.narrow else min(2, len(known))
    panels = _panels(sheet, [subject.titles[trial.name] for trial, _ in known], columns, 128, 34)
    for (trial, sample), one, (left, top, width) in zip(known, counted, panels, strict=True):
        axes = sheet.axes(left, top, width, 128, ylim=(0, tallest * 1.12), yticks=[])
        axes.spines["left"].set_visible(False)
        places = range(len(one.bounds))
        parts = [count / sum(one.counts) for count in one.counts]
        axes.bar(places, parts, width=0.9, color=colour_of(subject.result, trial), linewidth=0)
        for place, (part, count) in enumerate(zip(parts, one.counts, strict=True)):
            if count:
                label = _short(count) if len(parts) > 8 or width < 300 else words.number(count)
                axes.text(place, part, label, ha="center", va="bottom", fontsize=9.5, color=colours.MUTED)
        step = 1 + int(len(one.bounds) * 7 * len(str(one.bounds[-1])) / width)
        axes.set_xticks(list(places)[::step], [str(bound) for bound in one.bounds[::step]], fontsize=10)
        axes.tick_params(length=0, pad=4)
        deviation = words.number(samples.deviation(sample) * per_ms)
        note = f"{unit}, by powers of two · {words.number(len(sample))} served · deviation {deviation} {unit}"
        sheet.text(left, top + 128 + 20, note, fontsize=10, color=colours.MUTED)
    return None


def _short(count: float) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return f"{count:.0f}"


def shares(sheet: Sheet, subject: Subject) -> None:
    found = [(trial, *samples.worker_shares(subject.result.of(trial.name))) for trial in subject.trials]
    known = [(trial, names, parts) for trial, names, parts in found if names]
    if not known:
        return curves.nothing(sheet)
    most = max(part.most for _, _, parts in known for part in parts)
    columns = min(2 if sheet.narrow else 3, len(known))
    panels = _panels(sheet, [subject.titles[trial.name] for trial, _, _ in known], columns, 110, 18)
    for (trial, names, parts), (left, top, width) in zip(known, panels, strict=True):
        axes = sheet.axes(left, top, width, 110, ylim=(0, most * 1.2), yticks=[], xlim=(-0.6, len(names) - 0.4))
        axes.spines["left"].set_visible(False)
        places = list(range(len(names)))
        axes.bar(places, [p.middle for p in parts], width=0.8, color=colour_of(subject.result, trial), linewidth=0)
        for place, part in zip(places, parts, strict=True):
            if part.varies:
                axes.plot([place, place], [part.least, part.most], color=colours.INK, linewidth=1.2)
            if width / len(names) > 26:
                label = f"{part.middle:.0f} %"
                axes.text(
                    place, part.most + most * 0.03, label, ha="center", va="bottom", fontsize=10, color=colours.MUTED
                )
        even = 100 / len(names)
        axes.axhline(even, color=colours.INK, linewidth=1, linestyle=(0, (4, 3)))
        step = 1 + len(names) * 22 // int(width)
        axes.set_xticks(places[::step], [_shorter(name) for name in names[::step]], fontsize=10)
        axes.tick_params(length=0, pad=4)
    text = "Each bar is one worker's part of the work; the dashed line is an even share."
    sheet.paragraph(text, size=11, color=colours.MUTED)
    return None


def _shorter(name: str) -> str:
    name = name.removeprefix("no. ")
    return name if len(name) <= 6 else f"…{name[-4:]}"


def _panels(
    sheet: Sheet, titles: Sequence[str], columns: int, height: float, below: float
) -> list[tuple[float, float, float]]:
    """Left, top and width of each, side by side under their titles; the sheet ends below the last row."""
    gap = 24
    width = (sheet.width - 16 - gap * (columns - 1)) / columns
    places = []
    for start in range(0, len(titles), columns):
        row = [wrapped(title, width, SIZE) for title in titles[start : start + columns]]
        lines = max(map(len, row))
        for column, title in enumerate(row):
            left = 8 + column * (width + gap)
            for number, line in enumerate(title):
                sheet.text(left, sheet.top + number * SIZE * 1.3, line)
            places.append((left, sheet.top + lines * SIZE * 1.3 + 4, width))
        sheet.top += lines * SIZE * 1.3 + 4 + height + below + 18
    return places


def lines_of(subject: Subject) -> list[curves.Line]:
    """How each trial is drawn as a line: the colour of its kind, and a dash of its own among those of its kind."""
    kinds: dict[str, int] = {}
    lines = []
    for trial in subject.trials:
        colour = colour_of(subject.result, trial)
        nth = kinds.get(colour, 0)
        kinds[colour] = nth + 1
        dash = curves.DASHES[nth % len(curves.DASHES)]
        lines.append(curves.Line(trial, subject.titles[trial.name], colour, dash))
    return lines


def latencies(sheet: Sheet, subject: Subject) -> None:
    curves.latencies(sheet, [(line, samples.latencies(subject.result, line.trial.name)) for line in lines_of(subject)])


def ramp(sheet: Sheet, subject: Subject) -> None:
    curves.ramp(sheet, [(line, subject.result.of(line.trial.name)) for line in lines_of(subject)])


def timeline(sheet: Sheet, subject: Subject) -> None:
    curves.timelines(sheet, [(line, subject.result.of(line.trial.name)) for line in lines_of(subject)])


KINDS: dict[str, Callable[[Sheet, Subject], None]] = {
    "outcomes": outcomes,
    "bars": bars,
    "histogram": histogram,
    "shares": shares,
    "latencies": latencies,
    "timeline": timeline,
    "ramp": ramp,
}


def draw(result: Result, plot: Plot, width: int, title: str = "") -> Sheet:
    sheet = Sheet(width, title)
    KINDS[plot.kind](sheet, Subject.of(result, plot))
    return sheet
