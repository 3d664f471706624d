"""ApacheBench (apache2-utils): clients that ask again, over TCP, for one path.

ApacheBench speaks HTTP/1.0, counts an answer of any length as complete, and gives up altogether once nothing has come
for as long as its patience. Its own report knows no status but "Non-2xx", so -v 2 makes it log each head, and the lab
counts the heads. -r, for without it the first reset would end it all.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from stanchion_lab.load.figures import of_counts, of_latencies, outcomes_of
from stanchion_lab.load.offered import Offered, Progress, Target
from stanchion_lab.load.program import Can, only_path, run
from stanchion_lab.result import BROKEN, REFUSED
from stanchion_lab.scenario import Load

CAN = Can(clients=True)
# Where only the time is given: it reserves memory for each.
REQUESTS_MAX = 1_000_000
GNUPLOT = "ab.tsv"


def argv(load: Load, target: Target) -> list[str]:
    CAN.check("ab", load, target)
    # -n after -t, which sets it to 50,000.
    timed = ["-t", str(math.ceil(load.for_s))] if load.for_s else []
    requests = ["-n", str(load.requests or REQUESTS_MAX)]
    kept = ["-k"] if load.keep_alive else []
    patience = ["-s", str(math.ceil(load.patience_s))]
    how = ["-r", "-l", "-q", "-d", "-S", "-v", "2", "-g", GNUPLOT]
    return ["ab", *how, *timed, *requests, "-c", str(load.connections), *kept, *patience, target.url(only_path(load))]


def offer(load: Load, target: Target, directory: Path, progress: Progress) -> Offered:
    ran = run(argv(load, target), load, directory, progress)
    report = read(ran.lines(ran.stdout), ran.lines(ran.stderr))
    if ran.gave_up or report.took_s is None:
        raise ran.failed("ab gave up")
    figures, latencies_ms = told(report, report.took_s, (directory / GNUPLOT).read_text().splitlines())
    return Offered("ab", ran.command, figures, latencies_ms, shares=report.shares, words={"ab": report.words})


@dataclass
class Report:
    statuses: Counter[int] = field(default_factory=Counter)
    shares: dict[str, float] = field(default_factory=dict)
    refused: int = 0
    requests: int = 0
    took_s: float | None = None
    """None, if there was no report in the end."""
    words: str = ""


def read(lines: Iterable[str], errors: Iterable[str]) -> Report:
    """The report, read from its stdout and stderr."""
    report = Report(refused=sum("Connection refused" in line for line in errors))
    in_head = False
    for line in lines:
        if line.startswith("LOG: header received:"):
            in_head = True
        elif in_head:
            if found := re.match(r"HTTP/1\.[01] (\d{3})", line):
                report.statuses[int(found[1])] += 1
            elif found := re.match(r"(?i)x-worker: *(.+)", line):
                report.shares[found[1]] = report.shares.get(found[1], 0.0) + 1
            in_head = bool(line.strip())
        elif report.words or line.startswith("Server Software:"):
            report.words += line
            if found := re.match(r"Time taken for tests: +([\d.]+)", line):
                report.took_s = float(found[1])
            elif found := re.match(r"Complete requests: +(\d+)", line):
                report.requests = int(found[1])
    return report


def told(report: Report, took_s: float, gnuplot: list[str]) -> tuple[dict[str, float], list[float]]:
    """The figures, and the latencies in whole milliseconds, by the second in which they began. ab does not show which
    latencies are of served requests, so there are none unless all were served."""
    outcomes = outcomes_of(report.statuses)
    without = max(0, report.requests - report.statuses.total())
    outcomes[REFUSED] = min(report.refused, without)
    outcomes[BROKEN] += without - outcomes[REFUSED]
    figures = of_counts(outcomes, report.statuses, took_s)
    if figures["served"] < figures["requests"]:
        return figures, []
    rows = [line.split("\t") for line in gnuplot[1:]]
    latencies_ms = [float(row[4]) for row in sorted(rows, key=lambda row: int(row[1]))]
    return figures | of_latencies(latencies_ms), latencies_ms
