"""Socket.IO by python-socketio, with its own client: polling, WebSockets, the way from one to the other."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Queue
from typing import Any

import httpx
import pytest
import requests
import socketio

from support.asgi import all_run
from support.gate import Gate
from support.netns import Namespace
from support.nginx import Nginx
from support.patience import PATIENCE_S, eventually
from support.ports import LOOPBACK, row_of_ports
from support.reach import DIRECTLY, WAYS, behind_nginx, reached
from support.server import Serve

pytestmark = pytest.mark.own("it has servers of its own")

ASGI = ("--interface", "asgi")
POLLING, WEBSOCKET = ["polling"], ["websocket"]
UPGRADED = ["polling", "websocket"]


class Client:
    """A client of python-socketio, and the events that it heard."""

    def __init__(self, url: str, transports: list[str], name: str) -> None:
        self.heard: Queue[str] = Queue()
        session = requests.Session()
        session.trust_env = False
        self._client = socketio.Client(reconnection=False, handle_sigint=False, http_session=session)
        self._client.on("shouted", self.heard.put)
        self._client.connect(url, auth=name, transports=transports, wait_timeout=PATIENCE_S)

    def transport(self) -> str:
        return str(self._client.transport())

    def ask(self, event: str, data: object = None) -> object:
        return self._client.call(event, data, timeout=PATIENCE_S)

    def say(self, event: str, data: object) -> None:
        self._client.emit(event, data)

    def leave(self) -> None:
        """End a polling client by the server: `disconnect` would wait for the end of a request that waits for news."""
        if self.transport() == "polling":
            self.say("bye", None)
            self._client.wait()
        else:
            self._client.disconnect()


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    made = Namespace()
    yield made
    made.remove()


@pytest.mark.parametrize("way", WAYS)
def test_by_each_transport(serve: Serve, gate: Gate, tmp_path: Path, way: str) -> None:
    """One worker: all that come are in one process, and hear each other whichever way they came."""

    def talk(url: str) -> None:
        with ExitStack() as stack:
            clients = [Client(url, transports, transports[-1]) for transports in (POLLING, WEBSOCKET, UPGRADED)]
            for client in clients:
                stack.callback(client.leave)
            assert [client.transport() for client in clients] == ["polling", "websocket", "websocket"]
            names = [client.ask("who") for client in clients]
            assert [name for name, _ in names] == ["polling", "websocket", "websocket"]
            for client in clients:
                assert client.ask("turn", bytes(range(256)) * 1000) == (bytes(range(256)) * 1000)[::-1]
                client.say("shout", "hello")
                assert [each.heard.get(timeout=PATIENCE_S) for each in clients] == ["HELLO"] * 3
            with pytest.raises(socketio.exceptions.ConnectionError):
                Client(url, WEBSOCKET, "a stranger")
        assert gate.announcements(3) == ["left"] * 3

    with reached(way, serve, tmp_path, "frameworks.socketio:app", *ASGI, env=gate.environment) as here:
        here.run(lambda: talk(here.http))


def test_of_several_workers_a_websocket_stays_with_one_and_polling_does_not(
    serve: Serve, gate: Gate, tmp_path: Path
) -> None:
    """A session of Socket.IO is in the process that began it. Each request of polling goes to a worker that is free."""

    def talk(url: str) -> None:
        clients: list[Client] = []
        homes: list[Any] = []

        def begin() -> int:
            clients.append(Client(url, WEBSOCKET, f"client {len(clients)}"))
            homes.append(clients[-1].ask("who"))
            return int(homes[-1][1])

        all_run(begin, 2, least=6)
        assert [name for name, _ in homes] == [f"client {number}" for number in range(len(clients))]
        assert [client.ask("who") for client in clients] == homes
        for client in clients:
            client.leave()
        with httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False) as polling:
            where = {"EIO": "4", "transport": "polling"}
            where["sid"] = json.loads(polling.get("/socket.io/", params=where).text[1:])["sid"]

            def is_unknown() -> bool:
                """A PONG means nothing here, so that it matters only which worker takes it."""
                answer = polling.post("/socket.io/", params=where, content="3")
                assert answer.status_code in (200, 400)
                return answer.status_code == 400 and "session" in answer.text

            eventually(is_unknown, "the other worker is asked")

    with reached(DIRECTLY, serve, tmp_path, "frameworks.socketio:app", *ASGI, "-w", "2", env=gate.environment) as here:
        talk(here.http)


@behind_nginx
def test_nginx_keeps_each_client_with_one_worker(
    serve: Serve, gate: Gate, namespace: Namespace, tmp_path: Path
) -> None:
    """Clients use the ports of workers, as docs/asynchronous-apps.md says: then polling works with several workers."""
    with row_of_ports(2) as base:
        upstream = f"{LOOPBACK}:{base} max_fails=0; server {LOOPBACK}:{base + 1}"
        changes = {"keepalive 64;": "hash $remote_addr; keepalive 64;"}
        arguments = (*ASGI, "-w", "2", "--worker-port-base", str(base))
        nginx = Nginx(tmp_path / "nginx", upstream, namespace, changes)
        try:
            serve("frameworks.socketio:app", *arguments, prefix=namespace.prefix, env=gate.environment)

            def talk() -> None:
                for transports in (POLLING, UPGRADED):
                    client = Client("http://127.0.0.1", transports, "client")
                    assert client.transport() == transports[-1]
                    homes = [client.ask("who") for _ in range(10)]
                    assert homes == [homes[0]] * 10
                    client.leave()

            namespace.run(talk)
        finally:
            nginx.stop()
    assert gate.announcements(2) == ["left"] * 2
