"""The line that others are compared with."""

import pytest

from stanchion_lab import ideal
from stanchion_lab.load import Failed
from stanchion_lab.scenario import Load, Server

SERVER = Server(kind="ideal", listen="127.0.0.1:8000", workers=2, values={"/": 150})


def test_who_comes_first_is_served_first() -> None:
    """Every 50 ms one: the first two are begun at once, each later one when the one two before it is served."""
    got = ideal.offer(Load(rate_per_s=20, for_s=0.3), SERVER)
    assert got.latencies_ms == pytest.approx([150, 150, 200, 200, 250, 250])
    assert got.figures["served"] == 6 and got.figures["per_s"] == pytest.approx(6 / 0.5)


def test_what_takes_longer_than_the_patience_is_late() -> None:
    got = ideal.offer(Load(rate_per_s=20, for_s=0.3, patience_s=0.04), SERVER)
    assert (got.figures["served"], got.figures["late"]) == (0, 6)


def test_copies_come_as_one_load_of_the_same_size() -> None:
    assert ideal.offer(Load(rate_per_s=10, for_s=0.3, copies=2), SERVER).figures["requests"] == 6


def test_it_wants_arrivals() -> None:
    with pytest.raises(Failed, match="a load with rate_per_s"):
        ideal.offer(Load(connections=2, requests=8), SERVER)
