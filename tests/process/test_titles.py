"""The title of each process in ps and top: its role and its app; tools that read command lines still find one."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from stanchion.command_line import _parse, _settings_of
from stanchion.doctor import settings
from support.ctl import ctl
from support.patience import PATIENCE_S, eventually
from support.server import Serve, Server

pytestmark = pytest.mark.own("gunicorn's titles need a package beside it")


def shown(pid: int) -> list[str]:
    """The title as the kernel shows it: psutil takes a title apart at its spaces."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return ["gone"]


def titles(server: Server) -> Counter[str]:
    """The first word of each process's command line, and how many have it."""
    return Counter(shown(process.pid)[0] for process in server.processes())


def every(name: str, workers: int) -> Counter[str]:
    template = ["template"] if workers > 1 else []
    roles = ["master", "acceptor", *template, *(f"worker {number}" for number in range(workers))]
    return Counter(f"stanchion: {role} [{name}]" for role in roles)


@pytest.mark.privileges
def test_each_process_has_its_role_and_its_app_in_its_title(serve: Serve) -> None:
    server = serve("hello:app", "-w", "2")
    assert titles(server) == every("hello:app", 2)
    command = [sys.executable, "-m", "stanchion", "serve", *server.arguments]
    assert shown(server.pid) == ["stanchion: master [hello:app]", *command]
    listed = subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", ",".join(str(one.pid) for one in server.processes())],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert sorted(line.strip() for line in listed) == sorted(
        [f"stanchion: master [hello:app] {' '.join(command)}", *list(every("hello:app", 2))[1:]]
    )
    # The short names stay as they are, for tools that look for these.
    names = server.names()
    assert names == ["stanchion", "stanchion-acpt", "stanchion-tmpl", "stanchion-work", "stanchion-work"]


@pytest.mark.privileges
def test_a_title_is_a_page_of_its_own_and_the_environment_stays(serve: Serve) -> None:
    server = serve("hello:app", env={"STANCHION_CMD_ARGS": "--timeout 7"})
    for process in server.processes():
        if os.geteuid() == 0 or process.name() != "stanchion-acpt":
            assert process.environ()["STANCHION_CMD_ARGS"] == "--timeout 7"
    found = settings.of(server.pid, lambda words, place: _settings_of(_parse(words, place)))
    assert found is not None
    assert found.values["timeout"] == 7
    assert found.sources["timeout"] == f"STANCHION_CMD_ARGS of process {server.pid}"


def test_a_reload_and_a_successor_have_the_name_that_counts_now(serve: Serve, tmp_path: Path) -> None:
    config = tmp_path / "conf.py"
    config.write_text("proc_name = 'shop'\n")
    control = tmp_path / "control"
    server = serve("hello:app", "-c", str(config), "--control", f"unix:{control}")
    assert titles(server) == every("shop", 1)
    (worker,) = server.of_name("stanchion-work")
    worker.kill()
    worker.wait()
    # A template stays from now on.
    shop = every("shop", 1) + Counter(["stanchion: template [shop]"])
    eventually(lambda: titles(server) == shop, "the successor has the title of its predecessor")
    config.write_text("proc_name = 'warehouse'\n")
    assert ctl(control, "reload").returncode == 0
    eventually(lambda: titles(server) == every("warehouse", 1), "all have the new name")
    # A reload that fails changes no title.
    config.write_text("proc_name = 'nowhere'\nworkers = 0\n")
    assert ctl(control, "reload").returncode == 1
    assert titles(server) == every("warehouse", 1)


def test_a_worker_has_one_number_in_its_title_the_log_and_ctl(serve: Serve, tmp_path: Path) -> None:
    control = tmp_path / "control"
    server = serve("hello:app", "--max-requests", "1", "--control", f"unix:{control}")
    mark = server.log.mark()
    with server.connect() as wire:
        assert wire.get("/").status == 200
    # It sits beside the one that it follows, which is still there, and has its number.
    number, pid = server.log.wait(r"worker ready worker=(\d+) pid=(\d+)", mark).groups()
    assert number == "0"
    assert shown(int(pid)) == [f"stanchion: worker {number} [hello:app]"]
    workers = json.loads(ctl(control, "--json", "workers").stdout)["data"]
    assert [(one["index"]) for one in workers if one["pid"] == int(pid)] == [int(number)]


def test_a_new_master_is_started_by_the_command_and_not_by_the_title(serve: Serve) -> None:
    server = serve("hello:app", "--name", "shop")
    before = shown(server.pid)
    server.signal(signal.SIGUSR2)
    server.follow(int(server.log.wait(r"upgraded: the new master (\d+) serves")[1]))
    assert server.process.wait(PATIENCE_S) == 0
    assert shown(server.pid) == before
    assert titles(server) == every("shop", 1)
