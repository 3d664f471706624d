"""Kubernetes neither ends a pod nor takes clients from it because its app hangs in all seats, with a long line."""

import http.client
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from fleet_k8s.cluster import Cluster
from fleet_k8s.shop import ADMIN, HTTP, shop
from support.patience import eventually

pytestmark = pytest.mark.timeout(900)

HUNG_S = 60
WAITING_MIN = 500
PROBES_PER_S = 10

HANGS = ("--timeout", "0", "--queue-timeout", "0", "--drain-delay", "5")


class Prober:
    """A kubelet that is in a hurry: it opens a connection for each probe, ten times a second, and keeps the times."""

    def __init__(self, address: str, path: str) -> None:
        self._address, self._path = address, path
        self.times_s: list[float] = []
        self.failed: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(1 / PROBES_PER_S):
            began = time.perf_counter()
            try:
                with closing(http.client.HTTPConnection(self._address, ADMIN, timeout=2)) as link:
                    link.request("GET", self._path)
                    status = link.getresponse().status
            except OSError as problem:
                self.failed.append(repr(problem))
                continue
            self.times_s.append(time.perf_counter() - began)
            if status != 200:
                self.failed.append(str(status))

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def p99_s(self) -> float:
        return sorted(self.times_s)[int(0.99 * len(self.times_s))]


def test_probes_are_answered_while_all_seats_hang(kubernetes: Cluster, tmp_path: Path) -> None:
    with shop(kubernetes, tmp_path, *HANGS) as made:
        [pod] = made.pods()
        address = pod["status"]["podIP"]
        load = made.load(f"2:{WAITING_MIN / 1.6}", host=address, port=HTTP, what="/held")
        eventually(lambda: waiting(address) >= WAITING_MIN, "the line is long", 60, 0.2)
        probers = [Prober(address, path) for path in ("/live", "/ready")]
        deadline = time.monotonic() + HUNG_S
        while time.monotonic() < deadline:
            assert made.ready() == 1, "clients are sent to the pod"
            assert waiting(address) >= WAITING_MIN
            time.sleep(1)
        for prober in probers:
            prober.stop()
        restarts = made.restarts()
        (made.counts / "open").touch()
        account = load.account()
        live, ready = (f"{prober.p99_s() * 1e3:.1f} ms of {len(prober.times_s)}" for prober in probers)
        print(f"all seats hung for {HUNG_S} s: p99 of /live {live}, of /ready {ready}, {restarts} restarts")
        print(account.summary())
        assert not probers[0].failed and not probers[1].failed
        assert max(prober.p99_s() for prober in probers) < 0.1
        assert restarts == 0
        assert not account.lost and not account.twice


def waiting(address: str) -> int:
    """The length of the line, as /metrics of the pod says."""
    with closing(http.client.HTTPConnection(address, ADMIN, timeout=5)) as link:
        link.request("GET", "/metrics")
        lines = link.getresponse().read().decode().splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith("stanchion_line_waiting"))
