"""The verdict on the figures of a run."""

import pytest

from lab_support import results
from stanchion_lab.result import Measured, Result, verdict
from stanchion_lab.scenario import Claim


@pytest.fixture
def late() -> Result:
    """A result of one trial in which no client was served."""
    result = results.result()
    result.measured = [Measured(trial="small", repeat=0, figures={"requests": 9.0, "late": 9.0, "failed": 9.0})]
    return result


@pytest.mark.parametrize(
    "figure",
    [
        "latency_ms.max",
        "behind_ms.max",
        "backlog.app",
        "waiting_max.app",
        "cpu_s",
        "share.max",
        "best_per_s",
        "after.share",
    ],
)
def test_what_was_not_measured_is_below_no_bound(late: Result, figure: str) -> None:
    found = verdict(late, Claim(text="", of=f"small:{figure}", be="<=", than=5))
    assert found.holds is None and found.left != found.left


@pytest.mark.parametrize("figure", ["told", "status.502", "kernel.ListenOverflows", "log.web.errno.11", "unsent"])
def test_what_is_counted_and_was_never_seen_is_0(late: Result, figure: str) -> None:
    assert verdict(late, Claim(text="", of=f"small:{figure}", be="==", than=0)).holds is True
