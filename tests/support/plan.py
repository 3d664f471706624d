"""Where each test file runs: tests/plan.toml, read."""

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
RUNS = ("gate", "nightly", "by_hand")
"""Each test file is in exactly one of these lists. The others are for parts of them."""


@dataclass(frozen=True)
class Plan:
    """Lists of places, which are files and folders by their paths under tests/."""

    lists: dict[str, list[str]]

    def has(self, name: str, file: str) -> bool:
        return self.runs_of(file) == [name] if name in RUNS else bool(self._nearest(name, file))

    def runs_of(self, file: str) -> list[str]:
        """The runs that name the file, or else the nearest folder above it."""
        nearest = {run: self._nearest(run, file) for run in RUNS}
        longest = max(map(len, nearest.values()))
        return [run for run, place in nearest.items() if place and len(place) == longest]

    def _nearest(self, name: str, file: str) -> str:
        """The place of a list that is the file or has it, the innermost one; "" if there is none."""
        return max((place for place in self.lists[name] if is_at(place, file)), key=len, default="")


def is_at(place: str, file: str) -> bool:
    return file == place or file.startswith(f"{place}/")


@functools.cache
def read() -> Plan:
    return Plan(tomllib.loads((TESTS / "plan.toml").read_text()))
