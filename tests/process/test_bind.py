"""Where a server can listen, and what it does when it cannot."""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from support.address import Address
from support.patience import PATIENCE_S
from support.server import Serve, Server

EXIT_CANNOT_BIND = 5


def assert_hello(server: Server, count: int = 1) -> None:
    assert len(server.addresses) == count
    for number, address in enumerate(server.addresses):
        with Address.connect(address) as sock:
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert sock.makefile("rb").read().endswith(b"hello\n"), number


@pytest.mark.privileges
def test_host_and_port(serve: Serve) -> None:
    assert_hello(serve("hello:app", bind="127.0.0.1:0"))


def test_a_host_name(serve: Serve) -> None:
    assert_hello(serve("hello:app", bind="localhost:0"))


def test_ipv6(serve: Serve) -> None:
    server = serve("hello:app", bind="[::1]:0")
    assert server.address.host == "::1"
    assert_hello(server)


def test_a_unix_path(serve: Serve, tmp_path: Path) -> None:
    assert_hello(serve("hello:app", bind=f"unix:{tmp_path}/s"))


@pytest.mark.own("gunicorn makes a file of that name")
def test_a_unix_name_in_the_abstract_namespace(serve: Serve) -> None:
    name = f"@stanchion-test-{os.getpid()}-{time.monotonic_ns()}"
    server = serve("hello:app", bind=f"unix:{name}")
    assert server.address == Address(path=name)
    assert_hello(server)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
@pytest.mark.privileges
def test_a_descriptor_from_the_parent(serve: Serve, tmp_path: Path, family: socket.AddressFamily) -> None:
    with socket.socket(family) as listener:
        listener.bind(("127.0.0.1", 0) if family == socket.AF_INET else f"{tmp_path}/s")
        listener.listen()
        server = serve("hello:app", bind=f"fd://{listener.fileno()}", pass_fds=(listener.fileno(),))
        assert_hello(server)


def test_several_at_once(serve: Serve, tmp_path: Path) -> None:
    server = serve("hello:app", "--bind", "[::1]:0", "--bind", f"unix:{tmp_path}/s")
    assert_hello(server, 3)


@pytest.mark.own("gunicorn takes the path without asking")
def test_a_unix_socket_that_another_process_listens_on_is_not_stolen(build: Serve, tmp_path: Path) -> None:
    path = f"{tmp_path}/s"
    with socket.socket(socket.AF_UNIX) as somebody:
        somebody.bind(path)
        somebody.listen()
        server = build("hello:app", bind=f"unix:{path}").launch()
        assert server.exit_code() == EXIT_CANNOT_BIND
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            somebody.settimeout(PATIENCE_S)
            # The server may have connected to see whether a process listens there.
            somebody.accept()[0].close()


@pytest.mark.privileges
def test_a_stale_unix_socket_is_replaced(serve: Serve, tmp_path: Path) -> None:
    path = f"{tmp_path}/s"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(path)
    assert_hello(serve("hello:app", bind=f"unix:{path}"))


@pytest.mark.own("gunicorn removes whatever is there")
def test_a_file_that_is_no_socket_is_left_alone(build: Serve, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("data")
    server = build("hello:app", bind=f"unix:{precious}").launch()
    assert server.exit_code() == EXIT_CANNOT_BIND
    assert precious.read_text() == "data"


@pytest.mark.privileges
def test_the_unix_path_is_removed_in_the_end(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "s"
    server = serve("hello:app", bind=f"unix:{path}")
    assert path.is_socket()
    assert_hello(server)
    server.process.terminate()
    server.exit_code()
    assert not path.exists()


@pytest.mark.own("gunicorn retries for five seconds")
def test_a_port_in_use_is_one_clear_line_and_its_exit_code(build: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        port = somebody.getsockname()[1]
        server = build("hello:app", bind=f"127.0.0.1:{port}").launch()
        assert server.exit_code() == EXIT_CANNOT_BIND
    server.log.wait_end()
    [line] = [line for line in server.log.lines() if f":{port}" in line]
    assert "in use" in line
    assert "Traceback" not in server.log.text()


def test_port_of_the_environment(serve: Serve) -> None:
    server = serve("hello:app", bind=None, env={"PORT": "0"})
    assert server.address.host == "0.0.0.0"
    assert_hello(server)


@pytest.mark.parametrize("bind", ["127.0.0.1:99999", "127.0.0.1:http", "unix:", "fd://x"])
@pytest.mark.own("exit codes are each server's own")
def test_an_address_that_makes_no_sense_is_bad_usage(build: Serve, bind: str) -> None:
    server = build("hello:app", bind=bind).launch()
    assert server.exit_code() == 2
    server.log.wait_end()
    assert bind in server.log.text()


@pytest.mark.skipif(not shutil.which("ss"), reason="ss (iproute2) is not installed")
def test_the_backlog_reaches_the_kernel(serve: Serve) -> None:
    server = serve("hello:app", "--backlog", "77")
    command = ["ss", "-Hltn", f"sport = :{server.address.port}"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout.split()[2] == "77", "Send-Q of a listening socket is its backlog, ss(8)"


@pytest.mark.own("gunicorn says it in other words")
def test_a_directory_that_is_not_there_is_named(build: Serve, tmp_path: Path) -> None:
    server = build("hello:app", bind=f"unix:{tmp_path}/run/stanchion.sock").launch()
    assert server.exit_code() == EXIT_CANNOT_BIND
    server.log.wait_end()
    [line] = server.log.matches(r"cannot listen on unix:\S+: No such file or directory.*")
    assert f"the directory {tmp_path}/run does not exist" in line[0]
