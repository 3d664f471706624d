"""nginx before a unix socket whose queue the kernel has cut: how many are lost follows from the backlog, and not from
how fast this machine is."""

from pathlib import Path

import pytest

from stanchion_lab import cage, engine, scenario
from stanchion_lab.result import Result

# All three trials are run before the first test; they take some 15 s, and longer where other work is going on.
pytestmark = pytest.mark.timeout(240)

HELD = Path(__file__).parent / "experiments" / "held.toml"
REQUESTS = 200
# unix_recvq_full() in the kernel's net/unix/af_unix.c: connect(2) fails once *more* wait than the backlog.
WAITING = 128 + 1
WITH_THE_WORKER = 1
LOST = REQUESTS - WAITING - WITH_THE_WORKER


@pytest.fixture(scope="module")
def result() -> Result:
    if lack := cage.unavailable():
        pytest.skip(lack)
    ran = engine.run(scenario.read(str(HELD), "quick"), lambda *_: None)
    if ran.missing:
        pytest.skip(str(ran.missing))
    assert [one.failure for one in ran.measured] == [""] * 3
    return ran


def figures(result: Result, trial: str, *names: str) -> list[float]:
    (measured,) = result.of(trial)
    return [measured.figures.get(name, 0) for name in names]


def test_at_128_all_but_130_are_a_502(result: Result) -> None:
    assert figures(result, "small", "backlog.gunicorn", "waiting_max.gunicorn") == [128, WAITING]
    assert figures(result, "small", "requests", "served", "status.502") == [REQUESTS, REQUESTS - LOST, LOST]


def test_client_and_nginx_counted_the_same(result: Result) -> None:
    assert figures(result, "small", "status.502", "log.nginx.status.502", "log.nginx.errno.11") == [LOST] * 3


def test_at_1024_no_request_is_lost(result: Result) -> None:
    assert figures(result, "large", "served", "failed", "log.nginx.errno.11") == [REQUESTS, 0, 0]


def test_with_stanchion_no_request_is_lost_at_128(result: Result) -> None:
    assert figures(result, "stanchion", "backlog.stanchion") == [128]
    assert figures(result, "stanchion", "served", "failed", "log.nginx.errno.11") == [REQUESTS, 0, 0]
