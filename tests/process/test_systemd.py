"""A service manager that passes sockets, and gets notifications."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import manager, processes
from support.address import Address
from support.manager import Ear
from support.server import Serve

pytestmark = pytest.mark.own("gunicorn says less, and does not name sockets")

EXIT_CANNOT_BIND = 5


def body(address: Address, path: str = "/") -> bytes:
    with address.connect() as sock:
        sock.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        return sock.makefile("rb").read().partition(b"\r\n\r\n")[2]


@pytest.fixture
def tcp() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def ear(tmp_path: Path) -> Iterator[Ear]:
    with manager.listening(tmp_path) as ear:
        yield ear


@pytest.mark.privileges
def test_passed_sockets_are_served(serve: Serve, tmp_path: Path, tcp: socket.socket) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(path))
        unix.listen()
        options = manager.passing([tcp, unix])
        options["env"] = {"LISTEN_FDS": "2", "LISTEN_FDNAMES": "web:local"}
        server = serve("hello:app", **options)
        tcp.close()
        assert server.addresses[0].port
        assert [body(address) for address in server.addresses] == [b"hello\n", b"hello\n"]
        assert "descriptor 3 (web)" in server.log.text()
        assert "descriptor 4 (local)" in server.log.text()
        server.process.terminate()
        assert server.exit_code() == 0
    assert path.is_socket(), "the file is the service manager's"


def test_programs_of_the_app_do_not_see_the_variables(serve: Serve, tcp: socket.socket) -> None:
    server = serve("surroundings:app", **manager.passing([tcp]))
    variables = json.loads(body(server.address, "/variables"))
    assert [line for line in variables if line.startswith("LISTEN_")] == []


def test_a_bind_is_said_not_to_count(serve: Serve, tcp: socket.socket) -> None:
    options = manager.passing([tcp]) | {"bind": "127.0.0.1:1"}
    server = serve("hello:app", **options)
    [warning] = server.log.matches("bind is not used.*127.0.0.1:1$")
    assert "WARNING" in warning.string
    assert len(server.addresses) == 1


def test_sockets_for_another_process_are_left_alone(serve: Serve, tcp: socket.socket) -> None:
    options = manager.passing([tcp]) | {"bind": "127.0.0.1:0", "env": {"LISTEN_FDS": "1", "LISTEN_PID": "1"}}
    server = serve("hello:app", **options)
    assert server.address.port != tcp.getsockname()[1]
    assert "sockets were passed to process 1 and not to this one" in server.log.text()


def test_a_reload_keeps_them_whatever_bind_says(serve: Serve, tcp: socket.socket) -> None:
    server = serve("hello:app", **manager.passing([tcp]))
    mark = server.log.mark()
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded: ", mark)
    assert body(server.address) == b"hello\n"


@pytest.mark.privileges
def test_an_upgrade_keeps_them_and_moves_the_main_process(serve: Serve, tmp_path: Path, ear: Ear) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(path))
        unix.listen()
        options = manager.passing([unix])
        options["env"] = {"LISTEN_FDS": "1", "NOTIFY_SOCKET": str(ear.path)}
        server = serve("hello:app", **options)
        old = server.pid
        server.signal(signal.SIGUSR2)
        new = int(ear.wait("MAINPID="))
        server.follow(new)
        processes.gone(old)
        unix.close()
        assert body(server.address) == b"hello\n"
        server.signal(signal.SIGTERM)
        processes.gone(new)
    assert path.is_socket(), "the file is the service manager's still"


def test_what_is_no_listener_is_named(build: Serve) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(("127.0.0.1", 0))
        options = manager.passing([datagrams])
        server = build("hello:app", **options).launch()
        assert server.exit_code() == EXIT_CANNOT_BIND
    server.log.wait_end()
    assert "descriptor 3 of the service manager: not a stream socket" in server.log.text()


def test_nonsense_in_the_variables_is_refused(build: Serve, tcp: socket.socket) -> None:
    options = manager.passing([tcp]) | {"env": {"LISTEN_FDS": "many"}}
    server = build("hello:app", **options).launch()
    assert server.exit_code() == EXIT_CANNOT_BIND
    server.log.wait_end()
    assert "LISTEN_FDS is 'many'" in server.log.text()


@pytest.mark.privileges
def test_the_manager_is_told_what_happens(serve: Serve, ear: Ear) -> None:
    server = serve("hello:app", env={"NOTIFY_SOCKET": str(ear.path)})
    ear.wait("READY=1")
    assert body(server.address) == b"hello\n"
    server.signal(signal.SIGHUP)
    ear.wait("RELOADING=1")
    assert int(ear.wait("MONOTONIC_USEC=")) > 0
    ear.wait("READY=1")
    assert ear.wait("STATUS=")
    server.process.terminate()
    ear.wait("STOPPING=1")
    assert server.exit_code() == 0


def test_the_manager_hears_that_we_live(serve: Serve, ear: Ear) -> None:
    serve("hello:app", env={"NOTIFY_SOCKET": str(ear.path), "WATCHDOG_USEC": "200000"})
    for _ in range(3):
        ear.wait("WATCHDOG=1")


def test_a_manager_that_is_deaf_harms_no_process(serve: Serve, tmp_path: Path) -> None:
    server = serve("hello:app", env={"NOTIFY_SOCKET": str(tmp_path / "nowhere")})
    assert body(server.address) == b"hello\n"
    assert "the service manager could not be sent" in server.log.text()
