"""The files for Nomad, ECS, Compose and hosts under systemd: the server takes their commands, and their times fit."""

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.example import EXAMPLES, settings

pytestmark = pytest.mark.own("the examples are stanchion's")

SPARE_S = 5
DOCKERFILE = EXAMPLES / "docker/Dockerfile"
BALANCER_IDLE_S = 60
"""How long an Application Load Balancer keeps an idle connection."""


@dataclass
class Engine:
    """A file says these: the command, the time between TERM and KILL, and the seats that a front counts with."""

    text: str
    arguments: list[str]
    grace_s: float
    balanced: bool = True
    environment: dict[str, str] = field(default_factory=dict)
    seats: int | None = None


def entry_point() -> list[str]:
    [line] = re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE.read_text(), re.MULTILINE)
    return [str(word) for word in json.loads(line)]


def nomad() -> Engine:
    text = (EXAMPLES / "nomad/shop.nomad.hcl").read_text()
    [listed] = re.findall(r"^ +args = \[(.*?)\]", text, re.MULTILINE | re.DOTALL)
    [killed] = re.findall(r'kill_timeout = "(\d+)s"', text)
    assert re.search(r'kill_signal += "SIGTERM"', text)
    return Engine(text, re.findall(r'"(.*?)"', listed), int(killed))


class Template(yaml.SafeLoader):
    """CloudFormation's functions are tags, here without meaning."""


Template.add_multi_constructor("!", lambda loader, suffix, node: f"{suffix} {node.value}")


def ecs() -> Engine:
    text = (EXAMPLES / "ecs/shop.yaml").read_text()
    resources: dict[str, Any] = yaml.load(text, Template)["Resources"]
    app, agent = resources["Task"]["Properties"]["ContainerDefinitions"]
    given = {one["Name"]: one["Value"] for one in agent["Environment"]}
    targets = resources["Targets"]["Properties"]
    assert given["TARGET_CONTROL_DATA_ADDRESS"] == f"0.0.0.0:{targets['Port']}"
    assert given["TARGET_CONTROL_CONTROL_ADDRESS"] == f"0.0.0.0:{targets['TargetControlPort']}"
    assert f"--bind={given['TARGET_CONTROL_DESTINATION_ADDRESS']}" in app["Command"]
    assert app["DependsOn"] == [{"ContainerName": "agent", "Condition": "START"}]
    assert targets["HealthCheckPath"] == "/-/ready"
    seats = int(given["TARGET_CONTROL_MAX_CONCURRENCY"])
    return Engine(text, app["Command"], app["StopTimeout"], seats=seats)


def compose() -> Engine:
    text = (EXAMPLES / "compose/compose.yaml").read_text()
    shop = yaml.safe_load(text)["services"]["shop"]
    assert (EXAMPLES / "compose" / shop["build"] / "Dockerfile").exists()
    return Engine(text, shop["command"], int(shop["stop_grace_period"].removesuffix("s")), balanced=False)


def hosts() -> Engine:
    text = (EXAMPLES / "systemd/stanchion@.service").read_text()
    lines = dict(line.split("=", 1) for line in text.replace("\\\n", "").splitlines() if re.match(r"[A-Z]\w+=", line))
    named = {"${ADDRESS}": "127.0.0.1", "${PORT}": "8000", "${ADMIN_PORT}": "8299", "${APP}": "shop:app", "%i": "shop"}
    command = re.sub(r"\$\{\w+\}|%i", lambda found: named[found[0]], lines["ExecStart"])
    words = shlex.split(command.replace("/srv/shop/.venv/bin/", ""))
    assert words[:2] == ["stanchion", "serve"]
    return Engine(text, words[2:], int(lines["TimeoutStopSec"]), environment={"WEB_CONCURRENCY": "4"})


@pytest.mark.parametrize("engine", [nomad, ecs, compose, hosts])
def test_the_server_takes_its_settings_and_its_times_fit(engine: Callable[[], Engine], tmp_path: Path) -> None:
    given = engine()
    chosen = settings([*entry_point(), *given.arguments], tmp_path, given.environment)
    assert chosen["drain_delay"] == (5 if given.balanced else 0)
    assert given.grace_s >= chosen["drain_delay"] + chosen["graceful_timeout"] + SPARE_S
    assert chosen["keepalive"] > BALANCER_IDLE_S
    assert chosen["admin"]
    assert (chosen["ready_waiting_max"], chosen["ready_wait_max"]) == (0, 0)
    if given.seats:
        assert chosen["workers"] * chosen["threads"] == given.seats


@pytest.mark.parametrize("engine", [nomad, ecs, compose, hosts])
def test_its_head_says_how_far_it_was_tried(engine: Callable[[], Engine]) -> None:
    head = " ".join(line.removeprefix("# ") for line in engine().text.splitlines()[:4])
    assert re.search(r"Not run here|was not run on", head), head
