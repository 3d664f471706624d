"""Numbers before they are drawn."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab_support import results
from stanchion_lab.report import samples
from stanchion_lab.result import Measured
from stanchion_lab.scenario import Deed, Trial

POSITIVE = st.floats(0, 1e7, allow_nan=False)


def test_a_bucket_is_named_by_its_lower_bound() -> None:
    one, other = samples.histograms([[1.0, 1.9, 2.0, 3.9, 4.0], [0.2, 9.0]], 1.0)
    assert one == samples.Histogram([0, 1, 2, 4, 8], [0, 2, 2, 1, 0])
    assert other == samples.Histogram([0, 1, 2, 4, 8], [1, 0, 0, 0, 1])


@settings(deadline=None)
@given(st.lists(st.lists(POSITIVE, max_size=30), max_size=4))
def test_histograms_count_every_value_once(values: list[list[float]]) -> None:
    drawn = samples.histograms(values, 1.0)
    assert [sum(one.counts) for one in drawn] == [len(sample) for sample in values]
    assert len({tuple(one.bounds) for one in drawn}) <= 1
    for one, sample in zip(drawn, values, strict=True):
        for bound, count in zip(one.bounds, one.counts, strict=True):
            assert count == sum(bound <= value < max(2 * bound, 1) for value in sample)


def test_what_takes_less_than_16_ms_is_told_in_microseconds() -> None:
    assert samples.unit_of([[0.2, 15.9], []]) == ("µs", 1_000.0)
    assert samples.unit_of([[0.2], [16.0]]) == ("ms", 1.0)


@settings(deadline=None)
@given(st.lists(POSITIVE, min_size=1, max_size=300))
def test_the_tail_only_rises_and_ends_with_the_slowest(values: list[float]) -> None:
    rarity, slowness = samples.tail(values)
    assert slowness == sorted(slowness) and rarity == sorted(rarity)
    assert slowness[0] == min(values) and slowness[-1] == max(values)


def test_the_tail_at_one_in_a_hundred() -> None:
    rarity, slowness = samples.tail([float(value) for value in range(1, 10_001)])
    place = min(range(len(rarity)), key=lambda index: abs(rarity[index] - 100))
    assert slowness[place] == pytest.approx(9_900, rel=0.002)


def test_a_figure_that_is_no_count_is_not_zero_where_it_is_absent() -> None:
    result = results.result()
    assert samples.figure_spread(result, "small", "status.418") == samples.Spread(0, 0, 0)
    assert not samples.figure_spread(result, "small", "latency_ms.p42").known
    assert not samples.figure_spread(result, "absent", "latency_ms.p99").known


@pytest.mark.parametrize(("failures", "middle"), [([5.0], 5.0), ([9.0, 1.0, 4.0], 4.0), ([9.0, 1.0, 4.0, 7.0], 4.0)])
def test_the_repeat_in_the_middle_is_one_that_was(failures: list[float], middle: float) -> None:
    repeats = [Measured(trial="one", repeat=place, figures={"late": many}) for place, many in enumerate(failures)]
    found = samples.middle_repeat(repeats)
    assert found is not None and found.figures == {"late": middle}


def test_shares_go_by_name_or_else_by_rank() -> None:
    named = [Measured(trial="one", repeat=0, shares={"10": 1.0, "2": 3.0}) for _ in range(2)]
    assert samples.worker_shares(named) == (["2", "10"], [samples.Spread(75, 75, 75), samples.Spread(25, 25, 25)])
    pids = [Measured(trial="one", repeat=0, shares=shares) for shares in ({"71": 1.0, "72": 3.0}, {"93": 1.0})]
    names, parts = samples.worker_shares(pids)
    assert names == ["no. 1", "no. 2"]
    assert [(part.least, part.most) for part in parts] == [(75, 100), (0, 25)]
    assert samples.worker_shares([Measured(trial="one", repeat=0, shares={"1": 0.0})]) == ([], [])


def test_a_stall_is_from_touch_to_remove_and_from_stop_to_cont() -> None:
    deeds = [
        Deed(at_s=1, touch="stall"),
        Deed(at_s=3, remove="stall"),
        Deed(at_s=4, touch="forever"),
        Deed(at_s=5, signal="STOP", server="app", whom="worker"),
        Deed(at_s=6, signal="CONT", server="other", whom="worker"),
        Deed(at_s=7, signal="CONT", server="app", whom="worker"),
    ]
    deeds += [Deed(at_s=8, server="app", link="down"), Deed(at_s=8.5, server="app", link="up")]
    trial = Trial(name="one", title="one", servers=["app", "other"], load="burst", deeds=deeds)
    assert samples.stalls(trial, 9.0) == [
        (1, 3, "stall"),
        (4, 9.0, "forever"),
        (5, 7, "a worker of app is stopped"),
        (8, 8.5, "no link to app"),
    ]


def test_no_failure_is_thinned_away() -> None:
    served = [(number / 1000, 10 + number % 97 / 10, "served") for number in range(50_000)]
    failed = [(number / 10, 0.0, "refused") for number in range(200)]
    kept, left_out = samples.thinned(served + failed, across=1000, up=1000, floor_ms=1.0)
    counted = Counter(outcome for _, _, outcome in kept)
    assert counted == {"served": samples.POINTS_MAX, "refused": 200}
    assert left_out == 50_000 - samples.POINTS_MAX
    assert {ms for _, ms, outcome in kept if outcome == "refused"} == {1.0}


def test_of_points_that_hide_each_other_one_is_drawn() -> None:
    points = [(1.0, 10.0, "served")] * 5 + [(1.0, 10.0, "late")] * 3 + [(math.nan, 1.0, "served")]
    assert samples.thinned(points, 10, 10, 0.1) == ([(1.0, 10.0, "served"), (1.0, 10.0, "late")], 0)


def test_a_ramp_is_told_rate_by_rate_over_its_repeats() -> None:
    steps = [
        [{"rate_per_s": 10.0, "requests": 50.0, "refused": 5.0, "per_s": 9.0}, {"rate_per_s": 20.0}],
        [{"rate_per_s": 10.0, "requests": 50.0, "failed": 10.0, "per_s": 8.0}],
    ]
    repeats = [Measured(trial="one", repeat=place, steps=each) for place, each in enumerate(steps)]
    (ten, failed), (twenty, none) = samples.by_rate(repeats, "failed_percent")
    assert (ten, failed) == (10.0, samples.Spread(15.0, 10.0, 20.0))
    assert twenty == 20.0 and not none.known
    assert samples.by_rate(repeats, "per_s")[0] == (10.0, samples.Spread(8.5, 8.0, 9.0))
