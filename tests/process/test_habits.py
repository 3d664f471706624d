"""Commands that people type, and that their scripts use, by habit: they do the same under gunicorn and here."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from support import processes
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.seats import seats
from support.server import GUNICORN, STANCHION, Kind, Serve

BOTH = pytest.mark.parametrize("kind", [STANCHION, GUNICORN], ids=lambda kind: kind.name)


@BOTH
def test_kill_by_the_pid_file(serve: Serve, gate: Gate, tmp_path: Path, kind: Kind) -> None:
    """`kill -TTIN $(cat pid)`, and so on, as scripts do."""
    pidfile, config = tmp_path / "pid", tmp_path / "gunicorn.conf.py"
    config.write_text("workers = 1\n")
    server = serve("waiting:app", "-c", str(config), "--pid", str(pidfile), kind=kind, env=gate.environment)
    assert pidfile.read_text() == f"{server.pid}\n"
    seats(server, gate, 1)
    ready = r"worker ready|Booting worker"
    mark = server.log.mark()
    os.kill(int(pidfile.read_text()), signal.SIGTTIN)
    server.log.wait(ready, mark)
    seats(server, gate, 2)
    os.kill(int(pidfile.read_text()), signal.SIGTTOU)
    eventually(lambda: count_of_workers(server.pid, kind) == 1, "one leaves")
    mark = server.log.mark()
    config.write_text("workers = 3\n")
    os.kill(int(pidfile.read_text()), signal.SIGHUP)
    eventually(lambda: len(list(server.log.matches(ready, mark))) == 3, "three new ones come up")
    eventually(lambda: count_of_workers(server.pid, kind) == 3, "the old one leaves")
    seats(server, gate, 3)
    os.kill(int(pidfile.read_text()), signal.SIGTERM)
    assert server.exit_code() == 0
    assert not pidfile.exists()


def count_of_workers(master: int, kind: Kind) -> int:
    """Children of the master, but for those that are none here."""
    children = []
    for process in psutil.Process(master).children():
        # It may leave meanwhile.
        with contextlib.suppress(psutil.NoSuchProcess):
            children.append(process.name())
    return children.count("stanchion-work") if kind is STANCHION else len(children)


@BOTH
def test_while_two_masters_live_the_new_ones_pid_file_ends_in_2(
    serve: Serve, gate: Gate, tmp_path: Path, kind: Kind
) -> None:
    pidfile, second = tmp_path / "pid", tmp_path / "pid.2"
    (tmp_path / "slow.py").write_text(
        "import os\nimport rendezvous\nfrom waiting import app\n"
        "if os.path.exists(os.environ['SLOW']):\n    rendezvous.announce('loading')\n    rendezvous.wait_for_pass()\n"
    )
    flag = tmp_path / "flag"
    env = {**gate.environment, "SLOW": str(flag)}
    server = serve("slow:app", "--pid", str(pidfile), "--pythonpath", str(tmp_path), kind=kind, env=env)
    old = server.pid
    # gunicorn listens before its worker has loaded the app, and that one is not to be held.
    with server.connect() as wire:
        assert wire.get("/pid").status == 200
    flag.touch()
    os.kill(old, signal.SIGUSR2)
    assert gate.announcement() == "loading"
    new = eventually(lambda: processes.pid_in(second), "there is another pid file")
    assert new is not None and new != old
    assert processes.pid_in(pidfile) == old
    flag.unlink()
    gate.let_pass(1)
    server.follow(new)
    if kind is GUNICORN:
        # Under gunicorn both masters serve until the operator stops the old one.
        os.kill(old, signal.SIGQUIT)
    server.process.wait(PATIENCE_S)
    eventually(lambda: processes.pid_in(pidfile) == new, "the new one's is the pid file")
    assert not second.exists()
    server.signal(signal.SIGTERM)
    processes.gone(new)
    assert not pidfile.exists()


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-m", "stanchion"],
        [str(Path(sys.executable).with_name("stanchion"))],
        [sys.executable, "-m", "stanchion.app.wsgiapp"],
    ],
    ids=["module", "script", "class"],
)
def test_every_way_to_call_it_serves(serve: Serve, command: list[str]) -> None:
    server = serve("hello:app", kind=Kind("stanchion", tuple(command), STANCHION.listening, STANCHION.ready))
    with server.connect() as wire:
        assert wire.get("/").body == b"hello\n"
