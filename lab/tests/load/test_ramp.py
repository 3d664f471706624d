"""A ramp: rate after rate, up to the first with failures."""

import socket
import threading
from pathlib import Path

import pytest

from stanchion_lab import programs
from stanchion_lab.load import TOOLS, Offered, Progress, Target, Tool, offer
from stanchion_lab.result import OUTCOMES
from stanchion_lab.scenario import Load, Ramp
from support.patience import PATIENCE_S
from support.scripted import request_line, scripted

RAMP = Ramp(from_per_s=10, to_per_s=50, step_per_s=10)


class Brittle:
    """Answers so many requests, and then no more."""

    def __init__(self, good: int, status: str = "500 Broken") -> None:
        self.good = good
        self.status = status
        self.lock = threading.Lock()

    def __call__(self, connection: socket.socket) -> None:
        request_line(connection)
        with self.lock:
            self.good -= 1
            status = "200 OK" if self.good >= 0 else self.status
        connection.sendall(
            f"HTTP/1.1 {status}\r\nX-Worker: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode()
        )


def offered(script: Brittle, tool: str, directory: Path, ramp: Ramp = RAMP) -> Offered:
    load = Load(tools=[tool], ramp=ramp, for_s=0.2, patience_s=PATIENCE_S)
    with scripted(script) as address:
        return offer(load, Target(address), directory, lambda share: None)


@pytest.mark.parametrize("tool", ["own", "httperf", "oha", "vegeta"])
def test_stops_at_the_first_failure(tool: str, tmp_path: Path) -> None:
    if not programs.tool_of(Load(tools=[tool])):
        pytest.skip(f"{tool} is not installed")
    got = offered(Brittle(2 + 4 + 3), tool, tmp_path)
    assert [step["rate_per_s"] for step in got.steps] == [10, 20, 30]
    assert [step["requests"] for step in got.steps] == [2, 4, 6]
    assert [step["failed"] for step in got.steps] == [0, 0, 3]
    assert got.figures["best_per_s"] == 20
    # The figures count all, and add up.
    assert got.figures["requests"] == sum(got.figures[outcome] for outcome in OUTCOMES) == 12
    assert (got.figures["status.200"], got.figures["status.500"]) == (9, 3)
    assert got.tool == tool and len(got.command.splitlines()) == 3


def test_the_timeline_goes_on(tmp_path: Path) -> None:
    got = offered(Brittle(2 + 4 + 6 + 8 + 10), "own", tmp_path)
    assert got.figures["best_per_s"] == 50
    due_s = [due_s for due_s, _, _ in got.timeline]
    assert len(due_s) == 30 and due_s == sorted(due_s)
    assert len(got.latencies_ms) == 30 and got.shares == {"1": 30}


def test_the_first_rate_fails(tmp_path: Path) -> None:
    got = offered(Brittle(1), "own", tmp_path)
    assert len(got.steps) == 1 and got.figures["best_per_s"] == 0


def test_to_be_told_is_no_failure(tmp_path: Path) -> None:
    got = offered(Brittle(3, "503 Busy"), "own", tmp_path)
    assert got.figures["best_per_s"] == 50 and got.figures["told"] == 27


@pytest.mark.parametrize(
    ("ramp", "rates"),
    [
        (Ramp(from_per_s=20, to_per_s=20, step_per_s=5), [20]),
        (Ramp(from_per_s=20, to_per_s=45, step_per_s=20), [20, 40]),
        (Ramp(from_per_s=20, to_per_s=20.3, step_per_s=0.1), [20, 20.1, 20.2, 20.3]),
    ],
)
def test_its_rates(ramp: Ramp, rates: list[float], tmp_path: Path) -> None:
    got = offered(Brittle(10_000), "own", tmp_path, ramp)
    assert [step["rate_per_s"] for step in got.steps] == pytest.approx(rates)


def test_it_ends_where_the_tool_cannot_go_on_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def tool(load: Load, target: Target, directory: Path, progress: Progress) -> Offered:
        return Offered("tool", "tool", {"requests": 2.0, "failed": 0.0, "unsent": float(load.rate_per_s == 30)})

    monkeypatch.setitem(TOOLS, "own", Tool(tool))
    got = offer(Load(ramp=RAMP, for_s=0.2), Target("127.0.0.1:1"), tmp_path, lambda share: None)
    assert got.figures == {"requests": 6.0, "failed": 0.0, "unsent": 1.0, "best_per_s": 20}


def test_its_progress_is_one(tmp_path: Path) -> None:
    shares: list[float] = []
    with scripted(Brittle(10_000)) as address:
        offer(Load(ramp=RAMP, for_s=0.1, patience_s=PATIENCE_S), Target(address), tmp_path, shares.append)
    assert shares == sorted(shares) and shares[-1] == 1.0
