"""A fleet: two servers of the same settings behind a real front, with the file that `stanchion fleet` prints."""

import itertools
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from support import processes
from support.address import Address
from support.patience import PATIENCE_S, eventually
from support.ports import LOOPBACK, row_of_ports
from support.proxies import Foreground, temp_paths
from support.server import STANCHION, Serve, Server
from support.wire import BrokenOff, Response, Wire, request

HOSTS = ("127.0.0.2", "127.0.0.3")
"""Where the servers are, each with the same ports: all of 127.0.0.0/8 is this machine."""

AS_SHIPPED = replace(STANCHION, arguments=())

SETTINGS = ("--keep-alive", "75", "--interface", "wsgi", "--workers", "2", "--drain-delay", "2")

CLIENTS = 6

PAUSE_S = 0.005
"""Between two requests of a client, so that servers on the same cores have time to start."""


def printed(front: str, *arguments: str) -> tuple[str, list[str]]:
    """The file of `stanchion fleet`, and the warnings."""
    command = [sys.executable, "-m", "stanchion", "fleet", front, *arguments]
    made = subprocess.run(command, capture_output=True, text=True, env={}, check=True, timeout=2 * PATIENCE_S)
    return made.stdout, made.stderr.splitlines()


def here(front: str, text: str, home: Path, port: int) -> str:
    """The text with other places in it, and nothing else."""
    listen = f"{LOOPBACK}:{port}"
    instead = {
        "haproxy": {"bind :80": f"bind {listen}"},
        "nginx": {
            "user www-data;": "daemon off; master_process off;",
            "/run/nginx.pid": f"{home}/nginx.pid",
            "/var/log/nginx/error.log": f"{home}/error.log",
            "http {\n": f"http {{ access_log off; {temp_paths(home)}\n",
            "listen 80 ": f"listen {listen} ",
        },
        "caddy": {"\n:80 {": f"\n{{\n\tadmin off\n}}\n:{port} {{\n\tbind {LOOPBACK}"},
        "envoy": {'"::", port_value: 80, ipv4_compat: true': f"{LOOPBACK}, port_value: {port}"},
        "traefik": {},
    }[front]
    for given, other in instead.items():
        assert text.count(given) == 1, f"{front} has {given!r} {text.count(given)} times"
        text = text.replace(given, other)
    return text


@dataclass
class Fleet:
    """Two servers, the front before them, and what the app has run."""

    serve: Serve
    settings: Sequence[str]
    environment: dict[str, str]
    runs_file: Path
    base: int
    """The front's port; the next ones are for clients of the servers and for their admin listeners."""
    servers: list[Server] = field(default_factory=list)

    @property
    def front(self) -> Address:
        return Address(LOOPBACK, self.base)

    @property
    def hosts(self) -> str:
        return ",".join(f"{host}:{self.base + 1}" for host in HOSTS)

    def direct(self, index: int) -> Address:
        return Address(HOSTS[index], self.base + 1)

    def start(self, index: int) -> Server:
        """Start a server, which may have been there before."""
        host = HOSTS[index]
        places = ("--bind", f"{host}:{self.base + 1}", "--admin", f"{host}:{self.base + 2}")
        environment = {**self.environment, "SERVER": str(index), "RUNS": str(self.runs_file)}
        server = self.serve("numbered:app", *places, *self.settings, bind=None, kind=AS_SHIPPED, env=environment)
        self.servers[index : index + 1] = [server]
        return server

    def runs(self) -> list[list[str]]:
        """Server, method and path of each request that was run."""
        return [line.split() for line in self.runs_file.read_text().splitlines()]

    def ask(self, *headers: str, method: str = "GET", path: str = "/") -> Response:
        """The front's answer."""
        with Wire.connect(self.front) as wire:
            wire.send(request(method, path, headers, b"x" * 100 if method == "POST" else b""))
            return wire.response()

    def in_flight(self, index: int) -> int:
        """The server's requests that have not ended."""
        with Wire.connect(Address(HOSTS[index], self.base + 2)) as wire:
            wire.send(request("GET", "/status", host=LOOPBACK))
            count: int = wire.response().json()["requests"]["in_flight"]
            return count

    def wait_for(self, index: int) -> None:
        """Wait until the front has the server answer."""
        eventually(lambda: self._is_answered_by(index), f"the front asks server {index}")

    def _is_answered_by(self, index: int) -> bool:
        answer = self.ask(path="/waited-for")
        return answer.status == 200 and answer.json()["server"] == str(index)

    def kill(self, index: int) -> None:
        """Kill all of its processes as one, as if its machine had gone."""
        server = self.servers[index]
        left = server.processes()
        for process in left:
            process.send_signal(signal.SIGSTOP)
        # The master is the last: its death would orphan the process group of its children, which the kernel then has
        # go on (setpgid(2)), and the acceptor would answer that the server is shutting down.
        for process in sorted(left, key=lambda one: one.pid == server.process.pid):
            processes.kill(process)
        server.process.wait(PATIENCE_S)
        for path in sorted(server.tmp.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


@contextmanager
def behind(
    front: str, serve: Serve, home: Path, environment: dict[str, str] | None = None, settings: Sequence[str] = SETTINGS
) -> Iterator[Fleet]:
    """A fleet behind this front."""
    with row_of_ports(3) as base:
        fleet = Fleet(serve, settings, environment or {}, home / "runs", base)
        fleet.runs_file.touch()
        for index in range(len(HOSTS)):
            fleet.start(index)
        # The command line of one of them: the front's file is for all.
        ports = ("--bind", f"0.0.0.0:{base + 1}", "--admin", f"0.0.0.0:{base + 2}")
        text, warnings = printed(front, "--hosts", fleet.hosts, *ports, *settings, "numbered:app")
        print(text)
        # Tests have requests wait for longer than operators do.
        assert [one for one in warnings if "agent" not in one and "queue_timeout is over" not in one] == []
        program = Foreground(front, home / "front", here(front, text, home, base), base)
        try:
            program.wait()
            for index in range(len(HOSTS)):
                fleet.wait_for(index)
            yield fleet
        finally:
            program.stop()
            print(program.log())


class Load:
    """Clients that ask all the time, each request with a number in its path, every third one a POST."""

    def __init__(self, fleet: Fleet, clients: int = CLIENTS) -> None:
        self._fleet = fleet
        self._stop = threading.Event()
        self._numbers = itertools.count()
        self._threads = [threading.Thread(target=self._client) for _ in range(clients)]
        self.answered: list[str] = []
        """Method and path of each request that got 200."""
        self.lost: list[str] = []
        """The same of each other one, with its fate."""

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def more(self, count: int = 200) -> None:
        """Wait until so many more have been answered."""
        wanted = len(self.answered) + count
        eventually(lambda: len(self.answered) >= wanted, f"{count} more answers; lost: {self.lost[:5]}")

    def check(self) -> None:
        """Assert that each request that was answered has run, and no POST twice."""
        ran = Counter(f"{method} {path}" for _, method, path in self._fleet.runs())
        assert [one for one in self.answered if not ran[one]] == []
        assert [one for one, times in ran.items() if one.startswith("POST") and times > 1] == []

    def _client(self) -> None:
        while not self._stop.wait(PAUSE_S):
            number = next(self._numbers)
            method = "POST" if number % 3 == 0 else "GET"
            name = f"{method} /{number}"
            try:
                answer = self._fleet.ask(method=method, path=f"/{number}")
            except (OSError, BrokenOff) as problem:
                self.lost.append(f"{name}: {problem!r}")
                continue
            if answer.status == 200:
                self.answered.append(name)
            else:
                self.lost.append(f"{name}: {answer.status} {answer.text[:200]}")
