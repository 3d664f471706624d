"""vegeta (from its releases): a rate. Each request of it is written down, with its error in words.

A latency counts from when the request was sent, which vegeta does late rather than not at all where it cannot keep up.
"""

import math
from collections.abc import Iterable
from datetime import datetime
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from stanchion_lab.load.figures import Request, of_requests, outcome_of, served_ms, shares_of
from stanchion_lab.load.offered import Failed, Offered, Progress, Target
from stanchion_lab.load.program import Can, run
from stanchion_lab.load.schedule import paths
from stanchion_lab.result import BROKEN, LATE, REFUSED
from stanchion_lab.scenario import Load

CAN = Can(rate=True, unix=True, paths=True, kept_rate=True)
TARGETS = "vegeta.targets"
RESULTS = "vegeta.bin"
ENCODED = "vegeta.json"
OUR_OWN = ("too many open files", "cannot assign requested address")
REFUSALS = ("connection refused", "resource temporarily unavailable", "no such file or directory")
GIVEN_UP = ("deadline exceeded", "Client.Timeout", "timeout")


def argv(load: Load, target: Target) -> list[str]:
    CAN.check("vegeta", load, target)
    kept = ["-keepalive=false"]
    if load.keep_alive:
        kept = [f"-connections={load.connections}", f"-max-connections={load.connections}"]
    return [
        *("vegeta", "attack", f"-targets={TARGETS}", f"-output={RESULTS}"),
        # Its rates are whole numbers, of any duration.
        f"-rate={round(load.rate_per_s * 1000)}/1000s",
        f"-duration={math.ceil(load.for_s * 1e3)}ms",
        f"-timeout={math.ceil(load.patience_s * 1e3)}ms",
        *kept,
        *("-redirects=-1", "-http2=false", "-max-body=0"),
        *([f"-unix-socket={target.unix_path}"] if target.unix_path else []),
    ]


class Hit(msgspec.Struct):
    """A line of `vegeta encode -to json`."""

    code: int
    timestamp: datetime
    latency: int
    """Nanoseconds."""
    error: str = ""
    url: str = ""
    headers: dict[str, list[str]] | None = None


def offer(load: Load, target: Target, directory: Path, progress: Progress) -> Offered:
    command = argv(load, target)
    # It takes them in turn: one for each request, or the only one again and again.
    count = round(load.rate_per_s * load.for_s) if len(load.paths) > 1 else 1
    targets = (f"GET {target.url(path)}\n" for path in islice(paths(load.paths), count))
    (directory / TARGETS).write_text("\n".join(targets))
    ran = run(command, load, directory, progress)
    if ran.gave_up:
        raise ran.failed("vegeta gave up")
    encoding = run(["vegeta", "encode", "-to=json", f"-output={ENCODED}", RESULTS], load, directory, progress)
    if encoding.gave_up:
        raise encoding.failed("vegeta could not read its own results")
    with (directory / ENCODED).open("rb") as lines:
        requests = read(lines)
    return Offered(
        "vegeta",
        ran.command,
        of_requests(requests),
        served_ms(requests),
        [(one.due_s, one.latency_s * 1e3, one.outcome) for one in requests],
        shares_of(requests),
    )


def read(lines: Iterable[bytes]) -> list[Request]:
    """In order of their being sent."""
    decoder = msgspec.json.Decoder(Hit)
    hits = sorted((decoder.decode(line) for line in lines), key=lambda hit: hit.timestamp)
    return [
        Request(
            (hit.timestamp - hits[0].timestamp).total_seconds(),
            urlsplit(hit.url).path,
            outcome := outcome_of_hit(hit),
            hit.latency / 1e9,
            hit.code if outcome == outcome_of(hit.code) else 0,
            next(iter((hit.headers or {}).get("X-Worker", [])), ""),
        )
        for hit in hits
    ]


def outcome_of_hit(hit: Hit) -> str:
    """Its error is the status line, where the status is one of failure, and else why there was no whole answer."""
    if hit.code and (not hit.error or hit.error.startswith(str(hit.code))):
        return outcome_of(hit.code)
    for own in OUR_OWN:
        if own in hit.error:
            raise Failed(f"vegeta could not go on: {hit.error}; offer fewer requests, or raise `ulimit -n`")
    if any(refusal in hit.error for refusal in REFUSALS):
        return REFUSED
    return LATE if any(words in hit.error for words in GIVEN_UP) else BROKEN
