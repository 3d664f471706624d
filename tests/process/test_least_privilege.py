"""The privileges that each process has given up, as the kernel shows them."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import open_house
from support.open_house import NOBODY, OTHERS
from support.privileges import DAC_OVERRIDE, NET_BIND_SERVICE, by_role, mine
from support.server import STANCHION, Server

Start = Callable[..., Server]

pytestmark = pytest.mark.own("what its processes give up")
NOT_HERE = open_house.unavailable()
as_root = pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE)
FILTER = 2
"""The value of `Seccomp` in proc_pid_status(5)."""
CHILDREN = {"stanchion-acpt", "stanchion-tmpl", "stanchion-work"}


@pytest.fixture
def start() -> Iterator[Start]:
    """Servers in directories that every user may enter."""
    homes, started = [], []

    def start(*arguments: str, prefix: tuple[str, ...] = ()) -> Server:
        home = Path(tempfile.mkdtemp(prefix="stanchion-test-"))
        home.chmod(0o755)
        homes.append(home)
        # So that there is a template beside the worker.
        words = ["--bind", "127.0.0.1:0", "--preload", *arguments, "surroundings:app"]
        server = Server(STANCHION, words, home, prefix=[*open_house.prefix(), *prefix])
        if "setpriv" in prefix:
            # The user that it starts as makes its files there.
            (home / "tmp").mkdir()
            os.chown(home / "tmp", NOBODY, OTHERS)
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.stop()
    for home in homes:
        shutil.rmtree(home)


def as_nobody(*ambient: str) -> tuple[str, ...]:
    """Words before a command that is to run as an ordinary user, with these capabilities as systemd's
    AmbientCapabilities= would give them."""
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={OTHERS}", "--clear-groups"]
    if ambient:
        granted = ",".join(f"+{name}" for name in ambient)
        words += [f"--inh-caps={granted}", f"--ambient-caps={granted}"]
    return (*words, "--")


@pytest.mark.privileges
def test_the_acceptor_gives_up_what_it_does_not_need(start: Start) -> None:
    """The server runs as the user that runs the tests."""
    acceptor = by_role(start().processes())["stanchion-acpt"]
    assert acceptor.no_new_privs
    assert (acceptor.inheritable, acceptor.ambient) == (0, 0)
    assert acceptor.effective == acceptor.permitted
    assert acceptor.permitted == mine().permitted & (DAC_OVERRIDE | NET_BIND_SERVICE)


@pytest.mark.privileges
def test_the_acceptor_alone_is_held_to_its_calls_and_files(start: Start) -> None:
    server = start()
    found = by_role(server.processes())
    acceptor = found.pop("stanchion-acpt")
    assert (acceptor.seccomp, acceptor.filters) == (FILTER, mine().filters + 2)
    assert {one.filters for one in found.values()} == {mine().filters}
    server.log.only("acceptor confined: user .*, seccomp, Landlock")
    mark = server.log.mark()
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded", mark)
    assert by_role(server.processes())["stanchion-acpt"].seccomp == FILTER
    # Not at each reload.
    server.log.only("acceptor confined")


WITHOUT = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
seccomp = {"x86_64": 317, "aarch64": 277}[os.uname().machine]
landlock_create_ruleset = 444
LOAD, EQUAL, RETURN, ALLOW, ERRNO, ENOSYS = 0x20, 0x15, 0x06, 0x7FFF0000, 0x50000, 38
steps = [(LOAD, 0, 0, 0), (EQUAL, 1, 0, seccomp), (EQUAL, 0, 1, landlock_create_ruleset)]
steps += [(RETURN, 0, 0, ERRNO | ENOSYS), (RETURN, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""A filter that makes the kernel look as if it had neither seccomp(2) nor Landlock."""


@pytest.mark.privileges
def test_where_the_kernel_lacks_them_one_line_says_so(start: Start) -> None:
    server = start(prefix=(sys.executable, "-I", "-c", WITHOUT))
    server.log.only("acceptor confined: .*; without seccomp: .*not implemented.*; without Landlock")
    assert "ERROR" not in server.log.text()
    with server.connect() as wire:
        assert wire.get("/identity").status == 200


@pytest.mark.privileges
def test_an_acceptor_that_asks_for_too_much_is_replaced_and_that_is_said(start: Start) -> None:
    """The log names the signal with which the kernel ends it; crates/stanchion-sys/tests/seccomp.rs tries each call."""
    server = start()
    acceptor = server.acceptor_by_name()
    mark = server.log.mark()
    acceptor.send_signal(signal.SIGSYS)
    server.log.wait("the acceptor .*SIGSYS: it asked the kernel for what it may not have", mark)
    with server.connect() as wire:
        assert wire.get("/identity").status == 200


@as_root
def test_without_a_user_the_app_stays_root_and_that_is_said_once(start: Start) -> None:
    server = start()
    found = by_role(server.processes())
    assert set(found) == {"stanchion", *CHILDREN}
    assert found["stanchion-acpt"].bounding == 0
    for role in ("stanchion", "stanchion-tmpl", "stanchion-work"):
        assert found[role].permitted == mine().permitted, role
        assert not found[role].no_new_privs, role
    server.log.only("the app runs as root")


@as_root
def test_of_a_server_with_a_user_only_the_master_has_capabilities(start: Start) -> None:
    server = start("--user", str(NOBODY), "--group", str(OTHERS))
    found = by_role(server.processes())
    assert set(found) == {"stanchion", *CHILDREN}
    for role in CHILDREN:
        one = found[role]
        assert (one.permitted, one.effective, one.inheritable, one.ambient) == (0, 0, 0, 0), role
        assert not one.dumpable, role
    assert found["stanchion-acpt"].bounding == 0
    # sudo goes on to work for the app, unless it is asked not to.
    assert found["stanchion-work"].bounding == mine().bounding
    assert not found["stanchion-work"].no_new_privs
    server.log.wait("only the master is root")
    assert "runs as root" not in server.log.text()


@as_root
def test_workers_gain_nothing_if_so_asked(start: Start) -> None:
    server = start("--user", str(NOBODY), "--group", str(OTHERS), "--worker-no-new-privs")
    found = by_role(server.processes())
    for role in CHILDREN:
        assert found[role].no_new_privs, role
        assert found[role].bounding == 0, role
    assert not found["stanchion"].no_new_privs


@as_root
def test_what_the_operator_gives_the_server_is_not_the_apps(start: Start) -> None:
    """AmbientCapabilities=CAP_NET_BIND_SERVICE: the master listens below 1024, and the app cannot."""
    port = free_port_below_1024()
    server = start("--bind", f"127.0.0.1:{port}", prefix=as_nobody("net_bind_service"))
    found = by_role(server.processes())
    assert found["stanchion"].ambient == NET_BIND_SERVICE
    for role in CHILDREN:
        assert (found[role].inheritable, found[role].ambient) == (0, 0), role
    for role in ("stanchion-tmpl", "stanchion-work"):
        assert (found[role].permitted, found[role].effective) == (0, 0), role
    # It binds the addresses that workers ask for, once another process has let go of them.
    assert found["stanchion-acpt"].permitted == NET_BIND_SERVICE


def free_port_below_1024() -> int:
    for port in range(1023, 900, -1):
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    pytest.skip("no port below 1024 is free")


@as_root
def test_another_process_of_the_same_user_cannot_look_into_the_acceptor(start: Start) -> None:
    """The process that looks can do as much as a worker could: it has the same user, and no capabilities."""
    server = start(prefix=as_nobody())
    found = {process.name(): process.pid for process in server.processes()}
    looks = "import sys; open(f'/proc/{sys.argv[1]}/mem', 'rb')"
    for role, may in (("stanchion-work", True), ("stanchion-acpt", False)):
        command = [*as_nobody(), sys.executable, "-I", "-c", looks, str(found[role])]
        done = subprocess.run([*open_house.prefix(), *command], capture_output=True, text=True)
        assert (done.returncode == 0) == may, f"{role}: {done.stderr}"
        assert may or "PermissionError" in done.stderr
