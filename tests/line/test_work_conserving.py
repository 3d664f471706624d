"""No request waits while a worker is idle: the tail of the latency is that of an ideal single line."""

import random
import signal

import pytest

from support import ideal
from support.load import Arrival, offer, percentile
from support.server import GTHREAD, STANCHION, Kind, Serve

WORKERS = 4
CONNECTIONS = 32
FAST_MS, SLOW_MS, SLOW_SHARE = 1, 200, 0.1
LOAD = 0.5
DURATION_S = 15
SEED = 20261121
STOP_S = 40
"""gunicorn waits 30 s for its workers before it kills them."""

MEAN_S = ((1 - SLOW_SHARE) * FAST_MS + SLOW_SHARE * SLOW_MS) / 1000
RATE_PER_S = LOAD * WORKERS / MEAN_S

pytestmark = pytest.mark.own("this compares stanchion with an ideal line, and with gunicorn")


def test_the_ideal_line_is_first_come_first_served() -> None:
    """One slow customer for the first of two servers; the others share the second, in their order."""
    assert ideal.sojourn_s([0, 0, 0, 1], [10, 1, 1, 1], servers=2) == [10, 1, 2, 2]


def fast_p99_s(serve: Serve, kind: Kind, arrivals_s: list[float], services_ms: list[int]) -> float:
    server = serve("waiting:sleepy", "-w", str(WORKERS), "--threads", "1", "--keep-alive", "60", kind=kind)
    schedule = [Arrival(at_s, f"/?ms={ms}") for at_s, ms in zip(arrivals_s, services_ms, strict=True)]
    outcomes = offer(server.address, schedule, CONNECTIONS, keep_alive=True, patience_s=30)
    # At once: how a peer drains is not what is tested, and may take its whole graceful timeout.
    server.process.send_signal(signal.SIGINT)
    server.exit_code(within_s=STOP_S)
    assert {outcome.status for outcome in outcomes} == {200}
    fast = [outcome.latency_s for outcome in outcomes if outcome.arrival.target == f"/?ms={FAST_MS}"]
    return percentile(fast, 0.99)


@pytest.mark.timeout(120)
def test_fast_requests_wait_no_longer_than_in_one_ideal_line_where_gunicorns_wait_for_their_connections_worker(
    serve: Serve,
) -> None:
    dice = random.Random(SEED)
    arrivals_s = ideal.poisson_arrivals_s(RATE_PER_S, DURATION_S, dice)
    services_ms = [SLOW_MS if dice.random() < SLOW_SHARE else FAST_MS for _ in arrivals_s]
    times_s = ideal.sojourn_s(arrivals_s, [ms / 1000 for ms in services_ms], WORKERS)
    ideal_s = percentile([time_s for time_s, ms in zip(times_s, services_ms, strict=True) if ms == FAST_MS], 0.99)
    bound_s = 1.5 * ideal_s + 0.020

    ours_s = fast_p99_s(serve, STANCHION, arrivals_s, services_ms)
    theirs_s = fast_p99_s(serve, GTHREAD, arrivals_s, services_ms)

    told = f"fast p99: ideal {ideal_s:.3f} s, stanchion {ours_s:.3f} s, gthread {theirs_s:.3f} s, bound {bound_s:.3f} s"
    print(told)
    assert ours_s <= bound_s, told
    assert theirs_s > bound_s, f"gunicorn keeps the bound too, so that it proves nothing: {told}"
