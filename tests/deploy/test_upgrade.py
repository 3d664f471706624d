"""Another master takes over, and no client notices; one that cannot changes nothing."""

import contextlib
import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from support import processes
from support.ctl import ctl
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.release import Releases, answer
from support.server import STANCHION, Serve, Server
from support.steady import Steady
from support.wire import Wire, request

pytestmark = [
    pytest.mark.own("gunicorn's two masters serve side by side until somebody ends the old one"),
]

EXIT_APP_LOAD = 4
START_S = 2 * PATIENCE_S
"""The time limit for the start of a new master, as of a first one."""
UPGRADED = r"upgraded: the new master (\d+) serves"
FAILED = r"upgrade failed: "


def upgrade(server: Server) -> int:
    """USR2, until the new master serves and the old one is gone; the new one's pid."""
    mark, old = server.log.mark(), server.pid
    server.signal(signal.SIGUSR2)
    new = int(server.log.wait(UPGRADED, mark, START_S)[1])
    server.follow(new)
    processes.gone(old)
    return new


@pytest.mark.timeout(300)
@pytest.mark.parametrize("upgrades", [5, pytest.param(20, marks=pytest.mark.large)])
def test_upgrades_in_a_row_fail_no_request(serve: Serve, tmp_path: Path, upgrades: int) -> None:
    releases = Releases(tmp_path / "releases")
    releases.put(0)
    pidfile = tmp_path / "pid"
    bind = ["--bind", f"unix:{tmp_path}/s", "--pid", str(pidfile)]
    server = serve("released:app", *bind, "-w", "2", *releases.arguments)
    masters = [server.pid]
    with Steady(server.addresses) as load:
        load.more()
        for release in range(1, upgrades + 1):
            releases.put(release)
            masters.append(upgrade(server))
            # The old master is gone, so the new one's processes answer now.
            assert [answer(address) for address in server.addresses] == [(release, server.pid)] * 2
            eventually(lambda: processes.pid_in(pidfile) == server.pid, "the pid file names the new master")
            load.more()
            assert load.failed() == 0, f"after upgrade {release}"
    load.assert_no_failure()
    seen = {tuple(map(int, text.split())) for text in load.answers()}
    assert seen == set(enumerate(masters)), "each release has answered clients of the load, under its own master"
    assert server.exit_code() == 0, "the first master has left as one that was told to"


@pytest.mark.privileges
def test_the_new_master_is_a_child_of_the_parent_of_the_old_one(serve: Serve, tmp_path: Path) -> None:
    """A service manager waits for its own children only, and kills whatever else it finds."""
    releases = Releases(tmp_path / "releases")
    releases.put(0)
    server = serve("released:app", *releases.arguments)
    old = server.process
    for _ in range(2):
        new = upgrade(server)
        assert psutil.Process(new).ppid() == os.getpid()
        assert answer(server.address) == (0, new)
    assert old.wait() == 0
    server.signal(signal.SIGTERM)
    # Only its parent can.
    _, status = os.waitpid(new, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.privileges
def test_a_new_master_that_cannot_serve_is_collected_by_the_parent_of_the_old_one(serve: Serve, tmp_path: Path) -> None:
    releases = Releases(tmp_path / "releases")
    releases.put(0)
    server = serve("released:app", *releases.arguments)
    releases.put(1, "import there_is_no_such_module")
    mark = server.log.mark()
    server.signal(signal.SIGUSR2)
    reason = "the app could not be loaded: .*"
    server.log.wait(f"upgrade failed: the new master has ended: {reason}; this master goes on serving", mark, START_S)
    heirs = [one.pid for one in psutil.Process().children() if os.getsid(one.pid) == server.pid != one.pid]
    [heir] = heirs
    _, status = os.waitpid(heir, 0)
    assert os.waitstatus_to_exitcode(status) == EXIT_APP_LOAD
    assert answer(server.address) == (0, server.pid)


def test_reload_and_term_mean_the_new_master(serve: Serve, tmp_path: Path) -> None:
    releases = Releases(tmp_path / "releases")
    releases.put(0)
    server = serve("released:app", *releases.arguments)
    upgrade(server)
    releases.put(1)
    mark = server.log.mark()
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded: generation", mark)
    assert answer(server.address) == (1, server.pid)
    server.signal(signal.SIGTERM)
    eventually(lambda: not server.processes(), "all leave")


@pytest.mark.privileges
def test_the_file_of_a_socket_that_is_no_longer_wanted_goes_with_the_old_master(serve: Serve, tmp_path: Path) -> None:
    releases = Releases(tmp_path / "releases")
    releases.put(0)
    kept, dropped, config = tmp_path / "kept", tmp_path / "dropped", tmp_path / "settings.py"
    config.write_text(f"bind = ['unix:{kept}', 'unix:{dropped}']\n")
    server = serve("released:app", "-c", str(config), *releases.arguments, bind=None)
    config.write_text(f"bind = 'unix:{kept}'\n")
    upgrade(server)
    eventually(lambda: not dropped.exists(), "nobody has it any more")
    assert kept.exists()
    assert answer(server.address) == (0, server.pid)


def test_an_upgrade_that_fails_leaves_no_socket_file_behind(serve: Serve, tmp_path: Path) -> None:
    releases = Releases(tmp_path / "releases")
    releases.put(0)
    old, new, config = tmp_path / "old", tmp_path / "new", tmp_path / "settings.py"
    config.write_text(f"bind = 'unix:{old}'\n")
    server = serve("released:app", "-c", str(config), *releases.arguments, bind=None)
    releases.put(1, "import there_is_no_such_module")
    for hook in ("", "def on_starting(server): raise LookupError\n"):
        config.write_text(f"bind = ['unix:{old}', 'unix:{new}']\n{hook}")
        mark = server.log.mark()
        server.signal(signal.SIGUSR2)
        server.log.wait(f"listening at unix:{new}", mark, START_S)
        server.log.wait(FAILED, mark)
        assert (old.exists(), new.exists()) == (True, False)
        assert answer(server.address) == (0, server.pid)


@pytest.mark.parametrize(
    ("config", "before"),
    [
        ("workers = (\n", ""),
        ("workers = 'many'\n", ""),
        ("", "import there_is_no_such_module"),
        ("", "os._exit(1)"),
    ],
    ids=["unreadable", "wrong", "import", "death"],
)
@pytest.mark.parametrize("signals", ["gunicorn", "unicorn"])
def test_an_upgrade_that_fails_changes_nothing_and_the_next_one_works(
    serve: Serve, tmp_path: Path, signals: str, config: str, before: str
) -> None:
    releases = Releases(tmp_path / "releases")
    releases.put(0)
    settings, pidfile = tmp_path / "settings.py", tmp_path / "pid"
    settings.write_text("")
    arguments = ["-c", str(settings), "--pid", str(pidfile), "--signals", signals, *releases.arguments]
    server = serve("released:app", "--bind", f"unix:{tmp_path}/s", *arguments)
    with Steady(server.addresses) as load:
        releases.put(1, before)
        settings.write_text(config)
        mark, old = server.log.mark(), server.pid
        server.signal(signal.SIGUSR2)
        server.log.wait(FAILED, mark, START_S)
        assert {answer(address) for address in server.addresses} == {(0, old)}
        load.more()
        eventually(lambda: pid_files(tmp_path) == {"pid": old}, "the pid file names the old master, alone")
        releases.put(2)
        settings.write_text("")
        upgrade(server)
        assert {answer(address) for address in server.addresses} == {(2, server.pid)}
        load.more()
        eventually(lambda: pid_files(tmp_path) == {"pid": server.pid}, "the pid file names the new master, alone")
    load.assert_no_failure()


def pid_files(directory: Path) -> dict[str, int | None]:
    return {path.name: processes.pid_in(path) for path in directory.glob("pid*")}


def test_a_new_master_that_is_killed_while_it_boots_changes_nothing(serve: Serve, tmp_path: Path) -> None:
    releases = Releases(tmp_path / "releases")
    releases.put(0)
    server = serve("released:app", *releases.arguments)
    known = set(server.processes())
    with Steady(server.addresses) as load:
        # It never gets ready.
        releases.put(1, "import time; time.sleep(3600)")
        mark = server.log.mark()
        server.signal(signal.SIGUSR2)

        def heir() -> psutil.Process | None:
            # The new process beside the master; once it has children it is in the middle of its start.
            for one in server.processes():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if one not in known and one.ppid() == os.getpid() and one.children():
                        return one
            return None

        booting = eventually(heir, "the new master boots", START_S)
        assert booting is not None
        family = [booting, *booting.children(recursive=True)]
        booting.kill()
        server.log.wait(FAILED, mark)
        for process in family:
            processes.gone(process.pid)
        assert answer(server.address) == (0, server.pid)
        load.more()
    load.assert_no_failure()


def test_a_master_that_is_killed_while_its_heir_boots_leaves_it_the_listeners(
    serve: Serve, gate: Gate, tmp_path: Path
) -> None:
    releases = Releases(tmp_path / "releases")
    releases.put(0)
    server = serve("released:app", "--bind", f"unix:{tmp_path}/s", *releases.arguments, env=gate.environment)
    # The template's parent is the new master.
    waits = "import os; from rendezvous import announce, wait_for_pass; announce(str(os.getppid())); wait_for_pass()"
    releases.put(1, waits)
    server.signal(signal.SIGUSR2)
    heir = int(gate.announcement(START_S))
    acceptor, mark = server.acceptor(), server.log.mark()
    os.kill(server.pid, signal.SIGKILL)
    server.follow(heir)
    processes.gone(acceptor.pid)
    # It has come after the acceptor of the dead master, and waits for the new one.
    waiting = [Wire.connect(address) for address in server.addresses]
    for wire in waiting:
        wire.send(request("GET", "/"))
    gate.open()
    server.log.wait("ready: ", mark)
    for wire in waiting:
        assert wire.response().text == f"1 {heir}"
        wire.close()
    assert [answer(address) for address in server.addresses] == [(1, heir)] * 2


@pytest.mark.privileges
def test_ctl_says_how_an_upgrade_ended_and_then_reaches_the_new_master(serve: Serve, tmp_path: Path) -> None:
    releases = Releases(tmp_path / "releases")
    releases.put(0)
    control = tmp_path / "ctl"
    server = serve("released:app", "--control", f"unix:{control}", *releases.arguments)
    releases.put(1, "import there_is_no_such_module")
    done = ctl(control, "upgrade")
    assert done.returncode == 1
    assert "upgrade failed: the new master has ended: the app could not be loaded: " in done.stderr
    assert "goes on serving" in done.stderr
    releases.put(2)
    mark, old = server.log.mark(), server.pid
    done = ctl(control, "upgrade")
    assert (done.returncode, done.stderr) == (0, "")
    server.follow(int(server.log.wait(UPGRADED, mark)[1]))
    # The new master answers also while the old one is on its way out.
    assert f"master {server.pid}" in ctl(control, "status").stdout
    processes.gone(old)
    assert f"master {server.pid}" in ctl(control, "status").stdout


def test_who_waits_at_an_address_that_an_upgrade_drops_is_served(serve: Serve, tmp_path: Path) -> None:
    releases = Releases(tmp_path / "releases")
    releases.put(0)
    config, path = tmp_path / "settings.py", tmp_path / "dropped"
    kept = f"unix:{tmp_path}/kept"
    config.write_text(f"bind = ['{kept}', 'unix:{path}', '127.0.0.1:0']\n")
    server = serve("released:app", "-c", str(config), *releases.arguments, bind=None)
    _, unix, tcp = server.addresses
    old, acceptor = server.pid, processes.holder_of_connections(server.processes(), tcp)
    acceptor.suspend()
    # More than it accepts before it hears what else there is.
    waiting = [Wire.connect(address) for address in (unix, tcp) for _ in range(200)]
    for wire in waiting:
        wire.send(request("GET", "/"))
    config.write_text(f"bind = '{kept}'\n")
    releases.put(1)
    mark = server.log.mark()
    server.signal(signal.SIGUSR2)
    new = int(server.log.wait(UPGRADED, mark, START_S)[1])
    server.follow(new)
    acceptor.resume()
    for wire in waiting:
        response = wire.response()
        assert (response.status, response.text) == (200, f"0 {old}")
        wire.close()
    processes.gone(old)
    # The new master removes it when it sees that the old one is gone.
    eventually(lambda: not path.exists(), "the file of the dropped address is gone")
    with pytest.raises(ConnectionRefusedError):
        tcp.connect()
    assert answer(server.address) == (1, new)


@pytest.mark.parametrize(
    ("breaks", "reason"),
    [
        ("no stanchion", "No module named"),
        ("no interpreter", "python cannot be started: No such file or directory"),
        ("a wrong setting", "workers"),
    ],
)
def test_ctl_says_why_a_new_master_did_not_come_to_run(build: Serve, tmp_path: Path, breaks: str, reason: str) -> None:
    """Finding N10 of an operator's first day: a virtual environment that has moved to another Python."""
    control, config = tmp_path / "ctl", tmp_path / "shop.conf.py"
    config.write_text("workers = 1\n")
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    python = environment / "bin" / "python"
    python.symlink_to(os.path.realpath(sys.executable))
    # An interpreter finds its packages by this file (PEP 405).
    pyvenv = environment / "pyvenv.cfg"
    pyvenv.write_text((Path(sys.prefix) / "pyvenv.cfg").read_text())
    (environment / "lib").symlink_to(Path(sys.prefix) / "lib")
    kind = replace(STANCHION, command=(str(python), "-m", "stanchion", "serve"))
    server = build("hello:app", "--control", f"unix:{control}", "--config", str(config), kind=kind).start()
    match breaks:
        case "no stanchion":
            (environment / "lib").unlink()
        case "no interpreter":
            python.unlink()
        case _:
            config.write_text("workers = 'many'\n")
    mark = server.log.mark()
    done = ctl(control, "upgrade")
    assert done.returncode == 1
    assert re.search(rf"upgrade failed: the new master has ended: .*{reason}.*; this master goes on", done.stderr)
    server.log.wait(r"upgrade failed: .*" + reason, mark)
    with server.connect() as wire:
        assert wire.get("/").status == 200
