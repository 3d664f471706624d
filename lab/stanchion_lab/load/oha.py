"""oha (from its crate): clients that ask again, or a rate over as many connections as it takes.

Its table of requests (--db-url) has each that was answered; of the others it knows only how many had which error.
"""

import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from stanchion_lab.load.figures import Request, of_requests, outcome_of, served_ms
from stanchion_lab.load.offered import Failed, Offered, Progress, Target
from stanchion_lab.load.program import Can, addresses, only_path, run
from stanchion_lab.result import BROKEN, LATE, REFUSED
from stanchion_lab.scenario import CONNECTIONS_MAX, Load

CAN = Can(rate=True, clients=True, unix=True, paths=True, kept_rate=True)
REPORT = "oha.json"
TABLE = "oha.db"
URLS = "oha.urls"
ROWS = "SELECT coalesce(start_latency_correction, start), url, status, duration FROM oha ORDER BY 1"


def argv(load: Load, target: Target) -> list[str]:
    CAN.check("oha", load, target)
    if load.rate_per_s > 0:
        requests = round(load.rate_per_s * load.for_s)
        # Each client has one request at a time: as many clients as there may be requests under way.
        clients = load.connections if load.keep_alive else min(requests, CONNECTIONS_MAX)
        amount = ["-n", str(requests), "-q", f"{load.rate_per_s:g}", "--latency-correction"]
    elif load.requests and load.for_s:
        raise Failed("oha takes either requests or for_s, not both")
    else:
        clients = load.connections
        amount = ["-n", str(load.requests)] if load.requests else ["-z", _milliseconds(load.for_s), "-w"]
    patience = ["-t", _milliseconds(load.patience_s), "--connect-timeout", _milliseconds(load.patience_s)]
    kept = [] if load.keep_alive else ["--disable-keepalive"]
    unix = ["--unix-socket", target.unix_path] if target.unix_path else []
    where = ["--urls-from-file", URLS] if len(load.paths) > 1 else [target.url(only_path(load))]
    told = ["--no-tui", "--output-format", "json", "--output", REPORT, "--db-url", TABLE]
    return ["oha", *told, *amount, "-c", str(clients), *patience, *kept, *unix, *where]


def _milliseconds(seconds: float) -> str:
    return f"{math.ceil(seconds * 1e3)}ms"


class _Summary(msgspec.Struct):
    total: float


class Report(msgspec.Struct, rename="camel"):
    summary: _Summary
    error_distribution: dict[str, int]


def offer(load: Load, target: Target, directory: Path, progress: Progress) -> Offered:
    command = argv(load, target)
    (directory / URLS).write_text("".join(f"{url}\n" for url in addresses(load, target)))
    (directory / TABLE).unlink(missing_ok=True)  # a step of a ramp would add to it
    ran = run(command, load, directory, progress)
    if ran.gave_up:
        raise ran.failed("oha gave up")
    text = (directory / REPORT).read_text()
    report = msgspec.json.decode(text, type=Report)
    requests = [*answered(directory / TABLE), *lost(report.error_distribution)]
    return Offered(
        "oha",
        ran.command,
        of_requests(requests, report.summary.total),
        served_ms(requests),
        [(one.due_s, one.latency_s * 1e3, one.outcome) for one in requests if one.status],
        words={"oha": text},
    )


def answered(table: Path) -> list[Request]:
    """In order of their being due."""
    connection = sqlite3.connect(table)
    try:
        rows: Iterable[tuple[float, str, int, float]] = connection.execute(ROWS).fetchall()
    except sqlite3.OperationalError:
        rows = []  # it makes no table where nothing was answered
    finally:
        connection.close()
    return [
        Request(due_s, urlsplit(url).path, outcome_of(status), latency_s, status)
        for due_s, url, status, latency_s in rows
    ]


def lost(errors: Mapping[str, int]) -> list[Request]:
    counts: Counter[str] = Counter()
    for error, count in errors.items():
        if "(os error 24)" in error or "(os error 99)" in error:  # EMFILE, EADDRNOTAVAIL
            raise Failed(f"oha could not go on, {count} times: {error}; offer fewer requests")
        # ECONNREFUSED; EAGAIN, a full queue of a unix socket; ENOENT, no socket
        refused = any(f"(os error {number})" in error for number in (111, 11, 2))
        given_up = error in ("timeout", "aborted due to deadline")
        counts[REFUSED if refused else LATE if given_up else BROKEN] += count
    return [Request(0.0, "", outcome) for outcome in counts.elements()]
