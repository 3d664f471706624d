"""The load of cases with HTTP/2: h2load on a core of its own, over TLS, or in clear text and with prior knowledge."""

import math
import re
import subprocess
from pathlib import Path

from bench.mixed_load import percentile
from bench.wrk import GRACE_S, Load, Seen

# Each request of the last run: when it began, its status, and how long it took.
LOG = Path(".bench/h2load.log")


def command(load: Load, port: int, seconds: int, core: int, log: Path) -> list[str]:
    return [
        *("taskset", "-c", str(core), "h2load", "-t1", f"-c{load.connections}", f"-m{load.streams}", f"-D{seconds}"),
        # Without it a server over TLS that speaks no HTTP/2 would be asked by HTTP/1.1.
        "--npn-list=h2",
        *(f"--log-file={log}", f"{'https' if load.tls else 'http'}://127.0.0.1:{port}{load.path}"),
    ]


def run(load: Load, port: int, seconds: int, core: int, body_bytes: int) -> Seen:
    LOG.parent.mkdir(exist_ok=True)
    # It appends.
    LOG.unlink(missing_ok=True)
    done = subprocess.run(
        command(load, port, seconds, core, LOG), capture_output=True, text=True, check=True, timeout=seconds + GRACE_S
    )
    return parsed(done.stdout + done.stderr, LOG.read_text(), seconds, body_bytes)


def parsed(output: str, log: str, seconds: int, body_bytes: int) -> Seen:
    """Answers that the end of the time cut off are none of its requests, but counted by their status."""
    requests = re.search(r"^requests: .* (\d+) succeeded, (\d+) failed, ", output, re.MULTILINE)
    moved = re.search(r"^status codes: .* (\d+) 3xx, ", output, re.MULTILINE)
    traffic = re.search(r"^traffic: .*\((\d+)\) data$", output, re.MULTILINE)
    if requests is None or moved is None or traffic is None:
        raise RuntimeError(f"h2load gave no result: {output}")
    # It takes an answer that is elsewhere for a success.
    done = int(requests[1]) - int(moved[1])
    short = max(0, math.ceil(done - int(traffic[1]) / body_bytes))
    failures = int(requests[2]) + int(moved[1]) + short
    times_ms = [int(line.split("\t")[2]) / 1e3 for line in log.splitlines()]
    return Seen(
        requests=done,
        duration_s=seconds,
        p50_ms=percentile(times_ms, 0.5),
        p99_ms=percentile(times_ms, 0.99),
        failures=failures,
        bytes=int(traffic[1]),
    )
