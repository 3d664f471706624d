"""A load, offered by one of several tools, with the same figures from each."""

import contextlib
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stanchion_lab import programs, scenario
from stanchion_lab.load import ab, copies, httperf, oha, own, siege, vegeta
from stanchion_lab.load.figures import of_latencies
from stanchion_lab.load.offered import Failed, Offered, Progress, Target
from stanchion_lab.result import is_counted
from stanchion_lab.scenario import Load, Ramp

__all__ = ["TOOLS", "Failed", "Offered", "Progress", "Target", "offer", "tool_for"]

# For what else this process has open.
DESCRIPTORS_SPARE = 64


@dataclass(frozen=True)
class Tool:
    offer: Callable[[Load, Target, Path, Progress], Offered]
    program: str = ""
    """The program that it runs; the lab's own tool runs none."""


TOOLS: Mapping[str, Tool] = {
    "own": Tool(own.offer),
    **{
        name: Tool(module.offer, program=name)
        for name, module in {"vegeta": vegeta, "oha": oha, "siege": siege, "ab": ab, "httperf": httperf}.items()
    },
}


def tool_for(load: Load) -> str:
    """The first of `load.tools` that is installed."""
    name = programs.tool_of(load)
    if not name:
        raise Failed(f"none of {', '.join(load.tools)} is installed; `stanchion-lab doctor` names the packages")
    return name


def offer(load: Load, target: Target, directory: Path, progress: Progress) -> Offered:
    """`directory` is the trial's, for what the tool reads and writes. Failed, if the tool cannot offer such a load."""
    tool = TOOLS[tool_for(load)]
    if load.copies > 1 and not tool.program:
        load = copies.in_one(load)
    with _many_descriptors(load.connections * load.copies):
        if load.copies > 1:
            return copies.offer(tool.offer, load, target, directory, progress)
        if load.ramp is None:
            return tool.offer(load, target, directory, progress)
        return _climb(tool, load, load.ramp, target, directory, progress)


def _climb(tool: Tool, load: Load, ramp: Ramp, target: Target, directory: Path, progress: Progress) -> Offered:
    """Rate after rate, up to and with the first at which requests fail. The figures count all that was offered, and
    have `best_per_s`, the highest rate without a failure (0, where the first one failed)."""
    ramp_began_s = time.monotonic()
    rates = scenario.rates(load)
    best_per_s = 0.0
    counts: Counter[str] = Counter()
    whole = Offered(tool="", command="", figures={})
    for number in range(rates):
        rate_per_s = ramp.from_per_s + number * ramp.step_per_s
        began_s = time.monotonic() - ramp_began_s
        of_rate = msgspec.structs.replace(load, ramp=None, rate_per_s=rate_per_s)
        step = tool.offer(of_rate, target, directory, _part(progress, number, rates))
        whole.tool = step.tool
        whole.command += f"{step.command}\n"
        whole.latencies_ms += step.latencies_ms
        whole.timeline += [(began_s + due_s, latency_ms, outcome) for due_s, latency_ms, outcome in step.timeline]
        whole.steps.append({"rate_per_s": rate_per_s, **step.figures})
        whole.words |= {f"{name}, {rate_per_s:g} per s": words for name, words in step.words.items()}
        for worker, share in step.shares.items():
            whole.shares[worker] = whole.shares.get(worker, 0.0) + share
        counts.update({name: value for name, value in step.figures.items() if is_counted(name)})
        if step.figures["failed"] or step.figures.get("unsent"):
            break
        best_per_s = rate_per_s
    whole.figures = {**counts, **of_latencies(whole.latencies_ms), "best_per_s": best_per_s}
    progress(1.0)
    return whole


def _part(progress: Progress, number: int, of: int) -> Progress:
    return lambda share: progress((number + share) / of)


@contextlib.contextmanager
def _many_descriptors(connections: int) -> Iterator[None]:
    """As many as may be had, for this process and the tool that it starts, and no fewer than will be needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and connections + DESCRIPTORS_SPARE > hard:
        raise Failed(f"{connections} connections need a higher `ulimit -Hn` than {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
