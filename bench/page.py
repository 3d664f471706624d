"""Makes docs/benchmarks.md and its pictures of runs: `python -m bench.page RUN [RUN ...]`.

The page shows each case as in the last run that has it, and each run's own words about machine and comparison.
"""

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import pictures, report, targets
from bench.cases import CASES, Case
from bench.report import Record

PAGE = Path("docs/benchmarks.md")
PICTURES = Path("docs/benchmarks")

UNEQUAL = "Limits of the comparison"
# The title of this chapter in the README of earlier runs.
UNEQUAL_BEFORE = "What is not equal, and what the figures do not say"

INTRODUCTION = """\
# Benchmarks

The cost of a request, side by side with other servers for Python and with nginx, which runs no app and is the floor.
The figure to look at is CPU time for each request: of the whole server, user and kernel, on one core. It says how many
requests a core can serve; requests per second say the same, less steadily. Bars are medians, the line at the end of
each covers the middle half of the turns. Less is better in all of them. A bar with a gap is longer than is shown.

Targets are judged turn by turn: each turn of a server is compared with the other's turn beside it, since whatever else
the machine did was the same for both. The median of these ratios counts; it can differ from the ratio of two medians.

This page is made by `python -m bench.page` from a run of `make bench`, and is not edited by hand.
"""


def main(arguments: Sequence[str]) -> int:
    directories = [Path(argument) for argument in arguments]
    if not directories:
        sys.exit("bench: which runs? python -m bench.page bench/runs/NAME ...")
    runs: dict[str, tuple[Path, list[Record]]] = {}
    for directory in directories:
        for name, records in by_case(read(directory)).items():
            runs[name] = directory, records
    PICTURES.mkdir(parents=True, exist_ok=True)
    for old in PICTURES.glob("*.svg"):
        old.unlink()
    PAGE.write_text(page(runs))
    for name, (_, records) in runs.items():
        if drawn := picture(CASES[name], records):
            (PICTURES / f"{name}.svg").write_text(drawn)
    print(f"Written: {PAGE}, {PICTURES}/")
    return 0


def read(directory: Path) -> list[Record]:
    lines = (directory / "raw.jsonl").read_text().splitlines()
    return [Record(**json.loads(line)) for line in lines]


def by_case(records: Sequence[Record]) -> dict[str, list[Record]]:
    """In the order of the cases. A case that does not exist any more is left out."""
    found = {name: [record for record in records if record.case == name] for name in CASES}
    return {name: of_case for name, of_case in found.items() if of_case}


def page(runs: dict[str, tuple[Path, list[Record]]]) -> str:
    directories = list(dict.fromkeys(directory for directory, _ in runs.values()))
    everything = [record for _, records in runs.values() for record in records]
    parts = [INTRODUCTION, *report.disturbed(everything), "## Targets", ""]
    parts += [*targets.lines(report.cells_by_case(everything)), ""]
    for name, case in CASES.items():
        if name in runs:
            parts += section(case, *runs[name])
    for directory in directories:
        parts += set_up(directory)
    return "\n".join(parts)


def section(case: Case, directory: Path, records: Sequence[Record]) -> list[str]:
    parts = [f"## {case.title}", ""]
    if picture(case, records):
        parts += [f"![{case.columns[0].title}]({PICTURES.name}/{case.name}.svg)", ""]
    count = 1 + max(record.round for record in records)
    source = f"[`{directory.name}`]({os.path.relpath(directory / 'raw.jsonl', PAGE.parent)})"
    return [
        *parts,
        *report.table(case, records),
        "",
        f"Turns or rounds of each: {count}. Case `{case.name}` of {source}.",
        "",
    ]


def picture(case: Case, records: Sequence[Record]) -> str:
    """The picture of the case's first column; empty if no server has a figure."""
    column = case.columns[0]
    rounds = report.rounds_by_row(records)
    bars = [pictures.bar(name, column, rounds[name]) for name in case.rows if name in rounds]
    return pictures.svg(column, bars) if bars else ""


def set_up(directory: Path) -> list[str]:
    """The set-up of a run, from the run's own page."""
    text = (directory / "README.md").read_text().replace(f"## {UNEQUAL_BEFORE}\n", f"## {UNEQUAL}\n")
    parts = [f"## Set-up of `{directory.name}`", "", *introduction(text), ""]
    for title in ("Machine", "Versions", "Servers", UNEQUAL):
        parts += [f"### {title}", "", chapter(text, title), ""]
    return parts


def introduction(text: str) -> list[str]:
    return text.split("\n## ", 1)[0].strip().splitlines()[2:]


def chapter(text: str, title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n\n(.*?)\n*(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if not found:
        sys.exit(f"bench: the run's README.md has no chapter {title!r}: was it made by another version?")
    return found[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
