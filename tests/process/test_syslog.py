"""Both logs by the syslog protocol as gunicorn speaks it, and to journald by its prefixes."""

import contextlib
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.address import Address
from support.log import Log
from support.patience import PATIENCE_S
from support.server import GUNICORN, STANCHION, Kind, Serve
from support.wire import request

pytestmark = pytest.mark.own("the peer is in the test where it matters")

UNDER_JOURNALD = """
import os, socket, sys
journal = socket.socket(socket.AF_UNIX)
journal.connect(sys.argv[1])
os.dup2(journal.fileno(), 2)
stream = os.fstat(2)
os.environ["JOURNAL_STREAM"] = f"{stream.st_dev}:{stream.st_ino}" if sys.argv[2] == "yes" else "8:1234"
os.execv(sys.executable, sys.argv[3:])
"""


class Daemon:
    """A socket that takes messages."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.settimeout(PATIENCE_S)
        self.messages: list[bytes] = []

    def wait(self, pattern: bytes) -> bytes:
        for message in self.messages:
            if re.search(pattern, message):
                return message
        while True:
            message = self._sock.recv(65536)
            self.messages.append(message)
            if re.search(pattern, message):
                return message


@contextlib.contextmanager
def udp() -> Iterator[tuple[str, Daemon]]:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    with sock:
        yield f"udp://127.0.0.1:{sock.getsockname()[1]}", Daemon(sock)


@contextlib.contextmanager
def unix(path: Path) -> Iterator[tuple[str, Daemon]]:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(str(path))
    with sock:
        yield f"unix://{path}", Daemon(sock)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[tuple[str, Daemon]]:
    with unix(tmp_path / "log") as daemon:
        yield daemon


@pytest.mark.parametrize("kind", [STANCHION, GUNICORN], ids=lambda kind: kind.name)
@pytest.mark.parametrize("family", ["udp", "unix"])
def test_access_lines_are_gunicorns(serve: Serve, tmp_path: Path, kind: Kind, family: str) -> None:
    with udp() if family == "udp" else unix(tmp_path / "log") as (address, daemon):
        arguments = ("--log-syslog", "--log-syslog-to", address, "--log-syslog-prefix", "shop")
        server = serve("hello:app", *arguments, "--log-syslog-facility", "LOCAL1", kind=kind)
        with server.connect() as wire:
            wire.get("/?asked")
        message = daemon.wait(rb"asked")
    # local1 is 17, INFO 6: 17 * 8 + 6 (RFC 3164 section 4.1.1).
    line = r'127\.0\.0\.1 - - \[[^]]+\] "GET /\?asked HTTP/1\.1" 200 6 "-" "-"'
    pattern = rf"<142>{kind.name}\.shop\.access: \[\d+\] {line}\0"
    assert re.fullmatch(pattern, message.decode())
    assert not server.stdout.lines(), "without --access-logfile nothing else gets them"


def test_the_error_log_of_every_process(build: Serve, daemon: tuple[str, Daemon]) -> None:
    address, listening = daemon
    arguments = ("--log-syslog", "--log-syslog-to", address, "--log-syslog-error-only", "--log-level", "debug")
    server = build("answers:app", *arguments).launch()
    # A process waits but a moment for room in the queue, which has about as much as is said until then.
    listening.wait(rb"^<14>stanchion\.error: .* ready: 1 worker")
    server.wait_until_ready()
    with server.connect() as wire:
        wire.get("/raises")
    failed = listening.wait(rb"the app failed").decode()
    # user is 1, an error 3. The whole traceback is one message.
    assert re.match(r"<11>stanchion\.error: \[\d+\] the app failed at GET /raises", failed)
    assert failed.endswith("\0") and "Traceback" in failed
    server.signal(signal.SIGTERM)
    listening.wait(rb"stanchion leaves")
    processes = {re.search(rb"\[(\d+)\]", message)[1] for message in listening.messages}  # type: ignore[index]
    assert len(processes) == 3, "master, acceptor and worker"
    assert not any(b".access" in message for message in listening.messages)
    assert server.log.matches("the app failed"), "the file has it too"


def test_a_daemon_that_is_not_there_or_reads_nothing_costs_only_lines(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "log"
    server = serve("hello:app", "--log-syslog", "--log-syslog-to", f"unix://{path}")
    with server.connect() as wire:
        assert wire.get("/").status == 200
        with unix(path) as (_, daemon):
            # Its queue holds a few messages (net.unix.max_dgram_qlen).
            for _ in range(20):
                wire.send(request("GET", "/") * 500)
                for _ in range(500):
                    assert wire.response().status == 200
            # The server sends the buffered lines while the daemon reads.
            for _ in range(1000):
                daemon.wait(rb"GET /")
                daemon.messages.clear()
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0


@pytest.mark.parametrize("matches", [True, False])
@pytest.mark.privileges
def test_journald_is_told_levels(build: Serve, tmp_path: Path, matches: bool) -> None:
    path = tmp_path / "journal"
    prefix = [sys.executable, "-c", UNDER_JOURNALD, str(path), "yes" if matches else "no"]
    server = build("answers:app", prefix=prefix, bind=f"unix:{tmp_path}/s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        server.launch()
        listener.settimeout(PATIENCE_S)
        stream, _ = listener.accept()
    with stream:
        journal = Log(stream.makefile("rb"))
    journal.wait("ready: 1 worker")
    server.addresses = [Address.parse(f"unix:{tmp_path}/s")]
    with server.connect() as wire:
        wire.get("/raises")
    journal.wait("the app itself fails")
    server.signal(signal.SIGTERM)
    assert server.exit_code() == 0
    journal.wait_end()
    levels = {re.sub(r"^(<\d>)?.*", r"\1", line) for line in journal.lines()}
    # Root is warned that the app runs as root.
    warned = {"<4>"} if os.geteuid() == 0 else set()
    assert levels == ({"<6>", "<3>", *warned} if matches else {""})
