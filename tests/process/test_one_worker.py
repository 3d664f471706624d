"""With one worker, the template becomes that worker, and stays only where it has more to do."""

import os
import signal

import pytest

from support.gate import Gate
from support.patience import eventually
from support.processes import gone
from support.server import Serve, Server
from support.wire import request

pytestmark = pytest.mark.own("gunicorn has no template")

ALONE = ["stanchion", "stanchion-acpt", "stanchion-work"]
WITH_TEMPLATE = ["stanchion", "stanchion-acpt", "stanchion-tmpl", "stanchion-work"]


def worker(server: Server) -> int:
    (found,) = [process.pid for process in server.of_name("stanchion-work")]
    return found


def loaded(gate: Gate) -> int:
    """The next process that has imported the app."""
    return int(gate.announcement().removeprefix("loaded "))


@pytest.fixture
def env(gate: Gate) -> dict[str, str]:
    return {"LEAVES": "nothing", **gate.environment}


@pytest.mark.parametrize("arguments", [[], ["--no-preload"], ["--no-preload", "--max-requests", "100"]])
def test_the_process_that_has_imported_the_app_is_the_worker_and_none_stays_beside_it(
    serve: Serve, gate: Gate, env: dict[str, str], arguments: list[str]
) -> None:
    server = serve("imports.leaves:inherited", *arguments, env=env)
    assert server.names() == ALONE
    assert loaded(gate) == worker(server)
    assert not gate.announced()


@pytest.mark.parametrize("arguments", [["--preload"], ["--reload"], ["--max-requests", "100"], ["--max-memory", "1G"]])
def test_a_template_stays_where_it_has_more_to_do(
    serve: Serve, gate: Gate, env: dict[str, str], arguments: list[str]
) -> None:
    server = serve("imports.leaves:inherited", *arguments, env=env)
    assert server.names() == WITH_TEMPLATE
    assert loaded(gate) != worker(server)
    os.kill(worker(server), signal.SIGKILL)
    server.log.wait_for("worker ready", 2)
    assert not gate.announced()


def test_a_request_waits_while_the_successor_of_a_dead_worker_imports_the_app(
    serve: Serve, gate: Gate, env: dict[str, str]
) -> None:
    server = serve("imports.leaves:inherited", env=env)
    first = loaded(gate)
    os.kill(first, signal.SIGKILL)
    gone(first)
    with server.connect() as wire:
        answer = wire.get("/")
    assert (answer.status, answer.text) == (200, f"{worker(server)} nothing")
    # The template that has imported it stays.
    assert loaded(gate) != worker(server)


def test_from_the_first_worker_that_dies_a_template_stays(serve: Serve, gate: Gate, env: dict[str, str]) -> None:
    server = serve("imports.leaves:inherited", env=env)
    os.kill(loaded(gate), signal.SIGKILL)
    server.log.wait_for("worker ready", 2)
    assert server.names() == WITH_TEMPLATE
    assert loaded(gate) != worker(server)
    os.kill(worker(server), signal.SIGKILL)
    server.log.wait_for("worker ready", 3)
    assert not gate.announced()
    assert len(server.log.matches("a template stays beside the only worker from now on")) == 1


def test_a_worker_that_is_sent_term_serves_until_its_successor_has_imported_the_app(serve: Serve, gate: Gate) -> None:
    server = serve("waiting:app", env=gate.environment)
    first = worker(server)
    with server.connect() as wire:
        wire.send(request("GET", "/wait?held"))
        gate.announcement()
        os.kill(first, signal.SIGTERM)
        server.log.wait_for("worker ready", 2)
        gate.let_pass(1)
        assert wire.response().status == 200
    gone(first)
    eventually(lambda: server.names() == ALONE, "its successor is alone")


def test_a_template_comes_for_a_second_worker_and_leaves_with_it(serve: Serve, gate: Gate, env: dict[str, str]) -> None:
    server = serve("imports.leaves:inherited", env=env)
    first = loaded(gate)
    server.signal(signal.SIGTTIN)
    server.log.wait_for("worker ready", 2)
    assert server.names() == sorted([*WITH_TEMPLATE, "stanchion-work"])
    assert loaded(gate) != first
    mark = server.log.mark()
    server.signal(signal.SIGTTOU)
    eventually(lambda: server.names() == ALONE, "the template leaves with the second worker")
    assert worker(server) == first
    assert not server.log.matches("template", mark)


def test_usr1_and_hup_find_all_there_are(serve: Serve, gate: Gate, env: dict[str, str]) -> None:
    server = serve("imports.leaves:inherited", env=env)
    mark = server.log.mark()
    server.signal(signal.SIGUSR1)
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded: generation 2 serves", mark)
    eventually(lambda: server.names() == ALONE, "the first generation leaves")
    assert not server.log.matches("WARNING|ERROR", mark)
