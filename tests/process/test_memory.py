"""The app is loaded once and its memory shared: four workers cost little more than one copy of it."""

import signal

import psutil
import pytest

from support import processes
from support.server import Serve, Server
from support.wire import request

HEAVY_MB = 100
WORKERS = 4
ROUNDS_MAX = 100

WORKER_OWN_BYTES_MAX = 640_000
"""The gate's build takes 590 to 627 KB in eight runs, the release build 561 to 586 KB: deeper stacks, more data."""

# Modules that the master may need, and no app here does.
UNUSED = {
    *("ast", "bz2", "difflib", "dis", "glob", "inspect", "linecache", "logging", "lzma", "shlex", "shutil", "string"),
    *("sysconfig", "textwrap", "threading", "traceback", "unicodedata"),
    *("stanchion.output", "stanchion.server_log", "stanchion.usage"),
}

# Modules that read the settings.
READING = {
    *("argparse", "enum", "gettext", "json", "re", "shlex", "typing"),
    *("stanchion.command_line", "stanchion.config", "stanchion.gunicorn"),
}


def modules(server: Server) -> set[str]:
    """The modules of a worker, which has all that the master had when it forked the template."""
    with server.connect() as wire:
        return set(wire.get("/").text.split())


def work(server: Server) -> set[int]:
    """Have every worker answer and collect garbage; gives their process ids."""
    pids: set[int] = set()
    for _ in range(ROUNDS_MAX):
        wires = [server.connect() for _ in range(WORKERS)]
        for wire in wires:
            wire.send(request("GET", "/"))
        for wire in wires:
            response = wire.response()
            assert response.status == 200
            pids.add(int(response.text.split()[0]))
            wire.close()
        if len(pids) == WORKERS:
            return pids
    raise AssertionError(f"only {len(pids)} of {WORKERS} workers have answered")


def pss_after_work_bytes(server: Server) -> int:
    work(server)
    return processes.pss_bytes(server.processes())


@pytest.mark.own("gunicorn does not freeze the heap before it forks")
def test_four_workers_share_a_preloaded_app_of_100_mb(serve: Serve) -> None:
    """PSS of the whole tree: at most one copy and a quarter, on top of what the same tree takes without it."""
    bare = pss_after_work_bytes(serve("memory:heavy()", "-w", str(WORKERS), env={"HEAVY_MB": "0"}))
    heavy = pss_after_work_bytes(serve("memory:heavy()", "-w", str(WORKERS), env={"HEAVY_MB": str(HEAVY_MB)}))
    copies = (heavy - bare) / (HEAVY_MB * 1_000_000)
    assert 0.9 < copies <= 1.25, f"{copies:.2f} copies of the app's data in memory"


@pytest.mark.own("gunicorn's workers import what they like")
def test_a_worker_has_little_for_itself(serve: Serve) -> None:
    """Nothing is made or run in each worker that the template could have made for all."""
    pids = work(serve("memory:heavy()", "-w", str(WORKERS), env={"HEAVY_MB": "0"}))
    own_bytes = [psutil.Process(pid).memory_full_info().uss for pid in pids]
    assert max(own_bytes) < WORKER_OWN_BYTES_MAX


@pytest.mark.own("gunicorn's workers import what they like")
def test_a_worker_has_no_modules_that_its_app_does_not_use(serve: Serve) -> None:
    loaded = modules(serve("modules:app"))
    assert "stanchion.loader" in loaded
    assert not loaded & UNUSED


@pytest.mark.own("gunicorn's processes have what reads their settings")
def test_the_master_has_nothing_of_what_reads_the_settings(serve: Serve) -> None:
    """Neither from the start nor from a reload."""
    server = serve("modules:app", "--workers", "1", env={"GUNICORN_CMD_ARGS": "--keep-alive 3"})
    assert not modules(server) & READING
    mark = server.log.mark()
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded: generation 2 serves", mark)
    assert not modules(server) & READING


@pytest.mark.own("gunicorn's processes have what reads their settings")
def test_a_config_file_is_read_in_the_master(build: Serve) -> None:
    """The master reads it, and only once, since the file may do anything."""
    server = build("modules:app", "--workers", "1")
    (server.home / "stanchion.conf.py").write_text("import os, sys\nprint('read by', os.getpid(), file=sys.stderr)\n")
    server.start()
    assert [int(found[1]) for found in server.log.matches(r"read by (\d+)")] == [server.pid]
    assert "stanchion.config" in modules(server)
