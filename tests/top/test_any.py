"""`stanchion top --any` on real sockets: waiting connections, owners and drops, on a screen and for scripts."""

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import netns
from support.netns import Namespace
from support.patience import PATIENCE_S, eventually
from support.screen import Screen

pytestmark = pytest.mark.own("it has top")

TOP = (sys.executable, "-m", "stanchion", "top", "--any", "--interval", "0.1")
HERE = ("127.0.0.1", 7000)
AT = "127.0.0.1:7000"

LISTENER = """
import socket, sys
with socket.socket() as sock:
    sock.bind(("127.0.0.1", 7000))
    sock.listen(3)
    print("listening", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def kept() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as kept:
        yield kept


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    if why := netns.unavailable():
        pytest.skip(f"NOT TRIED IN A NAMESPACE: {why}")
    made = Namespace()
    yield made
    made.remove()


def listener(backlog: int, at: Any = ("127.0.0.1", 0)) -> socket.socket:
    sock = socket.socket(socket.AF_INET if isinstance(at, tuple) else socket.AF_UNIX)
    sock.bind(at)
    sock.listen(backlog)
    return sock


def guest(at: Any) -> socket.socket:
    sock = socket.socket(socket.AF_INET if isinstance(at, tuple) else socket.AF_UNIX)
    sock.setblocking(False)
    sock.connect_ex(at)
    return sock


def until_queued(sock: socket.socket, count: int) -> None:
    """A busy machine may deal with a SYN later (ksoftirqd), also on a loopback. It is tcpi_unacked (tcp_get_info)."""

    def queued() -> int:
        return struct.unpack_from("=I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 28), 24)[0]

    eventually(lambda: queued() == count, f"{count} wait in the queue")


def said(*words: str, prefix: tuple[str, ...] = ()) -> str:
    # Wide enough for whatever else listens on this machine.
    environment = {**os.environ, "COLUMNS": "1000"}
    command = [*prefix, *TOP, "--once", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def of(look: str, address: str, network: bool = False) -> dict[str, Any]:
    data = json.loads(look)["listeners"]
    (found,) = (one for one in data if one["address"] == address and (one["network"] is not None) == network)
    return found


@pytest.mark.privileges
def test_a_socket_of_anybody(kept, tmp_path):
    sock = kept.enter_context(listener(1))
    address = "{}:{}".format(*sock.getsockname())
    look = said("--json")
    assert json.loads(look)["over_s"] is None and look.count("\n") == 1
    found = of(look, address)
    assert (found["waiting"], found["backlog"], found["full"]) == (0, 1, False)
    assert (found["drops"], found["drops_grown"]) == (0, None)
    assert found["owners"][0]["pid"] == os.getpid()
    for _ in range(2):
        kept.enter_context(guest(sock.getsockname()))
    until_queued(sock, 2)
    found = of(said("--json"), address)
    assert (found["waiting"], found["full"]) == (2, True)
    (row,) = (line.split() for line in said().splitlines() if line.endswith(f" {address}"))
    assert row[:4] == ["2", "1", "0", "+0"]


def test_a_full_unix_queue_whose_drops_the_kernel_does_not_count(kept, tmp_path):
    path = str(tmp_path / "s")
    kept.enter_context(listener(2, path))
    for _ in range(3):
        kept.enter_context(guest(path))
    found = of(said("--json"), path)
    assert (found["family"], found["waiting"], found["full"]) == ("unix", 3, True)
    assert found["drops"] is None and found["drops_grown"] is None


def test_drops_grow_between_two_looks(namespace, kept):
    sock = kept.enter_context(namespace.run(lambda: listener(1, HERE)))
    for _ in range(2):
        kept.enter_context(namespace.run(lambda: guest(HERE)))
    until_queued(sock, 2)
    with subprocess.Popen([*namespace.prefix, *TOP, "--json"], stdout=subprocess.PIPE, text=True) as top:
        try:
            assert top.stdout
            first = of(top.stdout.readline(), AT)
            assert (first["waiting"], first["drops"], first["drops_grown"]) == (2, 0, None)
            for _ in range(3):
                kept.enter_context(namespace.run(lambda: guest(HERE)))
            grown, latest = [], first
            while latest["drops"] < 3:
                line = top.stdout.readline()
                assert json.loads(line)["over_s"] > 0
                latest = of(line, AT)
                grown.append(latest["drops_grown"])
            assert sum(grown) == latest["drops"]
        finally:
            top.kill()


def test_a_container_has_a_network_of_its_own(namespace):
    command = [*namespace.prefix, sys.executable, "-c", LISTENER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdout and stranger.stdout.readline() == "listening\n"
        data = json.loads(said("--json"))["listeners"]
        (found,) = (one for one in data if [owner["pid"] for owner in one["owners"]] == [stranger.pid])
        stranger.communicate()
    assert (found["address"], found["backlog"]) == (AT, 3)
    assert found["network"] == f"{namespace.name} of ip netns"


def order(screen: Screen, home: Path) -> list[str]:
    """The names of this directory's sockets: the screen shows those of other programs, too."""
    return [row.rpartition("/")[2] for row in screen.rows() if f" unix:{home}/" in row]


def test_the_screen_is_live(kept, tmp_path, request):
    empty, busy, late = (str(tmp_path / name) for name in ("a-empty", "b-busy", "c-late"))
    kept.enter_context(listener(9, empty))
    kept.enter_context(listener(9, busy))
    kept.enter_context(guest(busy))
    screen = Screen(*TOP, columns=250, lines=200)
    request.addfinalizer(screen.close)
    eventually(lambda: order(screen, tmp_path) == ["b-busy", "a-empty"], "sorted by who waits")
    screen.type("a")
    eventually(lambda: order(screen, tmp_path) == ["a-empty", "b-busy"], "sorted by address")
    kept.enter_context(guest(empty))
    screen.wait(f"^ +1 +9 .*{empty}$")
    screen.type("p")
    screen.wait("PAUSED")
    kept.enter_context(listener(9, late))
    screen.type("w")
    screen.type("p")
    screen.wait(f"{late}$")
    eventually(lambda: order(screen, tmp_path)[-1] == "c-late", "sorted by who waits, again")
    screen.type("?")
    screen.wait("dropped since the socket listens")
    screen.type("q")
    screen.wait(f"{late}$")
    screen.type("q")
    assert screen.exit_code() == 0
    assert screen.state() == screen.found
    assert screen.errors() == ""


@pytest.mark.parametrize("word", ["--admin=127.0.0.1:1", "--control=unix:/x", "--config=x.py"])
def test_it_is_of_no_server(word):
    done = subprocess.run([*TOP, word], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 2
    assert "--any looks at the host" in done.stderr


def test_without_a_terminal_it_says_so():
    done = subprocess.run(TOP, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert "--once and --json need none" in done.stderr
