"""Each worker's share of all requests."""

import pytest

from stanchion_lab.witness import shares


@pytest.mark.parametrize(
    ("told", "workers", "complete"),
    [
        ({"0": 6.0}, 3, {"0": 6.0, "1": 0.0, "2": 0.0}),
        ({"2": 1.0, "0": 2.0, "1": 3.0}, 3, {"0": 2.0, "1": 3.0, "2": 1.0}),
        ({"814": 2.0, "815": 4.0}, 3, {"814": 2.0, "815": 4.0}),
        # A worker that died had a successor, which stands after the others.
        ({"0": 1.0, "1": 2.0, "2": 3.0}, 2, {"0": 1.0, "1": 2.0, "2": 3.0}),
    ],
)
def test_idle_workers_are_seen_where_their_names_are_known(
    told: dict[str, float], workers: int, complete: dict[str, float]
) -> None:
    assert list(shares.complete(told, workers).items()) == list(complete.items())


@pytest.mark.parametrize(
    ("told", "figures"),
    [
        ({"0": 6.0, "1": 0.0, "2": 2.0}, {"share.max": 0.75, "share.min": 0.0}),
        ({"0": 2.0, "1": 2.0}, {"share.max": 0.5, "share.min": 0.5}),
        ({"0": 0.0}, {}),
        ({}, {}),
    ],
)
def test_figures(told: dict[str, float], figures: dict[str, float]) -> None:
    assert shares.figures(told) == figures
