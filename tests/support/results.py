"""The outcome of each test, for the gate (scripts/try)."""

import json
import os

import pytest


class Results:
    """Writes a line of JSON for each test to a descriptor once all have run; of a run that is broken off, none."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._took_s: dict[str, float] = {}
        self._outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has up to three reports: of its set-up, itself, and its tear-down. The worst of them counts."""
        test = report.nodeid
        self._took_s[test] = self._took_s.get(test, 0.0) + report.duration
        if report.outcome != "passed" and self._outcomes.get(test) != "failed":
            self._outcomes[test] = report.outcome

    def pytest_sessionfinish(self) -> None:
        with os.fdopen(self._fd, "w") as file:
            for test, took_s in self._took_s.items():
                outcome = self._outcomes.get(test, "passed")
                file.write(json.dumps({"test": test, "outcome": outcome, "took_s": round(took_s, 3)}) + "\n")
