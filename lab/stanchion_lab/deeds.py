"""The acts of a trial: each at its time, while the load runs."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from stanchion_lab.processes import NotServing, Process
from stanchion_lab.running import Running
from stanchion_lab.scenario import Deed, Mistake
from stanchion_lab.workers import workers


@contextmanager
def during(deeds: Sequence[Deed], servers: Running, directory: Path) -> Iterator[None]:
    """Each at its time, counted from now; those whose time has not come when the load is over are not done."""
    over = threading.Event()
    failures: list[Exception] = []

    def go() -> None:
        began_s = time.monotonic()
        for deed in sorted(deeds, key=lambda one: one.at_s):
            if over.wait(max(0.0, began_s + deed.at_s - time.monotonic())):
                return
            try:
                _do(deed, servers, directory)
            except (OSError, Mistake, NotServing) as error:
                failures.append(error)

    thread = threading.Thread(target=go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if failures:
        raise Mistake(f"a deed of the trial failed: {failures[0]}")


def _do(deed: Deed, servers: Running, directory: Path) -> None:
    if deed.touch:
        (directory / deed.touch).touch()
    elif deed.remove:
        with suppress(FileNotFoundError):
            (directory / deed.remove).unlink()
    else:
        for name in servers.copies[deed.server]:
            if deed.link:
                servers.hosts.link(servers.named[name], deed.link)
            elif deed.start:
                servers.start(name)
            else:
                _send(deed, name, servers.processes[name])


def _send(deed: Deed, name: str, process: Process) -> None:
    pids = process.pids() if deed.whom == "all" else [process.root.pid]
    if deed.whom == "worker":
        pids = workers(process.pids())[-1:]
        if not pids:
            raise Mistake(f"{name} has no worker to send {deed.signal}")
    # The master comes first: it is to see no child of its end, and to start no other.
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.Signals[f"SIG{deed.signal}"])
