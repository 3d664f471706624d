"""The program of examples/supervisord under a real supervisord: it starts it, reloads it, stops it, starts it again."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from support import neighbour, processes
from support.address import Address
from support.example import EXAMPLES, SCRIPTS, adapted
from support.gate import Gate
from support.patience import PATIENCE_S, eventually
from support.ports import row_of_ports
from support.server import APPS
from support.wire import Wire, request

pytestmark = pytest.mark.own("the example is stanchion's")

MAIN = """\
[supervisord]
nodaemon=true
logfile={home}/supervisord.log
pidfile={home}/supervisord.pid
childlogdir={home}
[unix_http_server]
file={home}/ctl
[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://{home}/ctl
[include]
files={home}/shop.conf
"""

APP = """\
import shop
def app(environ, start_response):
    if environ["PATH_INFO"] == "/held":
        return shop.app(environ, start_response)
    start_response("200 OK", [("Content-Length", "1")])
    return [b"{release}"]
"""


@dataclass
class Supervisor:
    home: Path
    address: Address

    def ctl(self, *words: str) -> str:
        """The output of supervisorctl; `status` and `stop` have exit codes of their own."""
        command = [str(SCRIPTS / "supervisorctl"), "-c", str(self.home / "supervisord.conf"), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=6 * PATIENCE_S)
        return done.stdout

    def is_running(self) -> bool:
        return "RUNNING" in self.ctl("status", "shop")

    def pid(self) -> int:
        return int(self.ctl("pid", "shop"))

    def release(self, number: int) -> None:
        (self.home / "site.new").write_text(APP.format(release=number))
        (self.home / "site.new").rename(self.home / "released.py")

    def answer(self) -> str:
        """The app's answer. supervisord calls a program RUNNING that has not listened yet, if the machine is slow."""

        def asked() -> str | None:
            try:
                with Wire.connect(self.address) as wire:
                    return wire.get("/").text
            except ConnectionRefusedError:
                return None

        return eventually(asked, "the server listens")

    def log(self) -> str:
        return (self.home / "shop.log").read_text()


@contextlib.contextmanager
def supervised(
    home: Path, environment: dict[str, str], changes: dict[str, str], state: str = "RUNNING"
) -> Iterator[Supervisor]:
    home.mkdir()
    with row_of_ports(1) as port:
        supervisor = Supervisor(home, Address("127.0.0.1", port))
        supervisor.release(1)
        here = {
            "/srv/shop/.venv/bin/": f"{SCRIPTS}/",
            "directory=/srv/shop": f"directory={home}",
            # The test's own user may read what it has made.
            "user=www-data\n": "",
            "/var/log/shop.log": f"{home}/shop.log",
            "127.0.0.1:8000": f"127.0.0.1:{port}",
            "shop:app": "released:app",
            "startsecs=5": "startsecs=1",
            **changes,
        }
        (home / "shop.conf").write_text(adapted("supervisord/shop.conf", here))
        (home / "supervisord.conf").write_text(MAIN.format(home=home))
        command = [str(SCRIPTS / "supervisord"), "-c", str(home / "supervisord.conf")]
        paths = {"PYTHONPATH": str(APPS), "PYTHONDONTWRITEBYTECODE": "1"}
        with neighbour.running(command, home, lambda: True, {**paths, **environment}):
            eventually(lambda: (home / "ctl").exists(), "supervisord listens")
            eventually(lambda: state in supervisor.ctl("status", "shop"), f"it is {state}")
            yield supervisor
            supervisor.ctl("shutdown")
            eventually(lambda: not (home / "supervisord.pid").exists(), "supervisord leaves")


def test_a_hup_brings_new_code(tmp_path: Path, gate: Gate) -> None:
    with supervised(tmp_path / "home", gate.environment, {}) as supervisor:
        assert supervisor.answer() == "1"
        pid = supervisor.pid()
        supervisor.release(2)
        assert supervisor.ctl("signal", "HUP", "shop") == "shop: signalled\n"
        eventually(lambda: "reloaded: generation 2 serves" in supervisor.log(), "it is reloaded")
        assert (supervisor.answer(), supervisor.pid()) == ("2", pid)


@pytest.mark.parametrize("as_group", ["false", "true"])
def test_a_stop_answers_clients_that_have_come(tmp_path: Path, gate: Gate, as_group: str) -> None:
    changes = {"stopasgroup=false": f"stopasgroup={as_group}"}
    with supervised(tmp_path / "home", gate.environment, changes) as supervisor:
        master = psutil.Process(supervisor.pid())
        pids = [master.pid, *(child.pid for child in master.children(recursive=True))]
        assert supervisor.answer() == "1"
        with Wire.connect(supervisor.address) as wire:
            wire.send(request("GET", "/held"))
            assert gate.announcement() == "held"
            stopping = subprocess.Popen(
                [str(SCRIPTS / "supervisorctl"), "-c", str(supervisor.home / "supervisord.conf"), "stop", "shop"],
                stdout=subprocess.PIPE,
                text=True,
            )
            eventually(lambda: "TERM: draining, then leaving" in supervisor.log(), "it drains")
            assert stopping.poll() is None
            gate.let_pass(1)
            assert wire.response().status == 200
        assert stopping.communicate(timeout=2 * PATIENCE_S)[0] == "shop: stopped\n"
        for pid in pids:
            processes.gone(pid)
        assert "SIGKILL" not in (supervisor.home / "supervisord.log").read_text()


def test_a_master_that_is_killed_is_started_again_and_gets_its_port(tmp_path: Path, gate: Gate) -> None:
    with supervised(tmp_path / "home", gate.environment, {}) as supervisor:
        first = supervisor.pid()
        left = [child.pid for child in psutil.Process(first).children(recursive=True)]
        os.kill(first, 9)
        eventually(lambda: supervisor.is_running() and supervisor.pid() != first, "it is started again")
        assert supervisor.answer() == "1"
        for pid in left:
            processes.gone(pid)


def test_an_app_that_cannot_be_imported_is_fatal(tmp_path: Path, gate: Gate) -> None:
    changes = {"shop:app": "there_is_no:app", "startretries=3": "startretries=0", "startsecs=5": "startsecs=10"}
    with supervised(tmp_path / "home", gate.environment, changes, "FATAL") as supervisor:
        assert "exit status 4" in (supervisor.home / "supervisord.log").read_text()
        assert "there_is_no" in supervisor.log()


def test_a_stop_has_more_time_than_the_server_takes() -> None:
    lines = (EXAMPLES / "supervisord/shop.conf").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith(";"))
    words = given["command"].split()
    assert int(given["stopwaitsecs"]) > int(words[words.index("--graceful-timeout") + 1])
