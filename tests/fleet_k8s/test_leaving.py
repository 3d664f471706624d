"""Pods that are taken away under load lose no request: when there are to be fewer, and when a node is emptied."""

from pathlib import Path

import pytest

from fleet_k8s.cluster import Cluster
from fleet_k8s.control_plane import Object
from fleet_k8s.shop import shop
from support.patience import eventually

pytestmark = pytest.mark.timeout(900)

DRAIN = ("--drain-delay", "5")

BUDGET: Object = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "shop"},
    "spec": {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": {"app": "shop"}},
    },
}


def test_ten_pods_become_one_and_no_request_is_lost(kubernetes: Cluster, tmp_path: Path) -> None:
    with shop(kubernetes, tmp_path, *DRAIN, replicas=10) as made:
        load = made.load("inf:20")
        eventually(lambda: load.run_so_far() > 60, "requests are answered", every_s=0.2)
        made.scale(1)
        made.settled(1)
        before = load.run_so_far()
        eventually(lambda: load.run_so_far() > before + 60, "the last pod serves", every_s=0.2)
        account = load.end()
        print(f"scale-in 10 → 1: {account.summary()}")
        assert not account.lost
        assert not account.twice and not account.not_run


def test_node_is_drained_and_no_request_is_lost(kubernetes: Cluster, tmp_path: Path) -> None:
    """The budget lets one pod go at a time, so each has its successor elsewhere before the next one leaves."""
    if len(kubernetes.nodes) == 1:
        kubernetes.add_node()
    last = kubernetes.nodes[-1].name
    with shop(kubernetes, tmp_path, *DRAIN, replicas=4) as made:
        kubernetes.apply(BUDGET)

        def there() -> list[str]:
            return [pod["metadata"]["name"] for pod in made.pods() if pod["spec"].get("nodeName") == last]

        leaving = there()
        assert leaving, "the scheduler has spread the pods"
        load = made.load("inf:40")
        eventually(lambda: load.run_so_far() > 60, "requests are answered", every_s=0.2)
        kubernetes.kubectl("drain", last, "--delete-emptydir-data", "--timeout=180s", within_s=200)
        made.settled(4)
        account = load.end()
        kubernetes.kubectl("uncordon", last)
        print(f"kubectl drain of {len(leaving)} of 4 pods: {account.summary()}")
        assert not there()
        assert not account.lost
        assert not account.twice and not account.not_run
