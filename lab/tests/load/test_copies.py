"""Several copies of one load at once, reported as one."""

import threading
from pathlib import Path

from stanchion_lab.load import copies
from stanchion_lab.load.offered import Offered, Progress, Target
from stanchion_lab.scenario import Load

TARGET = Target("127.0.0.1:1")
LOAD = Load(connections=10, requests=40, rate_per_s=5, copies=2)


def test_they_run_at_once_and_apart(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=20)
    seen: list[tuple[Load, Path]] = []

    def tool(load: Load, target: Target, directory: Path, progress: Progress) -> Offered:
        both.wait()
        (directory / "its.rc").touch(exist_ok=False)
        seen.append((load, directory))
        progress(1.0)
        return Offered("tool", f"tool in {directory.name}", {"requests": 40.0})

    told: list[float] = []
    offered = copies.offer(tool, LOAD, TARGET, tmp_path, told.append)
    assert [load.copies for load, _ in seen] == [1, 1]
    assert {place.name for _, place in seen} == {"copy-1", "copy-2"}
    assert offered.figures == {"requests": 80.0}
    assert offered.command == "tool in copy-1\ntool in copy-2"
    assert told == [1.0]


def test_counts_and_rates_add_up_and_latencies_are_those_of_all() -> None:
    first = Offered(
        *("tool", "first"),
        {"served": 2.0, "failed": 1.0, "status.502": 1.0, "unsent": 3.0, "per_s": 3.0, "latency_ms.p99/x": 5.0},
        latencies_ms=[1.0, 5.0],
        timeline=[(0.0, 1.0, "served"), (2.0, 5.0, "served")],
        shares={"7": 1.0, "8": 1.0},
        words={"tool": "one"},
    )
    second = Offered(
        *("tool", "second"),
        {"served": 1.0, "failed": 0.0, "per_s": 4.0, "latency_ms.max": 9.0},
        latencies_ms=[9.0],
        timeline=[(1.0, 9.0, "served")],
        shares={"7": 1.0},
        words={"tool": "two"},
    )
    offered = copies.merged([first, second])
    counts = {name: value for name, value in offered.figures.items() if not name.startswith("latency_ms")}
    assert counts == {"served": 3.0, "failed": 1.0, "status.502": 1.0, "unsent": 3.0, "per_s": 7.0}
    assert (offered.figures["latency_ms.min"], offered.figures["latency_ms.max"]) == (1.0, 9.0)
    assert offered.figures["latency_ms.mean"] == 5.0
    assert "latency_ms.p99/x" not in offered.figures
    assert [due_s for due_s, _, _ in offered.timeline] == [0.0, 1.0, 2.0]
    assert offered.shares == {"7": 2.0, "8": 1.0}
    assert offered.words == {"tool 1": "one", "tool 2": "two"}


def test_a_tool_of_our_own_process_offers_one_load_of_the_same_size() -> None:
    one = copies.in_one(LOAD)
    assert (one.copies, one.connections, one.requests, one.rate_per_s) == (1, 20, 80, 10)
