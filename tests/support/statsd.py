"""A statsd server that a test plays: it takes what is sent, and adds up."""

import re
import select
import socket
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support.patience import PATIENCE_S

METRIC = re.compile(r"([\w.-]+):(\d+(?:\.\d+)?)\|(c\|@1\.0|g|ms|h)(?:\|#(.+))?")


@dataclass(frozen=True)
class Metric:
    name: str
    value: float
    kind: str
    """The kind as it was written: `c|@1.0`, `g`, `ms` or `h`."""
    tags: str | None


class Statsd:
    """A datagram socket, UDP at the loopback or at a path."""

    def __init__(self, path: Path | None = None) -> None:
        self._socket = socket.socket(socket.AF_UNIX if path else socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(str(path) if path else ("127.0.0.1", 0))
        self._socket.settimeout(PATIENCE_S)
        self.address = f"unix://{path}" if path else f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.metrics: list[Metric] = []
        self.longest_bytes = 0

    def __enter__(self) -> "Statsd":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def take(self) -> None:
        """The next datagram."""
        datagram = self._socket.recv(65536)
        self.longest_bytes = max(self.longest_bytes, len(datagram))
        for line in datagram.decode().split("\n"):
            found = METRIC.fullmatch(line)
            assert found, f"not a metric: {line!r}"
            name, value, kind, tags = found.groups()
            self.metrics.append(Metric(name, float(value), kind, tags))

    def take_all(self) -> None:
        """All that have come by now."""
        while select.select([self._socket], [], [], 0)[0]:
            self.take()

    def wait(self, name: str, enough: Callable[[float], bool]) -> None:
        """Wait until the sum of that counter, or the last value of that gauge, is enough."""
        deadline = time.monotonic() + PATIENCE_S
        while not enough(self.sums()[name]) and not enough(self.gauges().get(name, -1)):
            assert time.monotonic() < deadline, f"{name} is at {self.sums()[name]}, {self.gauges().get(name)}"
            self.take()

    def sums(self) -> dict[str, float]:
        """The sums of the counters."""
        sums: dict[str, float] = defaultdict(float)
        for metric in self.metrics:
            if metric.kind.startswith("c"):
                sums[metric.name] += metric.value
        return sums

    def gauges(self) -> dict[str, float]:
        """The last value of each gauge."""
        return {metric.name: metric.value for metric in self.metrics if metric.kind == "g"}

    def values(self, name: str) -> list[float]:
        return [metric.value for metric in self.metrics if metric.name == name]
