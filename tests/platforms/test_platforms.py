"""The files for Heroku, Fly and Render: their commands run and are stopped as each platform does it."""

import contextlib
import os
import shlex
import signal
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
import yaml

from support import processes
from support.example import EXAMPLES, SCRIPTS, settings
from support.gate import Gate
from support.ports import row_of_ports
from support.server import STANCHION, Serve, Server
from support.wire import request

pytestmark = pytest.mark.own("the examples are stanchion's")

GRACE_S = 30
"""The time between TERM and KILL on Heroku, and on platforms whose file says nothing else."""
ROUTER_KEEPS_S = 90
"""How long Heroku's router keeps an idle connection to an app."""
ROUTER_WAITS_S = 30
"""How long it waits for an answer to begin."""


@dataclass
class Platform:
    """A platform: the settings in its file, and its ways beside them."""

    command: str
    environment: dict[str, str]
    grace_s: float
    stop: Callable[[Server], None]
    health_path: str = ""


def told_all_and_twice(server: Server) -> None:
    """Send TERM as Heroku's dyno manager does: to every process in the dyno, perhaps more than once."""
    for _ in range(2):
        for process in server.processes():
            # Processes that have heard it the first time may be gone.
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)


def heroku() -> Platform:
    name, command = (EXAMPLES / "heroku/Procfile").read_text().strip().split(": ", 1)
    assert name == "web"
    # Heroku's buildpack for Python sets these beside PORT.
    environment = {"WEB_CONCURRENCY": "2", "FORWARDED_ALLOW_IPS": "*"}
    return Platform(command, environment, GRACE_S, told_all_and_twice)


def fly() -> Platform:
    given = tomllib.loads((EXAMPLES / "fly/fly.toml").read_text())
    number = signal.Signals[given["kill_signal"]]
    assert int(given["env"]["PORT"]) == given["http_service"]["internal_port"]
    [check] = given["http_service"]["checks"]
    return Platform(
        given["processes"]["app"],
        given["env"],
        given["kill_timeout"],
        lambda server: server.signal(number),
        check["path"],
    )


def render() -> Platform:
    [given] = yaml.safe_load((EXAMPLES / "render/render.yaml").read_text())["services"]
    environment = {one["key"]: one["value"] for one in given["envVars"]}
    return Platform(
        given["startCommand"],
        environment,
        given["maxShutdownDelaySeconds"],
        lambda server: server.signal(signal.SIGTERM),
        given["healthCheckPath"],
    )


@pytest.mark.parametrize("platform", [heroku, fly, render])
def test_the_command_serves_and_a_stop_answers_clients_that_have_come(
    build: Serve, gate: Gate, platform: Callable[[], Platform]
) -> None:
    given = platform()
    with row_of_ports(1) as port:
        environment = {
            **given.environment,
            **gate.environment,
            "PORT": str(port),
            "PATH": f"{SCRIPTS}:{os.environ['PATH']}",
        }
        by_a_shell = replace(STANCHION, command=("bash", "-c", given.command), arguments=())
        server = build("", bind=None, kind=by_a_shell, env=environment).start()
    assert server.address.port == port
    assert len(server.log.matches("worker ready")) == int(given.environment["WEB_CONCURRENCY"])
    with server.connect() as proxy:
        environ = proxy.get("/", "X-Forwarded-Proto: https").json()["environ"]
        assert environ["wsgi.url_scheme"] == "https"
        if given.health_path:
            # The server itself answers, in one line of text: the app would answer any path, and with JSON.
            answered = proxy.get(given.health_path)
            assert (answered.status, answered.header("Content-Type")) == (200, "text/plain; charset=utf-8")
    wires = [server.connect() for _ in range(3)]
    for wire in wires:
        wire.send(request("GET", "/held"))
    # Two run, one waits.
    assert gate.announcements(2) == ["held"] * 2
    pids = [process.pid for process in server.processes()]
    given.stop(server)
    server.log.wait("TERM: draining, then leaving")
    gate.let_pass(3)
    assert [wire.response().status for wire in wires] == [200] * 3
    for wire in wires:
        wire.close()
    assert server.exit_code() == 0
    for pid in pids:
        processes.gone(pid)


@pytest.mark.parametrize("platform", [heroku, fly, render])
def test_its_times_fit_the_platforms(platform: Callable[[], Platform], tmp_path: Path) -> None:
    given = platform()
    chosen = settings(shlex.split(given.command), tmp_path, {**given.environment, "PORT": "8000"})
    assert chosen["bind"] == ["0.0.0.0:8000"]
    assert chosen["graceful_timeout"] < given.grace_s
    if platform is heroku:
        assert chosen["keepalive"] > ROUTER_KEEPS_S
        assert chosen["queue_timeout"] + chosen["timeout"] <= ROUTER_WAITS_S
