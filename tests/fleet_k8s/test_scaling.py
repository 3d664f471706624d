"""A real HorizontalPodAutoscaler on the seats wanted makes as many pods as the load needs, at once, and keeps them."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet_k8s.adapter import METRIC, Adapter
from fleet_k8s.cluster import Cluster
from fleet_k8s.control_plane import Object
from fleet_k8s.fronts import PORT, Haproxy
from fleet_k8s.shop import DEPLOYMENT, WORKERS, Shop, shop
from support.patience import eventually

BEFORE_S, AFTER_S = 30, 75
PODS_MAX, SCALE_UPS_MAX = 6, 2
LOOKS_SOON_S, WORST_S, WORST_LATE_S = 6, 8, 12
"""A request waits until the autoscaler has looked and pods have started, so how soon it looks decides how long."""

CONSTANT_S = float(os.environ.get("STANCHION_CONSTANT_S", "120"))
SETTLES_S = 90
"""The peaks of a start are forgotten by then."""

TARGET = f"{round(0.7 * WORKERS * 1000)}m"
AUTOSCALER: Object = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "shop"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"},
        "minReplicas": 1,
        "maxReplicas": 10,
        "metrics": [
            {
                "type": "External",
                "external": {"metric": {"name": METRIC}, "target": {"type": "AverageValue", "averageValue": TARGET}},
            }
        ],
    },
}


class Scaled:
    """A shop behind HAProxy, with as many requests in a pod as it has seats, and an autoscaler."""

    def __init__(self, made: Shop, adapter: Adapter) -> None:
        self.made, self.adapter = made, adapter
        self.changes: list[tuple[float, int]] = []
        """When there were to be how many pods."""
        threading.Thread(target=self._follow, daemon=True).start()
        eventually(lambda: self.changes, "the Deployment is watched")
        made.cluster.apply(AUTOSCALER)
        eventually(lambda: adapter.asked, "the autoscaler has looked", 90, 0.2)

    def _follow(self) -> None:
        path, name = DEPLOYMENT.rsplit("/", 1)
        for event in self.made.cluster.api.watch(f"{path}?fieldSelector=metadata.name={name}"):
            replicas = event["object"]["spec"]["replicas"]
            if not self.changes or self.changes[-1][1] != replicas:
                self.changes.append((time.time(), replicas))

    def since(self, moment: float) -> list[tuple[float, int]]:
        """Changes from then on: seconds after that, and pods."""
        return [(round(at - moment, 1), replicas) for at, replicas in self.changes if at > moment]


@contextmanager
def scaled(cluster: Cluster, home: Path, replicas: int) -> Iterator[Scaled]:
    trusts = ("--drain-delay", "5", "--forwarded-allow-ips", "*")
    with shop(cluster, home, *trusts, replicas=replicas) as made, cluster.programs.for_a_while():
        front = Haproxy(cluster, home, limit=f"maxconn {WORKERS}")
        adapter = Adapter(cluster, lambda: front.endpoints.ready)
        try:
            yield Scaled(made, adapter)
        finally:
            adapter.close()


def test_load_six_times_as_high_is_met_in_two_steps(kubernetes: Cluster, tmp_path: Path) -> None:
    with scaled(kubernetes, tmp_path, replicas=1) as under:
        load = under.made.load(f"{BEFORE_S}:20", f"{AFTER_S}:120", host="127.0.0.1", port=PORT)
        account = load.account()
        step = account.requests[0].sent + BEFORE_S
        looked_s = next(at for at, _ in under.adapter.asked if at > step) - step
        changes = under.since(step)
        wanted = [(round(at - step), round(value, 1)) for at, value in under.adapter.asked if at > step]
        print(f"20 → 120/s: looked after {looked_s:.1f} s, pods {changes}, it saw {wanted}; {account.summary()}")
        ups = [replicas for _, replicas in changes]
        assert ups == sorted(ups) and len(ups) <= SCALE_UPS_MAX and ups[-1] <= PODS_MAX
        assert account.took_s(1) <= (WORST_S if looked_s <= LOOKS_SOON_S else WORST_LATE_S)
        assert not account.lost and not account.twice


def test_constant_load_changes_nothing(kubernetes: Cluster, tmp_path: Path) -> None:
    with scaled(kubernetes, tmp_path, replicas=4) as under:
        account = under.made.load(f"{SETTLES_S + CONSTANT_S}:100", host="127.0.0.1", port=PORT).account(
            SETTLES_S + CONSTANT_S + 120
        )
        began = account.requests[0].sent
        settled, over = began + SETTLES_S, account.requests[-1].sent
        print(f"100/s for {CONSTANT_S:.0f} s: pods {under.since(began)}, {account.summary()}")
        assert not [at for at, _ in under.changes if settled < at < over]
        assert not account.lost and not account.twice
