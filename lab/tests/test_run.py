"""`stanchion-lab run`, as a person starts it: what it leaves, and what it does not."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "lab" / "shop.toml"
# pid 1 of a cage.
TRIAL = "stanchion_lab.trial"
RUN_S = 120
STOP_S = 20

LONG = """
title = "Long"
question = "Is it still there?"
origin = "a test"
reading = "Nothing."

[servers.app]
kind = "program"
command = ["{python}", "{files}/app.py"]
listen = "127.0.0.1:8000"

[loads.long]
rate_per_s = 5
for_s = 100
patience_s = 5

[[trials]]
name = "long"
title = "a long one"
servers = ["app"]
load = "long"
sysctl = { "net.core.somaxconn" = 77 }
"""

RAMP = "ramp = { from_per_s = 1, to_per_s = 50, step_per_s = 1 }"


def lab(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-P", "-m", "stanchion_lab", *map(str, arguments)]


def somaxconn() -> str:
    return Path("/proc/sys/net/core/somaxconn").read_text()


def cages(directory: Path) -> list[psutil.Process]:
    """All processes with the scratch directory of this test as their own, inside and outside of the cage."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR", "").startswith(str(directory)):
                found.append(process)
        except psutil.Error:
            continue
    return found


def environment(scratch: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(scratch)}


def test_an_experiment_of_ones_own_is_run_and_reported(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before = somaxconn()
    command = lab("run", EXAMPLE, "--json", "--out", tmp_path / "out")
    ran = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, env=environment(scratch))
    assert ran.returncode == 0, ran.stderr
    (result,) = json.loads(ran.stdout)
    figures = {one["trial"]: one["figures"] for one in result["measured"]}
    # Sixteen wait in front of gunicorn, and one more (unix(7), af_unix.c: full is more than the backlog).
    assert figures["gunicorn-16"]["waiting_max.gunicorn"] == 17
    assert figures["gunicorn-16"]["backlog.gunicorn"] == 16
    assert figures["gunicorn-16"]["gateway"] > 0
    assert figures["gunicorn-16"]["log.front.errno.11"] == figures["gunicorn-16"]["gateway"]
    assert figures["gunicorn-1024"]["served"] == figures["stanchion-16"]["served"] == 100
    (directory,) = (tmp_path / "out").iterdir()
    assert (directory / "report.html").stat().st_size > 0
    assert not list(scratch.iterdir())
    assert not cages(scratch)
    assert somaxconn() == before


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_by_whichever_signal_it_ends_nothing_is_left(tmp_path: Path, ending: signal.Signals) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    experiment = tmp_path / "long.toml"
    experiment.write_text(LONG)
    (tmp_path / "app.py").write_text(APP)
    command = lab("run", experiment, "--out", tmp_path / "out")
    with subprocess.Popen(command, env=environment(scratch), stderr=subprocess.PIPE, text=True) as running:
        deadline = time.monotonic() + STOP_S
        while not any(map(serves, cages(scratch))):
            assert time.monotonic() < deadline and running.poll() is None
            time.sleep(0.05)
        running.send_signal(ending)
        assert running.stderr is not None
        said = running.stderr.read()
        code = running.wait(STOP_S)
    while cages(scratch):
        assert time.monotonic() < deadline + STOP_S, cages(scratch)
        time.sleep(0.05)
    if ending is not signal.SIGKILL:
        assert code == 130
        assert "nothing is left behind" in said
        assert not list(scratch.iterdir())
        assert not (tmp_path / "out").exists()


def test_a_closed_terminal_does_not_end_what_nohup_began() -> None:
    script = "import signal; from stanchion_lab import command; command.main(['list']); print(signal.getsignal(1))"
    nohup = subprocess.run(["nohup", sys.executable, "-P", "-c", script], capture_output=True, text=True, timeout=RUN_S)
    assert nohup.stdout.splitlines()[-1:] == [str(signal.SIG_IGN)], nohup


def serves(process: psutil.Process) -> bool:
    """Whether it runs the app. Other processes of a cage may end while this looks."""
    try:
        return "app.py" in " ".join(process.cmdline())
    except psutil.Error:  # a zombie has no command line either
        return False


APP = """
import http.server

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

http.server.HTTPServer(("127.0.0.1", 8000), Page).serve_forever()
"""


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        ("title = 1", "Expected `str`, got `int` - at `$.title`"),
        (LONG.replace('load = "long"', 'load = "short"'), "trial long: there is no load short"),
        (LONG.replace('servers = ["app"]', 'servers = ["shop"]'), "trial long: there is no server shop"),
        (LONG.replace('servers = ["app"]', 'servers = ["app", "app"]'), "trial long: names a server twice"),
        (LONG.replace("for_s = 100", "for_s = 100000"), "loads.long: must end within 1800 s"),
        (LONG.replace("rate_per_s = 5", RAMP), "loads.long: must end within 1800 s"),
        (LONG.replace("patience_s", "patience"), "contains unknown field `patience`"),
        (LONG.replace("rate_per_s", 'tools = ["wkr"]\nrate_per_s'), "Invalid enum value 'wkr' - at `$.loads"),
        (LONG.replace("rate_per_s", "tools = []\nrate_per_s"), "length >= 1 - at `$.loads[...].tools`"),
        (LONG.replace('kind = "program"', 'kind = "apache"'), "Invalid enum value 'apache' - at `$.servers"),
        (
            LONG.replace("patience_s", 'to = "shop"\npatience_s'),
            "trial long: load long is to shop, which is not among its",
        ),
        (LONG.replace("patience_s", "keep_alive = true\npatience_s"), "loads.long: keeps connections alive, and needs"),
        (LONG.replace("patience_s = 5", "patience_s = -5"), "Expected `float` > 0.0 - at `$.loads"),
        (LONG + 'deeds = [{ at_s = 1, server = "app", signal = "SIGHUP" }]', "a deed: there is no signal SIGHUP"),
        ("quick = 1", "quick must be a table"),
        ('title = "caf\udce9"', "can't decode byte 0xe9"),
        # vm. and the like belong to no namespace: they would be the machine's.
        (LONG.replace("net.core.somaxconn", "vm.swappiness"), "sysctl vm.swappiness: only those of net. can be set"),
        ("title = ", "Invalid value"),
    ],
)
def test_a_mistake_in_a_file_is_named(tmp_path: Path, toml: str, complaint: str) -> None:
    (tmp_path / "wrong.toml").write_text(toml, errors="surrogateescape")
    ran = subprocess.run(lab("run", tmp_path / "wrong.toml"), capture_output=True, text=True, timeout=RUN_S)
    assert ran.returncode == 2
    assert f"{tmp_path}/wrong.toml: " in ran.stderr
    assert complaint in ran.stderr


def test_an_experiment_that_is_not_there(tmp_path: Path) -> None:
    ran = subprocess.run(lab("run", "moon"), capture_output=True, text=True, timeout=RUN_S, cwd=tmp_path)
    assert ran.returncode == 2
    assert "there is no experiment moon: it is one of " in ran.stderr
