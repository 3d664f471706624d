"""Schedules, and figures from requests."""

import itertools
import statistics

import pytest

from stanchion_lab.load.figures import Request, of_counts, of_latencies, of_requests, percentile, shares_of
from stanchion_lab.load.schedule import arrivals_s, paths
from stanchion_lab.scenario import Load


def test_even_arrivals() -> None:
    assert list(arrivals_s(Load(rate_per_s=4, for_s=1))) == [0, 0.25, 0.5, 0.75]


def test_poisson_arrivals_are_the_same_each_time_and_vary_as_they_should() -> None:
    load = Load(rate_per_s=100, for_s=100, arrivals="poisson")
    due_s = list(arrivals_s(load))
    assert due_s == list(arrivals_s(load)) == sorted(due_s)
    assert due_s[0] > 0 and due_s[-1] < 100
    assert len(due_s) == pytest.approx(10_000, rel=0.05)
    # Exponential gaps have a standard deviation as large as their mean (even ones have none).
    gaps_s = [after - before for before, after in itertools.pairwise(due_s)]
    assert statistics.pstdev(gaps_s) == pytest.approx(statistics.fmean(gaps_s), rel=0.05)


def test_paths_are_the_same_each_time_and_have_their_shares() -> None:
    shares = {"/a": 1.0, "/b": 3.0}
    chosen = list(itertools.islice(paths(shares), 4_000))
    assert chosen == list(itertools.islice(paths(shares), 4_000))
    assert chosen.count("/a") == pytest.approx(1_000, rel=0.1)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 5), (0.51, 6), (0.9, 9), (0.99, 10), (1.0, 10)])
def test_percentiles_are_by_nearest_rank(share: float, expected: int) -> None:
    assert percentile(range(1, 11), share) == expected


def test_latencies_of_nothing() -> None:
    assert of_latencies([]) == {}


def test_figures_of_requests() -> None:
    requests = [
        Request(0.0, "/", "served", 0.010, 200, "1"),
        Request(0.1, "/slow", "served", 0.030, 200, "2"),
        Request(0.2, "/", "gateway", 0.500, 502, "1"),
        Request(0.3, "/", "told", 0.001, 503),
        Request(0.4, "/slow", "late", 1.0),
    ]
    figures = of_requests(requests, took_s=2.0)
    assert (
        figures.items()
        >= {
            "requests": 5,
            "served": 2,
            "told": 1,
            "gateway": 1,
            "error": 0,
            "refused": 0,
            "broken": 0,
            "late": 1,
            "failed": 2,
            "status.200": 2,
            "status.502": 1,
            "status.503": 1,
            "per_s": 1,
        }.items()
    )
    # Only of those served.
    assert figures["latency_ms.max"] == figures["latency_ms.p90"] == figures["latency_ms.max/slow"] == 30
    assert figures["latency_ms.min"] == figures["latency_ms.p50"] == figures["latency_ms.max/"] == 10
    assert (figures["latency_ms.mean"], figures["latency_ms.stddev"]) == (20, 10)
    assert shares_of(requests) == {"1": 2, "2": 1}


def test_an_outcome_that_is_none() -> None:
    with pytest.raises(AssertionError):
        of_counts({"lost": 1}, {}, 1.0)
