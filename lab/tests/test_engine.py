"""A run, as far as it can be seen without a cage."""

import pytest

from stanchion_lab import engine
from stanchion_lab.scenario import SECONDS_MAX, Load, Ramp


@pytest.mark.parametrize(
    ("load", "lasts_s"),
    [
        (Load(rate_per_s=100, for_s=30, patience_s=5), 30 + 5),
        (Load(ramp=Ramp(from_per_s=10, to_per_s=50, step_per_s=10), for_s=30, patience_s=5), 5 * (30 + 5)),
        # Each of ten clients a hundred times, and each time up to its patience.
        (Load(connections=10, requests=1_000, patience_s=5), 100 * 5),
        (Load(connections=1, requests=100_000, patience_s=60), SECONDS_MAX),
    ],
)
def test_a_trial_is_not_ended_before_its_load_can_have(load: Load, lasts_s: float) -> None:
    assert lasts_s < engine.seconds_max(load) <= lasts_s + engine.AROUND_S + 5 * load.patience_s
