"""A server that root starts, and that answers as another user."""

import json
import os
import pwd
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import open_house
from support.open_house import NOBODY, OTHERS
from support.patience import PATIENCE_S, eventually
from support.server import STANCHION, Server
from support.wire import Wire, request

EXIT_USAGE = 2

Start = Callable[..., Server]

NOT_HERE = open_house.unavailable()
pytestmark = [pytest.mark.own("settings of the process tree"), pytest.mark.skipif(bool(NOT_HERE), reason=NOT_HERE)]


@pytest.fixture
def start(home: Path) -> Iterator[Start]:
    started = []

    def start(*arguments: str, app: str = "surroundings:app", ready: bool = True) -> Server:
        words = ["--bind", "127.0.0.1:0", *arguments, app]
        server = Server(STANCHION, words, home / str(len(started)), prefix=open_house.prefix())
        server.home.mkdir()
        started.append(server)
        return server.start() if ready else server.launch()

    yield start
    for server in started:
        server.stop()


def ask(server: Server, path: str, body: bytes = b"") -> dict[str, list[int]]:
    with server.address.connect() as sock:
        sock.sendall(f"POST {path} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        answer: dict[str, list[int]] = json.loads(sock.makefile("rb").read().partition(b"\r\n\r\n")[2])
    return answer


def owner(path: Path) -> tuple[int, int]:
    return path.stat().st_uid, path.stat().st_gid


def test_only_the_master_stays_root(start: Start) -> None:
    server = start("--user", str(NOBODY), "--group", str(OTHERS), "--preload")
    who = ask(server, "/identity")
    assert who == {"uids": [NOBODY] * 3, "gids": [OTHERS] * 3, "groups": [OTHERS]}
    uids = {process.pid: set(process.uids()) for process in server.processes()}
    assert uids.pop(server.pid) == {0}
    assert len(uids) == 3
    assert all(found == {NOBODY} for found in uids.values()), uids


def test_the_group_is_the_users_own(start: Start) -> None:
    server = start("--user", "nobody", "--no-preload")
    gid = pwd.getpwnam("nobody").pw_gid
    assert ask(server, "/identity") == {"uids": [NOBODY] * 3, "gids": [gid] * 3, "groups": [gid]}


def test_a_template_that_is_nobody_sees_what_the_import_has_left(start: Start, home: Path) -> None:
    (home / "flushing.py").write_text(
        "import select, threading\n"
        "from surroundings import app\n"
        "loop = select.epoll()\n"
        "threading.Thread(target=threading.Event().wait, name='flush', daemon=True).start()\n"
    )
    server = start("--user", "nobody", "--pythonpath", str(home), app="flushing:app")
    server.log.wait('the app is not preloaded, as its import left 1 thread: "flush"; epoll: ')
    assert ask(server, "/identity")["uids"] == [NOBODY] * 3


def test_all_groups_of_the_user(start: Start) -> None:
    plain = start("--user", "root", "--group", str(OTHERS))
    assert ask(plain, "/identity")["groups"] == [OTHERS]
    everything = start("--user", "root", "--group", str(OTHERS), "--initgroups")
    assert sorted(ask(everything, "/identity")["groups"]) == sorted(os.getgrouplist("root", OTHERS))


def test_the_user_that_it_becomes_can_use_its_files(start: Start, home: Path) -> None:
    server = start(
        "--user", str(NOBODY), "--group", str(OTHERS),
        "--access-logfile", str(home / "access.log"), "--error-logfile", "-",
        "--bind", f"unix:{home}/s",
    )  # fmt: skip
    length = 1 << 20
    assert ask(server, "/body", b"x" * length) == length, "a body in the spool is read"
    assert owner(home / "access.log") == (NOBODY, OTHERS)
    assert owner(home / "s") == (NOBODY, OTHERS)
    eventually(lambda: "POST /body" in (home / "access.log").read_text(), "the request is logged")


def test_logs_that_were_rotated_are_made_anew(start: Start, home: Path) -> None:
    log = home / "access.log"
    server = start("--user", str(NOBODY), "--group", str(OTHERS), "--access-logfile", str(log))
    ask(server, "/identity")
    log.rename(home / "access.log.1")
    server.signal(signal.SIGUSR1)
    eventually(log.exists, "the log is made anew")

    def logged() -> bool:
        ask(server, "/identity")
        return "GET" in log.read_text() or "POST" in log.read_text()

    eventually(logged, "requests are logged there")
    assert owner(log) == (NOBODY, OTHERS)


def test_a_reload_that_fails_leaves_new_logs_to_their_owner(start: Start, home: Path) -> None:
    log, config = home / "access.log", home / "settings.py"
    text = f"accesslog = '{log}'\ngroup = '{OTHERS}'\n"
    config.write_text(f"{text}user = '{NOBODY}'\n")
    server = start("-c", str(config))
    config.write_text(f"{text}user = '{NOBODY - 7}'\ndef post_fork(server, worker): raise LookupError\n")
    server.signal(signal.SIGHUP)
    server.log.wait("reload failed")
    log.rename(home / "access.log.1")
    server.signal(signal.SIGUSR1)
    eventually(log.exists, "the log is made anew")
    assert owner(log) == (NOBODY, OTHERS)


def test_root_writes_to_no_link_that_the_user_may_have_put_there(start: Start, home: Path) -> None:
    logs, secret = home / "logs", home / "secret"
    secret.write_text("")
    logs.mkdir()
    os.chown(logs, NOBODY, OTHERS)
    words = ("--user", str(NOBODY), "--group", str(OTHERS), "--error-logfile", str(logs / "error.log"))
    server = start(*words, ready=False)
    eventually((logs / "error.log").exists, "the log is made", 2 * PATIENCE_S)
    eventually(lambda: "ready: " in (logs / "error.log").read_text(), "it is ready")
    (logs / "error.log").rename(logs / "error.log.1")
    (logs / "error.log").symlink_to(secret)
    server.signal(signal.SIGUSR1)
    said = "the old file goes on: .*it is a link, and users other than root may redirect its path"
    eventually(lambda: re.search(said, (logs / "error.log.1").read_text()), "root says why not")
    server.signal(signal.SIGTTIN)
    eventually(lambda: "TTIN: 2 workers" in (logs / "error.log.1").read_text(), "the old file goes on")
    assert "TTIN" not in secret.read_text()
    again = start(*words, ready=False)
    assert again.exit_code() == EXIT_USAGE
    again.log.wait("cannot open the error log .*it is a link")


def test_a_worker_that_is_killed_is_replaced_by_another_nobody(start: Start) -> None:
    server = start("--user", str(NOBODY), "--group", str(OTHERS))
    mark = server.log.mark()
    victims = server.of_name("stanchion-work")
    victims[0].kill()
    server.log.wait("SIGKILL", mark)
    assert ask(server, "/identity")["uids"] == [NOBODY] * 3


def test_term_loses_no_client_though_the_acceptor_is_not_root(start: Start, home: Path) -> None:
    """It closes the door itself, with no more rights than its user's."""
    server = start("--user", str(NOBODY), "--group", str(OTHERS), "--bind", f"unix:{home}/s")
    acceptor = server.acceptor()
    acceptor.suspend()
    wires = [Wire.connect(address) for address in server.addresses for _ in range(20)]
    assert len(wires) == 40
    for wire in wires:
        wire.send(request("POST", "/identity"))
    server.signal(signal.SIGTERM)
    server.log.wait("TERM: draining")
    acceptor.resume()
    for wire in wires:
        assert wire.response().status == 200
        wire.close()
    assert server.exit_code() == 0
    assert "cannot be closed" not in server.log.text()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--user", "no-such-user"], "there is no user no-such-user"),
        (["--group", "no-such-group"], "there is no group no-such-group"),
        (["--user", "4000000000"], "name the group too"),
    ],
)
def test_a_slip_is_one_line_at_the_start(start: Start, arguments: list[str], part: str) -> None:
    server = start(*arguments, ready=False)
    assert server.exit_code() == EXIT_USAGE
    server.log.wait_end()
    assert len([line for line in server.log.lines() if part in line]) == 1
