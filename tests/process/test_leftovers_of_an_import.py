"""Threads, event loops and connections that an app makes while it is imported, and that no fork brings to workers."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support.gate import Gate
from support.patience import eventually
from support.server import Serve, Server

pytestmark = pytest.mark.own("gunicorn does not preload unless told to, and then looks at nothing")

NOT_PRELOADED = r"WARNING\] the app is not preloaded, as its import left {}: "
PRELOADED_ALL_THE_SAME = r"WARNING\] the app is preloaded, as preload_app says, though its import left {}: "

RELOADED = "reloaded: generation 2 serves"
UPGRADED = r"upgraded: the new master (\d+) serves"

LEFT = {
    "thread": '1 thread: "flush"',
    "event_loop": r'1 thread: "loop"; epoll; a connection to a socket without a name \(unix\) \(2\)',
    "idle_event_loop": r"epoll; a connection to a socket without a name \(unix\) \(2\)",
    "pool": '1 thread: "pool_0"',
    "thread_from_c": r"1 thread: \d+ of libc\.so\.6",
}


def loads(gate: Gate, count: int) -> list[int]:
    """The processes that have imported the app."""
    return [int(line.removeprefix("loaded ")) for line in gate.announcements(count)]


def ask(server: Server) -> tuple[int, str]:
    """The pid of the worker that has answered, and its answer."""
    with server.connect() as wire:
        answer = wire.get("/")
    assert answer.status == 200, answer.text
    pid, _, told = answer.text.partition(" ")
    return int(pid), told


def ask_all(server: Server, workers: int = 2) -> dict[int, str]:
    """The answer of each worker. The kernel chooses which idle worker gets a request."""
    told: dict[int, str] = {}

    def ask_another() -> bool:
        told.update([ask(server)])
        return len(told) == workers

    eventually(ask_another, "each worker has answered")
    return told


def template(server: Server) -> int:
    return server.of_name("stanchion-tmpl")[0].pid


@pytest.fixture
def peer() -> Iterator[str]:
    """The address of a server that sends each connection its number."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        connections: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connections.append(connection)
                connection.sendall(f"connection {len(connections)}".encode())

        thread = threading.Thread(target=serve)
        thread.start()
        host, port = listener.getsockname()
        yield f"{host}:{port}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("leaves", LEFT)
def test_each_worker_imports_such_an_app_for_itself_and_is_answered(serve: Serve, gate: Gate, leaves: str) -> None:
    server = serve("imports.leaves:inherited", "-w", "2", env={"LEAVES": leaves, **gate.environment})
    assert set(ask_all(server).values()) == {leaves}
    assert len(server.log.matches(NOT_PRELOADED.format(LEFT[leaves]))) == 1
    # The process that has looked serves.
    workers = loads(gate, 2)
    assert set(workers) == set(ask_all(server))
    server.log.wait("the process that has imported the app becomes worker 0")
    server.log.wait(f"worker ready worker=0 pid={workers[0]} ")
    assert template(server) not in workers
    assert not gate.announced()
    assert "fork" not in "".join(line for line in server.log.text().splitlines() if "DeprecationWarning" in line)


@pytest.mark.privileges
def test_so_does_one_that_has_connected(serve: Serve, gate: Gate, peer: str) -> None:
    environment = {"LEAVES": "connection", "PEER": peer, **gate.environment}
    server = serve("imports.leaves:inherited", "-w", "2", env=environment)
    assert sorted(ask_all(server).values()) == ["connection 1", "connection 2"]
    server.log.wait(NOT_PRELOADED.format(rf"a connection to {peer} \(tcp\)"))


@pytest.mark.parametrize("leaves", ["nothing", "files", "datagrams", "ended_thread"])
def test_what_survives_a_fork_is_no_matter(serve: Serve, gate: Gate, leaves: str) -> None:
    server = serve("imports.leaves:inherited", "-w", "2", env={"LEAVES": leaves, **gate.environment})
    assert set(ask_all(server).values()) == {leaves}
    assert loads(gate, 1) == [template(server)]
    assert not gate.announced()
    assert not server.log.matches("import left|import of the app")


@pytest.mark.privileges
def test_a_listening_socket_is_shared_and_named(serve: Serve, gate: Gate) -> None:
    server = serve("imports.leaves:inherited", "-w", "2", env={"LEAVES": "listening", **gate.environment})
    (told,) = set(ask_all(server).values())
    port = told.removeprefix("listening ")
    server.log.wait(rf"WARNING\] the import of the app left a socket that listens at 127.0.0.1:{port} \(tcp\): workers")
    assert loads(gate, 1) == [template(server)]


@pytest.mark.parametrize("where", ["command line", "config file"])
def test_an_operator_who_asks_for_it_has_the_app_preloaded(
    serve: Serve, gate: Gate, tmp_path: Path, where: str
) -> None:
    config = tmp_path / "preload.conf.py"
    config.write_text("preload_app = True\n")
    asked = ["--preload"] if where == "command line" else ["-c", str(config)]
    server = serve("imports.leaves:inherited", "-w", "2", *asked, env={"LEAVES": "thread", **gate.environment})
    assert loads(gate, 1) == [template(server)]
    assert not gate.announced()
    assert len(server.log.matches(PRELOADED_ALL_THE_SAME.format(LEFT["thread"]))) == 1


def test_an_operator_who_does_not_want_it_has_nothing_looked_at(serve: Serve, gate: Gate) -> None:
    server = serve("imports.leaves:inherited", "-w", "2", "--no-preload", env={"LEAVES": "thread", **gate.environment})
    assert set(loads(gate, 2)) == set(ask_all(server))
    assert not gate.announced()
    assert not server.log.matches("import left|import of the app")


def test_later_templates_and_workers_go_by_what_was_found(serve: Serve, gate: Gate) -> None:
    server = serve("imports.leaves:inherited", "-w", "2", env={"LEAVES": "thread", **gate.environment})
    loads(gate, 2)
    mark = server.log.mark()
    os.kill(template(server), signal.SIGKILL)
    server.log.wait("the template was killed by SIGKILL; another one is started", mark)
    before = set(ask_all(server))
    os.kill(min(before), signal.SIGKILL)
    (successor,) = loads(gate, 1)
    server.log.wait(f"worker ready .*pid={successor}", mark)
    assert set(ask_all(server)) == before - {min(before)} | {successor}
    assert not gate.announced()


def test_a_reload_looks_again(serve: Serve, gate: Gate) -> None:
    server = serve("imports.leaves:inherited", "-w", "2", env={"LEAVES": "thread", **gate.environment})
    loads(gate, 2)
    mark = server.log.mark()
    server.signal(signal.SIGHUP)
    server.log.wait(RELOADED, mark)
    assert len(server.log.matches(NOT_PRELOADED.format(LEFT["thread"]), mark)) == 1
    assert set(loads(gate, 2)) == set(ask_all(server))
    assert not gate.announced()


def test_a_new_master_looks_again(serve: Serve, gate: Gate) -> None:
    server = serve("imports.leaves:inherited", "-w", "2", env={"LEAVES": "thread", **gate.environment})
    loads(gate, 2)
    mark = server.log.mark()
    server.signal(signal.SIGUSR2)
    server.follow(int(server.log.wait(UPGRADED, mark)[1]))
    server.exit_code()
    assert len(server.log.matches(NOT_PRELOADED.format(LEFT["thread"]), mark)) == 1
    assert set(loads(gate, 2)) == set(ask_all(server))
    assert not gate.announced()


def test_files_are_watched_all_the_same(serve: Serve, gate: Gate) -> None:
    server = serve("imports.leaves:inherited", "--reload", env={"LEAVES": "thread", **gate.environment})
    loads(gate, 1)
    mark = server.log.mark()
    (server.home / "new.py").touch()
    server.log.wait(r"new\.py has changed: reload", mark)
    server.log.wait(RELOADED, mark)
    assert ask(server)[1] == "thread"
