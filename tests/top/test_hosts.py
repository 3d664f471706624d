"""`stanchion top --hosts`: several servers in one table. A host that is away, hangs or talks nonsense harms none."""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stanchion.top import source
from stanchion.top.hosts import TEXT_MAX
from stanchion.top.hosts_page import CONNECTIONS_MAX
from support import missing, processes, unshare
from support.admin import Admin, seat, status
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.ports import row_of_ports
from support.screen import Screen
from support.server import Serve, Server
from support.wire import Wire, request

pytestmark = pytest.mark.own("it has top")

TOP = (sys.executable, "-m", "stanchion", "top", "--interval", "0.1", "--hosts")
HANGS = "no whole answer from {} within 3 s"
AWAY = "no process listens at {}"

Data = dict[str, Any]


@pytest.fixture
def kept() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as kept:
        yield kept


@pytest.fixture
def port() -> Iterator[int]:
    with row_of_ports(1) as port:
        yield port


def once(*hosts: str) -> Data:
    done = subprocess.run([*TOP, ",".join(hosts), "--once", "--json"], capture_output=True, timeout=PATIENCE_S + 10)
    assert (done.returncode, done.stderr) == (0, b"")
    return data(done.stdout)


def data(line: bytes) -> Data:
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


def row(of: Data, host: str) -> Data | None:
    return next((one for one in of["hosts"] if one["host"] == host), None)


class Stream:
    """`--json` without `--once`: a line for each look."""

    def __init__(self, kept: contextlib.ExitStack, *hosts: str, prefix: tuple[str, ...] = (), **more: str) -> None:
        command = [*prefix, *TOP, ",".join(hosts), "--json"]
        self._process = kept.enter_context(
            subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **more})
        )
        kept.callback(self._process.kill)

    def next(self) -> Data:
        assert self._process.stdout
        return data(self._process.stdout.readline())

    def until(self, shows: Callable[[Data], object]) -> Data:
        """The first line that does. The limit of the test is the bound."""
        while not shows(found := self.next()):
            pass
        return found


def admin(kept: contextlib.ExitStack, **more: Any) -> Admin:
    played = Admin()
    kept.callback(played.stop)
    played.says(status(**more))
    return played


def stranger(kept: contextlib.ExitStack, serve: Callable[[socket.socket], object]) -> str:
    """The address of a server that does this with each connection."""
    sock = kept.enter_context(socket.create_server(("127.0.0.1", 0)))

    def run(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            serve(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=run, args=(sock.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    # An accept(2) under way ends so.
    kept.callback(lambda: sock.shutdown(socket.SHUT_RDWR))
    return f"127.0.0.1:{sock.getsockname()[1]}"


@pytest.mark.timeout(180)
def test_the_sums_of_real_servers(serve: Serve, gate: Gate, kept: contextlib.ExitStack, port: int) -> None:
    hosts = [f"127.0.0.{number}:{port}" for number in (1, 2, 3)]
    servers = [
        serve("waiting:app", "--admin", host, "--threads", str(number), env=gate.environment)
        for number, host in enumerate(hosts, 1)
    ]
    wires: list[Wire] = []

    def ask(server: Server, target: str, times: int) -> None:
        for _ in range(times):
            wires.append(kept.enter_context(server.connect()))
            wires[-1].send(request("GET", target))

    # All seats of two of them run, and some wait there.
    for number, server in enumerate(servers[1:], 2):
        ask(server, "/wait?held", number)
    gate.announcements(2 + 3)
    for server in servers[1:]:
        ask(server, "/pid?x", 9)

    def waits() -> Data | None:
        found = once(*hosts)
        return found if all(one["oldest_wait_us"] for one in found["hosts"][1:]) else None

    found = eventually(waits, "some wait")
    assert found
    total, rows = found["total"], found["hosts"]
    assert [one["host"] for one in rows] == hosts
    assert [(one["busy"], one["seats"]) for one in rows] == [(0, 1), (2, 2), (3, 3)]
    assert (total["busy"], total["seats"], total["hosts"], total["answering"], total["ready"]) == (5, 6, 3, 3, 3)
    # Some of each nine are handed out ahead.
    assert rows[0]["waiting"] == 0 and 0 < rows[1]["waiting"] <= 9 and 0 < rows[2]["waiting"] <= 9
    assert total["waiting"] == rows[1]["waiting"] + rows[2]["waiting"]
    assert total["waiting_max"] == sum(one["waiting_max"] for one in rows) == 3 * 2048
    assert total["oldest_wait_us"] == max(rows[1]["oldest_wait_us"], rows[2]["oldest_wait_us"])
    assert [one["pid"] for one in rows] == [server.pid for server in servers]
    assert {(one["state"], one["generation"], one["version"]) for one in rows} == {("serving", 1, rows[0]["version"])}
    assert total["seats_wanted"] == pytest.approx(sum(one["seats_wanted"] for one in rows))
    gate.let_pass(2 + 3)
    assert {wire.response().status for wire in wires} == {200}


def test_a_killed_host_stays_in_the_table_with_the_reason_and_is_back_when_it_is(serve, build, kept, port):
    hosts = [f"127.0.0.{number}:{port}" for number in (1, 2)]
    serve("hello:app", "--admin", hosts[0])
    doomed = build("hello:app", "--admin", hosts[1]).start()
    stream = Stream(kept, *hosts)
    stream.until(lambda found: found["total"]["answering"] == 2)
    for process in doomed.processes():
        processes.kill(process)
    # A server removes it itself, unless it is killed.
    for left in doomed.tmp.iterdir():
        shutil.rmtree(left)
    gone = stream.until(lambda found: found["total"]["answering"] == 1)
    one = row(gone, hosts[1])
    assert one and one.keys() == {"host", "trouble", "silent_s"}
    stream.until(lambda found: (row(found, hosts[1]) or {})["trouble"].startswith(AWAY.format(hosts[1])))
    later = stream.next()
    assert row(later, hosts[1])["silent_s"] > one["silent_s"] >= 0
    assert later["total"]["seats"] == row(later, hosts[0])["seats"], "nothing of it is in the sums"
    serve("hello:app", "--admin", hosts[1])
    back = stream.until(lambda found: found["total"]["answering"] == 2)
    assert row(back, hosts[1])["trouble"] is None


def test_a_host_that_hangs_delays_no_other(serve: Serve, kept: contextlib.ExitStack, port: int) -> None:
    host = f"127.0.0.1:{port}"
    server = serve("hello:app", "--admin", host)
    other = admin(kept)
    stream = Stream(kept, host, other.address)
    stream.until(lambda found: found["total"]["answering"] == 2)
    acceptor = server.acceptor()
    acceptor.send_signal(signal.SIGSTOP)
    try:
        before = len(other.targets)
        found = stream.until(lambda found: found["total"]["answering"] == 1)
        assert row(found, host)["trouble"] == HANGS.format(host)
        # It takes 3 s to find that out. If the other had to wait for this one, it would have been asked once or twice.
        assert len(other.targets) - before >= 5
    finally:
        acceptor.send_signal(signal.SIGCONT)
    stream.until(lambda found: found["total"]["answering"] == 2)


def endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b" " * 65536)


def dripping(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    connection.settimeout(0.05)
    while True:
        connection.sendall(b" ")
        with contextlib.suppress(TimeoutError):
            if connection.recv(4096) == b"":
                return


# Its length fits no memory: http.client raises OverflowError.
OVERSIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n{}"


def banner(connection: socket.socket) -> None:
    # To close with bytes unread would be a reset.
    connection.recv(4096)
    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")


def test_a_host_that_talks_nonsense_is_cut_off_and_costs_only_itself(kept):
    strangers = {
        stranger(kept, endless): "the answer of {} is longer than 4194304 bytes",
        stranger(kept, dripping): HANGS,
        stranger(kept, lambda connection: connection.recv(1) and threading.Event().wait(PATIENCE_S)): HANGS,
        stranger(kept, banner): "is no admin listener",
        admin(kept, version="\x1b[2J" + "v" * 10_000).address: "",
    }
    for body, reason in (
        (b"[" * 100_000, "is no JSON"),
        (b"{}", "answers otherwise than this version expects"),
        (json.dumps(status(events={"x" * 100_000: 1})).encode(), "names of more than 64 characters"),
        (json.dumps(status(**{"y" * 100_000: 1}, pid=-1)).encode(), "is no count"),
    ):
        played = admin(kept)
        played.sends(body)
        strangers[played.address] = reason
    oversized = stranger(kept, lambda connection: connection.recv(4096) and connection.sendall(OVERSIZED))
    strangers[oversized] = "is no admin listener"
    good = admin(kept, line={"waiting": 5}, demand={"seats_wanted_10s": 2.5})
    found = once(*strangers, good.address)
    for host, reason in strangers.items():
        trouble = (row(found, host) or {})["trouble"] or ""
        assert reason.format(host) in trouble and len(trouble) <= TEXT_MAX, host
    assert row(found, good.address)["waiting"] == found["total"]["waiting"] == 5
    assert row(found, good.address)["seats_wanted"] == 2.5
    assert found["total"]["answering"] == 2


def test_if_none_answers_it_ends_with_3(port):
    done = subprocess.run([*TOP, f"127.0.0.1:{port}", "--once"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 3
    assert "1 hosts · 0 answer" in done.stdout and AWAY.format(f"127.0.0.1:{port}") in done.stdout


# ---- Names

# Read by Python at its start (site(3)): names are looked up more often.
OFTEN = "from stanchion.top import hosts_watch\n\nhosts_watch.LOOKUP_INTERVAL_S = 0.1\n"


@pytest.mark.privileges
def test_a_name_stands_for_all_of_its_addresses_which_come_and_go(kept, tmp_path, serve, port):
    names = tmp_path / "hosts"
    prefix = unshare.with_file(names, "/etc/hosts")
    names.write_text("")
    if why := missing.allowed(unshare.unavailable(prefix)):
        pytest.skip(why)
    hosts = [f"127.0.0.{number}:{port}" for number in (12, 3, 4)]
    name = f"pods.test:{port}"

    def say(*those: str) -> None:
        # In place: another file would not be the one that was mounted.
        names.write_text("".join(f"{one.partition(':')[0]} pods.test\n" for one in those))

    servers = [serve("hello:app", "--admin", host) for host in hosts[:2]]
    (tmp_path / "sitecustomize.py").write_text(OFTEN)
    stream = Stream(kept, name, prefix=tuple(prefix), PYTHONPATH=str(tmp_path))
    found = stream.until(lambda found: row(found, name))
    # The reason depends on whether there is a name server.
    assert row(found, name)["trouble"].startswith("the name ") and found["total"]["answering"] == 0
    say(*hosts[:2])
    found = stream.until(lambda found: found["total"]["answering"] == 2)
    assert [one["host"] for one in found["hosts"]] == [hosts[1], hosts[0]], "by address, and no longer the name"

    # Kubernetes takes a pod that drains out of the name: it stays for as long as it answers.
    say(hosts[1], hosts[2])
    found = stream.until(lambda found: row(found, hosts[2]))
    assert row(found, hosts[0])["trouble"] is None
    servers[0].signal(signal.SIGTERM)
    assert servers[0].exit_code() == 0
    found = stream.until(lambda found: row(found, hosts[0]) is None)
    # A host that the name has, and that is not there, stays.
    stream.until(lambda found: (row(found, hosts[2]) or {"trouble": ""})["trouble"].startswith("no process listens"))
    serve("hello:app", "--admin", hosts[2])
    stream.until(lambda found: found["total"]["answering"] == 2)


# ---- The screen


def order(screen: Screen, *hosts: str) -> list[str]:
    """The hosts, as they stand on the screen."""
    return [row.split()[0] for row in screen.rows() if row.split()[:1] and row.split()[0] in hosts]


def test_the_screen_is_live(kept: contextlib.ExitStack) -> None:
    first, second = admin(kept, line={"waiting": 1}), admin(kept, seats=[seat(0, 0, 5_000, "/x")])
    hosts = [first.address, second.address]
    screen = Screen(*TOP, ",".join(hosts), columns=110, lines=24)
    kept.callback(screen.close)
    screen.wait("^2 hosts · 2 answer · 2 ready")
    assert len(screen.rows()) == 24
    assert order(screen, *hosts) == hosts
    screen.wait("^all that answer +1/3 +1 ")
    second.says(status(line={"waiting": 1_000}))
    screen.wait("1001 of 4096 waiting")
    screen.type("w")
    eventually(lambda: order(screen, *hosts) == hosts[::-1], "the longest line first")
    screen.type("p")
    screen.wait("PAUSED")
    screen.type("p")
    first.sends(b"", head=b"HTTP/1.1 503 Service Unavailable\r\n")
    assert "answers 503 to /status" in screen.wait(f"^{first.address} +silent ")
    screen.wait("1000 of 2048 waiting")
    screen.wait("^2 hosts · 1 answer · 1 ready")
    second.says(status(ready=False, not_ready_because="it drains"))
    screen.wait(f"^{second.address}: NOT READY: it drains")
    screen.type("?")
    screen.wait("by how many wait")
    screen.type("q")
    screen.wait("^2 hosts")
    screen.type("q")
    assert screen.exit_code() == 0
    assert screen.state() == screen.found
    assert screen.errors() == ""


# ---- The page


class Page:
    """`--serve`: what it answers."""

    def __init__(self, kept: contextlib.ExitStack, port: int, *hosts: str, **more: str) -> None:
        self.at = ("127.0.0.1", port)
        command = [*TOP, ",".join(hosts), "--serve", f"127.0.0.1:{port}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **more})
        self.process = kept.enter_context(process)
        kept.callback(self.process.kill)
        assert self.process.stdout
        assert self.process.stdout.readline() == f"the hosts are at http://127.0.0.1:{port}/ until Ctrl-C\n"

    def get(self, target: str, host: str = "127.0.0.1", method: str = "GET") -> tuple[int, str, bytes]:
        with socket.create_connection(self.at, PATIENCE_S) as sock:
            sock.sendall(f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            answer = b"".join(iter(lambda: sock.recv(65536), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), head.decode(), body

    def json(self, target: str) -> Data:
        status, head, body = self.get(target)
        assert status == 200 and "\r\nContent-Type: application/json\r\n" in head
        return data(body)


def test_the_page_is_read_only_and_for_no_other_name(kept: contextlib.ExitStack, port: int) -> None:
    played = [admin(kept, line={"waiting": number}) for number in (3, 4)]
    page = Page(kept, port, *(one.address for one in played))
    status, head, body = page.get("/")
    assert status == 200 and b"<title>stanchion</title>" in body
    assert "connect-src 'self'" in head and "Cache-Control: no-store" in head
    assert page.get("/", method="HEAD")[2] == b""
    assert page.get("/", method="POST")[0] == 501
    assert page.get("/other")[0] == 404
    assert page.get("//[")[0] in (400, 404)
    for host, expected in (("localhost:1", 200), ("board.svc", 200), ("[::1]", 200), ("evil.example", 421), ("", 421)):
        for target in ("/", "/status", "/history"):
            assert page.get(target, host)[0] == expected, (host, target)
    told = page.json("/status")
    assert (told["line"]["waiting"], told["seat_counts"]["idle"], told["ready"]) == (7, 4, True)
    assert [one["waiting"] for one in told["hosts"]] == [3, 4]
    later = eventually(lambda: page.json(f"/history?since_us={told['now_us']}")["samples"], "a sample of later")
    assert later[0]["at_us"] > told["now_us"] and later[0]["waiting"] == 7
    page.process.send_signal(signal.SIGTERM)
    assert page.process.wait(PATIENCE_S) == 128 + signal.SIGTERM


def test_the_page_gives_up_a_client_that_says_nothing(kept: contextlib.ExitStack, port: int) -> None:
    page = Page(kept, port, admin(kept).address)
    with socket.create_connection(page.at, PATIENCE_S) as silent:
        assert silent.recv(1) == b""


def test_the_page_hears_so_many_clients_at_once_and_no_more(kept, port, tmp_path):
    text = f"from stanchion.top import hosts_page\n\nhosts_page._Handler.timeout = {10 * PATIENCE_S}\n"
    (tmp_path / "sitecustomize.py").write_text(text)
    page = Page(kept, port, admin(kept).address, PYTHONPATH=str(tmp_path))
    silent = [kept.enter_context(socket.create_connection(page.at, PATIENCE_S)) for _ in range(64)]
    with socket.create_connection(page.at, PATIENCE_S) as one_more:
        assert one_more.recv(1) == b""
    assert select.select(silent, [], [], 0)[0] == []
    silent[0].close()

    def is_heard() -> bool:
        with contextlib.suppress(ConnectionResetError, IndexError):
            return page.get("/status")[0] == 200
        return False

    eventually(is_heard, "there is room for one")


def test_the_page_begins_with_what_the_hosts_have_kept(serve: Serve, kept: contextlib.ExitStack, port: int) -> None:
    hosts = [f"127.0.0.{number}:{port}" for number in (2, 3)]
    servers = [serve("hello:app", "--admin", host) for host in hosts]

    def samples(host: str) -> list[Data]:
        found: Any = source.value(source.place(host), "/history", PATIENCE_S, 1_000_000)
        return list(found["samples"])

    def ask() -> bool:
        for server in servers:
            with server.connect() as wire:
                assert wire.get("/").status == 200
        return all(len(samples(host)) >= 6 for host in hosts)

    eventually(ask, "each host has kept some seconds")
    page = Page(kept, port, *hosts)
    found = page.json("/history")["samples"]
    # The first look is one of its own.
    past = [one for one in found if "wait_p50_us" not in one]
    assert len(past) >= 3
    assert {one["seats"] for one in past} <= {1, 2} and past[-1]["seats"] == 2
    assert max(one["rates"]["arrived"] for one in past) > 0


# Read by Python at its start (site(3)): a client has less time to send its request.
SOON = "from stanchion.top import hosts_page\n\nhosts_page.CLIENT_S = 0.3\n"


def test_clients_that_send_byte_by_byte_hold_the_page_only_for_a_moment(kept, tmp_path, port) -> None:
    (tmp_path / "sitecustomize.py").write_text(SOON)
    page = Page(kept, port, admin(kept).address, PYTHONPATH=str(tmp_path))
    slow = [kept.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(CONNECTIONS_MAX)]
    for one in slow:
        one.setblocking(False)

    def is_closed(one: socket.socket) -> bool:
        try:
            one.send(b"G")
            return one.recv(4096) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    eventually(lambda: all(is_closed(one) for one in slow), "the page has closed them")
    assert page.json("/status")["total"]["answering"] == 1


def test_an_address_that_is_taken_is_said(kept: contextlib.ExitStack) -> None:
    taken = admin(kept)
    command = [*TOP, taken.address, "--serve", taken.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert f"--serve cannot listen at {taken.address}: Address already in use" in done.stderr
