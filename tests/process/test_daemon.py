"""`-D`: the command returns when the server serves in the background, or with the reason why it does not."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support import processes
from support.address import Address
from support.ctl import ctl
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.ports import row_of_ports
from support.server import APPS, GUNICORN, STANCHION, Kind
from support.wire import Wire

EXIT_USAGE, EXIT_APP_LOAD, EXIT_BIND = 2, 4, 5
START_S = 2 * PATIENCE_S


class Daemon:
    """A command that is to go into the background, and what is there then."""

    def __init__(self, home: Path, port: int) -> None:
        self.home = home
        self.port = port
        self.pidfile = home / "pid"

    def command(self, *words: str, kind: Kind = STANCHION) -> list[str]:
        bind = ["--bind", f"127.0.0.1:{self.port}"]
        return [*kind.command, "-D", "--pid", "pid", *bind, *words]

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "PYTHONPATH": str(APPS)}

    def run(self, *words: str, kind: Kind = STANCHION, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the command and read its pipes to the end, which comes when every process has closed them."""
        return subprocess.run(
            self.command(*words, kind=kind),
            cwd=self.home,
            env=self.environment | env,
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )

    @property
    def pid(self) -> int:
        return int(self.pidfile.read_text())

    def all(self) -> list[psutil.Process]:
        return processes.of_session(os.getsid(self.pid))

    def get(self) -> bytes:
        with Wire.connect(Address.parse(f"127.0.0.1:{self.port}"), PATIENCE_S) as wire:
            return wire.get("/").body

    def stop(self) -> None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            pid = self.pid
            session = os.getsid(pid)
            os.kill(pid, signal.SIGTERM)
            try:
                processes.gone(pid)
                eventually(lambda: not processes.of_session(session), "the last process leaves")
            finally:
                for one in processes.of_session(session):
                    processes.kill(one)

    def left(self) -> set[psutil.Process]:
        """Processes that began in this directory, and those in one session with them, whatever the pid file says."""
        found: set[psutil.Process] = set()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if process.cwd() == str(self.home):
                    session = os.getsid(process.pid)
                    found |= {process} if session == os.getsid(0) else set(processes.of_session(session))
        return found

    def end(self) -> None:
        try:
            self.stop()
            eventually(lambda: not self.left(), "nothing outlives the test")
        finally:
            for one in self.left():
                processes.kill(one)
                processes.gone(one.pid)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with row_of_ports(1) as port:
        daemon = Daemon(tmp_path, port)
        yield daemon
        daemon.end()


@pytest.mark.parametrize("kind", [STANCHION, GUNICORN], ids=lambda kind: kind.name)
def test_a_daemon_is_where_gunicorns_is(daemon: Daemon, kind: Kind) -> None:
    done = daemon.run("--error-logfile", "log", "hello:app", kind=kind)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    if kind is GUNICORN:
        eventually(
            lambda: daemon.pidfile.exists() and "Booting worker" in (daemon.home / "log").read_text(),
            "it is up",
            START_S,
        )
    assert daemon.get() == b"hello\n"
    master = psutil.Process(daemon.pid)
    assert os.getsid(master.pid) not in (os.getsid(0), master.pid)
    assert master.terminal() is None
    assert master.cwd() == str(daemon.home)
    status = Path(f"/proc/{master.pid}/status").read_text()
    assert "Umask:\t0022\n" in status
    for stream in range(3):
        assert os.readlink(f"/proc/{master.pid}/fd/{stream}") == "/dev/null"
    daemon.stop()
    assert not daemon.pidfile.exists()


@pytest.mark.privileges
def test_no_process_keeps_what_the_shell_gave(daemon: Daemon) -> None:
    done = daemon.run("hello:app", "-w", "2", "--access-logfile", "-")
    assert done.returncode == 0
    assert "once it serves, this daemon logs nothing: give --error-logfile" in done.stderr
    assert "ready: 2 worker" in done.stderr
    assert daemon.get() == b"hello\n"
    everybody = daemon.all()
    assert len(everybody) == 5
    for process in everybody:
        if os.geteuid() == 0 or process.name() != "stanchion-acpt":
            assert streams(process) == ["/dev/null"] * 3, process.name()


def streams(process: psutil.Process) -> list[str]:
    return [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)]


def test_output_files_stay_if_they_are_to(daemon: Daemon) -> None:
    out, err = daemon.home / "out", daemon.home / "err"
    command = daemon.command("-R", "--access-logfile", "-", "hello:app")
    with out.open("wb") as stdout, err.open("wb") as stderr:
        done = subprocess.run(command, cwd=daemon.home, env=daemon.environment, stdout=stdout, stderr=stderr)
    assert done.returncode == 0
    assert "logs nothing" not in err.read_text()
    assert daemon.get() == b"hello\n"
    eventually(lambda: '"GET / HTTP/1.1" 200' in out.read_text(), "the access log goes on")
    daemon.stop()
    assert "stanchion leaves" in err.read_text()


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["imports.broken:app"], EXIT_APP_LOAD, "cannot load the app"),
        (["hello:app", "--no-preload", "--workers", "0"], EXIT_USAGE, "setting `workers`"),
        (["--no-preload", "imports.broken:app"], EXIT_APP_LOAD, "cannot load the app"),
    ],
)
def test_what_stops_the_start_is_told_at_the_terminal(daemon: Daemon, words: list[str], code: int, reason: str) -> None:
    done = daemon.run(*words)
    assert done.returncode == code
    assert reason in done.stderr
    assert not daemon.pidfile.exists()
    named = daemon.run("--error-logfile", "log", *words)
    assert named.returncode == code
    if code != EXIT_USAGE:
        assert named.stderr == "stanchion: the server has not started: the reason is in log\n"
        assert reason in (daemon.home / "log").read_text()


def test_a_log_that_cannot_be_opened_is_not_where_the_reason_is(daemon: Daemon) -> None:
    done = daemon.run("--error-logfile", "missing/log", "hello:app")
    assert "cannot open the error log missing/log" in done.stderr
    assert done.stderr.endswith("stanchion: the server has not started: the reason is above\n")


def test_an_address_in_use_is_told_at_the_terminal(daemon: Daemon) -> None:
    with socket.create_server(("127.0.0.1", daemon.port)):
        done = daemon.run("hello:app")
    assert done.returncode == EXIT_BIND
    assert "Address already in use" in done.stderr


def test_threads_of_the_config_file_are_refused_and_not_lost(daemon: Daemon) -> None:
    (daemon.home / "gunicorn.conf.py").write_text(
        "import threading\n"
        "ended = threading.Thread(target=int)\nended.start()\nended.join()\n"
        "threading.Thread(target=threading.Event().wait, args=(60,), name='pusher', daemon=True).start()\n"
    )
    done = daemon.run("hello:app")
    assert done.returncode == EXIT_USAGE
    assert 'the master has 1 thread: "pusher". It forks' in done.stderr
    assert not daemon.pidfile.exists()


def test_ctrl_c_while_it_starts_ends_it(daemon: Daemon, gate: Gate) -> None:
    (daemon.home / "slow.py").write_text(
        "import rendezvous\nrendezvous.announce('loading')\nrendezvous.wait_for_pass()\n"
    )
    env = daemon.environment | gate.environment
    command = daemon.command("slow:app")
    with subprocess.Popen(command, cwd=daemon.home, env=env, stdout=-1, stderr=-1, start_new_session=True) as started:
        gate.announcement(START_S)
        session = os.getsid(daemon.pid)
        started.send_signal(signal.SIGINT)
        assert started.wait(PATIENCE_S) == 130
        eventually(lambda: not processes.of_session(session), "nothing is left of it")
    assert not daemon.pidfile.exists()


def test_winch_pauses_and_hup_brings_workers_back(daemon: Daemon) -> None:
    assert daemon.run("--error-logfile", "log", "hello:app").returncode == 0
    os.kill(daemon.pid, signal.SIGWINCH)
    eventually(lambda: names(daemon).count("stanchion-work") == 0, "the worker leaves")
    os.kill(daemon.pid, signal.SIGHUP)
    eventually(lambda: names(daemon).count("stanchion-work") == 1, "another one is there")
    assert daemon.get() == b"hello\n"


def names(daemon: Daemon) -> list[str]:
    found = []
    for process in daemon.all():
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(process.name())
    return found


@pytest.mark.privileges
def test_an_upgrade_stays_in_the_background(daemon: Daemon) -> None:
    assert daemon.run("--error-logfile", "log", "hello:app").returncode == 0
    old = daemon.pid
    session = os.getsid(old)
    os.kill(old, signal.SIGUSR2)
    processes.gone(old, START_S)
    new = eventually(lambda: processes.pid_in(daemon.pidfile), "the new master has the pid file")
    assert new != old
    assert os.getsid(daemon.pid) == session
    assert daemon.get() == b"hello\n"
    assert streams(psutil.Process(daemon.pid)) == ["/dev/null"] * 3


@pytest.mark.parametrize("hook", ["on_starting", "when_ready"])
def test_a_process_that_a_hook_has_forked_keeps_no_process_waiting(daemon: Daemon, hook: str) -> None:
    (daemon.home / "gunicorn.conf.py").write_text(
        "import os, signal\n"
        f"def {hook}(server):\n"
        "    if not (forked := os.fork()):\n"
        "        signal.pause()\n"
        "    open('forked', 'w').write(str(forked))\n"
    )
    command = daemon.command("--error-logfile", "log", "hello:app")
    null = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=daemon.home, env=daemon.environment, stdout=null, stderr=null) as started:
        try:
            assert started.wait(START_S) == 0
            assert daemon.get() == b"hello\n"
        finally:
            os.kill(int((daemon.home / "forked").read_text()), signal.SIGKILL)


def test_a_log_that_is_opened_anew_while_it_starts_is_no_word_that_it_serves(daemon: Daemon, gate: Gate) -> None:
    (daemon.home / "slow.py").write_text(
        "import rendezvous\nrendezvous.announce('loading')\nrendezvous.wait_for_pass()\nraise SystemError('no')\n"
    )
    env = daemon.environment | gate.environment
    command = daemon.command("--error-logfile", "log", "slow:app")
    with subprocess.Popen(command, cwd=daemon.home, env=env, stdout=-1, stderr=-1) as started:
        gate.announcement(START_S)
        os.kill(daemon.pid, signal.SIGUSR1)
        eventually(lambda: "USR1: the logs are reopened once" in (daemon.home / "log").read_text(), "it is heard")
        gate.open()
        assert started.wait(PATIENCE_S) == EXIT_APP_LOAD


@pytest.mark.parametrize("by", ["signal", "ctl"])
def test_a_log_that_is_opened_anew_while_it_starts_leaves_the_terminal_no_earlier(
    daemon: Daemon, gate: Gate, by: str
) -> None:
    (daemon.home / "slow.py").write_text(
        "import rendezvous\nrendezvous.announce('loading')\nrendezvous.wait_for_pass()\nraise SystemError('no')\n"
    )
    env = daemon.environment | gate.environment
    command = daemon.command("--control", "unix:ctl", "slow:app")
    with subprocess.Popen(command, cwd=daemon.home, env=env, stderr=subprocess.PIPE, text=True) as started:
        assert started.stderr
        gate.announcement(START_S)
        if by == "signal":
            os.kill(daemon.pid, signal.SIGUSR1)
            heard = next(line for line in started.stderr if "USR1" in line)
            assert "the logs are reopened once the server serves" in heard
        else:
            done = ctl(daemon.home / "ctl", "reopen")
            assert done.stdout == "the logs are reopened once the server serves\n"
        gate.open()
        said = started.stderr.read()
    assert "SystemError: no" in said, "whoever waits at the shell is told why"
    assert started.returncode == EXIT_APP_LOAD


WAITS = """\
import os, signal
from stanchion import daemon

signal.pthread_sigmask(signal.SIG_BLOCK, daemon._INTERRUPTS)
between = os.fork()
if not between:
    os._exit(0)
daemon._wait(0, "-", between)
"""


def test_an_interrupt_before_the_servers_pid_is_known_is_passed_on_once_it_is() -> None:
    server = subprocess.Popen(["sleep", "600"])
    with subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE) as waiting:
        assert waiting.stdin
        eventually(lambda: is_caught(waiting.pid, signal.SIGTERM), "it waits")
        waiting.send_signal(signal.SIGINT)
        eventually(lambda: is_asleep(waiting.pid), "it has heard, and waits on")
        waiting.stdin.write(b"%d\n" % server.pid)
        waiting.stdin.flush()
        try:
            assert server.wait(PATIENCE_S) == -signal.SIGINT
        finally:
            server.kill()
            server.wait()
    assert waiting.returncode == 128 + signal.SIGINT


def is_caught(pid: int, number: int) -> bool:
    """Whether the process has a handler for it, and does not block it (proc(5), status)."""
    masks = dict(re.findall(r"^Sig(\w+):\s+(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE))
    return bool(int(masks["Cgt"], 16) >> (number - 1) & 1) and not int(masks["Blk"], 16) >> (number - 1) & 1


def is_asleep(pid: int) -> bool:
    """Whether no signal is on its way to a process that waits."""
    status = Path(f"/proc/{pid}/status").read_text()
    return "\nState:\tS" in status and not any(int(mask, 16) for mask in re.findall(r"^\w+Pnd:\t(\w+)$", status, re.M))


def test_one_that_is_told_to_leave_while_it_starts_does_not_serve(daemon: Daemon, gate: Gate) -> None:
    (daemon.home / "slow.py").write_text(
        "import rendezvous\nrendezvous.announce('loading')\nrendezvous.wait_for_pass()\n"
    )
    env = daemon.environment | gate.environment
    command = daemon.command("--error-logfile", "log", "slow:app")
    with subprocess.Popen(command, cwd=daemon.home, env=env, stdout=-1, stderr=-1) as started:
        gate.announcement(START_S)
        os.kill(daemon.pid, signal.SIGTERM)
        assert started.wait(PATIENCE_S) == 1


def test_hooks_are_told_the_pid_that_the_pid_file_has(daemon: Daemon) -> None:
    (daemon.home / "gunicorn.conf.py").write_text(
        "def when_ready(server):\n    open('told', 'w').write(str(server.pid))\n"
        "def post_fork(server, worker):\n    open('forked', 'w').write(f'{server.pid} {worker.ppid}')\n"
    )
    assert daemon.run("--error-logfile", "log", "hello:app").returncode == 0
    assert (daemon.home / "told").read_text() == str(daemon.pid)
    assert (daemon.home / "forked").read_text() == f"{daemon.pid} {daemon.pid}"
