"""httperf (Debian's httperf): a rate, a connection for each request, over TCP, for one path.

httperf waits in select(2) and has no more than 1,024 descriptors: a request that it could not begin for want of one is
no request of the load, but counted as `unsent`; a ramp ends there too. It reports statuses by their first digit only,
so the lab makes it print each head, and counts those. It takes an answer that breaks off within its body as whole.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from stanchion_lab.load.figures import of_counts, outcomes_of
from stanchion_lab.load.offered import Offered, Progress, Target
from stanchion_lab.load.program import Can, only_path, run
from stanchion_lab.result import BROKEN, LATE, REFUSED
from stanchion_lab.scenario import Load

CAN = Can(rate=True, poisson=True)
NUMBERS = re.compile(r"([\w-]+) ([\d.]+)")


def argv(load: Load, target: Target) -> list[str]:
    CAN.check("httperf", load, target)
    host, port = target.host_and_port
    # e: exponentially distributed times between them.
    rhythm = f"--period=e{1 / load.rate_per_s:g}" if load.arrivals == "poisson" else f"--rate={load.rate_per_s:g}"
    return [
        "httperf",
        "--hog",
        f"--server={host}",
        f"--port={port}",
        f"--uri={only_path(load)}",
        rhythm,
        f"--num-conns={round(load.rate_per_s * load.for_s)}",
        "--num-calls=1",
        f"--timeout={load.patience_s:g}",
        "--print-reply=header",
    ]


def offer(load: Load, target: Target, directory: Path, progress: Progress) -> Offered:
    ran = run(argv(load, target), load, directory, progress)
    report = read(ran.lines(ran.stdout))
    if ran.gave_up or report.took_s is None:
        raise ran.failed("httperf gave up")
    return Offered(
        "httperf", ran.command, told(report, report.took_s), shares=report.shares, words={"httperf": report.words}
    )


@dataclass
class Report:
    statuses: Counter[int] = field(default_factory=Counter)
    shares: dict[str, float] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    connection_ms: dict[str, float] = field(default_factory=dict)
    """min, avg, max, median and stddev of the life of connections, which with one request each is its latency."""
    connections: int = 0
    took_s: float | None = None
    """None, if there was no report in the end."""
    words: str = ""


def read(lines: Iterable[str]) -> Report:
    report = Report()
    for line in lines:
        if found := re.match(r"RH\d+:HTTP/1\.[01] (\d{3})", line):
            report.statuses[int(found[1])] += 1
        elif found := re.match(r"(?i)RH\d+:x-worker: *(.+)", line):
            report.shares[found[1]] = report.shares.get(found[1], 0.0) + 1
        elif not re.match(r"R[HBS]\d+:", line):
            report.words += line
            if found := re.match(r"Total: connections (\d+) .*test-duration ([\d.]+) s", line):
                report.connections, report.took_s = int(found[1]), float(found[2])
            elif line.startswith("Connection time [ms]: min"):
                report.connection_ms = {name: float(value) for name, value in NUMBERS.findall(line)}
            elif line.startswith("Errors:"):
                report.errors |= {name: int(value) for name, value in NUMBERS.findall(line)}
    return report


def told(report: Report, took_s: float) -> dict[str, float]:
    """The figures. httperf does not show which latencies are of served requests: there are none unless all were."""
    errors = report.errors
    unsent = errors["fd-unavail"] + errors["addrunavail"] + errors["ftab-full"]
    outcomes = outcomes_of(report.statuses)
    outcomes[LATE], outcomes[REFUSED] = errors["client-timo"] + errors["socket-timo"], errors["connrefused"]
    # Reset, or closed without an answer, which it counts as reset too.
    outcomes[BROKEN] = max(0, report.connections - unsent - outcomes.total())
    figures = of_counts(outcomes, report.statuses, took_s) | {"unsent": float(unsent)}
    if figures["served"] < figures["requests"] or not figures["served"]:
        return figures
    names = {"min": "min", "mean": "avg", "p50": "median", "max": "max", "stddev": "stddev"}
    return figures | {f"latency_ms.{ours}": report.connection_ms[theirs] for ours, theirs in names.items()}
