"""The same load several times at once, as from so many machines, and told as one."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from stanchion_lab.load.figures import of_latencies
from stanchion_lab.load.offered import Offered, Progress, Target
from stanchion_lab.result import is_counted
from stanchion_lab.scenario import Load


def offer(
    one: Callable[[Load, Target, Path, Progress], Offered],
    load: Load,
    target: Target,
    directory: Path,
    progress: Progress,
) -> Offered:
    """Each copy has a directory of its own, for a tool's files have fixed names. The progress is the first one's."""
    single = msgspec.structs.replace(load, copies=1)
    places = [directory / f"copy-{number}" for number in range(1, load.copies + 1)]
    for place in places:
        place.mkdir(exist_ok=True)
    with ThreadPoolExecutor(load.copies) as pool:
        running = [
            pool.submit(one, single, target, place, progress if place == places[0] else lambda _: None)
            for place in places
        ]
        return merged([each.result() for each in running])


def in_one(load: Load) -> Load:
    """As one load of the same size, for a tool that is part of this process."""
    return msgspec.structs.replace(
        load,
        copies=1,
        rate_per_s=load.copies * load.rate_per_s,
        requests=load.copies * load.requests,
        connections=load.copies * load.connections,
    )


def merged(copies: list[Offered]) -> Offered:
    """Counts and rates add up, latencies are those of all; those of each path are left out."""
    figures: dict[str, float] = {}
    shares: dict[str, float] = {}
    for copy in copies:
        for name, value in copy.figures.items():
            if is_counted(name) or name == "per_s":
                figures[name] = figures.get(name, 0.0) + value
        for worker, share in copy.shares.items():
            shares[worker] = shares.get(worker, 0.0) + share
    latencies_ms = [latency_ms for copy in copies for latency_ms in copy.latencies_ms]
    return Offered(
        copies[0].tool,
        "\n".join(copy.command for copy in copies),
        figures | of_latencies(latencies_ms),
        latencies_ms,
        timeline=sorted(request for copy in copies for request in copy.timeline),
        shares=shares,
        words={
            f"{name} {number}": words for number, copy in enumerate(copies, 1) for name, words in copy.words.items()
        },
    )
