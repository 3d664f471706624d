"""Sockets that the process holds which starts the server: they outlive it, and the next server serves their queue."""

import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support import manager, processes
from support.address import Address
from support.patience import eventually
from support.server import Serve, Server
from support.steady import Steady
from support.wire import Wire

pytestmark = pytest.mark.own("gunicorn closes and resets what it has not accepted")

EXIT_APP_NOT_LOADED = 4
DOES_NOT_START = b"503 Service Unavailable: the application does not start\n"
STATUSES = {signal.SIGTERM: (200,), signal.SIGQUIT: (200, 503), signal.SIGKILL: (200, 503)}
"""The statuses that a client may get from a server that is ended so."""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[list[socket.socket]]:
    """Listening sockets, one of each family that the machine has."""
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(tmp_path / "s"))
    sockets = [unix, socket.create_server(("127.0.0.1", 0))]
    if socket.has_dualstack_ipv6():
        sockets.append(socket.create_server(("::1", 0), family=socket.AF_INET6))
    for sock in sockets:
        sock.listen(64)
    yield sockets
    for sock in sockets:
        sock.close()


def addresses(sockets: list[socket.socket]) -> list[Address]:
    names = [sock.getsockname() for sock in sockets]
    return [Address(path=name) if isinstance(name, str) else Address(*name[:2]) for name in names]


def activated(sockets: list[socket.socket]) -> tuple[list[str], dict[str, object]]:
    """Sockets passed as systemd passes them."""
    return [], manager.passing(sockets)


def named(sockets: list[socket.socket]) -> tuple[list[str], dict[str, object]]:
    """Sockets passed as circus and supervisors of its kind pass them."""
    binds = [word for sock in sockets for word in ("--bind", f"fd://{sock.fileno()}")]
    return binds, {"bind": None, "pass_fds": tuple(sock.fileno() for sock in sockets)}


@pytest.mark.parametrize("number", STATUSES, ids=lambda number: number.name)
@pytest.mark.parametrize("passed", [activated, named], ids=lambda passed: passed.__name__)
def test_servers_in_turn_answer_every_client(
    serve: Serve, held: list[socket.socket], passed: object, number: signal.Signals
) -> None:
    with Steady(addresses(held), keep_alive=(False,), fine=STATUSES[number]) as load:
        for _ in range(3):
            load.all_wait()
            arguments, options = passed(held)  # type: ignore[operator]
            server = serve("hello:app", "-w", "2", *arguments, **options)
            load.more()
            server.signal(number)
            server.exit_code()
            eventually(lambda server=server: not server.processes(), "all of it leave")  # type: ignore[misc]
        load.all_wait()
        arguments, options = passed(held)  # type: ignore[operator]
        serve("hello:app", *arguments, **options)
        load.more()
    load.assert_no_failure()


@pytest.mark.parametrize("interface", ["auto", "wsgi", "asgi"])
@pytest.mark.parametrize("passed", [activated, named], ids=lambda passed: passed.__name__)
def test_clients_of_an_app_that_cannot_be_imported_get_503_while_it_is_broken(
    build: Serve, held: list[socket.socket], passed: object, interface: str
) -> None:
    """This holds also where the server does not know the app's interface yet, and before the app is corrected."""
    for _ in range(2):
        with ExitStack() as stack:
            wires = [stack.enter_context(Wire.connect(address)) for address in addresses(held) for _ in range(3)]
            for wire in wires:
                wire.send(b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
            arguments, options = passed(held)  # type: ignore[operator]
            server: Server = build("imports.broken:app", "--interface", interface, *arguments, **options).launch()
            assert server.exit_code() == EXIT_APP_NOT_LOADED
            answers = [wire.response() for wire in wires]
            assert {(answer.status, answer.body) for answer in answers} == {(503, DOES_NOT_START)}
            assert all(int(answer.header("retry-after") or 0) > 0 for answer in answers)
            server.log.wait(f"requests arrived={len(wires)} refused_app_not_started={len(wires)}$")


def reload(server: Server) -> None:
    mark = server.log.mark()
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded: ", mark)


def upgrade(server: Server) -> None:
    mark, old = server.log.mark(), server.pid
    server.signal(signal.SIGUSR2)
    server.follow(int(server.log.wait(r"upgraded: the new master (\d+) serves", mark)[1]))
    processes.gone(old)


@pytest.mark.parametrize("deploy", [reload, upgrade], ids=lambda deploy: deploy.__name__)
def test_one_that_a_deploy_drops_is_the_next_servers(
    serve: Serve, held: list[socket.socket], tmp_path: Path, deploy: object
) -> None:
    arguments, options = named(held)
    config = tmp_path / "shop.py"
    binds = [word for word in arguments if word != "--bind"]
    config.write_text(f"bind = {binds}\n")
    server = serve("hello:app", "-c", str(config), **options)
    with Steady(addresses(held), keep_alive=(False,)) as load:
        load.more()
        config.write_text(f"bind = {binds[:1]}\n")
        deploy(server)  # type: ignore[operator]
        second, options = named(held[1:])
        serve("hello:app", *second, **options)
        load.more()
    load.assert_no_failure()


@pytest.mark.privileges
def test_an_upgraded_server_leaves_them_too(serve: Serve, held: list[socket.socket]) -> None:
    with Steady(addresses(held), keep_alive=(False,)) as load:
        server = serve("hello:app", **manager.passing(held))
        load.more()
        upgrade(server)
        load.more()
        server.signal(signal.SIGTERM)
        eventually(lambda: not server.processes(), "all of it leave")
        load.all_wait()
        serve("hello:app", **manager.passing(held))
        load.more()
    load.assert_no_failure()
