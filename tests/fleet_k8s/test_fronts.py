"""New releases behind HAProxy and Envoy lose nothing, though these hear of each change four seconds late."""

from contextlib import closing
from pathlib import Path

import pytest

from fleet_k8s.cluster import Cluster
from fleet_k8s.fronts import PORT, Envoy, Haproxy
from fleet_k8s.shop import shop
from support.patience import eventually
from support.proxies import program

pytestmark = pytest.mark.timeout(900)

RATE = 60
REQUESTS_MIN = 1900
LATE_S = 4


@pytest.mark.parametrize("front", [Haproxy, Envoy])
def test_two_rollouts_lose_no_request(kubernetes: Cluster, tmp_path: Path, front: type[Haproxy | Envoy]) -> None:
    if front is Envoy and not program("envoy"):
        pytest.skip("NOT INSTALLED: Envoy")
    with shop(kubernetes, tmp_path, "--drain-delay", "5", replicas=3) as made:
        with kubernetes.programs.for_a_while(), closing(front(kubernetes, tmp_path, late_s=LATE_S)):
            load = made.load(f"inf:{RATE}", host="127.0.0.1", port=PORT)
            eventually(lambda: load.run_so_far() > RATE, "requests are answered", every_s=0.2)
            took = [made.roll_out() for _ in range(2)]
            made.settled(3)
            eventually(lambda: load.run_so_far() >= REQUESTS_MIN, "there are requests enough", 120, 0.5)
            account = load.end()
        print(f"{front.__name__}, {LATE_S} s late, in {took[0]:.0f} and {took[1]:.0f} s: {account.summary()}")
        assert not account.lost
        assert not account.twice and not account.not_run
