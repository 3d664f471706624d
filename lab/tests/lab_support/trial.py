"""Servers of the lab in a namespace of the test's, each gone afterwards."""

import contextlib
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from stanchion_lab import servers
from stanchion_lab.processes import Process
from stanchion_lab.scenario import SHIPPED, Server
from stanchion_lab.servers import KINDS, Address, Place
from stanchion_lab.witness import logs
from support.netns import Namespace
from support.patience import PATIENCE_S, eventually

T = TypeVar("T")

APPS = Path(__file__).parents[3] / "tests/apps"
RUBY = """run ->(env) { [200, {"Content-Type" => "text/plain"}, ["hello\\n"]] }\n"""

# Without a validator: behind uwsgi_pass there is no SCRIPT_NAME, as nginx's own uwsgi_params have none.
PLAIN = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Length", "6")])
    return [b"hello\\n"]
"""


class Trial:
    """A trial as `stanchion_lab.trial` runs it, but without the cage."""

    def __init__(self, directory: Path, namespace: Namespace, stack: ExitStack) -> None:
        self.directory = directory
        self.namespace = namespace
        self.running: dict[str, Process] = {}
        self._servers: dict[str, Server] = {}
        self._asked: Counter[str] = Counter()
        self._stack = stack
        files = directory / "files"
        files.mkdir()
        (files / "hello.ru").write_text(RUBY)
        (files / "plain.py").write_text(PLAIN)
        self._place = Place(directory, (files, APPS, SHIPPED / "files"))

    def start(self, name: str, server: Server, behind: Server | None = None) -> Process:
        """It serves when this returns."""
        start = KINDS[server.kind].start(name, server, {"behind": behind} if behind else {}, self._place)
        process = Process(name, [*self.namespace.prefix, *start.argv], start.environment, self.directory)
        self._stack.callback(process.stop)
        self.running[name] = process
        process.wait_until(lambda: self.inside(lambda: servers.serves(server, self.address(server))))
        self._servers[name] = server
        self._asked.update(other for other, its in self._servers.items() if its in (server, behind))
        return process

    def address(self, server: Server) -> str:
        return str(Address.of(server, self.directory))

    def inside(self, function: Callable[[], T]) -> T:
        return self.namespace.run(function)

    def connect(self, server: Server) -> socket.socket:
        return self.inside(lambda: Address.parse(self.address(server)).connect(PATIENCE_S))

    def send(self, server: Server, path: str) -> socket.socket:
        """A request on a connection of its own, not yet answered."""
        client = self.connect(server)
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n".encode())
        return client

    def ask(self, server: Server, path: str = "/") -> int:
        return status(self.send(server, path))

    def forget(self) -> None:
        """Empty the logs once they have the requests that showed that servers serve: a server may log late."""
        for name, server in self._servers.items():
            eventually(lambda name=name, server=server: self._logged(name, server), f"{name} logs what it has answered")
        for log in self.directory.glob("*.log"):
            os.truncate(log, 0)

    def _logged(self, name: str, server: Server) -> bool:
        return logs.figures(name, server, self.directory).get(f"log.{name}.requests", 0) >= self._asked[name]


def status(client: socket.socket) -> int:
    """The status of the answer, which is read up to the connection's end."""
    answer = b""
    with client:
        while more := client.recv(4096):
            answer += more
    return int(answer.split()[1])


@contextlib.contextmanager
def trial(directory: Path, somaxconn: int) -> Iterator[Trial]:
    with ExitStack() as stack:
        namespace = Namespace()
        stack.callback(namespace.remove)
        namespace.sysctl("net.core.somaxconn", somaxconn)
        yield Trial(directory, namespace, stack)
