"""A server's counts of its requests and their outcomes, asked over its control socket."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.patience import PATIENCE_S, eventually


class Counts:
    """The counts of the server whose control socket is at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def arguments(self) -> list[str]:
        """Arguments for the server."""
        return ["--control", f"unix:{self.path}"]

    def requests(self) -> dict[str, int]:
        counts: dict[str, int] = self.status()["requests"]
        ends = sum(count for name, count in counts.items() if name not in ("arrived", "in_flight"))
        assert counts["arrived"] == ends + counts["in_flight"], f"they do not add up: {counts}"
        return counts

    def events(self) -> dict[str, int]:
        counts: dict[str, int] = self.status()["events"]
        return counts

    def open_connections(self) -> int:
        events = self.events()
        return events["connections_accepted"] - events["connections_closed"] - events["connections_lost"]

    def status(self) -> dict[str, Any]:
        """All that `stanchion ctl status` shows."""
        status: dict[str, Any] = self._ask("status")
        return status

    def workers(self) -> list[dict[str, Any]]:
        """All that `stanchion ctl workers` shows."""
        workers: list[dict[str, Any]] = self._ask("workers")
        return workers

    def ready_workers(self) -> list[int]:
        return [worker["pid"] for worker in self.workers() if worker["stage"] == "ready"]

    def _ask(self, command: str) -> Any:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(str(self.path))
            connection.sendall(json.dumps({"command": command}).encode() + b"\n")
            with connection.makefile("rb") as answers:
                return json.loads(answers.readline())["data"]

    def settled(self) -> dict[str, int]:
        """The counts of requests at a moment when none is in flight: one of a client that has left may still come."""
        counts: dict[str, int] = {}

        def is_settled() -> bool:
            counts.update(self.requests())
            return counts["in_flight"] == 0

        eventually(is_settled, "nothing is in flight")
        return counts

    @contextmanager
    def one_more(self, name: str) -> Iterator[None]:
        """The block makes one request that ends in `name`, and changes no other outcome."""
        before = self.requests()
        yield
        eventually(lambda: self.requests()[name] > before[name], f"one more is counted as {name}")
        after = self.requests()
        rose = {key: after[key] - count for key, count in before.items() if after[key] != count}
        rose.pop("in_flight", None)
        # It may have arrived before, with others, and then have been in flight.
        rose.pop("arrived", None)
        assert rose == {name: 1}
