"""A repository keeps three files of a run: a page in Markdown, its first picture, and the result as one small file."""

import lzma
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from stanchion_lab.report import canvas, plots, samples, words
from stanchion_lab.report.samples import Spread
from stanchion_lab.result import PACKED, SERVED, Result, Verdict, verdict
from stanchion_lab.scenario import Plot

T = TypeVar("T")

LATENCIES_MAX = 500
REQUESTS_MAX = 300


def keep(result: Result, directory: Path) -> Path:
    """NAME.md, NAME.svg and NAME.json.xz; earlier ones are replaced."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{result.name}{PACKED}").write_bytes(packed(result))
    if result.scenario.plots:
        with canvas.style():
            first = result.scenario.plots[0]
            sheet = plots.draw(result, first, canvas.WIDE, words.plain(first.title))
            (directory / f"{result.name}.svg").write_text(canvas.svg(sheet), encoding="utf-8")
    path = directory / f"{result.name}.md"
    path.write_text(page(result), encoding="utf-8")
    return path


def packed(result: Result) -> bytes:
    """The result, with all figures. Latencies are in order of size, which takes a tenth of the room, and at most
    LATENCIES_MAX of each repeat, at even ranks. Requests stay where a timeline shows them, all that failed, and at
    most REQUESTS_MAX of those that were answered."""
    small = msgspec.convert(msgspec.to_builtins(result), Result)
    timed = {name for plot in result.scenario.plots if plot.kind == "timeline" for name in _shown(result, plot)}
    for one in small.measured:
        one.latencies_ms = _evenly([round(latency, 2) for latency in sorted(one.latencies_ms)], LATENCIES_MAX)
        failed = [request for request in one.timeline if request[2] != SERVED]
        served = _evenly([request for request in one.timeline if request[2] == SERVED], REQUESTS_MAX)
        requests = sorted(failed + served) if one.trial in timed else []
        one.timeline = [(round(due_s, 3), round(ms, 2), outcome) for due_s, ms, outcome in requests]
    return lzma.compress(msgspec.json.encode(small), preset=9 | lzma.PRESET_EXTREME)


def _shown(result: Result, plot: Plot) -> list[str]:
    return plot.trials or [trial.name for trial in result.scenario.trials]


def _evenly(values: list[T], most: int) -> list[T]:
    """At most so many, with the first and the last."""
    if len(values) <= most:
        return values
    step = (len(values) - 1) / (most - 1)
    return [values[round(number * step)] for number in range(most)]


def page(result: Result) -> str:
    return "\n\n".join(_parts(result)) + "\n"


def _parts(result: Result) -> Iterator[str]:
    scenario = result.scenario
    verdicts = [verdict(result, claim) for claim in scenario.claims]
    yield f"# {plain(scenario.title)}"
    yield plain(scenario.question)
    yield f"From: {plain(scenario.origin)}"
    if scenario.plots:
        yield f"![{plain(scenario.plots[0].title)}]({result.name}.svg)"
    yield words.in_short(verdicts)
    if verdicts:
        yield table(("", "claim", "figure", "measured"), [_claim(one, result) for one in verdicts])
    yield "## Figures"
    yield _figures(result)
    if any(one.repeat for one in result.measured):
        yield "The figures are medians of the repeats; in brackets, from the least to the most."
    if scenario.published:
        yield "## Published, and measured here"
        yield _published(result)
    yield "## Again"
    yield f"```sh\n{words.again(result)}\nstanchion-lab report {result.name}{PACKED} --out {result.name}\n```"
    yield (
        "The second command makes the whole page of this run, with all pictures, every command and how to read it, of "
        f"[{result.name}{PACKED}]({result.name}{PACKED})."
    )
    yield plain(f"Measured on {result.began[:10]}: {', '.join(_host(result))}.")


def _claim(one: Verdict, result: Result) -> tuple[str, ...]:
    titles = words.trial_titles(result.scenario.trials)
    than, figure = one.claim.than, one.claim.of.partition(":")[2]
    measured = f"{words.amount(one.left, figure)} {words.RELATIONS[one.claim.be]} {words.amount(one.right, figure)}"
    if isinstance(than, str):
        measured += f" ({words.multiple(one.claim.times)}{words.reference(than, titles)})"
    unless = f" (known exception: {one.claim.unless})" if one.claim.unless else ""
    return words.MARKS[one.holds], one.claim.text + unless, words.reference(one.claim.of, titles), measured


def _figures(result: Result) -> str:
    figures = samples.table_figures(result)
    rows = []
    for name, title in words.trial_titles(result.scenario.trials).items():
        if result.of(name):
            rows.append((title, *(_cell(samples.figure_spread(result, name, figure)) for figure in figures)))
        else:
            rows.append((f"{title}: not run: {result.missing.get(name, 'no figures')}", *("" for _ in figures)))
    units = (f" ({unit})" if (unit := words.unit(figure)) else "" for figure in figures)
    return table(("trial", *(words.figure(figure) + unit for figure, unit in zip(figures, units, strict=True))), rows)


def _published(result: Result) -> str:
    titles = words.trial_titles(result.scenario.trials)
    rows = []
    for one in result.scenario.published:
        ours = samples.figure_spread(result, one.trial, one.figure)
        here = words.amount(ours.middle, one.figure) + (f" ({words.extent(ours)})" if ours.varies else "")
        rows.append((titles[one.trial], words.figure(one.figure), words.amount(one.value, one.figure), here, one.note))
    return table(("trial", "figure", "published", "here", "note"), rows)


def _cell(spread: Spread) -> str:
    return words.number(spread.middle) + (f" ({words.extent(spread)})" if spread.varies else "")


def _host(result: Result) -> Iterator[str]:
    host = result.host
    yield from (f"Linux {host.kernel}", f"{host.cores} cores", f"{host.memory_mb:,} MB", f"Python {host.python}")
    yield from (
        f"{name} {version}" for name, version in ({"stanchion": host.stanchion} | host.versions).items() if version
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(plain, cells))} |" for cells in lines)


def plain(told: str) -> str:
    """In one line, with nothing that Markdown would take for a table's border or for HTML."""
    return " ".join(words.plain(told).split()).replace("|", "\\|").replace("<", "&lt;")
