"""A process that is killed in a pod costs the requests that it ran, and no others."""

import http.client
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from fleet_k8s.cluster import Cluster
from fleet_k8s.control_plane import Object
from fleet_k8s.fronts import PORT, Haproxy
from fleet_k8s.judge import runs
from fleet_k8s.shop import HTTP, WORKERS, Shop, shop
from support.patience import eventually

pytestmark = pytest.mark.timeout(900)

READY_AGAIN_S = 3
EATS = 1_000_000
"""The number of the request that eats all memory, which no load reaches."""


def test_worker_that_the_kernel_ends_for_its_memory_costs_its_request(kubernetes: Cluster, tmp_path: Path) -> None:
    with shop(kubernetes, tmp_path, "--drain-delay", "5", memory="200Mi") as made:
        [pod] = made.pods()
        load = made.load("inf:20")
        eventually(lambda: load.run_so_far() > 60, "requests are answered", every_s=0.2)
        with closing(http.client.HTTPConnection(pod["status"]["podIP"], HTTP, timeout=60)) as link:
            link.request("POST", f"/eat/{EATS}", b"x")
            status = link.getresponse().status
        before = load.run_so_far()
        eventually(lambda: load.run_so_far() > before + 60, "the pod serves on", every_s=0.2)
        account = load.end()
        print(f"OOM: the request itself {status}, {made.restarts()} restarts, {account.summary()}")
        assert status == 502
        assert runs(made.counts)[EATS, "POST"] == 1
        assert made.restarts() == 0 and made.ready() == 1
        assert not account.lost and not account.twice


def test_killed_master_costs_the_requests_of_its_pod(kubernetes: Cluster, tmp_path: Path) -> None:
    """HAProxy sends requests elsewhere that reach no pod, so only those that were in the pod are lost."""
    with (
        shop(kubernetes, tmp_path, "--drain-delay", "5", replicas=2) as made,
        kubernetes.programs.for_a_while(),
        closing(Haproxy(kubernetes, tmp_path, limit=f"maxconn {WORKERS}")),
    ):
        load = made.load("inf:40", host="127.0.0.1", port=PORT)
        eventually(lambda: load.run_so_far() > 60, "requests are answered", every_s=0.2)
        pod = made.pods()[0]
        killed = time.time()
        master = psutil.Process(master_of(pod))
        master.kill()
        eventually(lambda: not master.is_running() or master.status() == psutil.STATUS_ZOMBIE, "the master has ended")
        ended = time.time()
        eventually(lambda: made.restarts() == 1 and is_ready(made, pod), "the pod is ready again", 60, 0.05)
        took_s = time.time() - killed
        before = load.run_so_far()
        eventually(lambda: load.run_so_far() > before + 100, "both pods serve", every_s=0.2)
        account = load.end()
        print(f"kill -9 of a master: ready again after {took_s:.1f} s, {account.summary()}")
        # Until the kernel has ended all of them, connections reach a pod that answers no more.
        in_flight = [one for one in account.requests if one.sent < ended and killed < one.sent + one.took_s]
        print(f"it ended within {(ended - killed) * 1e3:.0f} ms; {len(in_flight)} requests were in flight in both pods")
        assert set(account.lost) <= set(in_flight)
        assert not account.twice
        assert took_s <= READY_AGAIN_S


def master_of(pod: Object) -> int:
    """The pid of the first process of the pod's container, as this host sees it."""
    [container] = pod["status"]["containerStatuses"]
    name = container["containerID"].rpartition("/")[2]
    inside = [pid for pid in psutil.pids() if name in Path(f"/proc/{pid}/cgroup").read_text()]
    [first] = [
        pid
        for pid in inside
        if Path(f"/proc/{pid}/status").read_text().partition("NSpid:")[2].split("\n")[0].split()[-1] == "1"
    ]
    return first


def is_ready(made: Shop, pod: Object) -> bool:
    now = next(one for one in made.pods() if one["metadata"]["name"] == pod["metadata"]["name"])
    return all(status["ready"] for status in now["status"]["containerStatuses"])
