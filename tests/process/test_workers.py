"""Workers come and go: by signal, by number of requests, by a changed file."""

import json
import signal
import threading
import time
from pathlib import Path

import pytest

from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.seats import seats
from support.server import Serve, Server


def test_threads_serve_that_many_at_once_in_one_process(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "--threads", "4", env=gate.environment)
    found = seats(server, gate, 4)
    assert len({seat.pid for seat in found}) == 1
    assert len({seat.thread for seat in found}) == 4


@pytest.mark.own("a gunicorn worker may take a connection while another is idle")
def test_workers_times_threads_are_the_seats(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "-w", "2", "--threads", "2", env=gate.environment)
    assert len({seat.pid for seat in seats(server, gate, 4)}) == 2


@pytest.mark.privileges
def test_ttin_adds_a_worker_and_ttou_takes_one_away(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", env=gate.environment)
    seats(server, gate, 1)
    before = len(server.processes())
    server.signal(signal.SIGTTIN)
    eventually(lambda: len(server.processes()) == before + 1, "a worker more")
    seats(server, gate, 2)
    server.signal(signal.SIGTTOU)
    eventually(lambda: len(server.processes()) == before, "a worker less")
    seats(server, gate, 1)


def test_ttou_leaves_one_worker(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", env=gate.environment)
    for _ in range(3):
        server.signal(signal.SIGTTOU)
    seats(server, gate, 1)


@pytest.mark.own("gunicorn stops its oldest worker, running request or not, after graceful_timeout")
def test_ttou_lets_the_running_request_finish(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "-w", "2", env=gate.environment)
    before = len(server.processes())
    wires = [server.connect() for _ in range(2)]
    for wire in wires:
        wire.send(b"GET /wait?x HTTP/1.1\r\nHost: test\r\n\r\n")
    gate.announcements(2)
    server.signal(signal.SIGTTOU)
    assert wires[0].silent(0.3)
    gate.let_pass(2)
    for wire in wires:
        assert wire.response().status == 200
        wire.close()
    # The template leaves, too: it is for several workers.
    eventually(lambda: len(server.processes()) == before - 2, "a worker less")
    seats(server, gate, 1)


@pytest.mark.own("gunicorn closes connections when a worker leaves")
def test_max_requests_replaces_workers_one_at_a_time_and_loses_nothing(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "-w", "2", "--max-requests", "5", env=gate.environment)
    pids: set[str] = set()
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            # Ask as often as it takes: the faster the requests, the more of them until a successor is there.
            until_s = time.monotonic() + 3 * PATIENCE_S
            with server.connect() as wire:
                while len(pids) < 5 and time.monotonic() < until_s:
                    response = wire.get("/pid")
                    assert response.status == 200
                    pids.add(response.text.split()[0])
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert not errors
    # A worker goes on until its successor is there, so how many requests each has is not exact.
    assert len(pids) >= 5, "workers are replaced again and again"
    ends = [line for line in server.log.text().splitlines() if "is to be replaced" in line]
    assert len(ends) >= len(pids) - 3
    assert all("(max_requests)" in line for line in ends)


@pytest.mark.own("gunicorn has no such promise")
def test_max_requests_with_threads_lets_the_other_threads_finish(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", "--threads", "2", "--max-requests", "3", env=gate.environment)
    with server.connect() as held, server.connect() as wire:
        held.send(b"GET /wait?held HTTP/1.1\r\nHost: test\r\n\r\n")
        gate.announcement()
        pid = wire.get("/pid").text
        # Its successor serves, while it still has the request that is held.
        eventually(lambda: wire.get("/pid").text != pid, "another worker answers")
        gate.let_pass(1)
        assert held.response().text.endswith("held")


def write_app(path: Path, answer: str) -> None:
    path.write_text(
        "def app(environ, start_response):\n"
        "    start_response('200 OK', [('Content-Type', 'text/plain')])\n"
        f"    return [{answer}]\n"
    )


def answer_of(server: Server) -> str:
    with server.connect() as wire:
        response = wire.get("/")
        assert response.status == 200, response.body
        return response.text


@pytest.mark.own("gunicorn drops what is under way")
def test_reload_brings_in_a_changed_file(serve: Serve, tmp_path: Path) -> None:
    write_app(tmp_path / "changing.py", "b'old'")
    server = serve("changing:app", "--reload", "--pythonpath", str(tmp_path))
    assert answer_of(server) == "old"
    write_app(tmp_path / "changing.py", "b'new'")
    eventually(lambda: answer_of(server) == "new", "the new code answers, and until then the old does")


@pytest.mark.own("gunicorn drops what is under way")
def test_reload_watches_extra_files(serve: Serve, tmp_path: Path) -> None:
    extra = tmp_path / "template.html"
    extra.write_text("old")
    write_app(tmp_path / "reading.py", f"open({str(extra)!r}, 'rb').read() + str(__import__('os').getpid()).encode()")
    server = serve("reading:app", "--reload", "--reload-extra-file", str(extra), "--pythonpath", str(tmp_path))
    before = answer_of(server)
    extra.write_text("new")
    eventually(lambda: answer_of(server)[:3] == "new" and answer_of(server)[3:] != before[3:], "new workers answer")


@pytest.mark.own("gunicorn shows the traceback to the client")
def test_reload_of_a_broken_file_does_not_end_the_server_and_the_mended_one_is_taken(
    serve: Serve, tmp_path: Path
) -> None:
    path = tmp_path / "changing.py"
    write_app(path, "b'old'")
    server = serve("changing:app", "--reload", "--pythonpath", str(tmp_path))
    mark = server.log.mark()
    path.write_text("def (\n")
    server.log.wait("SyntaxError", mark)
    assert server.process.poll() is None
    time.sleep(0.01)  # so that the two changes differ in their time of modification
    write_app(path, "b'mended'")

    def answer() -> str:
        with server.connect() as wire:
            return wire.get("/").text

    eventually(lambda: answer() == "mended", "the mended code answers")


@pytest.mark.own("gunicorn's master has no file for each worker")
@pytest.mark.privileges
def test_there_may_be_more_workers_than_one_process_may_have_files_and_they_keep_their_limit(serve: Serve) -> None:
    """The master has one for each; select(2) knows none above 1,023, so no app is to get more than it had."""
    server = serve("surroundings:app", "-w", "80", prefix=["prlimit", "--nofile=64:4096"])
    with server.connect() as wire:
        assert json.loads(wire.get("/open-files").body) == [64, 4096]
    mark = server.log.mark()
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded: generation 2", mark, within_s=3 * PATIENCE_S)
    with server.connect() as wire:
        assert json.loads(wire.get("/open-files").body) == [64, 4096]
