"""The line that others are compared with."""

import pytest

from stanchion_lab import ideal
from stanchion_lab.load import Failed, schedule
from stanchion_lab.scenario import Load, Server

SERVER = Server(kind="ideal", listen="127.0.0.1:8000", workers=2, values={"/": 150})


def test_who_comes_first_is_served_first() -> None:
    """Every 50 ms one: the first two are begun at once, each later one when the one two before it is served."""
    got = ideal.offer(Load(rate_per_s=20, for_s=0.3), SERVER)
    assert got.latencies_ms == pytest.approx([150, 150, 200, 200, 250, 250])
    assert got.figures["served"] == 6 and got.figures["per_s"] == pytest.approx(6 / 0.5)


def test_a_short_one_waits_only_while_every_worker_has_a_long_one() -> None:
    """One comes every 50 ms. The two long ones of 100 and 150 ms keep both workers until 550 and 600 ms."""
    server = Server(kind="ideal", listen="10.99.0.1:8000", workers=2, values={"/long": 450, "/short": 10})
    load = Load(rate_per_s=20, for_s=0.6, paths={"/long": 1, "/short": 1})
    paths = [path for path, _ in zip(schedule.paths(load.paths), range(12), strict=False)]
    assert [number for number, path in enumerate(paths) if path == "/long"] == [2, 3, 7, 11]
    got = ideal.offer(load, server)
    assert got.latencies_ms == pytest.approx([10, 10, 450, 450, 360, 320, 280, 680, 210, 170, 130, 530])


def test_what_takes_longer_than_the_patience_is_late() -> None:
    got = ideal.offer(Load(rate_per_s=20, for_s=0.3, patience_s=0.04), SERVER)
    assert (got.figures["served"], got.figures["late"]) == (0, 6)


def test_copies_come_as_one_load_of_the_same_size() -> None:
    assert ideal.offer(Load(rate_per_s=10, for_s=0.3, copies=2), SERVER).figures["requests"] == 6


def test_it_wants_arrivals() -> None:
    with pytest.raises(Failed, match="a load with rate_per_s"):
        ideal.offer(Load(connections=2, requests=8), SERVER)
