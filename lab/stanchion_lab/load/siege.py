"""Siege (Debian's siege): clients that ask again, over TCP.

Siege measures in hundredths of a second, and takes an answer that breaks off as whole. The lab counts its line for each
answer (verbose). Its patience is with each read, not with the request, and where a server is silent it may wait much
longer: past all bounds the lab interrupts it, and counts the requests under way then as late. But siege does not count
the requests that are under way when its own time ends (--time), so their number is unknown.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stanchion_lab.load.figures import Request, of_requests, outcome_of, served_ms
from stanchion_lab.load.offered import Failed, Offered, Progress, Target
from stanchion_lab.load.program import Can, addresses, run
from stanchion_lab.result import BROKEN, LATE, REFUSED
from stanchion_lab.scenario import Load

CAN = Can(clients=True, paths=True)
CONFIGURATION = "siege.rc"
URLS = "siege.urls"
# Each client goes through the file; the random choice (--internet) is not, and differs from the shares by half.
HOW = ["--rc", CONFIGURATION, "--benchmark", "--file", URLS]
ANSWER = re.compile(r"HTTP/1\.[01] (\d{3}) +([\d.]+) secs: +\d+ bytes ==> GET +(\S+)")


def argv(load: Load, target: Target) -> list[str]:
    CAN.check("siege", load, target)
    if load.requests and load.for_s:
        raise Failed("siege takes either requests or for_s, not both")
    if load.requests % load.connections:
        raise Failed(f"each client of siege asks as often: {load.requests} is no multiple of {load.connections}")
    amount = (
        ["--reps", str(load.requests // load.connections)] if load.requests else ["--time", f"{math.ceil(load.for_s)}S"]
    )
    return ["siege", *HOW, "--concurrent", str(load.connections), *amount]


def configuration(load: Load) -> str:
    """All that an operator's own .siegerc could change."""
    settings = {
        "verbose": "true",
        "color": "off",
        "logging": "false",
        "show-logfile": "false",
        "protocol": "HTTP/1.1",
        "connection": "keep-alive" if load.keep_alive else "close",
        "limit": str(load.connections),
        "timeout": str(math.ceil(load.patience_s)),
        "failures": str(10**9),
        "parser": "false",
        "cache": "false",
        "follow": "false",
        "chunked": "true",
    }
    return "".join(f"{name} = {value}\n" for name, value in settings.items())


def offer(load: Load, target: Target, directory: Path, progress: Progress) -> Offered:
    command = argv(load, target)
    (directory / CONFIGURATION).write_text(configuration(load))
    (directory / URLS).write_text("".join(f"{url}\n" for url in addresses(load, target)))
    # It writes into the home directory.
    ran = run(command, load, directory, progress, HOME=str(directory))
    report = read(ran.lines(ran.stdout), ran.lines(ran.stderr))
    if report.took_s is None:
        raise ran.failed("siege gave up")
    requests = told(report, load.requests if ran.stopped else 0, load.connections)
    return Offered(
        "siege",
        ran.command,
        of_requests(requests, report.took_s),
        served_ms(requests),
        words={"siege": report.words},
    )


@dataclass
class Report:
    answers: list[Request]
    refused: int = 0
    late: int = 0
    hits: int = 0
    failed: int = 0
    took_s: float | None = None
    words: str = ""


def read(answers: Iterable[str], rest: Iterable[str]) -> Report:
    """The report, read from its stdout and stderr."""
    report = Report([])
    for line in answers:
        if found := ANSWER.search(line):
            status = int(found[1])
            report.answers.append(Request(0.0, found[3], outcome_of(status), float(found[2]), status))
    for line in rest:
        if "error" in line:
            report.refused += "Connection refused" in line
            report.late += "timed out" in line
        elif found := re.match(r"Transactions:\s+(\d+) hits", line):
            report.hits = int(found[1])
        elif found := re.match(r"Failed transactions:\s+(\d+)", line):
            report.failed = int(found[1])
        elif found := re.match(r"Elapsed time:\s+([\d.]+) secs", line):
            report.took_s = float(found[1])
        if ":" in line and "error" not in line:
            report.words += line
    return report


def told(report: Report, asked: int, clients: int) -> list[Request]:
    """One request for each of its hits and failures. A failure without an answer has no line of its own. `asked` is
    the load's requests if siege had to be stopped, else 0: those for which its clients then waited are late."""
    without = max(0, report.hits + report.failed - len(report.answers))
    outcomes = Counter({REFUSED: min(report.refused, without)})
    outcomes[LATE] = min(report.late, without - outcomes[REFUSED])
    outcomes[BROKEN] = without - outcomes.total()
    outcomes[LATE] += max(0, min(clients, asked - without - len(report.answers)))
    return report.answers + [Request(0.0, "", outcome) for outcome in outcomes.elements()]
