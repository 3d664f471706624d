"""The admin listener shows an outage, and the minutes before."""

import json
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import pytest

from support.address import Address
from support.clock import US, Clock
from support.gate import Gate
from support.outage import ARGUMENTS, SEATS, WAITING_MAX, Outage
from support.patience import eventually
from support.server import Serve
from support.wire import Wire, request

pytestmark = pytest.mark.own("gunicorn has no such listener")

HUNG_S = 14
COUNTS = ("arrived", "answered", "refused", "broken", "gone")


def told(admin: str, target: str) -> Any:
    with Wire.connect(Address.parse(admin)) as wire:
        wire.send(request("GET", target))
        response = wire.response()
    assert (response.status, response.header("Content-Type")) == (200, "application/json")
    return json.loads(response.body)


def samples(admin: str, since_us: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = told(admin, f"/history?since_us={since_us}")["samples"]
    return found


def test_the_history_has_the_outage_and_what_was_before(serve: Serve, gate: Gate, clock: Clock, admin: str) -> None:
    server = serve("waiting:app", "--admin", admin, *ARGUMENTS, env={**gate.environment, **clock.environment})
    eventually(lambda: samples(admin), "there is a sample before anybody has come")
    for _ in range(3):
        with server.connect() as wire:
            assert wire.get("/pid?x").status == 200
    with ExitStack() as stack:
        outage = Outage(server, gate, stack)
        eventually(lambda: told(admin, "/status")["requests"]["refused_line_full"] > 0, "the line is full")
        clock.advance(HUNG_S)
        sample = eventually(
            lambda: next((one for one in samples(admin) if one["longest_us"] >= HUNG_S * US), None), "a sample of it"
        )
        assert (sample["busy"], sample["seats"], sample["waiting"]) == (SEATS, SEATS, WAITING_MAX)
        assert sample["answered"] == 3 and sample["refused"] > 0
        assert sample["oldest_wait_us"] >= HUNG_S * US
        # Requests that run count, though none has ended: they are in the bucket from 10 to 15 s, or beyond.
        assert 10 * US <= sample["service_p50_us"] <= sample["service_p99_us"] <= sample["longest_us"]
        status = told(admin, "/status")
        assert status["running_us"]["count"] == SEATS
        assert status["running_us"]["max_us"] >= status["seats_stuck_us"] >= HUNG_S * US
        answers = outage.release()
        assert answers.count(503) == sample["refused"] and set(answers) == {200, 503}
        over = eventually(lambda: next((one for one in samples(admin, sample["at_us"]) if one["busy"] == 0), None), "")
        assert over["answered"] == 3 + answers.count(200)
    history = samples(admin)
    assert history[0]["arrived"] == 0, "from before anybody came"
    for before, after in pairwise(history):
        assert before["at_us"] < after["at_us"]
        assert all(before[key] <= after[key] for key in COUNTS)
    idle = eventually(lambda: told(admin, "/status")["seats_stuck_us"] == 0, "no seat is stuck")
    assert idle


def test_only_what_is_new_is_told(serve: Serve, admin: str) -> None:
    serve("hello:app", "--admin", admin)
    first = eventually(lambda: samples(admin), "a sample")[-1]["at_us"]
    newer = eventually(lambda: samples(admin, first), "a newer one")
    assert min(one["at_us"] for one in newer) > first
    assert [one["at_us"] for one in samples(admin)][: len(newer)][0] <= first
    assert samples(admin, 2**62) == []
