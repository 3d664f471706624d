"""A server under test in a case: started, asked once whether it answers rightly, and seen under load."""

import contextlib
import http.client
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import certificate, nginx, wrk
from bench.processes import TICK_NS, ServerError, Tree, free_port, running
from bench.servers import Address, Launch, Server

SERVER_CORE = 0
CLIENT_CORE = 1
SCRATCH = Path(".bench")
ANSWER_S = 10.0
WARM_UP_S = 1

Figures = dict[str, float]


@dataclass(frozen=True)
class Plan:
    """How long each cell lasts, and how often it is repeated."""

    rounds: int
    # Where servers stand side by side: turns of each server in a round. A turn is a second, or what the case says.
    turns: int
    # Where one server runs at a time.
    load_s: int
    mixed_s: int
    kills: int
    deploys: int
    # Names of those of `adversaries`; all if there are none.
    attacks: Sequence[str] = ()


FULL = Plan(rounds=5, turns=4, load_s=2, mixed_s=20, kills=10, deploys=10)
QUICK = Plan(rounds=1, turns=2, load_s=1, mixed_s=8, kills=5, deploys=3)


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes


def ask(
    port: int, path: str = "/", body: bytes | None = None, timeout_s: float = ANSWER_S, tls: bool = False
) -> Answer:
    """One request on a connection of its own."""
    connection: http.client.HTTPConnection
    if tls:
        context = certificate.unverifying()
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout_s, context=context)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    with contextlib.closing(connection):
        connection.request("POST" if body is not None else "GET", path, body)
        response = connection.getresponse()
        return Answer(response.status, response.read())


def answers(port: int, status: int = 200, tls: bool = False) -> Callable[[], bool]:
    def ready() -> bool:
        try:
            return ask(port, tls=tls).status == status
        except (OSError, http.client.HTTPException):
            return False

    return ready


@contextlib.contextmanager
def serving(
    server: Server,
    app: str,
    *,
    workers: int = 1,
    pinned: bool = True,
    preload: bool = False,
    floor: str = "",
    own: tuple[str, ...] = (),
    tls: bool = False,
    http2: bool = False,
) -> Iterator[tuple[Tree, int]]:
    """The server with an app on a TCP port; its process tree and the port. nginx, which has no app, serves `floor`."""
    port = free_port()
    files = certificate.made() if tls else None
    if server.name == "nginx":
        command = nginx.command(SCRATCH / "floor", port, floor, files)
    else:
        launch = Launch(app, Address(port=port), workers, preload, own=own, certificate=files, http2=http2)
        command = server.command(launch)
    core, log = SERVER_CORE if pinned else None, SCRATCH / f"{server.name}.log"
    with running(command, core=core, log=log, ready=answers(port, tls=tls)) as tree:
        yield tree, port


@contextlib.contextmanager
def serving_behind_nginx(
    server: Server, app: str, workers: int, *, tls: bool = False
) -> Iterator[tuple[Tree, Tree, int]]:
    """The server on a unix socket and nginx before it, on the same core: both trees, and nginx's port.

    With `tls` nginx takes HTTP/1.1 and HTTP/2 over TLS.
    """
    assert server.upstream is not None
    SCRATCH.mkdir(exist_ok=True)
    socket_path = SCRATCH / f"{server.name}.sock"
    socket_path.unlink(missing_ok=True)
    port = free_port()
    address = Address(path=str(socket_path))
    files = certificate.made() if tls else None
    command = server.command(Launch(app, address, workers))
    with running(command, core=SERVER_CORE, log=SCRATCH / f"{server.name}.log", ready=socket_path.exists) as tree:
        front = nginx.command(SCRATCH / f"front-{server.name}", port, nginx.front(server.upstream, address), files)
        log = SCRATCH / f"nginx-{server.name}.log"
        with running(front, core=SERVER_CORE, log=log, ready=answers(port, tls=tls)) as nginx_tree:
            yield tree, nginx_tree, port


def check(port: int, load: wrk.Load, expected: Callable[[bytes], bool]) -> int:
    """The size of one answer's body, once it is what the app should give; a wrong server must not win."""
    answer = ask(port, load.path, b"x" * load.post_bytes if load.post_bytes else None, tls=load.tls)
    if answer.status != 200 or not expected(answer.body):
        raise ServerError(f"answered {answer.status} with {len(answer.body)} bytes: {answer.body[:60]!r}")
    return len(answer.body)


class OtherLoad:
    """How much of the machine went to processes that are no part of the measurement, from its making on.

    This process, its threads and its children are part of it.
    """

    def __init__(self) -> None:
        self.began_ns = self.counters_ns()

    @staticmethod
    def counters_ns() -> tuple[int, int, int]:
        """Busy and all time of the cores, and ours and that of our children that ended, wrk among them."""
        user, nice, system, idle, iowait, irq, softirq, steal = map(
            int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        )
        busy = user + nice + system + irq + softirq + steal
        ours = os.times()
        ours_s = ours.user + ours.system + ours.children_user + ours.children_system
        return busy * TICK_NS, (busy + idle + iowait) * TICK_NS, int(ours_s * 1e9)

    def share(self, server_ns: int) -> float:
        busy_ns, all_ns, ours_ns = (now - before for now, before in zip(self.counters_ns(), self.began_ns, strict=True))
        return max(0.0, busy_ns - server_ns - ours_ns) / all_ns


def watching(*trees: Tree) -> Callable[[], float]:
    """From now on; what it gives, when it is called, is the share that others than these had."""
    others = OtherLoad()
    began_ns = sum(tree.cpu_ns() for tree in trees)
    return lambda: others.share(sum(tree.cpu_ns() for tree in trees) - began_ns)
