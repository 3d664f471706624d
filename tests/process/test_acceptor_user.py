"""An acceptor that is another user than the app: what a worker can do to it, and that all else goes on."""

import contextlib
import pwd
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from support import open_house, processes, recording
from support.open_house import NOBODY, OTHERS
from support.patience import PATIENCE_S, eventually
from support.server import STANCHION, Server
from support.wire import request

Start = Callable[..., Server]

NOT_HERE = open_house.unavailable()
pytestmark = [pytest.mark.own("users of the process tree"), pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE)]
APP = ("--user", str(NOBODY), "--group", str(OTHERS))
EXIT_USAGE = 2
LARGE = 1 << 20
"""Bytes of a body that goes to the spool."""


@pytest.fixture
def other() -> pwd.struct_passwd:
    return pwd.getpwnam("daemon")


@pytest.fixture
def start() -> Iterator[Start]:
    """Servers in directories that every user may enter."""
    started: list[Server] = []

    def start(*arguments: str, prefix: tuple[str, ...] = (), ready: bool = True) -> Server:
        home = Path(tempfile.mkdtemp(prefix="stanchion-test-"))
        home.chmod(0o755)
        # So that there is a template beside the worker.
        words = ["--bind", "127.0.0.1:0", "--preload", *arguments, "surroundings:app"]
        server = Server(STANCHION, words, home, prefix=[*open_house.prefix(), *prefix])
        started.append(server)
        return server.start() if ready else server.launch()

    yield start
    for server in started:
        server.stop()
        shutil.rmtree(server.home)


def role(server: Server, name: str) -> psutil.Process:
    return server.of_name(name)[0]


def users_of(server: Server, name: str) -> set[int]:
    """The users of all processes of that name. A process of a generation that leaves may end meanwhile."""
    found: set[int] = set()
    for process in server.of_name(name):
        with contextlib.suppress(psutil.NoSuchProcess):
            found.update(process.uids())
    return found


def spool_of(server: Server) -> Path:
    [spool] = server.tmp.iterdir()
    return spool


def attack(server: Server) -> dict[str, str]:
    """The result of each attack of a worker on the acceptor and its spool, while a body is in the spool."""
    with server.connect() as held:
        held.send(request("POST", "/body", [f"Content-Length: {LARGE}"]) + b"x" * (LARGE - 1))
        spool = spool_of(server)
        eventually(lambda: any(path.stat().st_size for path in spool.iterdir()), "most of the body is in the spool")
        with server.connect() as wire:
            target = f"{role(server, 'stanchion-acpt').pid}&{spool}"
            answer: dict[str, str] = wire.get(f"/attack?{target}").json()
        held.send(b"x")
        assert held.response().json() == LARGE
    return answer


def test_a_worker_can_do_nothing_to_it(start: Start, other: pwd.struct_passwd) -> None:
    server = start(*APP, "--acceptor-user", other.pw_name)
    assert attack(server) == {"kill": "EPERM", "trace": "EPERM", "memory": "EACCES", "list": "EACCES", "make": "EACCES"}
    uids = {process.name(): set(process.uids()) for process in server.processes()}
    assert uids == {
        "stanchion": {0},
        "stanchion-acpt": {other.pw_uid},
        "stanchion-tmpl": {NOBODY},
        "stanchion-work": {NOBODY},
    }
    assert set(role(server, "stanchion-acpt").gids()) == {other.pw_gid}


def test_of_the_same_user_it_could_be_stopped(start: Start) -> None:
    """This shows that the test above can fail. The acceptor's memory is out of reach even so."""
    server = start(*APP)
    assert attack(server) == {"kill": "", "trace": "EPERM", "memory": "EACCES", "list": "", "make": ""}


@pytest.mark.parametrize("umask", ["022", "077"])
def test_large_bodies_reach_the_app(start: Start, other: pwd.struct_passwd, umask: str) -> None:
    prefix = ("sh", "-c", f'umask {umask}; exec "$@"', "sh")
    server = start(*APP, "--acceptor-user", other.pw_name, prefix=prefix)
    with server.connect() as wire:
        assert wire.post("/body", b"x" * LARGE).json() == LARGE
    spool = spool_of(server)
    found = spool.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (other.pw_uid, OTHERS, 0o2710)
    eventually(lambda: not list(spool.iterdir()), "the file is removed")


def test_both_open_their_logs_anew(start: Start, other: pwd.struct_passwd) -> None:
    logs = Path(tempfile.mkdtemp(prefix="stanchion-test-"))
    logs.chmod(0o755)
    error, access = logs / "error.log", logs / "access.log"
    words = ("--error-logfile", str(error), "--access-logfile", str(access))
    server = start(*APP, "--acceptor-user", other.pw_name, *words, ready=False)
    eventually(lambda: "ready: 1 worker" in text_of(error), "it is ready", 2 * PATIENCE_S)
    for path in (error, access):
        path.rename(f"{path}.1")
    server.signal(signal.SIGUSR1)
    eventually(access.exists, "the access log is made anew")
    count = len(server.processes())
    eventually(lambda: text_of(error).count("the error log is reopened") == count, "each process reopens it")
    assert "the old file goes on" not in text_of(error) + text_of(Path(f"{error}.1"))
    assert (access.stat().st_uid, access.stat().st_gid) == (other.pw_uid, other.pw_gid)
    assert (error.stat().st_uid, error.stat().st_gid, error.stat().st_mode & 0o777) == (NOBODY, other.pw_gid, 0o664)
    shutil.rmtree(logs)


def test_it_has_the_directory_of_its_recording(start: Start, other: pwd.struct_passwd) -> None:
    home = Path(tempfile.mkdtemp(prefix="stanchion-test-"))
    home.chmod(0o755)
    made, closed = home / "made", home / "closed"
    closed.mkdir(0o700)
    words = (*APP, "--acceptor-user", other.pw_name, "--record-arrivals")
    server = start(*words, str(made))
    assert (made.stat().st_uid, made.stat().st_mode & 0o7777) == (other.pw_uid, 0o750)
    with server.connect() as wire:
        wire.get("/")
    eventually(lambda: len(recording.requests(recording.read(made))) == 1, "its request is recorded")
    refused = start(*words, str(closed), ready=False)
    assert refused.exit_code() == EXIT_USAGE
    refused.log.wait(r"setting `record_arrivals`: .*closed/lock: Permission denied .*; let the user that")
    shutil.rmtree(home)


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_it_goes_on_over_a_reload_an_upgrade_and_its_own_death(start: Start, other: pwd.struct_passwd) -> None:
    server = start(*APP, "--acceptor-user", other.pw_name)

    def serves() -> None:
        with server.connect() as wire:
            assert wire.post("/body", b"x" * LARGE).json() == LARGE
        assert users_of(server, "stanchion-acpt") == {other.pw_uid}
        assert users_of(server, "stanchion-work") == {NOBODY}

    acceptor, mark = role(server, "stanchion-acpt"), server.log.mark()
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded", mark)
    processes.gone(acceptor.pid)
    serves()
    eventually(lambda: len(server.processes()) == 4, "the generation before has left")
    acceptor = role(server, "stanchion-acpt")
    acceptor.kill()
    processes.gone(acceptor.pid)
    # It waits in the kernel's queue until another one is there.
    serves()
    mark, old = server.log.mark(), server.pid
    server.signal(signal.SIGUSR2)
    server.follow(int(server.log.wait(r"upgraded: the new master (\d+) serves", mark)[1]))
    processes.gone(old)
    serves()


@pytest.mark.parametrize(
    ("user", "part"),
    [("no-such-user", "there is no user no-such-user"), ("4000000000", "is not in the password database")],
)
def test_a_slip_is_one_line_at_the_start(start: Start, user: str, part: str) -> None:
    server = start(*APP, "--acceptor-user", user, ready=False)
    assert server.exit_code() == EXIT_USAGE
    server.log.wait_end()
    assert len([line for line in server.log.lines() if part in line and "acceptor_user" in line]) == 1


def test_only_root_can_have_one(start: Start, other: pwd.struct_passwd) -> None:
    words = ("setpriv", f"--reuid={NOBODY}", f"--regid={OTHERS}", "--clear-groups", "--")
    server = start("--acceptor-user", other.pw_name, prefix=words, ready=False)
    assert server.exit_code() == EXIT_USAGE
    server.log.wait(f"acceptor_user.*only root can become user {other.pw_uid}")
