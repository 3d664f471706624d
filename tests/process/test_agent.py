"""The agent listener tells balancers how many requests the server takes at once, and whether it wants new ones."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support import processes
from support.address import Address
from support.clock import Clock
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.server import Serve, Server
from support.websocket import WebSocket
from support.wire import request

pytestmark = pytest.mark.own("gunicorn has no such listener")

STARTING = "down #the server is starting\n"
OTHER = "127.0.0.2:0"
"""Not the address of bind."""
NO_WORKER = "down #no worker is there\n"
DELAY_S = 100
PATIENT = ("--timeout", "0", "--queue-timeout", "1000")


def up(seats: int) -> str:
    return f"up ready maxconn:{seats}\n"


@pytest.fixture
def agent(tmp_path: Path) -> Address:
    return Address(path=f"{tmp_path}/agent.sock")


def by(agent: Address, *more: str) -> tuple[str, ...]:
    return ("--agent", f"unix:{agent.path}", *more)


def told(agent: Address, text: bytes = b"") -> str:
    with agent.connect() as sock:
        sock.sendall(text)
        return rest(sock)


def rest(sock: socket.socket) -> str:
    """All that comes until the server closes."""
    heard = b""
    while part := sock.recv(4096):
        heard += part
    return heard.decode()


def tells(agent: Address, line: str) -> None:
    eventually(lambda: told(agent) == line, f"the agent says {line!r}")


@contextmanager
def no_successors(server: Server) -> Iterator[None]:
    """The template forks no worker meanwhile."""
    [template] = server.of_name("stanchion-tmpl")
    with processes.standing_still(template):
        yield


def reload(server: Server) -> None:
    mark = server.log.mark()
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded", mark)


@pytest.mark.parametrize("address", [OTHER, "unix"])
def test_a_server_that_serves_promises_its_seats(serve: Serve, tmp_path: Path, address: str) -> None:
    given = f"unix:{tmp_path}/agent.sock" if address == "unix" else address
    server = serve("hello:app", "-w", "2", "--threads", "3", "--agent", given)
    server.log.wait(r"listening at \S+ for balancers \(agent\)")
    agent = server.addresses[1]
    # Threads take their seats just after their worker is ready.
    tells(agent, up(6))
    assert told(agent, b"shop 2\n") == up(6), "a text of agent-send changes nothing"
    for number, seats in ((signal.SIGTTIN, 9), (signal.SIGTTOU, 6), (signal.SIGWINCH, 0), (signal.SIGHUP, 6)):
        server.signal(number)
        tells(agent, up(seats) if seats else NO_WORKER)


def test_a_server_that_starts_is_down(build: Serve, gate: Gate, agent: Address, tmp_path: Path) -> None:
    (tmp_path / "kind").write_text("wsgi")
    environment = gate.environment | {"KIND": str(tmp_path / "kind")}
    server = build("imports.loaded:app", *by(agent), env=environment).launch()
    gate.announcement()
    eventually(lambda: os.path.exists(agent.path), "it listens")
    assert told(agent) == STARTING
    gate.open()
    tells(agent, up(1))
    assert server.process.poll() is None


def test_it_tells_of_no_queue_and_answers_while_all_workers_hang(serve: Serve, gate: Gate, agent: Address) -> None:
    server = serve("waiting:app", "-w", "2", *by(agent, *PATIENT), env=gate.environment)
    with ExitStack() as stack:
        for number in range(40):
            stack.enter_context(server.connect()).send(request("GET", f"/wait?{number}"))
        gate.announcements(2)
        for worker in server.of_name("stanchion-work"):
            stack.enter_context(processes.standing_still(worker))
        assert [told(agent) for _ in range(50)] == [up(2)] * 50
    gate.open()


def test_a_killed_worker_takes_its_seats_along(serve: Serve, agent: Address) -> None:
    server = serve("hello:app", "-w", "3", "--threads", "2", *by(agent))
    tells(agent, up(6))
    with no_successors(server):
        server.of_name("stanchion-work")[0].kill()
        tells(agent, up(4))
    tells(agent, up(6))


def test_it_is_down_once_no_worker_has_been_there_for_a_second(serve: Serve, agent: Address, clock: Clock) -> None:
    server = serve("hello:app", "-w", "2", *by(agent), env=clock.environment)
    tells(agent, up(2))
    with no_successors(server):
        for worker in server.of_name("stanchion-work"):
            worker.kill()
        eventually(lambda: not server.of_name("stanchion-work"), "they are gone")
        # The second begins at the latest when a balancer asks.
        assert told(agent) in (up(2), up(1))
        clock.advance(2)
        tells(agent, NO_WORKER)
    tells(agent, up(2))


def test_it_drains_from_term_on(serve: Serve, gate: Gate, agent: Address, clock: Clock) -> None:
    arguments = by(agent, *PATIENT, "--drain-delay", str(DELAY_S), "--graceful-timeout", "1000")
    server = serve("waiting:app", *arguments, env=gate.environment | clock.environment)
    with server.connect() as held:
        held.send(request("GET", "/wait?held"))
        gate.announcement()
        assert told(agent) == up(1)
        server.signal(signal.SIGTERM)
        tells(agent, "drain\n")
        clock.advance(DELAY_S)
        server.log.wait("drain_delay: draining, then leaving")
        assert told(agent) == "drain\n"
        # Clients are connected still.
        assert held.silent(0.1)
        gate.open()
        assert held.response().status == 200
    assert server.exit_code() == 0
    assert not os.path.exists(agent.path)


def test_a_reload_changes_the_seats_and_an_old_generation_says_nothing(
    serve: Serve, gate: Gate, agent: Address, tmp_path: Path
) -> None:
    config = tmp_path / "shop.conf.py"
    config.write_text("threads = 2")
    server = serve("waiting:app", "-c", str(config), *by(agent, *PATIENT), env=gate.environment)
    with server.connect() as held:
        held.send(request("GET", "/wait?held"))
        gate.announcement()
        tells(agent, up(2))
        config.write_text("threads = 5")
        reload(server)
        tells(agent, up(5))
        assert [told(agent) for _ in range(20)] == [up(5)] * 20
        assert len(server.of_name("stanchion-acpt")) == 2
        gate.open()
        assert held.response().status == 200


def test_a_reload_may_bring_the_listener_and_take_it_away(serve: Serve, agent: Address, tmp_path: Path) -> None:
    config = tmp_path / "shop.conf.py"
    config.write_text("")
    server = serve("hello:app", "-c", str(config))
    config.write_text(f"agent = 'unix:{agent.path}'")
    reload(server)
    tells(agent, up(1))
    config.write_text("")
    reload(server)
    eventually(lambda: not os.path.exists(agent.path), "its file is gone")


def test_an_upgrade_keeps_it(serve: Serve, agent: Address) -> None:
    server = serve("hello:app", "-w", "2", *by(agent))
    server.signal(signal.SIGUSR2)
    heir = int(server.log.wait(r"upgraded: the new master (\d+) serves", within_s=2 * PATIENCE_S)[1])
    old = server.pid
    server.follow(heir)
    tells(agent, up(2))
    assert [told(agent) for _ in range(20)] == [up(2)] * 20
    processes.gone(old)
    assert told(agent) == up(2)


def test_a_killed_acceptor_is_followed_by_one_that_answers(serve: Serve, agent: Address) -> None:
    server = serve("hello:app", "-w", "2", *by(agent))
    tells(agent, up(2))
    acceptor = server.acceptor_by_name()
    acceptor.kill()
    # The master has the listener, so the connection waits in its queue.
    assert told(agent) == up(2)
    assert server.acceptor_by_name().pid != acceptor.pid


def test_balancers_that_stay_are_answered_and_closed(serve: Serve, agent: Address) -> None:
    serve("hello:app", *by(agent))
    tells(agent, up(1))
    with ExitStack() as stack:
        # More than the 64 that may stay.
        socks = [stack.enter_context(agent.connect()) for _ in range(100)]
        assert [rest(sock) for sock in socks] == [up(1)] * 100
        # The server closes without their help.
        for sock in socks:
            eventually(lambda sock=sock: is_closed(sock), "it is closed")


def is_closed(sock: socket.socket) -> bool:
    try:
        sock.sendall(b"x")
    except (BrokenPipeError, ConnectionResetError):
        return True
    return False


def test_a_websocket_is_promised_besides_the_seats(serve: Serve, agent: Address) -> None:
    """A balancer counts it among its requests, but it takes no seat."""
    server = serve("sockets:app", "--interface", "asgi", "--worker-concurrency", "3", *by(agent))
    tells(agent, up(3))
    one, other = WebSocket(server), WebSocket(server)
    tells(agent, up(5))
    one.drop()
    tells(agent, up(4))
    other.drop()
    tells(agent, up(3))


@pytest.mark.parametrize("other", ["--bind", "--admin"])
def test_it_has_an_address_of_its_own(build: Serve, tmp_path: Path, other: str) -> None:
    address = f"unix:{tmp_path}/one"
    arguments = ("--agent", address) if other == "--bind" else ("--agent", address, other, address)
    bind = address if other == "--bind" else f"unix:{tmp_path}/s"
    server = build("hello:app", *arguments, bind=bind).launch()
    assert server.exit_code() == 2
    server.log.wait(rf"`agent` is {address}, which is an address of `{other.strip('-')}` too: it needs one of its own")
