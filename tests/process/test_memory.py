"""The app is loaded once and its memory shared: four workers cost little more than one copy of it."""

import pytest

from support import processes
from support.server import Serve, Server
from support.wire import request

HEAVY_MB = 100
WORKERS = 4
ROUNDS_MAX = 100


def pss_after_work_bytes(server: Server) -> int:
    """The memory of the tree when every worker has collected garbage."""
    pids: set[str] = set()
    for _ in range(ROUNDS_MAX):
        wires = [server.connect() for _ in range(WORKERS)]
        for wire in wires:
            wire.send(request("GET", "/"))
        for wire in wires:
            response = wire.response()
            assert response.status == 200
            pids.add(response.text.split()[0])
            wire.close()
        if len(pids) == WORKERS:
            return processes.pss_bytes(server.processes())
    raise AssertionError(f"only {len(pids)} of {WORKERS} workers have answered")


@pytest.mark.own("gunicorn does not freeze the heap before it forks")
def test_four_workers_share_a_preloaded_app_of_100_mb(serve: Serve) -> None:
    """PSS of the whole tree: at most one copy and a quarter, on top of what the same tree takes without it."""
    bare = pss_after_work_bytes(serve("heavy:app", "-w", str(WORKERS), env={"HEAVY_MB": "0"}))
    heavy = pss_after_work_bytes(serve("heavy:app", "-w", str(WORKERS), env={"HEAVY_MB": str(HEAVY_MB)}))
    copies = (heavy - bare) / (HEAVY_MB * 1_000_000)
    assert 0.9 < copies <= 1.25, f"{copies:.2f} copies of the app's data in memory"
