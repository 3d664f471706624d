"""Links where root works: a directory of the app's user, in which things are moved and replaced under root's hands.

A second process, as that user, swaps what root has made with a link to what is not its own, as fast as it can, while
the server is made to go there again and again. Nothing outside may change its owner, its mode, or its contents.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import open_house
from support.ctl import ctl
from support.open_house import NOBODY, OTHERS
from support.patience import eventually
from support.server import STANCHION, Server

RELOADS = 40
REOPENINGS = 1500
QUICK_RELOADS = int(os.environ.get("STANCHION_QUICK_RELOADS", "120"))
"""Reloads that fail after the master has handled the listeners, and so end at once."""

NOT_HERE = open_house.unavailable()
pytestmark = [pytest.mark.own("files of the process tree"), pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE)]

AS_THE_USER = f"""
import ctypes, os, select, sys
os.setgroups([]); os.setgid({OTHERS}); os.setuid({NOBODY})  # plain: ok
exchange = ctypes.CDLL(None, use_errno=True).renameat2
AT_FDCWD, RENAME_EXCHANGE = -100, 2
print("racing", flush=True)
"""

SWAPS = """
one, two = map(os.fsencode, sys.argv[1:])
while not select.select([0], [], [], 0)[0]:
    for _ in range(500):
        exchange(AT_FDCWD, one, AT_FDCWD, two, RENAME_EXCHANGE)
"""

TAKES = """
directory, target = sys.argv[1:]
taken = set()
while not select.select([0], [], [], 0)[0]:
    for _ in range(500):
        for name in os.listdir(directory):
            if name.startswith("stanchion-") and name not in taken:
                taken.add(name)
                path = os.path.join(directory, name)
                os.rename(path, os.path.join(directory, name.replace("stanchion", "taken")))
                os.symlink(target, path)
"""


@contextmanager
def racing(how: str, *paths: Path) -> Iterator[None]:
    command = [*open_house.prefix(), sys.executable, "-c", AS_THE_USER + how, *map(str, paths)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as racer:
        try:
            assert racer.stdout and racer.stdout.readline() == b"racing\n"
            yield
        finally:
            racer.communicate(b"enough\n")
    assert racer.returncode == 0


@pytest.fixture
def theirs(home: Path) -> Path:
    """A directory of the user's."""
    theirs = home / "theirs"
    theirs.mkdir()
    os.chown(theirs, NOBODY, OTHERS)
    return theirs


@pytest.fixture
def victim(home: Path) -> Path:
    victim = home / "victim"
    victim.write_text("root's\n")
    victim.chmod(0o600)
    return victim


@pytest.fixture
def server(home: Path) -> Iterator[Server]:
    arguments = ["--user", str(NOBODY), "--group", str(OTHERS), "-c", str(home / "c.py"), "hello:app"]
    server = Server(STANCHION, arguments, home / "server", prefix=open_house.prefix())
    server.home.mkdir()
    yield server
    server.stop()


def state(path: Path) -> tuple[int, int, int, int]:
    found = path.lstat()
    return found.st_mode, found.st_uid, found.st_gid, found.st_nlink


def reload_often(server: Server, times: int) -> list[str]:
    """How each reload ended."""
    ends = []
    for _ in range(times):
        mark = server.log.mark()
        server.signal(signal.SIGHUP)
        ends.append(server.log.wait("reloaded|reload failed.*", mark)[0])
    return ends


@pytest.mark.timeout(600)
def test_the_socket_file(home: Path, theirs: Path, victim: Path, server: Server) -> None:
    text = f"bind = ['127.0.0.1:0', 'unix:{theirs}/s?mode=0777']\n"
    (home / "c.py").write_text(text)
    server.start()
    (home / "c.py").write_text(f"{text}tmp_upload_dir = '/nowhere'\n")
    assert state(theirs / "s")[1:3] == (NOBODY, OTHERS)
    (theirs / "link").symlink_to(victim)
    before = state(victim)
    with racing(SWAPS, theirs / "s", theirs / "link"):
        ends = reload_often(server, QUICK_RELOADS)
    # Now the socket stood there, and now the link.
    assert len({"/nowhere" in end for end in ends}) == 2
    assert state(victim) == before
    assert victim.read_text() == "root's\n"


@pytest.mark.timeout(600)
def test_the_spool(home: Path, theirs: Path, server: Server) -> None:
    (home / "c.py").write_text(f"bind = '127.0.0.1:0'\ntmp_upload_dir = '{theirs}'\n")
    victim = home / "directory"
    victim.mkdir(mode=0o700)
    (victim / "file").write_text("root's\n")
    server.start()
    before = state(victim)
    with racing(TAKES, theirs, victim):
        reload_often(server, RELOADS)
    assert any(path.name.startswith("taken-") for path in theirs.iterdir())
    assert state(victim) == before
    assert (victim / "file").read_text() == "root's\n"
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    assert (victim / "file").exists()


def test_a_directory_in_the_place_of_the_spool(home: Path, theirs: Path, server: Server) -> None:
    (home / "c.py").write_text(f"bind = '127.0.0.1:0'\ntmp_upload_dir = '{theirs}'\n")
    roots = theirs / "roots"
    roots.mkdir(mode=0o700)
    (roots / "file").write_text("root's\n")
    server.start()
    (spool,) = theirs.glob("stanchion-*")
    spool.rename(theirs / "moved")
    roots.rename(spool)
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    server.log.wait("spool directory .* stays: another process has put another directory in its place")
    assert (spool / "file").read_text() == "root's\n"


def test_the_control_socket_and_the_pid_file(home: Path, theirs: Path, victim: Path, server: Server) -> None:
    """The master neither removes, nor believes, nor waits for files that another user puts in their place."""
    control, pidfile = theirs / "control", theirs / "pid"
    (home / "c.py").write_text(f"bind = '127.0.0.1:0'\ncontrol = 'unix:{control}'\npidfile = '{pidfile}'\n")
    server.start()
    assert state(control)[:3] == (0o140600, 0, 0)
    before = state(victim)
    control.rename(theirs / "moved")
    control.symlink_to(victim)
    pidfile.unlink()
    os.mkfifo(pidfile)  # at whose opening one waits for a writer
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    assert pidfile.is_fifo()
    assert control.is_symlink()
    assert state(victim) == before


@pytest.mark.timeout(600)
def test_a_log_whose_directory_is_swapped(home: Path, theirs: Path, victim: Path, server: Server) -> None:
    logs, link, roots = theirs / "logs", theirs / "link", home / "directory"
    logs.mkdir()
    os.chown(logs, NOBODY, OTHERS)
    roots.mkdir()
    (roots / "other").write_text("root's\n")
    link.symlink_to(roots)
    (home / "c.py").write_text(f"bind = '127.0.0.1:0'\naccesslog = '{logs}/access.log'\n")
    server.start()
    with racing(SWAPS, logs, link):
        for _ in range(REOPENINGS):
            mark = server.log.mark()
            server.signal(signal.SIGUSR1)
            server.log.wait("reopening the logs", mark)
    assert [path.name for path in roots.iterdir()] == ["other"], "nothing was made where root's files are"


def test_a_log_on_a_way_that_others_may_move(home: Path, theirs: Path, server: Server) -> None:
    """On some systems syslog's group may write in /var/log. The server follows no link there."""
    logs = theirs / "logs"
    logs.mkdir()
    (home / "c.py").write_text(f"bind = '127.0.0.1:0'\naccesslog = '{logs}/access.log'\n")
    server.start()
    assert state(logs / "access.log")[1:3] == (NOBODY, OTHERS)


def test_a_log_behind_a_link_of_others(home: Path, theirs: Path, server: Server) -> None:
    logs = theirs / "logs"
    (home / "elsewhere").mkdir()
    logs.symlink_to(home / "elsewhere")
    (home / "c.py").write_text(f"bind = '127.0.0.1:0'\naccesslog = '{logs}/access.log'\n")
    server.launch()
    assert server.exit_code() != 0
    server.log.wait(f"users other than root may write to {theirs}, so root follows no link from there on")
    assert list((home / "elsewhere").iterdir()) == []


def test_nothing_changes_for_root_where_the_app_cannot_write(home: Path, server: Server) -> None:
    ours = home / "ours"
    ours.mkdir()
    text = f"bind = ['127.0.0.1:0', 'unix:{ours}/s']\ncontrol = 'unix:{ours}/c'\npidfile = '{ours}/p'\n"
    (home / "c.py").write_text(f"{text}accesslog = '{ours}/a'\ntmp_upload_dir = '{ours}'\n")
    server.start()
    assert state(ours / "s")[1:3] == state(ours / "a")[1:3] == (NOBODY, OTHERS)
    assert state(ours / "c")[:3] == (0o140600, 0, 0)
    assert ctl(ours / "c", "reload").returncode == 0
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    eventually(lambda: [path.name for path in ours.iterdir()] == ["a"], "its files are gone")
