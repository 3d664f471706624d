"""An account of what the app ran, beside what clients got: it adds the number of each request to one file at once."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from stanchion_lab.result import SERVED

FILE = "ran"
"""In the directory of the trial. A line is written at once, at the end of the file (open(2), O_APPEND), so that all
workers of all hosts can share it."""


def figures(directory: Path, outcomes: Sequence[str]) -> dict[str, float]:
    """`outcomes` are those of the requests, in the order of their numbers."""
    file = directory / FILE
    return accounts(map(int, file.read_text().split()) if file.exists() else (), outcomes)


def accounts(ran: Iterable[int], outcomes: Sequence[str]) -> dict[str, float]:
    """`lost`, the requests that were not served, whatever they got instead; `ran.twice`, those that ran more than once;
    `ran.lost`, those that ran and were lost; `ran.never`, those that were served though no app ran them, which can only
    be a fault of this count."""
    runs = Counter(ran)
    lost = {number for number, outcome in enumerate(outcomes) if outcome != SERVED}
    served = set(range(len(outcomes))) - lost
    return {
        "lost": float(len(lost)),
        "ran": float(runs.total()),
        "ran.twice": float(sum(times > 1 for times in runs.values())),
        "ran.lost": float(len(lost & runs.keys())),
        "ran.never": float(len(served - runs.keys())),
    }
