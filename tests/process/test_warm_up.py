"""`--warm-up`: the template answers requests before it forks workers, which share what these bring into memory."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from support.counts import Counts
from support.gate import Gate
from support.patience import eventually
from support.server import Serve, Server

pytestmark = pytest.mark.own("gunicorn has no warm-up")

EXIT_USAGE, EXIT_APP_LOAD = 2, 4

RELOADED = "reloaded: generation 2 serves"
UPGRADED = r"upgraded: the new master (\d+) serves"


def template(server: Server) -> int:
    return server.of_name("stanchion-tmpl")[0].pid


def workers(server: Server) -> set[int]:
    return {process.pid for process in server.of_name("stanchion-work")}


def ask_all(server: Server, path: str) -> set[int]:
    """Ask until each worker has answered; gives their process ids."""
    expected, seen = workers(server), set[int]()

    def ask_another() -> bool:
        with server.connect() as wire:
            answer = wire.get(path)
        assert answer.status == 200, answer.text
        seen.add(int(answer.text))
        return seen == expected

    eventually(ask_another, "each worker has answered")
    return seen


def test_a_late_import_happens_once_in_the_template_and_in_no_worker(serve: Serve, gate: Gate) -> None:
    server = serve("warming:app", "-w", "2", "--warm-up", "/late", env=gate.environment)
    assert gate.announcement() == f"imported {template(server)}"
    server.log.only(r"INFO\] warm-up: GET /late 200 in \d+ ms$")
    ask_all(server, "/late")
    assert not gate.announced()


def test_without_a_warm_up_each_worker_imports_late(serve: Serve, gate: Gate) -> None:
    server = serve("warming:app", "-w", "2", env=gate.environment)
    assert not gate.announced()
    pids = ask_all(server, "/late")
    assert set(gate.announcements(2)) == {f"imported {pid}" for pid in pids}
    assert not server.log.matches("warm-up")


def test_a_single_worker_is_the_template_that_has_warmed_up(serve: Serve, gate: Gate) -> None:
    server = serve("warming:app", "--warm-up", "/", env=gate.environment)
    (worker,) = workers(server)
    assert gate.announcement() == f"warmed {worker}"
    os.kill(worker, signal.SIGKILL)
    server.log.wait_for("worker ready", 2)
    # The template that follows it.
    assert gate.announcement() == f"warmed {template(server)}"


@pytest.mark.parametrize(
    ("request_text", "expected"),
    [
        (
            "/environ?a=b",
            {
                "HTTP_HOST": "localhost",
                "SERVER_NAME": "localhost",
                "SERVER_PORT": "80",
                "wsgi.url_scheme": "http",
                "QUERY_STRING": "a=b",
                "RAW_URI": "/environ?a=b",
                "PATH_INFO": "/environ",
                "SCRIPT_NAME": "",
            },
        ),
        (
            "https://shop.example/app/environ",
            {
                "HTTP_HOST": "shop.example",
                "SERVER_NAME": "shop.example",
                "SERVER_PORT": "443",
                "wsgi.url_scheme": "https",
                "QUERY_STRING": "",
                "RAW_URI": "/app/environ",
                "PATH_INFO": "/environ",
                "SCRIPT_NAME": "/app",
            },
        ),
    ],
)
def test_an_environ_is_as_in_a_worker_and_says_that_it_is_of_a_warm_up(
    serve: Serve, gate: Gate, request_text: str, expected: dict[str, Any]
) -> None:
    mounted = ["--root-path", "/app"] if expected["SCRIPT_NAME"] else []
    server = serve("warming:app", *mounted, "--threads", "2", "--warm-up", request_text, env=gate.environment)
    warm = json.loads(gate.announcement())
    assert {key: warm[key] for key in expected} == expected
    assert warm["REQUEST_METHOD"] == "GET"
    assert warm["REMOTE_ADDR"] == "127.0.0.1"
    assert warm["stanchion.request_id"] == warm["HTTP_X_REQUEST_ID"] == "warm-up"
    assert warm["stanchion.queue_wait"] == 0
    assert warm["HTTP_X_REQUEST_START"].startswith("t=1")
    with server.connect() as wire:
        cold = wire.get(warm["RAW_URI"], "User-Agent: test", "Accept: */*").json()
    assert warm.pop("stanchion.warm_up") is True
    assert warm.keys() == cold.keys() - {"REMOTE_PORT"}
    differing = {key for key in warm if warm[key] != cold[key]}
    assert differing <= {
        *("HTTP_HOST", "SERVER_NAME", "SERVER_PORT", "wsgi.url_scheme", "HTTP_USER_AGENT"),
        *("HTTP_X_REQUEST_ID", "HTTP_X_REQUEST_START", "stanchion.request_id", "stanchion.queue_wait"),
    }


@pytest.mark.parametrize(
    ("path", "line", "traceback"),
    [
        ("/raises", r"failed in \d+ ms: the app has raised, and the start", "ZeroDivisionError: of the warm-up"),
        ("/exits", r"failed in \d+ ms: the app has raised, and the start goes on", "SystemExit: of the warm-up"),
        ("/headless", r"failed in \d+ ms: the app has raised", "AssertionError: the app gave a body before"),
        ("/text", r"failed in \d+ ms: the app has raised", "TypeError: the app's iterable must give bytes"),
        ("/503", r"503 in \d+ ms: the app has failed, and the start goes on", ""),
        ("/400", r"400 in \d+ ms: the app refuses the request, and the start goes on", ""),
    ],
)
def test_a_failure_is_a_warning_and_the_start_goes_on(
    serve: Serve, gate: Gate, path: str, line: str, traceback: str
) -> None:
    server = serve("warming:app", "-w", "2", "--warm-up", f"{path}, /404, /", env=gate.environment)
    server.log.only(rf"WARNING\] warm-up: GET {path} {line}")
    assert traceback in server.log.text()
    server.log.only(r"INFO\] warm-up: GET /404 404 in \d+ ms$")
    assert gate.announcement() == f"warmed {template(server)}"
    ask_all(server, "/")


def test_a_request_past_the_timeout_ends_the_warm_up_and_the_start_goes_on(serve: Serve, gate: Gate) -> None:
    server = serve("warming:app", "--timeout", "1", "--warm-up", "/hangs, /", env=gate.environment)
    assert gate.announcement() == "broken off True"
    server.log.only(r"WARNING\] warm-up: GET /hangs is broken off after \d+ ms, past `timeout`: the rest ")
    assert "threading.Event().wait()" in server.log.text()
    assert not gate.announced()


def test_an_answer_without_end_is_read_up_to_a_limit_and_closed(serve: Serve, gate: Gate) -> None:
    server = serve("warming:app", "--warm-up", "/endless", env=gate.environment)
    assert gate.announcement() == "closed after 16"
    server.log.only(r"INFO\] warm-up: GET /endless 200 in \d+ ms$")


def test_a_connection_that_it_leaves_open_keeps_the_app_from_being_preloaded(
    serve: Serve, gate: Gate, peer: str
) -> None:
    env = {"PEER": peer, **gate.environment}
    server = serve("warming:app", "-w", "2", "--warm-up", "/connects, /", env=env)
    server.log.only(
        rf"WARNING\] the app is not preloaded, as its warm-up left a connection to {peer} \(tcp\): .*"
        r"leave out of warm_up the paths that start them"
    )
    # The process that has warmed up is a worker, and no other one warms up.
    assert int(gate.announcement().removeprefix("warmed ")) in ask_all(server, "/")
    assert not gate.announced()


def test_an_operator_who_asks_for_it_has_the_app_preloaded_all_the_same(serve: Serve, gate: Gate, peer: str) -> None:
    env = {"PEER": peer, **gate.environment}
    server = serve("warming:app", "-w", "2", "--preload", "--warm-up", "/connects, /", env=env)
    server.log.only(r"WARNING\] the app is preloaded, as preload_app says, though its warm-up left a connection to ")
    assert gate.announcement() == f"warmed {template(server)}"
    ask_all(server, "/")
    assert not gate.announced()


def test_a_connection_that_it_closes_and_a_socket_that_listens_are_no_matter(
    serve: Serve, gate: Gate, peer: str
) -> None:
    env = {"PEER": peer, **gate.environment}
    server = serve("warming:app", "-w", "2", "--warm-up", "/connects-and-closes, /listens, /", env=env)
    server.log.only(r"WARNING\] the warm-up of the app left a socket that listens at 127.0.0.1:\d+ \(tcp\): workers")
    assert gate.announcement() == f"warmed {template(server)}"
    assert not server.log.matches("preloaded")


def test_leftovers_of_the_import_are_no_leftovers_of_the_warm_up(serve: Serve, gate: Gate) -> None:
    server = serve("warming:with_thread()", "-w", "2", "--preload", "--warm-up", "/", env=gate.environment)
    server.log.only(r'WARNING\] the app is preloaded, as preload_app says, though its import left 1 thread: "flush"')
    assert gate.announcement() == f"warmed {template(server)}"
    assert not server.log.matches("warm-up left")


def test_an_app_that_cannot_be_preloaded_is_not_warmed_up(serve: Serve, gate: Gate) -> None:
    server = serve("warming:with_thread()", "-w", "2", "--warm-up", "/", env=gate.environment)
    server.log.only(r"WARNING\] warm_up has no effect, as the app is not preloaded$")
    ask_all(server, "/")
    assert not gate.announced()


def test_each_template_warms_up(serve: Serve, gate: Gate) -> None:
    server = serve("warming:app", "-w", "2", "--warm-up", "/", env=gate.environment)
    first = template(server)
    assert gate.announcement() == f"warmed {first}"
    mark = server.log.mark()
    server.signal(signal.SIGHUP)
    server.log.wait(RELOADED, mark)
    second = int(gate.announcement().removeprefix("warmed "))
    eventually(lambda: len(server.of_name("stanchion-tmpl")) == 1, "the old template is gone")
    assert second == template(server)
    os.kill(second, signal.SIGKILL)
    third = int(gate.announcement().removeprefix("warmed "))
    assert third not in {first, second}
    mark = server.log.mark()
    server.signal(signal.SIGUSR2)
    server.follow(int(server.log.wait(UPGRADED, mark)[1]))
    server.exit_code()
    assert gate.announcement() == f"warmed {template(server)}"
    ask_all(server, "/")
    assert not gate.announced()


def test_its_requests_are_in_no_count_and_no_access_log(serve: Serve, gate: Gate, tmp_path: Path) -> None:
    counts, access_log = Counts(tmp_path / "ctl"), tmp_path / "access.log"
    arguments = ["-w", "2", "--warm-up", "/", "--access-logfile", str(access_log), *counts.arguments]
    server = serve("warming:app", *arguments, env=gate.environment)
    assert gate.announcement() == f"warmed {template(server)}"
    assert counts.settled()["arrived"] == 0
    with server.connect() as wire:
        assert wire.get("/404").status == 404
    eventually(lambda: " /404 " in access_log.read_text(), "the line of a client's request is there")
    assert len(access_log.read_text().splitlines()) == 1
    assert counts.settled()["arrived"] == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["login"], "'login' is neither a path, as /login, nor a URL, as https://shop.example/login"),
        (["/a b"], "'/a b' makes no request: "),
        (["/", "--no-preload"], "`preload_app` from command line says that it has no app: leave one of them out"),
        (["/", "--loop", "gevent"], "with gevent (`loop` from command line) each worker imports the app"),
        (["/", "--interface", "asgi"], "the event loop of an asynchronous app (`interface` from command line)"),
    ],
)
def test_what_cannot_be_is_refused_at_the_start(build: Serve, arguments: list[str], reason: str) -> None:
    server = build("warming:app", "--warm-up", *arguments).launch()
    assert server.exit_code() == EXIT_USAGE
    server.log.wait_end()
    [line] = [line for line in server.log.lines() if "setting `warm_up` from command line: " in line]
    assert reason in line


def test_an_app_that_turns_out_to_be_asynchronous_is_refused(build: Serve) -> None:
    server = build("asgi_cases:app", "--warm-up", "/").launch()
    assert server.exit_code() == EXIT_APP_LOAD
    server.log.wait_end()
    assert server.log.text().count("the setting `warm_up` from command line has the template answer requests") == 1


@pytest.mark.parametrize("timeout", ["0", "30"])
def test_a_child_that_the_app_forks_does_not_go_on_as_the_template(serve: Serve, gate: Gate, timeout: str) -> None:
    server = serve("warming:app", "-w", "2", "--warm-up", "/forks,/", "--timeout", timeout, env=gate.environment)
    assert gate.announcement() == f"warmed {template(server)}"
    assert "warm-up: GET /forks 200 in " in server.log.text()
    assert len(server.of_name("stanchion-tmpl")) == 1
