"""Options of listeners, addresses in use, and what becomes of listeners at a reload."""

import os
import shutil
import signal
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from support.address import Address
from support.patience import eventually
from support.server import Serve, Server

pytestmark = pytest.mark.own("options of listeners are Unicorn's")

EXIT_USAGE = 2
EXIT_CANNOT_BIND = 5
EXIT_BOOT_FAILED = 3
EXIT_INTERNAL = 1
RELOADED = r"listening at"

needs_ss = pytest.mark.skipif(not shutil.which("ss"), reason="ss (iproute2) is not installed")


def answer(address: Address) -> bytes:
    with address.connect() as sock:
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return sock.makefile("rb").read()


def assert_hello(address: Address) -> None:
    assert answer(address).endswith(b"hello\n")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def reload(server: Server) -> int:
    """Send HUP; gives the place in the log from which to look for what follows."""
    mark = server.log.mark()
    server.signal(signal.SIGHUP)
    return mark


def backlog(port: int) -> str:
    shown = subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True, check=True)
    return shown.stdout.split()[2]


@needs_ss
def test_options_follow_the_address(serve: Serve) -> None:
    server = serve("hello:app", "--backlog", "9", bind="127.0.0.1:0?backlog=64&keepalive=false")
    assert backlog(server.address.port) == "64"
    assert_hello(server.address)


@needs_ss
def test_options_may_stand_in_a_dict(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "c.py"
    file.write_text("bind = ['127.0.0.1:0', {'address': '127.0.0.1:0', 'backlog': 65}]\nbacklog = 66\n")
    server = serve("hello:app", "-c", str(file), bind=None)
    assert [backlog(address.port) for address in server.addresses] == ["66", "65"]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ("backlogs=1", "there is no option 'backlogs'"),
        ("tries=never", "tries is a whole number >= 1, or -1 for ever"),
        ("mode=0600", "mode is an option of unix:PATH"),
    ],
)
def test_a_slip_in_an_option_is_one_line(build: Serve, options: str, part: str) -> None:
    server = build("hello:app", bind=f"127.0.0.1:0?{options}").launch()
    assert server.exit_code() == EXIT_USAGE
    server.log.wait_end()
    [line] = server.log.lines()
    assert part in line


def test_an_address_in_use_is_waited_for(build: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        port = somebody.getsockname()[1]
        server = build("hello:app", bind=f"127.0.0.1:{port}?tries=-1&delay=0.05").launch()
        server.log.wait(r"in use, trying again")
    server.log.wait(server.kind.ready)
    assert_hello(Address(host="127.0.0.1", port=port))
    assert len(server.log.matches("trying again")) == 1


def test_tries_that_are_used_up(build: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        port = somebody.getsockname()[1]
        server = build("hello:app", bind=f"127.0.0.1:{port}?tries=3&delay=0.05").launch()
        assert server.exit_code() == EXIT_CANNOT_BIND
    server.log.wait_end()
    assert "another server listens there" in server.log.text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_waiting_for_an_address_can_be_called_off(build: Serve, tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "s"
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        port = somebody.getsockname()[1]
        server = build("hello:app", "--bind", f"127.0.0.1:{port}?tries=-1&delay=60", bind=f"unix:{path}").launch()
        server.log.wait(r"in use, trying again")
        server.signal(number)
        assert server.exit_code() == 0
    assert not path.exists(), "the listener before it has left its file"


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("--pid", "{folder}/alive.pid"), EXIT_USAGE, "the pid file .* names process"),
        (("--control", "unix:{folder}/nowhere/c"), EXIT_CANNOT_BIND, "cannot listen for commands at --control"),
        (("--config", "{folder}/raises.py"), EXIT_BOOT_FAILED, "the hook on_starting"),
        (("--tmp-upload-dir", "{folder}/nowhere"), EXIT_INTERNAL, "the kernel refused what the server needs"),
    ],
    ids=["pid file", "control socket", "hook", "spool"],
)
def test_a_start_that_fails_later_leaves_no_socket_file(
    build: Serve, tmp_path: Path, arguments: tuple[str, ...], code: int, why: str
) -> None:
    path = tmp_path / "s"
    (tmp_path / "alive.pid").write_text(f"{os.getpid()}\n")
    (tmp_path / "raises.py").write_text("def on_starting(server):\n    raise RuntimeError('no')\n")
    arguments = tuple(one.format(folder=tmp_path) for one in arguments)
    server = build("hello:app", *arguments, bind=f"unix:{path}").launch()
    assert server.exit_code() == code
    server.log.wait(why)
    server.log.wait("listening at")
    assert not path.exists()


@pytest.mark.privileges
def test_only_owner_and_group_may_connect_unless_asked(serve: Serve, tmp_path: Path) -> None:
    for umask, modes in (((), [0o660, 0o600]), (("--umask", "0"), [0o777, 0o600])):
        paths = [tmp_path / f"{name}{len(umask)}" for name in ("app", "admin")]
        server = serve("hello:app", "--admin", f"unix:{paths[1]}", *umask, bind=f"unix:{paths[0]}")
        assert [mode(path) for path in paths] == modes
        # No proxy comes to the admin listener.
        told = server.log.matches("(its owner.*) and root may connect to unix:.*; for (.*) add .mode=0660&group=GROUP")
        by_default = [
            ("its owner and its group", "a proxy that runs as another user"),
            ("its owner", "other operators"),
        ]
        assert [found.groups() for found in told] == ([] if umask else by_default)
    asked = tmp_path / "asked"
    server = serve("hello:app", "--admin", f"unix:{asked}?mode=0666")
    assert mode(asked) == 0o666
    assert "may connect" not in server.log.text()


@pytest.mark.privileges
def test_who_may_connect_is_the_mode_of_the_file(serve: Serve, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    more = ["--bind", f"unix:{paths[1]}?umask=077", "--bind", f"unix:{paths[2]}"]
    serve("hello:app", *more, "--umask", "007", bind=f"unix:{paths[0]}?mode=0604")
    assert [mode(path) for path in paths] == [0o604, 0o700, 0o770]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_whose_the_file_is(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "s"
    serve("hello:app", bind=f"unix:{path}?owner=65534&group=65533")
    assert (path.stat().st_uid, path.stat().st_gid) == (65_534, 65_533)


def test_two_servers_may_share_a_port(serve: Serve) -> None:
    first = serve("hello:app", "--reuse-port")
    second = serve("hello:app", bind=f"127.0.0.1:{first.address.port}?reuseport=true")
    first.process.terminate()
    first.exit_code()
    assert_hello(second.address)


@pytest.mark.privileges
def test_a_reload_keeps_opens_and_closes(serve: Serve, tmp_path: Path) -> None:
    old, new, file = tmp_path / "old", tmp_path / "new", tmp_path / "c.py"
    file.write_text(f"bind = ['127.0.0.1:0', 'unix:{old}']\n")
    server = serve("hello:app", "-c", str(file), bind=None)
    file.write_text(f"bind = ['unix:{new}', {{'address': '127.0.0.1:0', 'backlog': 67}}]\n")
    mark = reload(server)
    server.log.wait(f"listening at unix:{new}", mark)
    eventually(lambda: not old.exists(), "the file of the dropped listener goes")
    assert_hello(Address(path=str(new)))
    assert_hello(server.address)
    if shutil.which("ss"):
        assert backlog(server.address.port) == "67"


def test_a_socket_file_that_is_gone_is_made_anew(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "s"
    server = serve("hello:app", bind=f"unix:{path}")
    path.unlink()
    mark = reload(server)
    server.log.wait(f"(?<!still )listening at unix:{path}", mark)
    eventually(lambda: path.is_socket(), "there is a socket again")
    assert_hello(server.address)


def test_a_reload_that_cannot_bind_changes_nothing(serve: Serve, tmp_path: Path) -> None:
    path, made, file = tmp_path / "s", tmp_path / "made", tmp_path / "c.py"
    file.write_text(f"bind = 'unix:{path}'\n")
    server = serve("hello:app", "-c", str(file), bind=None)
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        port = somebody.getsockname()[1]
        file.write_text(f"bind = ['unix:{path}', 'unix:{made}', '127.0.0.1:{port}?tries=-1']\n")
        mark = reload(server)
        server.log.wait(f"cannot listen on 127.0.0.1:{port}", mark)
    assert not made.exists()
    assert_hello(server.address)
