"""A plan's engine that a test plays: its figures depend on seats alone, and it keeps what it was asked."""

import json
from collections.abc import Callable
from typing import Any

HOUR_US = 3_600_000_000
BEGAN_US = 490_000 * HOUR_US

SETTINGS: dict[str, Any] = {
    "workers": 4,
    "threads": 2,
    "event_loop": False,
    "worker_concurrency": 1_000,
    "max_waiting": 2_048,
    "queue_order": "fifo",
    "lanes": [{"name": "default", "priority": 10, "seats": 0, "seats_max": None, "waiting": None}],
    "cores": 2.0,
}


def four(p99_us: float) -> dict[str, float]:
    return {"mean_us": p99_us / 10, "p50_us": p99_us / 20, "p90_us": p99_us / 2, "p99_us": p99_us}


def measured(p99_us: float = 200_000.0, **changes: Any) -> dict[str, Any]:
    plain = {
        "requests": 360_000,
        "from_us": BEGAN_US,
        "until_us": BEGAN_US + HOUR_US,
        "served": 360_000,
        "refused": 0,
        "timed_out": 0,
        "left": 0,
        "killed": 0,
        "lost": 0,
        "wait": four(p99_us),
        "service": four(100_000.0),
        "spent_us": {"line": 30, "core": 5, "gil": 5, "cpu": 20, "elsewhere": 40},
        "busy": {"seats_max": 8},
        "throughput": [[1, 20.0], [2, 40.0], [4, 80.0], [8, 150.0]],
        "hand_over_us": 100,
        "turnaround_us": 100,
        "settings": SETTINGS,
        "line": [[0, 0], [HOUR_US // 2, 20], [HOUR_US, 1]],
        "lanes": [],
    }
    return {**plain, **changes}


def result(knobs: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """As many seats, so much less waiting: 8 have a p99 of 200 ms, 16 of 12.5 ms."""
    workers = knobs["workers"] if isinstance(knobs["workers"], int) else knobs["workers"][1]
    seats = workers * knobs["threads"]
    p99_us = 200_000.0 * (8 / seats) ** 4
    plain = {
        "name": knobs.get("name", "none"),
        "knobs": {key: value for key, value in knobs.items() if key not in ("name", "as_recorded")},
        "requests": 360_000.0,
        "served": 360_000.0,
        "refused": 0.0,
        "timed_out": 0.0,
        "shed": 0.0,
        "left": 0.0,
        "wait": four(p99_us),
        "wait_band": {f"{what}_us": [0.9 * figure, 1.2 * figure] for what, figure in (("p99", p99_us),)},
        "refused_band": [0.0, 0.0],
        "latency": four(p99_us + 100_000),
        "latency_band": None,
        "utilization": {"seats": min(1.0, 6 / seats), "cores": 0.2, "gil": 0.1},
        "spent_us": {"line": 0, "core": 0, "gil": 0, "cpu": 360_000 * 20_000, "elsewhere": 360_000 * 40_000},
        "busy_max": seats,
        "worker_seconds": workers * 3_600.0,
        "forks": 0,
        "workers": [[0, workers]],
        "line": [[0, 0], [HOUR_US // 2, 400 // seats], [HOUR_US, 0]],
        "lanes": [],
    }
    return {**plain, **changes}


class Engine:
    """Stands where `_stanchion.plan` is. Each change is merged into what it says."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.measured: dict[str, Any] | None = measured()
        self.changed: dict[str, dict[str, Any]] = {}
        """By the name of the setting."""
        self.unknown = ["The database beyond 8 busy seats."]

    def __call__(self, request: str, progress: Callable[[float], None]) -> str:
        asked = json.loads(request)
        self.asked.append(asked)
        progress(0.5)
        kind, said = next(iter(asked["source"].items()))
        if kind == "recording" and said.endswith("torn"):
            raise ValueError(f"the recording {said} has no file")
        base = {**SETTINGS, **(said if kind == "model" else asked["source"]).get("settings", {})}
        results = [result({**base, **one}, **self.changed.get(one["name"], {})) for one in asked["scenarios"]]
        told = None if kind == "model" else self.measured
        answer = {"measured": told, "results": results, "unknown": self.unknown, "band": "The middle 90 % of 9 runs."}
        return json.dumps(answer)
