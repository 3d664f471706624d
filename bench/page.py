"""Makes docs/benchmarks.md and the pages below it, of kept runs: `python -m bench.page RUN [RUN ...]`.

Each case is shown as in the last run that has it, and the set-up as the last run describes it.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import front, pictures, report
from bench.cases import CASES, Case
from bench.report import Record

FRONT = Path("docs/benchmarks.md")
PAGES = Path("docs/benchmarks")
GENERATED = "This page is made by `python -m bench.page`, and is not edited by hand."
LEGEND = """\
A figure is a median, with the least and the greatest beside it; `x` is the multiple of stanchion's. The line at the end
of a bar covers the middle half of the turns, and a bar with a gap is longer than is shown.
[How the figures were taken](set-up.md)."""


@dataclass(frozen=True)
class Group:
    """A page of cases."""

    name: str
    title: str
    cases: tuple[str, ...]


GROUPS = (
    Group(
        "requests",
        "The cost of a request",
        (
            *("hello", "close", "nginx", "page", "flask", "upload", "stream64", "stream16", "file1", "file100"),
            *("static", "watched-hello", "watched"),
        ),
    ),
    Group(
        "asgi",
        "Asynchronous apps",
        (
            *("asgi-hello", "asgi-json", "asgi-upload", "asgi-stream", "asgi-echo64", "asgi-echo64k", "asgi-mixed"),
            *("asgi-blocked", "asgi-overload", "asgi-killed", "asgi-sockets", "asgi-streams"),
        ),
    ),
    Group(
        "tls-and-http2",
        "TLS, HTTP/2, and a whole host",
        (
            *("host-hello", "host-h2-hello", "tls-hello", "tls-handshakes", "tls-resumed", "tls-flood"),
            *("h2-hello", "h2-mixed"),
        ),
    ),
    Group(
        "in-service",
        "Long requests, overload, slow clients, kills, deploys",
        (
            *("mixed", "burst-tcp", "burst-nginx", "overload", "stall", "stall-gone", "slow", "adversaries"),
            *("death", "reload", "upgrade"),
        ),
    ),
    Group("memory", "Memory", ("django-1", "django-4", "django-16", "memory", "idle")),
)


@dataclass(frozen=True)
class Shown:
    """A case as one run has it, without the turns that other programs disturbed."""

    case: Case
    run: Path
    records: Sequence[Record]
    disturbed: int


def main(arguments: Sequence[str]) -> int:
    runs = [Path(argument) for argument in arguments]
    if not runs:
        sys.exit("bench: which runs? python -m bench.page bench/runs/NAME ...")
    shown = {name: case for run in runs for name, case in cases_of(run).items()}
    PAGES.mkdir(parents=True, exist_ok=True)
    for old in PAGES.iterdir():
        old.unlink()
    groups = [group for group in GROUPS if set(group.cases) & set(shown)]
    for group in groups:
        (PAGES / f"{group.name}.md").write_text(group_page(group, shown))
    for name, case in shown.items():
        if drawn := picture(case):
            (PAGES / f"{name}.svg").write_text(drawn)
    (PAGES / "set-up.md").write_text(set_up(runs))
    links = [
        f"- [{group.title}]({PAGES.name}/{group.name}.md): {len(set(group.cases) & set(shown))} cases"
        for group in groups
    ]
    records = {name: case.records for name, case in shown.items()}
    FRONT.write_text(front.page(records, links, cores_of(runs[-1])))
    (PAGES / "front.svg").write_text(front.picture(records))
    print(f"Written: {FRONT}, {PAGES}/")
    return 0


def cases_of(run: Path) -> dict[str, Shown]:
    """In the order of the cases. A case that does not exist any more is left out."""
    lines = (run / "raw.jsonl").read_text().splitlines()
    records = [Record(**json.loads(line)) for line in lines]
    found = {}
    for name, case in CASES.items():
        if of_case := [record for record in records if record.case == name]:
            kept = [record for record in of_case if not report.is_disturbed(record)]
            found[name] = Shown(case, run, kept, len(of_case) - len(kept))
    return found


def group_page(group: Group, shown: Mapping[str, Shown]) -> str:
    parts = [f"# Benchmarks: {group.title}", "", f"{GENERATED} {LEGEND}", ""]
    for name in group.cases:
        if name in shown:
            parts += section(shown[name])
    return "\n".join(parts)


def section(shown: Shown) -> list[str]:
    case = shown.case
    parts = [f"## {case.title}", ""]
    if picture(shown):
        parts += [f"![{case.columns[0].title}]({case.name}.svg)", ""]
    source = f"[`{shown.run.name}`]({os.path.relpath(shown.run / 'raw.jsonl', PAGES)})"
    count = 1 + max(record.round for record in shown.records)
    left_out = f", {shown.disturbed} of all servers' left out as disturbed" if shown.disturbed else ""
    return [
        *parts,
        *report.table(case, shown.records),
        "",
        f"{'Turns' if case.stand else 'Rounds'} of each: {count}{left_out}. Case `{case.name}` of {source}.",
        "",
    ]


def picture(shown: Shown) -> str:
    """The picture of the case's first column; empty if no server has a figure."""
    column = shown.case.columns[0]
    rounds = report.rounds_by_row(shown.records)
    bars = [pictures.bar(name, column, rounds[name]) for name in shown.case.rows if name in rounds]
    return pictures.svg(column, bars) if bars else ""


def set_up(runs: Sequence[Path]) -> str:
    """The set-up of the last run, from that run's own page."""
    text = (runs[-1] / "README.md").read_text()
    parts = ["# Benchmarks: set-up", "", f"{GENERATED} Its runs:", ""]
    parts += [f"- [`{run.name}`]({os.path.relpath(run, PAGES)}), made by {made_by(run)}" for run in runs]
    parts += ["", *introduction(text), ""]
    for title in ("Machine", "Versions", "Servers", "Limits of the comparison", "Commands"):
        parts += [f"## {title}", "", chapter(text, title), ""]
    return "\n".join(parts)


def made_by(run: Path) -> str:
    found = re.search(r"^Made by (`[^`]+`)", (run / "README.md").read_text(), re.MULTILINE)
    if not found:
        sys.exit(f"bench: {run} does not say how it was made: was it made by another version?")
    return found[1]


def cores_of(run: Path) -> int:
    found = re.search(r"^- (\d+)-core-", (run / "README.md").read_text(), re.MULTILINE)
    if not found:
        sys.exit(f"bench: {run} does not say how many cores it had: was it made by another version?")
    return int(found[1])


def introduction(text: str) -> list[str]:
    """The paragraphs on turns and rounds."""
    return text.split("\n## ", 1)[0].strip().splitlines()[4:]


def chapter(text: str, title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n\n(.*?)\n*(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if not found:
        sys.exit(f"bench: the run's README.md has no chapter {title!r}: was it made by another version?")
    return found[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
