"""Libraries whose threads are no matter for a fork, as the list in `sound_threads.rs` says of them."""

import os
import signal

import pytest

from support.gate import Gate
from support.server import Serve, Server

pytestmark = pytest.mark.own("gunicorn does not preload unless told to, and then looks at nothing")

FORKS = 10
"""Workers that follow each other."""


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


@pytest.mark.parametrize("fork", [[], ["--no-fast-fork"]], ids=["fast", "slow"])
def test_numpy_is_preloaded_and_each_worker_computes_with_it(serve: Serve, gate: Gate, fork: list[str]) -> None:
    # The threads of OpenBLAS are as many as there are processors, unless this says otherwise.
    server = serve("computes:app", *fork, env={"OPENBLAS_NUM_THREADS": "3", **gate.environment})
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
