"""The report for a terminal."""

import textwrap
from collections.abc import Sequence

from stanchion_lab.report import samples, words
from stanchion_lab.result import Result, Verdict, verdict
from stanchion_lab.scenario import Claim

WIDTH = 100
_STARS = 50
_MARKS = {True: "ok", False: "NO", None: "??"}


def summary(result: Result) -> str:
    """The question, whether the claims hold, the figures, and the histograms that the scenario wants."""
    scenario = result.scenario
    verdicts = [verdict(result, claim) for claim in scenario.claims]
    parts = ["\n".join(_wrapped(f"{result.name}: {scenario.title}")), "\n".join(_wrapped(scenario.question))]
    claims = [line for one in verdicts for line in _claim(one)]
    parts.append("\n".join([words.in_short(verdicts), *claims]))
    parts.append("\n\n".join(_tables(result)))
    parts += ["\n".join(lines) for lines in [_absent(result)] if lines]
    for plot in scenario.plots:
        if plot.kind == "histogram":
            trials = plot.trials or [trial.name for trial in scenario.trials]
            parts += [f"{plot.title}\n\n{text}" for text in [histograms(result, trials)] if text]
    return "\n\n".join(words.plain(part) for part in parts) + "\n"


def _wrapped(text: str, first: str = "", then: str = "") -> list[str]:
    text = " ".join(text.split())
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=then, break_on_hyphens=False)


def _claim(one: Verdict) -> list[str]:
    lines = _wrapped(one.claim.text, f"  {_MARKS[one.holds]}  ", "      ")
    lines += _wrapped(comparison(one), "      ", "        ")
    if one.claim.unless:
        lines += _wrapped(f"unless: {one.claim.unless}", "      ", "        ")
    return lines


def comparison(one: Verdict) -> str:
    """`small:gateway 68 > large:gateway 0`."""
    left = f"{one.claim.of} {words.number(one.left)}"
    return f"{left} {one.claim.be} {other_side(one.claim)}{words.number(one.right)}"


def other_side(claim: Claim) -> str:
    """The words before the right side's value, which already includes `times`."""
    if not isinstance(claim.than, str):
        return ""
    return f"{words.multiple(claim.times)}{claim.than} "


def _tables(result: Result) -> list[str]:
    """One, or as many as the columns need: a terminal is not scrolled sideways."""
    figures = samples.table_figures(result)
    trials = [trial.name for trial in result.scenario.trials if result.of(trial.name)]
    columns = [_column(result, trials, figure) for figure in figures]
    names = _flush(["", "", *trials], right=False)
    tables, row = [], [names]
    for column in columns:
        if len(row) > 1 and sum(len(each[0]) + 2 for each in [*row, column]) > WIDTH:
            tables.append(row)
            row = [names]
        row.append(column)
    return [
        "\n".join("  ".join(cells).rstrip()[:WIDTH] for cells in zip(*table, strict=True)) for table in [*tables, row]
    ]


def _column(result: Result, trials: Sequence[str], figure: str) -> list[str]:
    """Two lines of heading, where that makes it narrower."""
    spreads = [samples.figure_spread(result, trial, figure) for trial in trials]
    cells = [f"{words.number(one.middle)}{f' ({words.extent(one)})' if one.varies else ''}" for one in spreads]
    head, dot, rest = figure.partition(".")
    return _flush([head + dot, rest, *cells] if len(figure) > 12 else [figure, "", *cells], right=True)


def _flush(cells: Sequence[str], right: bool) -> list[str]:
    width = max(map(len, cells))
    return [cell.rjust(width) if right else cell.ljust(width) for cell in cells]


def _absent(result: Result) -> list[str]:
    lines = [line for name, why in result.missing.items() for line in _wrapped(f"not run: {name}: {why}", then="  ")]
    for one in result.measured:
        if one.failure:
            lines += _wrapped(f"failed: {one.trial}, repeat {one.repeat + 1}: {one.failure}", then="  ")
    return lines


def histograms(result: Result, trials: Sequence[str], width: int = WIDTH) -> str:
    """Side by side as far as there is room, in the form of the literature: all with the same buckets."""
    titles = words.trial_titles([trial for trial in result.scenario.trials if trial.name in trials])
    known = [(titles[name], sample) for name in trials if (sample := samples.latencies(result, name))]
    unit, per_ms = samples.unit_of([sample for _, sample in known])
    drawn = samples.histograms([sample for _, sample in known], per_ms)
    abreast = min(max(1, len(known)), max(1, width // 48))
    room = (width - 3 * (abreast - 1)) // abreast
    blocks = [
        _histogram(title, sample, one, unit, per_ms, room) for (title, sample), one in zip(known, drawn, strict=True)
    ]
    rows = [blocks[start : start + abreast] for start in range(0, len(blocks), abreast)]
    return "\n\n".join("\n".join(_beside(row, room)) for row in rows)


def _beside(blocks: Sequence[list[str]], room: int) -> list[str]:
    heads = max(len(block) for block in blocks)
    # Titles may take more lines in one than in another; the values stand at the bottom, in line.
    filled = [[""] * (heads - len(block)) + block for block in blocks]
    return ["   ".join(line.ljust(room) for line in lines).rstrip() for lines in zip(*filled, strict=True)]


def _histogram(
    title: str, sample: Sequence[float], one: samples.Histogram, unit: str, per_ms: float, room: int
) -> list[str]:
    scaled = sorted(value * per_ms for value in sample)
    facts = {
        "min": scaled[0],
        "avg": sum(scaled) / len(scaled),
        "med": scaled[(len(scaled) - 1) // 2],
        "max": scaled[-1],
        "dev": samples.deviation(scaled),
    }
    told = " ".join(f"{name}:{words.number(value).replace(',', '')}" for name, value in facts.items())
    label = max(5, len(str(one.bounds[-1])))
    count = max(5, *(len(str(each)) for each in one.counts))
    stars = max(8, min(_STARS, room - label - count - 4))
    most = max(one.counts)
    lines = [*textwrap.wrap(f"{title} ({unit})", room), *textwrap.wrap(f"{told} count:{len(scaled)}", room)]
    lines.append(f"{'value':>{label}} |{'-' * stars} {'count':>{count}}")
    for bound, each in zip(one.bounds, one.counts, strict=True):
        lines.append(f"{bound:>{label}} |{'*' * round(stars * each / most):<{stars}} {each:>{count}}")
    return lines
