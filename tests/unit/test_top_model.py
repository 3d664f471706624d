"""The parts of /status that `stanchion top` accepts, and the rates it computes from two looks."""

import math
from typing import Any

import pytest

from stanchion.top.model import Order, model, sort
from stanchion.top.status import Unexpected, parse
from support.admin import histogram, lane, seat, status

# ---- Which statuses it takes


def test_a_status_is_read_and_unknown_keys_are_ignored():
    data = status(seats=[seat(0, 0, 1_500, "/a", new="key")], new_one={"a": 1})
    data["listeners"][0].update(backlog=None, queued=None)
    found = parse(data)
    assert (found.version, found.pid, found.uptime_s, found.ready) == ("0.1.0", 100, 3725.0, True)
    assert (found.seats[0].path, found.seats[0].running_us, found.seats[0].state) == ("/a", 1_500, "busy")
    assert found.memory_bytes == {200: 50 << 20, 201: None}
    assert (found.listeners[0].backlog_asked, found.listeners[0].backlog) == (2048, None)
    assert (found.line.lanes[0].waiting_max, found.line.lanes[0].seats_max) == (None, None)
    assert found.restarts == {"killed": 0, "timeout": 0}


def without(key: str) -> dict[str, Any]:
    data = status()
    del data[key]
    return data


def buckets(*pairs: object) -> dict[str, Any]:
    return status(wait_us={**histogram(1), "buckets": list(pairs)})


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "the answer is no object"),
        ([status()], "the answer is no object"),
        (without("pid"), "the answer has no 'pid'"),
        (status(pid="100"), "'pid' of the answer is no count"),
        (status(pid=True), "'pid' of the answer is no count"),
        (status(pid=-1), "'pid' of the answer is no count"),
        (status(pid=1.5), "'pid' of the answer is no count"),
        (status(now_us=2**64 + 1), "'now_us' of the answer is no count"),
        (without("standstill"), "the answer has no 'standstill'"),
        (status(standstill={"since_s": 1}), "'standstill' has no 'why'"),
        (status(uptime_s=math.nan), "'uptime_s' of the answer is no number"),
        (status(uptime_s=math.inf), "'uptime_s' of the answer is no number"),
        (status(ready=1), "'ready' of the answer is no boolean"),
        (status(version=None), "'version' of the answer is no text"),
        (status(line={"lanes": {}}), "'lanes' of 'line' is no list"),
        (status(line={"lanes": [lane("a", waiting=None)]}), "'waiting' of lanes[0] is no count"),
        (status(seats=[seat(0, 0), {**seat(0, 1), "path": 7}]), "'path' of seats[1] is no text"),
        (status(seats=[7]), "seats[0] is no object"),
        (status(seats=[seat(0, 0)] * 65_536), "'seats' of the answer is no list of at most 65535"),
        (status(requests={"answered": "many"}), "'answered' of 'requests' is no count"),
        (status(events=[]), "'events' is no object"),
        (buckets([1, 2, 3]), "'buckets' of 'wait_us' is no list of pairs"),
        (buckets([1, 2.5]), "'buckets' of 'wait_us' is no list of pairs"),
        (buckets([True, 1]), "'buckets' of 'wait_us' is no list of pairs"),
        (buckets([None, 1]), "'buckets' of 'wait_us' is no list of pairs"),
        (buckets([1, -1]), "'buckets' of 'wait_us' is no list of pairs"),
        (buckets([10**400, 1]), "'buckets' of 'wait_us' is no list of pairs"),
        (buckets([2, 1], [1, 1]), "upper ends must grow"),
        (buckets([1, 2], [2, 1]), "counts not fall"),
        (status(wait_us={**histogram(2), "count": 1}), "more in the buckets than there are"),
    ],
)
def test_whatever_else_it_is_is_said(data, reason):
    with pytest.raises(Unexpected) as raised:
        parse(data)
    assert reason in str(raised.value)


def test_what_is_over_the_last_bound_is_in_a_bucket_of_its_own():
    assert parse(status(wait_us={**histogram(1), "count": 3})).wait.buckets == ((1_000.0, 1), (math.inf, 3))


# ---- Rates

QUIET = {"arrived": 1_000, "in_flight": 5, "answered": 900, "abandoned_waiting": 50, "refused_line_full": 45}


@pytest.mark.parametrize(
    ("requests", "rates"),
    [
        (QUIET, (0, 0, 0, {}, {})),
        ({**QUIET, "arrived": 1_100, "answered": 980, "in_flight": 0}, (50, 40, 0, {}, {})),
        ({**QUIET, "abandoned_waiting": 51, "refused_line_full": 47}, (0, 0, 0.5, {"line_full": 1}, {})),
        ({**QUIET, "abandoned_running": 4, "refused_too": 1}, (0, 0, 2, {"too": 0.5}, {})),
        ({**QUIET, "broken_off": 1, "lost_with": 2}, (0, 0, 0, {}, {"broken_off": 0.5, "lost_with": 1})),
        ({**QUIET, "arrived": 999}, None),
        ({**QUIET, "refused_line_full": 0}, None),
    ],
)
def test_rates_are_of_the_time_between(requests, rates):
    found = model(parse(status(requests=QUIET)), parse(status(requests=requests, now_us=7_000_000)))
    assert found.over_s == 2.0
    got = found.rates
    assert (got and (got.arrived, got.answered, got.gone, got.refused, got.broken)) == rates


@pytest.mark.parametrize("changes", [{"now_us": 5_000_000}, {"now_us": 1}, {"now_us": 7_000_000, "pid": 99}])
def test_looks_that_do_not_follow_each_other_have_no_rates(changes):
    found = model(parse(status()), parse(status(**changes)))
    assert (found.over_s, found.rates, found.wait.lately) == (None, None, None)
    assert model(None, parse(status())).rates is None


# ---- Durations


def lately(before: dict[str, Any], now: dict[str, Any]) -> Any:
    return model(parse(status(wait_us=before)), parse(status(wait_us=now, now_us=6_000_000))).wait.lately


def test_a_spread_of_late_is_the_difference_of_the_buckets():
    found = lately(histogram(5, 1, 0, 7), histogram(5, 11, 90, 7))
    assert [count for _, count in found.counts] == [0, 10, 90, 0, 0]
    assert (found.count, found.max_us) == (100, None)
    # histogram_quantile() does the same: it spreads values evenly within a bucket.
    assert found.p50_us == pytest.approx(2_000 + 2_000 * 40 / 90)
    assert found.p99_us == pytest.approx(2_000 + 2_000 * 89 / 90)


def test_the_open_bucket_is_taken_for_its_beginning():
    before, now = histogram(0), {**histogram(1), "count": 9}
    assert (lately(before, now).p50_us, lately(before, now).p99_us) == (1_000, 1_000)


def test_no_request_of_late_is_nothing():
    found = lately(histogram(3), histogram(3))
    assert (found.count, found.p50_us, found.p99_us) == (0, 0, 0)


@pytest.mark.parametrize(
    "now", [histogram(4, 1), histogram(5, 0), histogram(5, 1, 0), histogram(5, 1, first_us=999)], ids=str
)
def test_histograms_of_different_acceptors_are_not_subtracted(now):
    assert lately(histogram(5, 1), now) is None


def service(running: dict[str, Any], before: dict[str, Any], now: dict[str, Any]) -> Any:
    later = parse(status(service_us=now, running_us=running, now_us=6_000_000))
    return model(parse(status(service_us=before)), later).service.lately


def test_what_runs_counts_in_service_of_late():
    nothing = histogram(0, 0, 0, 0)
    # Three that run in the last bucket, the longest for 7 ms: nothing is slower than that.
    running = {**histogram(0, 0, 0, 3), "max_us": 7_000}
    jam = service(running, nothing, nothing)
    assert (jam.count, jam.p99_us, jam.max_us) == (3, 7_000, 7_000)
    assert jam.p50_us == pytest.approx(4_000 + 4_000 / 2)
    busy = service(running, nothing, histogram(997, 0, 0, 0))
    assert (busy.count, busy.max_us) == (1_000, 7_000)
    assert busy.p50_us < 1_000
    # A request that has ended may have taken longer than the longest that runs.
    assert service({**histogram(3, 0, 0, 0), "max_us": 900}, nothing, histogram(0, 0, 0, 1)).max_us is None
    assert service({**nothing, "max_us": 0}, nothing, histogram(1, 0, 0, 0)).max_us is None


def test_what_was_ever_is_what_the_server_says():
    ever = model(None, parse(status(service_us=histogram(1, 2, 4)))).service.ever
    assert ever.counts == ((1_000, 1), (2_000, 2), (4_000, 4), (math.inf, 0))
    assert (ever.count, ever.p50_us, ever.max_us) == (7, 1_000, 8_000)


# ---- The order of the seats

SEATS = (
    seat(1, 1, 900, served=5),
    seat(0, 0, served=9),
    seat(1, 0, 800, served=5),
    seat(0, 1, 0, served=1),
)


@pytest.mark.parametrize(
    ("order", "seats"),
    [
        (Order.AGE, [(1, 1), (1, 0), (0, 1), (0, 0)]),
        (Order.WORKER, [(0, 0), (0, 1), (1, 0), (1, 1)]),
        (Order.SERVED, [(0, 0), (1, 0), (1, 1), (0, 1)]),
    ],
)
def test_seats_are_sorted(order, seats):
    found = sort(parse(status(seats=list(SEATS))).seats, order)
    assert [(one.worker, one.seat) for one in found] == seats
