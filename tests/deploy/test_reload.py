"""A reload brings in new code and new settings, and no client notices; a broken one changes nothing."""

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from support import processes
from support.address import Address
from support.clock import Clock
from support.ctl import ctl
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.release import Releases, answer
from support.seats import seats
from support.server import Serve, Server
from support.steady import Steady
from support.wire import Wire, request

pytestmark = [
    pytest.mark.own("gunicorn keeps its settings of workers and sockets in other ways"),
]

RELOADED = r"reloaded: generation (\d+) serves"
FAILED = r"reload failed: "


def reload(server: Server, expected: str = RELOADED) -> None:
    """HUP, until it has ended."""
    mark = server.log.mark()
    server.signal(signal.SIGHUP)
    server.log.wait(expected, mark)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("reloads", [5, pytest.param(20, marks=pytest.mark.large)])
def test_reloads_in_a_row_fail_no_request(serve: Serve, tmp_path: Path, threads: int, reloads: int) -> None:
    releases = Releases(tmp_path / "releases")
    releases.put(0)
    bind = ["--bind", f"unix:{tmp_path}/s"]
    server = serve("released:app", *bind, "-w", "2", "--threads", str(threads), *releases.arguments)
    with Steady(server.addresses) as load:
        load.more()
        for release in range(1, reloads + 1):
            releases.put(release)
            reload(server)
            for address in server.addresses:
                assert answer(address) == (release, server.pid)
            load.more()
            assert load.failed() == 0, f"after reload {release}"
    load.assert_no_failure()
    releases_seen = {int(text.split()[0]) for text in load.answers()}
    assert releases_seen == set(range(reloads + 1)), "each release has answered clients of the load"


BROKEN_AT_IMPORT = "import there_is_no_such_module"
DIES_AT_IMPORT = "os._exit(1)"


@pytest.mark.parametrize("preload", ["--preload", "--no-preload"])
@pytest.mark.parametrize("before", [BROKEN_AT_IMPORT, DIES_AT_IMPORT, "os.kill(os.getpid(), 9)"])
def test_a_broken_release_changes_nothing_and_the_mended_one_is_taken(
    serve: Serve, tmp_path: Path, before: str, preload: str
) -> None:
    releases = Releases(tmp_path / "releases")
    releases.put(0)
    server = serve("released:app", "-w", "2", preload, *releases.arguments)
    with Steady(server.addresses) as load:
        load.more()
        releases.put(1, before)
        reload(server, FAILED)
        assert {answer(server.address) for _ in range(20)} == {(0, server.pid)}
        releases.put(2)
        reload(server)
        assert answer(server.address)[0] == 2
        load.more()
    load.assert_no_failure()
    assert {int(text.split()[0]) for text in load.answers()} == {0, 2}


def test_a_release_whose_workers_die_in_post_fork_changes_nothing(serve: Serve, tmp_path: Path) -> None:
    releases = Releases(tmp_path / "releases")
    releases.put(0)
    config = tmp_path / "hooks.py"
    config.write_text("")
    server = serve("released:app", "-w", "2", "-c", str(config), *releases.arguments)
    with Steady(server.addresses) as load:
        releases.put(1)
        for body in ("import os; os._exit(1)", "raise RuntimeError('no')"):
            config.write_text(f"def post_fork(server, worker):\n    {body}\n")
            reload(server, FAILED)
            assert answer(server.address) == (0, server.pid)
            load.more()
    load.assert_no_failure()
    assert {int(text.split()[0]) for text in load.answers()} == {0}


def test_a_config_file_that_cannot_be_read_changes_nothing(serve: Serve, tmp_path: Path) -> None:
    releases = Releases(tmp_path / "releases")
    releases.put(0)
    config = tmp_path / "settings.py"
    config.write_text("workers = 2\n")
    server = serve("released:app", "-c", str(config), *releases.arguments)
    with Steady(server.addresses) as load:
        releases.put(1)
        for text in ("workers = (\n", "workers = 'many'\n", "raise RuntimeError('no')\n"):
            config.write_text(text)
            reload(server, FAILED)
            load.more()
    load.assert_no_failure()


@pytest.mark.parametrize("preload", ["--preload", "--no-preload"])
@pytest.mark.privileges
def test_ctl_says_how_a_reload_ended(serve: Serve, tmp_path: Path, preload: str) -> None:
    releases = Releases(tmp_path / "releases")
    releases.put(0)
    control = tmp_path / "ctl"
    server = serve("released:app", "--control", f"unix:{control}", preload, *releases.arguments)
    releases.put(1)
    done = ctl(control, "reload")
    assert (done.returncode, done.stderr) == (0, "")
    # Told when it serves, not before.
    assert answer(server.address)[0] == 1
    releases.put(2, BROKEN_AT_IMPORT)
    done = ctl(control, "reload")
    assert done.returncode == 1
    who = "the app could not be loaded" if preload == "--preload" else "a worker could not load the app"
    assert done.stderr.startswith(f"stanchion ctl: reload failed: {who}: it imports 'there_is_no_such_module', ")
    assert "; install it for " in done.stderr
    assert done.stderr.endswith("; generation 2 goes on serving\n")
    assert answer(server.address)[0] == 1


def test_an_acceptor_that_is_stopped_holds_up_a_reload_for_two_seconds_and_the_log_says_so(
    serve: Serve, tmp_path: Path
) -> None:
    releases = Releases(tmp_path / "releases")
    releases.put(0)
    control = tmp_path / "ctl"
    server = serve("released:app", "--control", f"unix:{control}", *releases.arguments)
    acceptor = server.acceptor()
    acceptor.suspend()
    releases.put(1)
    done = ctl(control, "reload")
    assert (done.returncode, done.stderr) == (0, "")
    silent = (
        rf"the acceptor \({acceptor.pid}\) of generation 1 has not reported within 2 s that it accepts no more clients"
    )
    told = [line[0] for line in server.log.matches(f"{silent}|{RELOADED}")]
    assert len(told) == 2, told
    assert told[1] == "reloaded: generation 2 serves", "it is told after the wait"
    assert answer(server.address) == (1, server.pid)
    # It leaves as ever, once it goes on.
    acceptor.resume()
    processes.gone(acceptor.pid)
    assert "did not leave in time" not in server.log.text()


# ---- Settings


def with_config(serve: Serve, gate: Gate, config: Path, text: str, env: dict[str, str] | None = None) -> Server:
    config.write_text(text)
    server = serve("waiting:app", "-c", str(config), bind=None, env=gate.environment | (env or {}))
    assert server.addresses, "it listens where the file says"
    return server


def test_workers_and_threads_follow_the_config_file(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    config = tmp_path / "settings.py"
    bind = f"bind = 'unix:{tmp_path}/s'\n"
    server = with_config(serve, gate, config, f"{bind}workers = 1\nthreads = 1\n")
    seats(server, gate, 1)
    for workers, threads in ((3, 1), (1, 4), (2, 2), (1, 1)):
        config.write_text(f"{bind}workers = {workers}\nthreads = {threads}\n")
        reload(server)
        found = seats(server, gate, workers * threads)
        assert len({seat.pid for seat in found}) == workers


def test_binds_come_and_go_with_the_config_file(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    config = tmp_path / "settings.py"
    first, second = Address(path=f"{tmp_path}/first"), Address(path=f"{tmp_path}/second")

    def text(*addresses: Address) -> str:
        return f"bind = {[f'unix:{address.path}' for address in addresses]}\n"

    server = with_config(serve, gate, config, text(first))
    assert status(first) == 200
    config.write_text(text(first, second))
    reload(server)
    assert (status(first), status(second)) == (200, 200)
    config.write_text(text(second))
    reload(server)
    assert status(second) == 200
    eventually(lambda: not Path(first.path).exists(), "the file of the bind that is gone")
    with pytest.raises(OSError, match=r"No such file|refused"):
        first.connect()


@pytest.mark.privileges
def test_who_is_in_the_queue_of_a_bind_that_is_dropped_is_served(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    config, kept = tmp_path / "settings.py", Address(path=f"{tmp_path}/kept")
    bind = f"'127.0.0.1:0', 'unix:{tmp_path}/dropped', 'unix:{kept.path}'"
    server = with_config(serve, gate, config, f"bind = [{bind}]\n")
    dropped, acceptor = server.addresses[:2], server.acceptor()
    acceptor.suspend()
    # More than an acceptor takes before it looks at its orders.
    wires = [Wire.connect(address) for address in dropped for _ in range(300)]
    for wire in wires:
        wire.send(request("GET", "/pid?queued"))
    config.write_text(f"bind = 'unix:{kept.path}'\n")
    reload(server)
    assert status(kept) == 200
    acceptor.resume()
    for wire in wires:
        assert wire.response().text.endswith(" queued")
        wire.close()
    processes.gone(acceptor.pid)
    for address in dropped:
        with pytest.raises(OSError, match=r"No such file|refused"):
            address.connect()
    assert status(kept) == 200


@pytest.mark.skipif(shutil.which("ss") is None, reason="ss(8) is not installed")
def test_who_is_served_last_is_told_that_the_connection_ends_also_in_http_1_0(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", env=gate.environment)
    with server.connect() as wire:
        wire.send(b"GET /wait?held HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        gate.announcement()
        reload(server)
        gate.open()
        assert wire.response().header("connection") == "close"


def test_the_backlog_follows_the_config_file(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    config = tmp_path / "settings.py"
    bind = f"bind = 'unix:{tmp_path}/s'\n"
    server = with_config(serve, gate, config, f"{bind}backlog = 77\n")
    assert backlog(tmp_path / "s") == 77
    config.write_text(f"{bind}backlog = 55\n")
    reload(server)
    assert backlog(tmp_path / "s") == 55


def test_the_timeout_follows_the_config_file(serve: Serve, gate: Gate, tmp_path: Path, clock: Clock) -> None:
    config = tmp_path / "settings.py"
    bind = f"bind = 'unix:{tmp_path}/s'\ngraceful_timeout = 1000\n"
    server = with_config(serve, gate, config, f"{bind}timeout = 0\n", clock.environment)
    with server.connect() as patient:
        patient.send(b"GET /wait?patient HTTP/1.1\r\nHost: test\r\n\r\n")
        gate.announcement()
        config.write_text(f"{bind}timeout = 100\n")
        reload(server)
        with server.connect() as hasty:
            hasty.send(request("GET", "/wait?hasty"))
            # A worker of the new generation: the only one of the old one is busy.
            assert gate.announcement().endswith("hasty")
            mark = server.log.mark()
            clock.advance(101)
            assert hasty.response().status == 504
            # Its worker could take the pass else.
            server.log.wait("(exited with code 1|was killed by SIGKILL): a request has run", mark)
        # The one that came before keeps the timeout under which it came.
        gate.let_pass(1)
        assert patient.response().status == 200


def test_a_bind_that_cannot_be_had_changes_nothing(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    config = tmp_path / "settings.py"
    server = with_config(serve, gate, config, f"bind = 'unix:{tmp_path}/s'\n")
    (tmp_path / "taken").write_text("no socket")
    config.write_text(f"bind = ['unix:{tmp_path}/new', 'unix:{tmp_path}/taken']\n")
    reload(server, FAILED)
    assert status(server.address) == 200
    assert not (tmp_path / "new").exists(), "what was opened for it is closed again"
    assert (tmp_path / "taken").read_text() == "no socket"


def status(address: Address) -> int:
    with Wire.connect(address) as wire:
        return wire.get("/pid", "Connection: close").status


def backlog(path: Path) -> int:
    """The backlog as ss(8) shows it: the send queue of a listening socket."""
    rows = subprocess.run(
        ["ss", "-Hlx"], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    ).stdout.splitlines()
    found = [row.split() for row in rows if str(path) in row.split()]
    assert len(found) == 1, rows
    return int(found[0][3])
