"""What became of each request: the clients' account beside that of the app."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

SCRIPT = Path(__file__).parent / "load.py"


class Request(NamedTuple):
    """A row of load.py."""

    number: int
    method: str
    sent: float
    took_s: float
    status: int
    said: str


@dataclass
class Account:
    """All requests of a load, and how often the app ran each."""

    requests: list[Request]
    runs: Counter[tuple[int, str]]

    @property
    def lost(self) -> list[Request]:
        """Requests without the app's answer."""
        return [request for request in self.requests if request.status != 200]

    @property
    def twice(self) -> list[tuple[int, str]]:
        return [request for request, times in self.runs.items() if times > 1]

    @property
    def not_run(self) -> list[Request]:
        """Requests that have an answer of 200 though the app did not write them down."""
        return [one for one in self.requests if one.status == 200 and not self.runs[one.number, one.method]]

    def took_s(self, share: float, requests: list[Request] | None = None) -> float:
        """The time within which so large a share of the requests ended."""
        times = sorted(one.took_s for one in (self.requests if requests is None else requests))
        return times[min(len(times) - 1, int(share * len(times)))]

    def summary(self) -> str:
        statuses = Counter(one.status for one in self.requests)
        reasons = Counter(one.said[:80] for one in self.lost)
        times = (
            f"p50 {self.took_s(0.5) * 1e3:.0f} p99 {self.took_s(0.99) * 1e3:.0f} worst {self.took_s(1) * 1e3:.0f} ms"
        )
        return (
            f"{len(self.requests)} sent, answers {dict(statuses)}, {len(self.lost)} lost {dict(reasons)}, "
            f"{len(self.twice)} run twice, {times}"
        )


class Load:
    """A load under way; the `with` ends when its last request has ended."""

    def __init__(self, out: Path, counts: Path, host: str, port: int, *plan: str, what: str = "/sleep") -> None:
        self._out, self._counts = out, counts
        self._client = subprocess.Popen([sys.executable, SCRIPT, out, host, str(port), what, *plan])

    def run_so_far(self) -> int:
        return runs(self._counts).total()

    def end(self) -> Account:
        """Send no further request."""
        self._client.terminate()
        return self.account()

    def account(self, within_s: float = 600) -> Account:
        """Wait for the answer to the last request, then compare."""
        assert self._client.wait(within_s) == 0
        requests = sorted(Request(*row) for row in json.loads(self._out.read_text()))
        return Account(requests, runs(self._counts))

    def kill(self) -> None:
        self._client.kill()
        self._client.wait()


def runs(counts: Path) -> Counter[tuple[int, str]]:
    """How often the app ran each request: every line of its files is one execution."""
    lines = [line.split() for file in counts.iterdir() if file.name != "open" for line in file.read_text().splitlines()]
    return Counter((int(number), method) for number, method in lines)
