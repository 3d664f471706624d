"""The load of most cases: wrk on a core of its own."""

import json
import math
import re
import subprocess
from dataclasses import dataclass

# wrk ends by itself; this is how much later it may be.
GRACE_S = 10.0


@dataclass(frozen=True)
class Load:
    connections: int = 32
    # A POST with a body of so many bytes; 0: a GET.
    post_bytes: int = 0
    close: bool = False
    path: str = "/"
    tls: bool = False
    # By HTTP/2, in clear text with prior knowledge: so many streams at a time on each connection. 0: by HTTP/1.1.
    streams: int = 0


@dataclass(frozen=True)
class Seen:
    requests: int
    duration_s: float
    p50_ms: float
    p99_ms: float
    # Answers of 400 and above, reads and writes that failed, answers that were short, and those that took over 2 s.
    failures: int
    # Of heads and bodies, also of answers that the end of the time cut off.
    bytes: int = 0


def command(load: Load, port: int, seconds: int, core: int) -> list[str]:
    return [
        *("taskset", "-c", str(core), "wrk", "-t1", f"-c{load.connections}", f"-d{seconds}s", "-s", "bench/load.lua"),
        *(["-H", "Connection: close"] if load.close else []),
        *(f"{'https' if load.tls else 'http'}://127.0.0.1:{port}{load.path}", "--", str(load.post_bytes)),
    ]


def run(load: Load, port: int, seconds: int, core: int, body_bytes: int) -> Seen:
    done = subprocess.run(
        command(load, port, seconds, core), capture_output=True, text=True, check=True, timeout=seconds + GRACE_S
    )
    return parsed(done.stdout + done.stderr, body_bytes)


def parsed(output: str, body_bytes: int) -> Seen:
    result = re.search(r"^RESULT (.*)$", output, re.MULTILINE)
    if result is None:
        raise RuntimeError(f"wrk gave no result: {output}")
    seen = json.loads(result[1])
    errors = sum(seen[kind] for kind in ("connect", "read", "write", "status", "timeout"))
    # wrk does not look at bodies, but counts bytes, and heads come on top of these.
    short = max(0, math.ceil(seen["requests"] - seen["bytes"] / body_bytes))
    return Seen(
        requests=seen["requests"],
        duration_s=seen["duration_us"] / 1e6,
        p50_ms=seen["p50_us"] / 1e3,
        p99_ms=seen["p99_us"] / 1e3,
        failures=errors + short,
        bytes=seen["bytes"],
    )
