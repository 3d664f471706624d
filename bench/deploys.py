"""How each server is given a new release while it serves, and how long that takes until only the new one answers."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.measure import SCRATCH, Figures, Plan, answers
from bench.processes import STOP_S, Tree, free_port, running
from bench.servers import Address, Launch, Server
from bench.steady_load import Broken, Steady, exchange

WORKERS = 2
DEPLOY_S = 30.0
POLL_S = 0.01
# Answers of the new release in a row, on a connection each, until the old one is believed to be gone.
ANSWERS_IN_A_ROW = 20
PAUSE_S = 0.3

RELEASE = SCRATCH / "release"
PIDFILE = SCRATCH / "deploy.pid"


@dataclass(frozen=True)
class Way:
    """A signal to the master; and if a second master comes, a signal to the old one once the new one answers."""

    signal: signal.Signals
    leave: signal.Signals | None = None


# uWSGI's HUP executes the binary again over the open sockets: it is reload and upgrade in one.
RELOADS = {
    "stanchion": Way(signal.SIGHUP),
    "gunicorn-sync": Way(signal.SIGHUP),
    "gunicorn-gthread": Way(signal.SIGHUP),
    "uwsgi": Way(signal.SIGHUP),
}
UPGRADES = {
    "stanchion": Way(signal.SIGUSR2),
    "gunicorn-sync": Way(signal.SIGUSR2, signal.SIGTERM),
    "gunicorn-gthread": Way(signal.SIGUSR2, signal.SIGTERM),
    "unicorn": Way(signal.SIGUSR2, signal.SIGQUIT),
}


def case_of(ways: dict[str, Way]) -> Callable[[Server, Plan, int], Figures]:
    def run(server: Server, plan: Plan, _round: int) -> Figures:
        with serving(server) as (tree, port):
            return deployed(tree, port, ways[server.name], plan.deploys)

    return run


@contextlib.contextmanager
def serving(server: Server) -> Iterator[tuple[Tree, int]]:
    """As `measure.serving`, with release 0, a pid file, and whichever master is the last one ended in the end."""
    SCRATCH.mkdir(exist_ok=True)
    PIDFILE.unlink(missing_ok=True)
    RELEASE.write_text("0")
    os.environ["BENCH_RELEASE"] = str(RELEASE.absolute())
    port = free_port()
    app = "bench/apps/released.ru" if server.name == "unicorn" else "released:app"
    command = server.command(Launch(app, Address(port=port), WORKERS, pidfile=str(PIDFILE.absolute())))
    log = SCRATCH / f"{server.name}.log"
    with running(command, core=None, log=log, ready=answers(port)) as tree:
        try:
            yield tree, port
        finally:
            end_heirs(tree.root.pid)


def deployed(tree: Tree, port: int, way: Way, count: int) -> Figures:
    times_s = []
    with Steady(port) as load:
        for release in range(1, count + 1):
            time.sleep(PAUSE_S)
            RELEASE.write_text(str(release))
            began_s = time.monotonic()
            old = master_pid()
            if old == 0:
                raise tree.complaint("there is no pid file")
            os.kill(old, way.signal)
            if way.leave is not None:
                until(lambda r=release: seen(port) == r, tree, f"release {release} answers")
                os.kill(old, way.leave)
            times_s.append(settled_s(port, release, tree) - began_s)
            if way.leave is not None or way.signal is signal.SIGUSR2:
                until(lambda o=old: ended(o), tree, f"the old master {old} leaves")
                until(lambda o=old: master_pid() not in (0, o), tree, "the pid file names the new master")
    return {
        "p50_ms": sorted(times_s)[len(times_s) // 2] * 1e3,
        "max_ms": max(times_s) * 1e3,
        "failures": load.failed,
        "requests": load.answered,
        "deploys": count,
    }


def settled_s(port: int, release: int, tree: Tree) -> float:
    """When the first of many answers in a row came that were all the new release's."""
    deadline_s = time.monotonic() + DEPLOY_S
    in_a_row, first_s = 0, 0.0
    while in_a_row < ANSWERS_IN_A_ROW:
        if seen(port) == release:
            first_s = first_s if in_a_row else time.monotonic()
            in_a_row += 1
        else:
            in_a_row = 0
        if time.monotonic() > deadline_s:
            raise tree.complaint(f"release {release} did not answer alone within {DEPLOY_S:.0f} s")
    return first_s


def seen(port: int) -> int | None:
    """The release that answers; None if no server answers: the load counts that, not this function."""
    with contextlib.suppress(OSError, Broken, ValueError):
        return int(exchange(port, None, keep_alive=False)[1])
    return None


def until(true: Callable[[], bool], tree: Tree, what: str) -> None:
    deadline_s = time.monotonic() + DEPLOY_S
    while not true():
        if time.monotonic() > deadline_s:
            raise tree.complaint(f"not within {DEPLOY_S:.0f} s: {what}")
        time.sleep(POLL_S)


def master_pid() -> int:
    return pid_in(PIDFILE)


def ended(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def end_heirs(first: int) -> None:
    """The masters that followed the first one, which `running` knows nothing of; TERM, and KILL for who stays."""
    pids = {pid_in(path) for path in SCRATCH.glob(f"{PIDFILE.name}*")}
    for pid in pids - {0, first}:
        with contextlib.suppress(psutil.NoSuchProcess):
            master = psutil.Process(pid)
            family = [master, *master.children(recursive=True)]
            master.terminate()
            for process in psutil.wait_procs(family, STOP_S)[1]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


def pid_in(path: Path) -> int:
    """0 where there is none, as in the moment between two masters."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return 0
