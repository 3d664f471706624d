"""Libraries whose threads are no matter for a fork, as the list in `sound_threads.rs` says of them."""

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from support.gate import Gate
from support.patience import eventually
from support.processes import kill
from support.server import STANCHION, Kind, Serve, Server

pytestmark = [
    pytest.mark.own("gunicorn does not preload unless told to, and then looks at nothing"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="OpenBLAS has no threads where it has one core"),
]

FORKS = 10
"""Workers that follow each other."""

PROGRAM = """\
import stanchion
from frameworks.numpy import app

stanchion.run(app, host="127.0.0.1", port=0, limit_max_requests=1_000_000)
"""
"""With a limit a template stays beside a single worker."""
CONFIG = """\
from frameworks.numpy import app, matrix

max_requests = 1_000_000


def {hook}(server):
    matrix @ matrix.T
"""


def ask(server: Server) -> int:
    """The process that has computed the same as the template before it was forked."""
    with server.connect() as wire:
        answer = wire.get("/")
    assert answer.status == 200, answer.text
    pid, _, is_equal = answer.text.partition(" ")
    assert is_equal == "True"
    return int(pid)


def has_threads(pid: int) -> bool:
    return len(os.listdir(f"/proc/{pid}/task")) > 1


def test_numpy_is_preloaded_and_each_worker_computes_with_it(serve: Serve, gate: Gate) -> None:
    # The threads of OpenBLAS are as many as there are processors, unless this says otherwise.
    # With a limit a template stays beside a single worker, also if neither --preload nor --no-preload is given.
    server = serve(
        "frameworks.numpy:app", "--max-requests", "1000000", env={"OPENBLAS_NUM_THREADS": "3", **gate.environment}
    )
    (template,) = [int(line.removeprefix("loaded ")) for line in gate.announcements(1)]
    workers = set()
    for _ in range(FORKS):
        worker = ask(server)
        assert ask(server) == worker
        assert worker != template
        assert has_threads(worker), "it has computed without threads, which shows nothing"
        workers.add(worker)
        mark = server.log.mark()
        os.kill(worker, signal.SIGKILL)
        server.log.wait("worker ready worker=0", mark)
    assert len(workers) == FORKS
    assert not gate.announced(), "it was imported once"
    assert not server.log.matches("import left")


def replace(server: Server, name: str) -> None:
    """Kill the process of this name: another one follows, and a worker computes."""

    def process() -> psutil.Process | None:
        return next(iter(server.of_name(name)), None)

    before = process()
    assert before
    kill(before)
    eventually(lambda: (after := process()) and after.pid != before.pid, f"another {name} is there")
    assert has_threads(ask(server))


def assert_all_are_replaced(server: Server) -> None:
    """Also by a reload, until the server leaves."""
    ask(server)
    for name in ("stanchion-work", "stanchion-tmpl", "stanchion-acpt", "stanchion-work"):
        replace(server, name)
    mark = server.log.mark()
    server.signal(signal.SIGHUP)
    server.log.wait(r"reloaded: generation \d+ serves", mark)
    assert has_threads(ask(server))
    assert not has_threads(server.pid)
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    assert not server.log.matches("thread")


def test_a_program_that_has_imported_numpy_serves(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    kind = Kind(STANCHION.name, (sys.executable, str(tmp_path / "shop.py")), STANCHION.listening, STANCHION.ready)
    server = serve("", bind="", kind=kind, env={"OPENBLAS_NUM_THREADS": "3", **gate.environment})
    assert gate.announcement() == f"loaded {server.pid}"
    assert_all_are_replaced(server)


@pytest.mark.parametrize("hook", ["on_starting", "when_ready", "on_reload"])
def test_a_config_file_may_import_numpy_and_compute(serve: Serve, gate: Gate, tmp_path: Path, hook: str) -> None:
    (tmp_path / "conf.py").write_text(CONFIG.format(hook=hook))
    options = ("-c", str(tmp_path / "conf.py"))
    server = serve("frameworks.numpy:app", *options, env={"OPENBLAS_NUM_THREADS": "3", **gate.environment})
    assert_all_are_replaced(server)
