"""Where each test file runs: tests/plan.toml, read."""

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
FOLDERS = {TESTS: "", TESTS.parent / "lab/tests": "lab/"}
"""Where tests are -> what comes before their paths in plan.toml."""
RUNS = ("gate", "nightly", "by_hand")
"""Each test file is in exactly one of these lists. The others are for parts of them."""


@dataclass(frozen=True)
class Plan:
    """Lists of places, which are files and folders by their paths under tests/; `lab` stands for lab/tests."""

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


def file_of(path: Path) -> str | None:
    """The name of a file in plan.toml; None if it is in no folder of tests."""
    return next(
        (before + str(path.relative_to(folder)) for folder, before in FOLDERS.items() if path.is_relative_to(folder)),
        None,
    )


def files() -> list[str]:
    """All files of tests."""
    return sorted(str(file_of(path)) for folder in FOLDERS for path in folder.rglob("test_*.py"))


def is_at(place: str, file: str) -> bool:
    return file == place or file.startswith(f"{place}/")


@functools.cache
def read() -> Plan:
    return Plan(tomllib.loads((TESTS / "plan.toml").read_text()))
