"""The backlog that a running stanchion has asked for, as its status says: its command line does not always show it."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from stanchion.doctor import admin, servers
from stanchion.doctor.facts import Listener, Owner, Silence
from stanchion.doctor.settings import Settings
from stanchion.top import source, status
from support.doctor import Liar, Said, doctor, facts, listening, network, owner, tcp, unix
from support.manager import passing
from support.patience import PATIENCE_S, eventually
from support.server import Serve

pytestmark = pytest.mark.own("the doctor is ours")

# 128 is what many a kernel makes of 2048: from the socket alone it looks like a backlog that was cut.
BACKLOG = 128


def said_of(serve: Serve, home: Path, told: str, *arguments: str, **variables: str) -> tuple[dict[str, object], int]:
    """The doctor's entry of a server with this config file; and the server's pid."""
    (home / "conf.py").write_text(f"backlog = {BACKLOG}\n{told}\n")
    server = serve("hello:app", "-c", str(home / "conf.py"), *arguments, env=variables)
    has_admin = "admin" in f"{told} {arguments} {variables}"
    found: dict[str, object] = {}

    def is_told() -> bool:
        """It waits a second at most for each server, and five for all that are here, which a busy machine may take."""
        found.update(doctor("--this-one", "--json").listener(f"{server.address.host}:{server.address.port}"))
        return not has_admin or found["asked_by"] != "the default of stanchion"

    eventually(is_told, "the server has said it in time", 3 * PATIENCE_S)
    return found, server.pid


def test_a_server_tells_what_its_config_file_asks_for(serve: Serve, tmp_path: Path) -> None:
    at = f"unix:{tmp_path}/admin.sock"
    listener, pid = said_of(serve, tmp_path, f"admin = {at!r}")
    assert (listener["backlog"], listener["backlog_asked"]) == (BACKLOG, BACKLOG)
    assert listener["asked_by"] == f"/status of process {pid} at {at}"


def test_the_admin_listener_may_be_told_in_other_ways(serve: Serve, tmp_path: Path) -> None:
    at = f"unix:{tmp_path}/admin.sock"
    assert said_of(serve, tmp_path, "", "--admin", at)[0]["backlog_asked"] == BACKLOG
    at = f"{free_address()}?backlog=9"
    assert said_of(serve, tmp_path, "", STANCHION_CMD_ARGS=f"--admin={at}")[0]["backlog_asked"] == BACKLOG


def test_a_socket_of_systemd_is_one_of_clients_and_is_not_asked(serve: Serve, tmp_path: Path) -> None:
    at = f"unix:{tmp_path}/admin.sock"
    with socket.create_server(("127.0.0.1", 0)) as passed:
        server = serve("hello:app", "--admin", at, **passing([passed]))
        port = passed.getsockname()[1]
    seen: list[Said] = []

    def is_asked() -> bool:
        seen.append(doctor("--this-one", "--json"))
        return str(server.pid) in seen[-1].data["facts"]["servers"]

    eventually(is_asked, "the server has said it in time", 3 * PATIENCE_S)
    said_by_server = seen[-1].data["facts"]["servers"][str(server.pid)]
    assert said_by_server["admin"] == at
    assert said_by_server["causes"]["verdict"] == "unknown", "no request was measured"
    assert seen[-1].listener(f"127.0.0.1:{port}")["owners"][0]["pid"] == server.pid
    said = status.parse(source.status(source.place(at)))
    assert said.requests["arrived"] == 0, "the app has been asked nothing"


def test_without_an_admin_listener_it_is_guessed(serve: Serve, tmp_path: Path) -> None:
    listener, _ = said_of(serve, tmp_path, "")
    assert (listener["backlog_asked"], listener["asked_by"]) == (2048, "the default of stanchion")


def free_address() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return "127.0.0.1:{1}".format(*sock.getsockname())


@pytest.fixture
def at(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def liar(at: Path) -> Iterator[Liar]:
    made = Liar(at, b"HTTP/1.1 200 OK\r\n\r\n{}")
    yield made
    made.close()


def told(at: str) -> Settings:
    return Settings({"admin": at, "control": None}, {}, frozenset())


STANCHION = (owner("stanchion", 7),)
GUESSED = tcp(backlog=BACKLOG, owners=STANCHION, backlog_asked=2048, asked_by="the default of stanchion")


def test_what_is_no_status_is_not_believed_and_said(liar: Liar, at: Path) -> None:
    seen = facts(network(GUESSED, unix(address=str(at), owners=STANCHION)))
    after = admin.with_status(seen, lambda _: told(f"unix:{at}"))
    assert after.networks == seen.networks
    assert after.not_looked_at == ("what process 7 says at its admin listener: the answer has no 'server'",)
    assert after.silent == {}, "it does answer"
    assert liar.sent.startswith(b"GET /status ")


def test_who_does_not_answer_is_not_waited_for(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "PATIENCE_S", 0.1)
    with listening(at):
        seen = facts(network(GUESSED, unix(address=str(at), owners=STANCHION)))
        after = admin.with_status(seen, lambda _: told(f"unix:{at}"))
    assert after.networks == seen.networks
    error = f"no whole answer from unix:{at} within 0.1 s"
    assert after.not_looked_at[0].endswith(error)
    assert after.silent == {7: Silence(error, None)}
    [found] = servers.findings(after)
    assert (found.code, found.severity) == ("acceptor-silent", "warning")
    assert "$ ps -o pid,stat,pcpu,wchan:20,args --ppid 7" in found.now


def test_no_server_is_found_silent_that_was_given_no_time(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have used it up."""
    monkeypatch.setattr(admin, "ALL_S", 0.1)
    with listening(at):
        seen = facts(network(GUESSED, unix(address=str(at), owners=STANCHION)))
        after = admin.with_status(seen, lambda _: told(f"unix:{at}"))
    assert len(after.not_looked_at) == 1
    assert after.silent == {}


@pytest.mark.parametrize("owners", [(), (owner("redis-server", 8),), (owner("stanchion", 8),)])
def test_nothing_is_sent_to_a_socket_of_anybody_else(liar: Liar, at: Path, owners: tuple[Owner, ...]) -> None:
    seen = facts(network(GUESSED, unix(address=str(at), owners=owners)))
    assert admin.with_status(seen, lambda pid: told(f"unix:{at}") if pid == 7 else None) == seen
    assert liar.sent == b""


@pytest.mark.parametrize(
    ("listeners", "setting"),
    [
        # The address is the server's own: it would be a request to the app.
        ((GUESSED,), None),
        # The path is relative to the server's directory, which is not ours.
        ((GUESSED, unix(address="s", owners=STANCHION)), "unix:s"),
        ((GUESSED,), "127.0.0.1:81"),
        # Another process listens at a part of it.
        ((GUESSED, tcp(address="0.0.0.0:81", owners=STANCHION), tcp(address="127.0.0.1:81")), "0.0.0.0:81"),
    ],
)
def test_an_admin_listener_that_is_not_surely_its_own_is_left_alone(
    listeners: tuple[Listener, ...], setting: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin.source, "status", lambda *_: pytest.fail("asked"))
    seen = facts(network(*listeners))
    assert admin.with_status(seen, lambda _: told(setting) if setting else None) == seen
