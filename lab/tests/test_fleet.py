"""A fleet, run for real: hosts in namespaces of their own behind each balancer, and one that dies on the way."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stanchion_lab.programs import PROGRAMS
from stanchion_lab.scenario import read
from support import netns

pytestmark = [
    pytest.mark.skipif(bool(netns.unavailable()), reason=netns.unavailable()),
    pytest.mark.timeout(240),
]

RUN_S = 200.0
FRONTS = ("haproxy", "nginx", "envoy")

FILE = """
title = "A fleet"
question = "Does each front reach each host?"
origin = "a test"
reading = "Nothing."

[servers.app]
kind = "stanchion"
app = "fleet:app"
hosts = 2
listen = "10.99.0.1:8000"
options = ["--admin", "{host}:9001"]

[servers.haproxy]
kind = "haproxy"
hosts = 2
listen = "10.99.0.101:8080"
HAPROXY

[servers.nginx]
kind = "nginx"
hosts = 1
listen = "10.99.0.101:8080"
config = "fleet.nginx.conf"
values = { balance = "least_conn;" }

[servers.envoy]
kind = "envoy"
hosts = 1
listen = "10.99.0.101:8080"
ENVOY

[loads.posts]
rate_per_s = 20
for_s = 4
patience_s = 60
paths = { "/fast" = 9, "/slow" = 1 }
method = "POST"
numbered = true

[[trials]]
name = "both"
title = "both hosts all the time"
servers = ["app", "FRONT"]
load = "posts"

[[trials]]
name = "dies"
title = "one dies, and comes back"
servers = ["app", "FRONT"]
load = "posts"
deeds = [
  { at_s = 1, server = "app-1", signal = "KILL", whom = "all" },
  { at_s = 2, server = "app-1", start = true },
]

[[trials]]
name = "vanishes"
title = "one loses its network"
servers = ["app", "FRONT"]
load = "posts"
deeds = [{ at_s = 1, server = "app-1", link = "down" }]
"""


def experiment(front: str) -> str:
    """With the fronts' values of the shipped experiment, but for the agent, which these servers do not start."""
    shipped = read("fleet-events", "full").scenario
    text = FILE.replace("FRONT", front)
    for kind in ("haproxy", "envoy"):
        values = ", ".join(f"{key} = {json.dumps(value)}" for key, value in shipped.servers[kind].values.items())
        text = text.replace(kind.upper(), f"values = {{ {values} }}")
    return text.replace(" agent-check agent-port 9000 agent-inter 200ms", "")


@pytest.mark.parametrize("front", FRONTS)
def test_each_host_serves_and_what_ran_is_counted(tmp_path: Path, front: str) -> None:
    if PROGRAMS[front].version() is None:
        pytest.skip(f"{front} is not installed here")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (tmp_path / "fleet.toml").write_text(experiment(front))
    before = links()
    command = [sys.executable, "-P", "-m", "stanchion_lab", "run", str(tmp_path / "fleet.toml"), "--json"]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, cwd=tmp_path, env=environment)
    assert ran.returncode == 0, ran.stderr
    (result,) = json.loads(ran.stdout)
    figures: dict[str, dict[str, Any]] = {one["trial"]: one["figures"] for one in result["measured"]}

    both = figures["both"]
    assert both["served"] == both["requests"] == both["ran"] == 80
    assert both["lost"] == both["ran.twice"] == both["ran.never"] == 0
    assert both["share.min"] > 0.1, "each of two hosts has served"
    passed_on = sum(both[f"log.{front}-{number}.requests"] for number in ((1, 2) if front == "haproxy" else (1,)))
    # A front may write about the request that showed that it serves, or about the last one, too late for the lab.
    assert abs(passed_on - both["requests"]) <= 2

    for trial in ("dies", "vanishes"):
        one = figures[trial]
        assert one["requests"] == 80 and one["lost"] <= 5, "what the host had, and no more"
        assert one["ran.twice"] == one["ran.never"] == 0, "no POST runs twice"
    words = {one["trial"]: one["words"]["app-1.log"] for one in result["measured"]}
    assert " starts pid=" in words["dies"], "it came back: logs are emptied before the load"
    assert " starts pid=" not in words["both"]
    vanished = figures["vanishes"]["log.app-1.requests"]
    assert vanished < 0.75 * both["log.app-1.requests"], "three of four seconds without it"

    assert links() == before and not list(scratch.iterdir()), "nothing is left behind"


def links() -> str:
    """The names of this machine's interfaces; they are in the namespace in which this test runs."""
    shown = subprocess.run(["ip", "-brief", "link"], check=True, capture_output=True, text=True).stdout
    return "\n".join(line.split()[0] for line in shown.splitlines())
