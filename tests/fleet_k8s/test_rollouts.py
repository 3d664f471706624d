"""New releases under load lose nothing, without a preStop hook: after TERM a pod serves those that still come."""

from pathlib import Path

import pytest

from fleet_k8s.cluster import Cluster
from fleet_k8s.shop import shop
from support.patience import eventually

pytestmark = pytest.mark.timeout(900)

RATE = 75
REQUESTS_MIN = 2300


def test_two_rollouts_through_kube_proxy_lose_no_request(kubernetes: Cluster, tmp_path: Path) -> None:
    with shop(kubernetes, tmp_path, "--drain-delay", "5", replicas=3) as made:
        load = made.load(f"inf:{RATE}")
        eventually(lambda: load.run_so_far() > RATE, "requests are answered", every_s=0.2)
        took = [made.roll_out() for _ in range(2)]
        made.settled(3)
        eventually(lambda: load.run_so_far() >= REQUESTS_MIN, "there are requests enough", 120, 0.5)
        account = load.end()
        print(f"two rollouts in {took[0]:.0f} and {took[1]:.0f} s: {account.summary()}")
        assert not account.lost
        assert not account.twice and not account.not_run


def test_a_rollout_without_the_delay_loses_requests(kubernetes: Cluster, tmp_path: Path) -> None:
    """So this rig sees a loss where there is one."""
    with shop(kubernetes, tmp_path, replicas=3) as made:
        load = made.load(f"inf:{RATE}")
        eventually(lambda: load.run_so_far() > RATE, "requests are answered", every_s=0.2)
        made.roll_out()
        made.settled(3)
        account = load.end()
        print(f"without --drain-delay: {account.summary()}")
        assert account.lost
        assert not account.twice and not account.not_run
