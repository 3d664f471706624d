"""The result of a run: one JSON file, from which the report is made, and any other report can be."""

import lzma
import statistics
from collections.abc import Iterable
from pathlib import Path

import msgspec

from stanchion_lab.scenario import Claim, Mistake, Scenario, Size

FILE = "result.json"
PACKED = ".json.xz"
"""So end the names of results that `stanchion-lab keep` has written."""

# The outcomes of a request. Each request has exactly one; these are names of figures.
SERVED = "served"  # 200 to 399, within the client's patience
TOLD = "told"  # 503 or 429: turned away, but with an answer
GATEWAY = "gateway"  # 502 or 504, from the proxy in front
ERROR = "error"  # any other status
REFUSED = "refused"  # no connection: the kernel's queue was full, or no process listened
BROKEN = "broken"  # reset, or closed without a whole answer
LATE = "late"  # nothing, for as long as the client's patience lasted
OUTCOMES = (SERVED, TOLD, GATEWAY, ERROR, REFUSED, BROKEN, LATE)

NOT_COUNTED = ("latency_ms.", "behind_ms.", "backlog.", "waiting_max.", "queues.", "cpu_s", "share.", "after.")
"""So begin the names of figures of which nothing is known where they are absent. A count is 0 then."""


class Measured(msgspec.Struct, kw_only=True):
    """One repeat of one trial."""

    trial: str
    repeat: int
    began: str = ""
    """RFC 3339, UTC."""
    took_s: float = 0.0
    tool: str = ""
    figures: dict[str, float] = {}
    """By name. The client's: `requests`, those of OUTCOMES, `failed` (all that were neither served nor told),
    `status.NNN`, `per_s`, `over_1s` (served later than that), and of those served `latency_ms.min`, `.mean`, `.p50`,
    `.p90`, `.p99`, `.max`, `.stddev`, also by path (`latency_ms.p99/slow`). Of the lab's own client in an open loop
    `behind_ms.p99` and `.max`, how late it came to its own arrivals; of httperf `unsent`, what it could not begin; of a
    ramp `best_per_s`.
    The kernel's: `kernel.ListenOverflows` and the like, as they grew; `backlog.NAME` in force, `waiting_max.NAME` and
    `queues.NAME` for each server. The logs': `log.NAME.requests`, `log.NAME.status.NNN`, `log.NAME.errno.NN`,
    `log.NAME.closed_early`, `log.NAME.retried`. The app's, of a numbered load: `ran` (how often), `ran.twice` (requests
    that ran more than once), `lost` (not served), `ran.lost` (lost, though they ran), `ran.never` (served, though they
    did not run). The scheduler's: `cpu_s.NAME`, and `cpu_s` of all servers. Of `shares`: `share.max` and
    `share.min`, the parts of the busiest and of the idlest worker. Of a trial with deeds, about the requests that were
    due after the last of them: `after.requests`, `after.served`, `after.share` (of these that were served) and
    `after.recovered_s` (until the first of those that were all served)."""
    latencies_ms: list[float] = []
    """The latencies of served requests, in order of their arrival."""
    timeline: list[tuple[float, float, str]] = []
    """Each request: when it was due (s from the start), its latency (ms), its outcome."""
    shares: dict[str, float] = {}
    """How much of the work each worker did: requests, by the answer's X-Worker, or else CPU seconds, by its place."""
    steps: list[dict[str, float]] = []
    """For a ramp, the figures of each rate, with `rate_per_s`."""
    commands: dict[str, str] = {}
    sysctl: dict[str, int] = {}
    """As the kernel had them, read back."""
    words: dict[str, str] = {}
    """The tool's own report, the tails of the servers' logs; the raw results."""
    failure: str = ""
    """Why there are no figures: a server that did not start, a tool that failed."""


class Host(msgspec.Struct, kw_only=True):
    kernel: str
    cores: int
    memory_mb: int
    python: str
    stanchion: str = ""
    """In older results; newer ones have it among `versions`."""
    versions: dict[str, str]
    """The version of each program that took part."""


class Result(msgspec.Struct, kw_only=True):
    name: str
    size: Size
    scenario: Scenario
    began: str
    host: Host
    measured: list[Measured]
    missing: dict[str, str] = {}
    """Trials that could not be run here, and what they lack."""

    def of(self, trial: str) -> list[Measured]:
        """The repeats that have figures."""
        return [one for one in self.measured if one.trial == trial and not one.failure]

    def values(self, reference: str) -> list[float]:
        """A figure in all repeats that can know it, by `TRIAL:FIGURE`. A status or counter that a trial never saw is
        0."""
        trial, _, figure = reference.partition(":")
        return [one.figures.get(figure, 0.0) for one in self.of(trial) if figure in one.figures or is_counted(figure)]


def is_counted(figure: str) -> bool:
    """Such figures add up."""
    return not figure.startswith(NOT_COUNTED) and not figure.endswith("per_s")


def median(values: Iterable[float]) -> float:
    """NaN of nothing."""
    known = list(values)
    return statistics.median(known) if known else float("nan")


class Verdict(msgspec.Struct, frozen=True):
    claim: Claim
    holds: bool | None
    """None where a trial has no figures."""
    left: float
    right: float


def verdict(result: Result, claim: Claim) -> Verdict:
    """Whether it holds for the medians of the repeats."""
    left = median(result.values(claim.of))
    right = (median(result.values(claim.than)) if isinstance(claim.than, str) else claim.than) * claim.times
    if left != left or right != right:
        return Verdict(claim, None, left, right)
    holds = {"<": left < right, "<=": left <= right, "==": left == right, ">=": left >= right, ">": left > right}
    return Verdict(claim, holds[claim.be], left, right)


def write(result: Result, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / FILE
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
    return path


def read(path: Path) -> Result:
    """From the file, or the directory that has it."""
    file = path / FILE if path.is_dir() else path
    try:
        data = file.read_bytes()
        return msgspec.json.decode(lzma.decompress(data) if file.name.endswith(PACKED) else data, type=Result)
    except OSError as error:
        raise Mistake(f"{file}: {error.strerror}; `stanchion-lab run` writes it") from error
    except (msgspec.DecodeError, lzma.LZMAError) as error:
        raise Mistake(f"{file} is no result of a run: {error}") from error
