"""A real HorizontalPodAutoscaler on the seats wanted makes as many pods as the load needs, at once, and keeps them."""

import itertools
import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fleet_k8s.adapter import METRIC, Adapter
from fleet_k8s.cluster import LOOKS_EVERY_S, Cluster
from fleet_k8s.control_plane import Object
from fleet_k8s.fronts import PORT, Haproxy
from fleet_k8s.shop import DEPLOYMENT, WORKERS, Shop, shop
from support.patience import eventually

pytestmark = pytest.mark.timeout(900)

BEFORE_S, AFTER_S = 30, 75
PODS_MAX, SCALE_UPS_MAX = 6, 2
WORST_S = {5.5: 8, 14: 12}
"""A request waits until the autoscaler has looked and pods have started. The keys: how long after the rise of the load
it looks."""

CONSTANT_S = float(os.environ.get("STANCHION_CONSTANT_S", "120"))
SETTLES_S = 90
"""The peaks of a start are forgotten by then."""

TARGET = f"{round(0.7 * WORKERS * 1000)}m"
AUTOSCALER: Object = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
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
        # As in the chart. Without any `behavior` an older law holds: one pod becomes four at most, not five.
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
    },
}
NUMBERS = itertools.count(1)


class Scaled:
    """A shop behind HAProxy, with as many requests in a pod as it has seats, and an autoscaler."""

    def __init__(self, made: Shop, adapter: Adapter) -> None:
        self.made, self.adapter = made, adapter
        self.changes: list[tuple[float, int]] = []
        """When there were to be how many pods."""
        threading.Thread(target=self._follow, daemon=True).start()
        eventually(lambda: self.changes, "the Deployment is watched")
        # The controller remembers for five minutes what it has recommended to an autoscaler of the same name.
        made.cluster.apply({**AUTOSCALER, "metadata": {"name": f"shop-{next(NUMBERS)}"}})
        eventually(lambda: adapter.asked, "the autoscaler has looked", 90, 0.2)

    def _follow(self) -> None:
        path, name = DEPLOYMENT.rsplit("/", 1)
        for event in self.made.cluster.api.watch(f"{path}?fieldSelector=metadata.name={name}"):
            replicas = event["object"]["spec"]["replicas"]
            if not self.changes or self.changes[-1][1] != replicas:
                self.changes.append((time.time(), replicas))

    def wait_for_a_look(self, after_s: float) -> None:
        """Wait for the autoscaler's next look, and then for so long."""
        before = len(self.adapter.asked)
        eventually(lambda: len(self.adapter.asked) > before, "the autoscaler looks", 2 * LOOKS_EVERY_S, 0.05)
        time.sleep(after_s)

    def since(self, moment: float) -> list[tuple[float, int]]:
        """Changes from then on: seconds after that, and pods."""
        return [(round(at - moment, 1), replicas) for at, replicas in self.changes if at > moment]


@contextmanager
def scaled(cluster: Cluster, home: Path, replicas: int) -> Iterator[Scaled]:
    trusts = ("--drain-delay", "5", "--forwarded-allow-ips", "*")
    with shop(cluster, home, *trusts, replicas=replicas) as made, cluster.programs.for_a_while():
        front = Haproxy(cluster, home, limit=f"maxconn {WORKERS}")
        with closing(front), closing(Adapter(cluster, lambda: front.endpoints.ready)) as adapter:
            yield Scaled(made, adapter)


@pytest.mark.parametrize("looks_after_s", WORST_S)
def test_load_six_times_as_high_is_met_in_two_steps(kubernetes: Cluster, tmp_path: Path, looks_after_s: float) -> None:
    with scaled(kubernetes, tmp_path, 1) as under:
        under.wait_for_a_look(LOOKS_EVERY_S - (BEFORE_S + looks_after_s) % LOOKS_EVERY_S)
        load = under.made.load(f"{BEFORE_S}:20", f"{AFTER_S}:120", host="127.0.0.1", port=PORT)
        account = load.account()
        step = account.requests[0].sent + BEFORE_S
        looked_s = next(at for at, _ in under.adapter.asked if at > step) - step
        changes = under.since(step)
        wanted = [(round(at - step), round(value, 1)) for at, value in under.adapter.asked if at > step]
        calm = [one for one in account.requests if one.sent < step]
        print(f"before: p50 {account.took_s(0.5, calm) * 1e3:.0f} p99 {account.took_s(0.99, calm) * 1e3:.0f} ms")
        print(f"20 → 120/s, looked after {looked_s:.1f} s, pods {changes}, it saw {wanted}; {account.summary()}")
        ups = [replicas for _, replicas in changes]
        assert ups == sorted(ups) and len(ups) <= SCALE_UPS_MAX and ups[-1] <= PODS_MAX
        assert account.took_s(1) <= WORST_S[looks_after_s]
        assert not account.lost and not account.twice


def test_constant_load_changes_nothing(kubernetes: Cluster, tmp_path: Path) -> None:
    with scaled(kubernetes, tmp_path, 4) as under:
        account = under.made.load(f"{SETTLES_S + CONSTANT_S}:100", host="127.0.0.1", port=PORT).account(
            SETTLES_S + CONSTANT_S + 120
        )
        began = account.requests[0].sent
        settled, over = began + SETTLES_S, account.requests[-1].sent
        first = under.changes[0][0]
        print(f"100/s for {CONSTANT_S:.0f} s from {began - first:.0f} s on: pods {under.since(first - 1)}")
        print(account.summary())
        assert not [at for at, _ in under.changes if settled < at < over]
        assert not account.lost and not account.twice
