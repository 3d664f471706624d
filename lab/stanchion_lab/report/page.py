"""The page of one run: everything that it shows, gathered for page.html; and the page over several runs."""

import base64
import gzip
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import jinja2
import msgspec
from markupsafe import Markup

from stanchion_lab.report import canvas, colours, plots, samples, setup, text, words
from stanchion_lab.result import FILE, Measured, Result, Verdict, verdict

FILE_NAME = "report.html"
INDEX_NAME = "index.html"
EMBEDDED_MAX = 750_000
"""Bytes of a packed result in the page; a larger one is a file beside it."""
WORDS_MAX = 20_000
"""Characters of one log or report; their ends say most."""


@dataclass(frozen=True)
class Picture:
    title: str
    wide: Markup
    narrow: Markup
    files: list[str]
    note: str = ""
    text: str = ""


@dataclass(frozen=True)
class Told:
    """A verdict, as the page shows it."""

    mark: str
    state: str
    verdict: Verdict
    left: str
    right: str
    left_name: str
    right_name: str
    left_spread: str
    right_spread: str
    left_width: float
    right_width: float


def render(result: Result, directory: Path) -> Path:
    """Its page, and each picture as a file of its own. All that is written lies in the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    with canvas.style():
        shapes = setup.shapes(result)
        drawings = [_setup(shape, place, len(shapes), directory) for place, shape in enumerate(shapes, 1)]
        pictures = [_picture(result, place, directory) for place in range(len(result.scenario.plots))]
    path = directory / FILE_NAME
    verdicts = [verdict(result, claim) for claim in result.scenario.claims]
    page = _templates().get_template("page.html").render(
        result=result,
        titles=words.trial_titles(result.scenario.trials),
        scenario=result.scenario,
        in_short=words.in_short(verdicts),
        told=[_told(result, one) for one in verdicts],
        setups=list(zip(shapes, drawings, strict=True)),
        pictures=pictures,
        figures=samples.table_figures(result),
        published=[
            (one, samples.figure_spread(result, one.trial, one.figure)) for one in result.scenario.published
        ],
        failures=[one for one in result.measured if one.failure],
        again=words.again(result),
        how=list(_how(result)),
        download=_download(result),
    )  # fmt: skip
    path.write_text(page, encoding="utf-8")
    return path


def render_index(results: Mapping[Path, Result], directory: Path) -> Path:
    """A page with a row for each result, by the path of its page."""
    directory.mkdir(parents=True, exist_ok=True)
    rows = []
    for page, result in results.items():
        verdicts = [verdict(result, claim) for claim in result.scenario.claims]
        link = quote(os.path.relpath(page, directory))
        first = result.scenario.plots[0].title if result.scenario.plots else ""
        picture = f"{os.path.dirname(link)}/{picture_name(result, 0)}.svg".lstrip("/") if first else ""
        rows.append((link, result, words.in_short(verdicts), [_told(result, one) for one in verdicts], picture, first))
    path = directory / INDEX_NAME
    path.write_text(_templates().get_template("index.html").render(rows=rows), encoding="utf-8")
    return path


def _templates() -> jinja2.Environment:
    here = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(here),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: words.plain(value) if type(value) is str else value,
    )
    environment.globals |= {
        "style": Markup((here / "style.css").read_text() + colours.SHEET),
        "words": words,
        "spread": samples.figure_spread,
    }
    return environment


# ---- Pictures


def picture_name(result: Result, place: int) -> str:
    """`2-histogram`; without what may not be in a file's name, whatever the title says."""
    return f"{place + 1}-{result.scenario.plots[place].kind}"


def _picture(result: Result, place: int, directory: Path) -> Picture:
    plot = result.scenario.plots[place]
    name = picture_name(result, place)
    title = words.plain(plot.title)
    wide, narrow = plots.draw(result, plot, canvas.WIDE, title), plots.draw(result, plot, canvas.NARROW)
    note, in_text = "", ""
    trials = plot.trials or [trial.name for trial in result.scenario.trials]
    repeats = max((len(result.of(trial)) for trial in trials), default=0)
    if plot.kind in ("outcomes", "timeline") and repeats > 1:
        note = "Of each trial the repeat in the middle, by its failures."
    elif plot.kind in ("histogram", "latencies") and repeats > 1:
        note = "All repeats together."
    elif plot.kind in ("shares", "ramp") and repeats > 1:
        note = "Medians; lines and bands are from the least to the most of the repeats."
    if plot.kind == "histogram":
        in_text = text.histograms(result, trials)
    return Picture(title, *_inline(wide, narrow, name, title), _files(wide, name, directory), note, in_text)


def _setup(shape: setup.Shape, place: int, of: int, directory: Path) -> Picture:
    name = f"setup-{place}" if of > 1 else "setup"
    title = " → ".join(shape.path)
    wide, narrow = setup.draw(shape, canvas.WIDE, title), setup.draw(shape, canvas.NARROW)
    return Picture(title, *_inline(wide, narrow, name, f"Set-up: {title}"), _files(wide, name, directory))


def _inline(wide: canvas.Sheet, narrow: canvas.Sheet, name: str, label: str) -> tuple[Markup, Markup]:
    label = str(Markup.escape(label))
    return (
        Markup(canvas.inline(wide, f"{name}-wide", label)),
        Markup(canvas.inline(narrow, f"{name}-narrow", label)),
    )


def _files(sheet: canvas.Sheet, name: str, directory: Path) -> list[str]:
    (directory / f"{name}.svg").write_text(canvas.svg(sheet), encoding="utf-8")
    (directory / f"{name}.png").write_bytes(canvas.png(sheet))
    return [f"{name}.svg", f"{name}.png"]


# ---- Verdicts


def _told(result: Result, one: Verdict) -> Told:
    titles = words.trial_titles(result.scenario.trials)
    than = one.claim.than
    figure = one.claim.of.partition(":")[2]
    right_name, right_spread = "", ""
    if isinstance(than, str):
        right_name = words.multiple(one.claim.times) + words.reference(than, titles)
        right_spread = _extent(result, than, one.claim.times)
    most = max([value for value in (one.left, one.right) if value == value and value > 0], default=1.0)
    widths = [100 * max(value, 0.0) / most if value == value else 0.0 for value in (one.left, one.right)]
    return Told(
        mark=words.MARKS[one.holds],
        state={True: "holds", False: "fails", None: "unknown"}[one.holds],
        verdict=one,
        left=words.amount(one.left, figure),
        right=words.amount(one.right, figure),
        left_name=words.reference(one.claim.of, titles),
        right_name=right_name,
        left_spread=_extent(result, one.claim.of, 1.0),
        right_spread=right_spread,
        left_width=widths[0],
        right_width=widths[1],
    )


def _extent(result: Result, reference: str, times: float) -> str:
    return words.extent(samples.spread(value * times for value in result.values(reference)))


# ---- How


@dataclass(frozen=True)
class How:
    """How a trial was run. Of the logs, those of the first repeat and of each that failed: the rest is in the file."""

    title: str
    name: str
    began: str
    commands: dict[str, str]
    sysctl: dict[str, int]
    words: list[tuple[str, str, str]]
    left_out: int


def _how(result: Result) -> Iterator[How]:
    titles = words.trial_titles(result.scenario.trials)
    for trial in result.scenario.trials:
        repeats = [one for one in result.measured if one.trial == trial.name]
        if not repeats:
            continue
        shown = [one for place, one in enumerate(repeats) if place == 0 or one.failure]
        first = next((one for one in repeats if not one.failure), repeats[0])
        yield How(
            title=titles[trial.name],
            name=trial.name,
            began=first.began,
            commands=first.commands,
            sysctl=first.sysctl,
            words=[told for one in shown for told in _words(one)],
            left_out=len(repeats) - len(shown),
        )


def _words(one: Measured) -> Iterator[tuple[str, str, str]]:
    """For each output: its program and repeat, how much of it is shown, and its end."""
    for name, said in one.words.items():
        whose = f"{name}, repeat {one.repeat + 1}"
        cut = len(said) > WORDS_MAX
        note = f"the last {WORDS_MAX:,} of {len(said):,} characters" if cut else _lines(said)
        yield whose, note, said[-WORDS_MAX:]


def _lines(said: str) -> str:
    count = len(said.splitlines())
    return f"{count} line{'' if count == 1 else 's'}"


def _download(result: Result) -> tuple[str, str]:
    """A link to the whole result, and what it is called."""
    raw = msgspec.json.format(msgspec.json.encode(result), indent=1)
    packed = gzip.compress(raw, mtime=0)
    if len(packed) > EMBEDDED_MAX:
        return FILE, FILE
    return f"data:application/gzip;base64,{base64.b64encode(packed).decode()}", f"{_safe(result.name)}.{FILE}.gz"


def _safe(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)
