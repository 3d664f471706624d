"""The planner replays what a server has recorded: the waits and the refusals are those that were measured."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from stanchion._stanchion import plan
from support.ideal import poisson_arrivals_s
from support.load import Arrival, offer
from support.server import Serve

pytestmark = pytest.mark.own("gunicorn records nothing")

DURATION_S = 30.0
SERVICE_MS = 30.0
CONNECTIONS = 300
"""More than requests are ever in the house, so that each comes when it is due."""
NEAR = 0.05
LESS_NEAR = 0.08
"""Requests that were refused have no service time, and the planner gives them one of others. A lane at its maximum
waits for the acceptor after each request, and the planner does not know for how long.
"""
NEAR_US = 2_000
"""Below this, differences are those of a busy machine."""
POINT = 0.01
CORE_US = 200
"""On a quiet machine a request that sleeps waits less for a core."""
FIGURES = ("mean_us", "p50_us", "p90_us", "p99_us")


def schedule(load: float, seats: int, quick_share: float) -> list[Arrival]:
    """Poisson arrivals of exponential services, some of them on another path; a second of twice the load every five."""
    dice = random.Random(20261129)
    per_s = load * seats / (SERVICE_MS / 1000)
    arrivals = []
    for at_s in poisson_arrivals_s(2 * per_s, DURATION_S, dice):
        if at_s % 5 < 1 or dice.random() < 0.5:
            path = "/quick" if dice.random() < quick_share else "/"
            arrivals.append(Arrival(at_s, f"{path}?ms={dice.expovariate(1 / SERVICE_MS):.3f}"))
    return arrivals


def asked(recording: Path, *scenarios: dict[str, Any]) -> dict[str, Any]:
    question = {"source": {"recording": str(recording)}, "scenarios": scenarios}
    answer: dict[str, Any] = json.loads(plan(json.dumps(question)))
    return answer


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    ("seats", "load", "arguments"),
    [
        pytest.param(4, 0.8, ("--workers", "4"), id="workers"),
        pytest.param(4, 0.8, ("--workers", "1", "--threads", "4"), id="threads"),
        pytest.param(4, 0.9, ("--workers", "4", "--max-waiting", "20"), id="a short line"),
        pytest.param(4, 0.9, ("--workers", "4", "--queue-timeout", "0.4"), id="a limit of time"),
        pytest.param(4, 0.9, ("--workers", "4", "--lane", "quick=/quick priority=1"), id="a lane first"),
        pytest.param(4, 0.8, ("--workers", "4", "--lane", "quick=/quick seats=1"), id="a lane with a seat"),
        pytest.param(4, 0.9, ("--workers", "4", "--lane", "quick=/quick seats_max=1"), id="a lane of one seat"),
        pytest.param(4, 0.9, ("--workers", "4", "--queue-order", "adaptive", "--queue-target", "0.3"), id="adaptive"),
        pytest.param(4, 0.9, ("--workers", "4", "--max-waiting-per-client", "20"), id="a client's limit"),
    ],
)
def test_a_replay_has_the_waits_that_were_measured(
    serve: Serve, home: Path, seats: int, load: float, arguments: tuple[str, ...]
) -> None:
    recording = home / "recording"
    server = serve("waiting:sleepy", "--record-arrivals", str(recording), *arguments)
    arrivals = schedule(load, seats, quick_share=0.3)
    outcomes = offer(server.address, arrivals, CONNECTIONS, keep_alive=True, patience_s=30)
    assert {outcome.status for outcome in outcomes} <= {200, 429, 503}
    server.stop()

    answer = asked(recording, {})
    measured, replayed = answer["measured"], answer["results"][0]
    print(measured["wait"], replayed["wait"], measured["turnaround_us"], measured["hand_over_us"], answer["unknown"])
    assert measured["requests"] == replayed["requests"] == len(arrivals)
    assert measured["lost"] == 0
    turned_away = measured["refused"] + measured["timed_out"]
    near = LESS_NEAR if turned_away or "seats_max" in " ".join(arguments) else NEAR
    for figure in FIGURES:
        seen_us, found_us = measured["wait"][figure], replayed["wait"][figure]
        if "adaptive" in arguments and figure == "p99_us":
            # The few oldest that an adaptive line serves in the end decide it.
            low_us, high_us = replayed["wait_band"][figure]
            assert low_us <= seen_us <= high_us
        else:
            assert found_us == pytest.approx(seen_us, rel=near, abs=NEAR_US), figure
    found = replayed["refused"] + replayed["timed_out"] + replayed["shed"]
    assert found / len(arrivals) == pytest.approx(turned_away / len(arrivals), abs=POINT)


@pytest.mark.timeout(240)
def test_what_other_numbers_of_seats_would_do_is_what_they_do(serve: Serve, home: Path) -> None:
    """A recording of four workers predicts six, and two with four threads each."""
    arrivals = schedule(0.9, 4, quick_share=0.0)
    scenarios: list[dict[str, Any]] = [{"workers": 6}, {"workers": 2, "threads": 4}]
    measured = []
    for number, scenario in enumerate([{"workers": 4}, *scenarios]):
        recording = home / str(number)
        words = [word for name, value in scenario.items() for word in (f"--{name}", str(value))]
        server = serve("waiting:sleepy", "--record-arrivals", str(recording), *words)
        offer(server.address, arrivals, CONNECTIONS, keep_alive=True, patience_s=30)
        server.stop()
        measured.append(asked(recording)["measured"])
    predicted = asked(home / "0", *scenarios)["results"]
    core_us = [one["spent_us"]["core"] / one["served"] for one in measured]
    if max(core_us) > CORE_US:
        pytest.skip(f"other programs have the cores: requests wait for one for {core_us} us")
    for seen, found in zip(measured[1:], predicted, strict=True):
        for figure in FIGURES:
            print(found["name"], figure, seen["wait"][figure], found["wait"][figure], found["wait_band"][figure])
            assert found["wait"][figure] == pytest.approx(seen["wait"][figure], rel=2 * NEAR, abs=NEAR_US), figure
