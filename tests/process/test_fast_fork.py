"""Workers are forked by a process that borrows the template's memory: where that does not work, or is not wanted, the
longer way is taken.
"""

import platform
import sys
from pathlib import Path

import psutil
import pytest

from support import seccomp
from support.processes import kill
from support.server import Serve, Server

pytestmark = [
    pytest.mark.own("gunicorn's master forks by itself"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere there is only the longer way"),
]

SLOWER = "WARNING.*workers are forked the slower way"


def under(action: str) -> list[str]:
    return [sys.executable, seccomp.__file__, action]


def replace(server: Server) -> None:
    """Kill the worker, and see another one answer."""
    mark = server.log.mark()
    with server.connect() as wire:
        worker = psutil.Process(int(wire.get("/pid").text.split()[0]))
        kill(worker)
        server.log.wait(rf"worker \d \({worker.pid}\) was killed by SIGKILL", mark)
        server.log.wait("worker ready", mark)
        assert int(wire.get("/pid").text.split()[0]) != worker.pid


@pytest.mark.parametrize(("action", "why"), [("refuse", "the kernel refused it"), ("kill", "it crashed")])
@pytest.mark.parametrize("arguments", [["--preload"], ["--no-preload", "-w", "2"]])
def test_where_it_does_not_work_it_is_given_up_by_itself(
    serve: Serve, action: str, why: str, arguments: list[str]
) -> None:
    server = serve("waiting:app", *arguments, prefix=under(action))
    replace(server)
    [line] = [line for line in server.log.lines() if "slower" in line]
    assert why in line


def test_it_can_be_turned_off(serve: Serve) -> None:
    server = serve("waiting:app", "--preload", "--no-fast-fork", prefix=under("kill"))
    replace(server)
    assert not server.log.matches(SLOWER), "it was not tried at all"


def test_turned_off_it_bears_an_app_that_ignores_sigchld(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "ignoring.py").write_text(
        "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfrom waiting import app\n"
    )
    server = serve("ignoring:app", "--preload", "--no-fast-fork", "--pythonpath", str(tmp_path))
    replace(server)
    assert not server.log.matches("cannot be forked")


@pytest.mark.privileges
def test_where_it_works_nothing_is_said(serve: Serve) -> None:
    server = serve("waiting:app", "--preload")
    replace(server)
    assert not server.log.matches("slower")
