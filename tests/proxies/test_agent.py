"""A real HAProxy asks the agent listener: its limit follows the seats, and a server that leaves gets nothing new."""

import csv
import io
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.clock import Clock
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.ports import LOOPBACK, row_of_ports
from support.proxies import Foreground, program
from support.server import Serve, Server
from support.steady import Steady
from support.wire import Wire, request

pytestmark = [
    pytest.mark.own("gunicorn has no such listener"),
    pytest.mark.skipif(not program("haproxy"), reason="NOT TESTED BEHIND HAPROXY: haproxy is not installed"),
]

CONFIG = """
global
    stats socket {home}/stats level admin
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    timeout queue 60s
frontend clients
    bind {listen}
    default_backend app
backend app
    balance leastconn
{servers}
"""
SERVER = (
    "    server {name} {address} maxconn 1 check inter 200ms"
    " agent-check agent-addr {host} agent-port {port} agent-inter 200ms\n"
)
DELAY_S = 100


class Front(Foreground):
    """HAProxy before servers, by their names; each has an agent listener."""

    def __init__(self, home: Path, port: int, servers: dict[str, Server]) -> None:
        lines = ""
        for name, server in servers.items():
            clients, agent = server.addresses[:2]
            address = f"{clients.host}:{clients.port}"
            lines += SERVER.format(name=name, address=address, host=agent.host, port=agent.port)
        self._stats = f"{home}/stats"
        super().__init__("haproxy", home, CONFIG.format(home=home, listen=f"{LOOPBACK}:{port}", servers=lines), port)

    def says(self, server: str, state: str, limit: int) -> None:
        def said() -> bool:
            # HAProxy listens to clients first.
            if not Path(self._stats).exists():
                return False
            row = self._row(server)
            return (row["status"], row["slim"]) == (state, str(limit))

        eventually(said, f"HAProxy shows that {server} is {state} with {limit}")

    def queued(self) -> int:
        return int(self._row("BACKEND")["qcur"])

    def _row(self, server: str) -> dict[str, str]:
        """What HAProxy shows of a server."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(PATIENCE_S)
            sock.connect(self._stats)
            sock.sendall(b"show stat\n")
            with sock.makefile() as file:
                rows = csv.DictReader(io.StringIO(file.read().removeprefix("# ")))
        [row] = [row for row in rows if (row["pxname"], row["svname"]) == ("app", server)]
        return row


Before = Callable[..., Front]


@pytest.fixture
def before(tmp_path: Path) -> Iterator[Before]:
    """Puts HAProxy before servers, by their names."""
    with ExitStack() as stack:

        def put(**servers: Server) -> Front:
            front = Front(tmp_path / "haproxy", stack.enter_context(row_of_ports(1)), servers)
            stack.callback(front.stop)
            front.wait()
            return front

        yield put


AGENT = ("--agent", "127.0.0.2:0", "--keep-alive", "1000")


def test_the_limit_follows_the_seats(serve: Serve, gate: Gate, before: Before) -> None:
    server = serve("waiting:app", "-w", "2", *AGENT, "--timeout", "0", env=gate.environment)
    front = before(a=server)
    front.says("a", "UP", 2)
    with ExitStack() as stack:
        for number in range(5):
            stack.enter_context(Wire.connect(front.address)).send(request("GET", f"/wait?{number}"))
        gate.announcements(2)
        eventually(lambda: front.queued() == 3, "the others wait in HAProxy")
        server.signal(signal.SIGTTIN)
        gate.announcement()
        front.says("a", "UP", 3)
        assert front.queued() == 2
        gate.open()


def test_a_deploy_loses_nothing(serve: Serve, before: Before, clock: Clock) -> None:
    with row_of_ports(2) as port:
        agent = ("--agent", f"{LOOPBACK}:{port + 1}", "--keep-alive", "1000", "--drain-delay", str(DELAY_S))
        bind = f"{LOOPBACK}:{port}"
        a = serve("hello:app", "-w", "2", *agent, bind=bind, env=clock.environment)
        front = before(a=a, b=serve("hello:app", "-w", "2", *AGENT))
        for name in "ab":
            front.says(name, "UP", 2)
        with Steady([front.address]) as load:
            load.more()
            a.signal(signal.SIGTERM)
            front.says("a", "DRAIN (agent)", 2)
            load.more()
            clock.advance(DELAY_S)
            assert a.exit_code() == 0
            load.more()
            serve("hello:app", "-w", "3", *agent, bind=bind)
            front.says("a", "UP", 3)
            load.more()
        load.assert_no_failure()
