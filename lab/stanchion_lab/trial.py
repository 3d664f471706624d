"""One trial, from inside its cage: `python -m stanchion_lab.trial`, with a Task on standard input.

The trial writes a line of JSON to standard output for each Note. It ends when standard input ends: then no process
waits for the result any more.
"""

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from stanchion_lab import cage, ideal, load, servers
from stanchion_lab.load import Target
from stanchion_lab.processes import NotServing, NotSupported, Process, tail
from stanchion_lab.result import SERVED, Measured
from stanchion_lab.scenario import SHIPPED, Deed, Mistake, Scenario, Server, Trial, behind
from stanchion_lab.servers import KINDS, Address, Place
from stanchion_lab.witness import logs, shares
from stanchion_lab.witness.cpu import Cpu
from stanchion_lab.witness.kernel import Kernel
from stanchion_lab.workers import workers


class Task(msgspec.Struct, kw_only=True):
    scenario: Scenario
    trial: str
    repeat: int
    directory: str
    """The trial's own; empty at the start. The process that made it removes it."""
    files: str
    """Where the experiment's own files are."""
    outside: str
    """The host's network namespace."""


class Note(msgspec.Struct, kw_only=True):
    """A message from the cage: how far the trial is, and in the end the figures."""

    doing: Literal["starting", "loading", "collecting", "done"]
    done: float = 0.0
    """The share of the load that is over."""
    measured: Measured | None = None
    missing: str = ""
    """In the end, instead of figures: what the trial needs and the machine does not have."""


Tell = Callable[[Note], None]


def main() -> None:
    # Send the output of servers and tools to standard error, so that it does not come between the notes.
    notes = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=Task)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    lock = threading.Lock()

    def tell(note: Note) -> None:
        with lock:
            notes.write(msgspec.json.encode(note) + b"\n")

    trial = next(one for one in task.scenario.trials if one.name == task.trial)
    began = datetime.now(UTC).isoformat(timespec="seconds")
    measured = Measured(trial=trial.name, repeat=task.repeat, began=began)
    began_s = time.monotonic()
    try:
        measured.sysctl = cage.furnish(task.outside, trial.sysctl)
        measure(task, trial, measured, tell)
    except NotSupported as lack:
        tell(Note(doing="done", missing=str(lack)))
        return
    except (Mistake, NotServing, load.Failed, OSError) as error:
        measured.failure = str(error)
    measured.took_s = time.monotonic() - began_s
    _speak_of_no_machine(measured, Path(task.directory))
    tell(Note(doing="done", measured=measured))


def _speak_of_no_machine(measured: Measured, directory: Path) -> None:
    """Remove this machine's paths: they are private, and only make commands hard to read."""
    for words in (measured.commands, measured.words):
        for name, text in words.items():
            text = text.replace(f"{directory}/", "").replace(str(directory), ".").replace(f"{SHIPPED}/", "")
            text = text.replace(sys.executable, "python3").replace(f"{sys.prefix}/bin/", "")
            in_venv = sys.prefix != sys.base_prefix
            words[name] = text.replace(sys.prefix, "$VIRTUAL_ENV") if in_venv else text


def _end_with_the_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def measure(task: Task, trial: Trial, measured: Measured, tell: Tell) -> None:
    """Fill it in."""
    directory = Path(task.directory)
    place = Place(directory, (Path(task.files), SHIPPED / "files"))
    named = {name: task.scenario.servers[name] for name in trial.servers}
    wanted = task.scenario.loads[trial.load]
    asked = wanted.to or trial.servers[-1]
    if named[asked].kind == ideal.KIND:
        _take(measured, trial, ideal.offer(wanted, named[asked]))
        return
    tell(Note(doing="starting"))
    with ExitStack() as started:
        running = {}
        for name, upstream in behind(task.scenario, trial).items():
            running[name] = started.enter_context(_serving(name, named[name], named.get(upstream), place))
        measured.commands = {name: shlex.join(one.argv) for name, one in running.items()}
        _forget(directory)
        kernel = Kernel({name: str(Address.of(one, directory)) for name, one in named.items()})
        cpu = Cpu({name: one.pids for name, one in running.items()})
        kernel.start()
        cpu.start()
        tell(Note(doing="loading"))
        with _deeds(trial, running, named, directory):
            target = Target(str(Address.of(named[asked], directory)))
            offered = load.offer(wanted, target, directory, lambda done: tell(Note(doing="loading", done=done)))
        spent, cpu_shares = cpu.stop()
        measured.figures |= kernel.stop() | spent
    # The servers have ended, and written what they had to.
    tell(Note(doing="collecting", done=1.0))
    for name, server in named.items():
        measured.figures |= logs.figures(name, server, directory)
        measured.words[f"{name}.log"] = tail(directory / f"{name}.log")
    _take(measured, trial, offered)
    measured.shares = shares.complete(measured.shares or cpu_shares, named[asked].workers)
    measured.figures |= shares.figures(measured.shares)


def _take(measured: Measured, trial: Trial, offered: load.Offered) -> None:
    measured.figures |= offered.figures | aftermath(trial, offered.timeline)
    measured.words |= offered.words
    measured.tool = offered.tool
    measured.commands["load"] = offered.command
    measured.latencies_ms = offered.latencies_ms
    measured.timeline = offered.timeline
    measured.steps = offered.steps
    measured.shares = offered.shares


def aftermath(trial: Trial, timeline: list[tuple[float, float, str]]) -> dict[str, float]:
    """The figures `after.`, as `Measured.figures` has them; none of a trial without deeds."""
    if not trial.deeds:
        return {}
    over_s = max(deed.at_s for deed in trial.deeds)
    after = sorted(one for one in timeline if one[0] >= over_s)
    lost = [number for number, (_, _, outcome) in enumerate(after) if outcome != SERVED]
    good = after[lost[-1] + 1 :] if lost else after
    figures: dict[str, float] = {"after.requests": len(after), "after.served": len(after) - len(lost)}
    if after:
        figures["after.share"] = 1 - len(lost) / len(after)
        # If requests were lost to the end, recovery took at least as long as we looked.
        figures["after.recovered_s"] = (good[0] if good else after[-1])[0] - over_s
    return figures


@contextmanager
def _serving(name: str, server: Server, upstream: Server | None, place: Place) -> Iterator[Process]:
    start = KINDS[server.kind].start(name, server, upstream, place)
    address = str(Address.of(server, place.directory))
    process = Process(name, start.argv, start.environment, place.directory)
    try:
        process.wait_until(lambda: servers.serves(server, address))
        yield process
    finally:
        process.stop()


def _forget(directory: Path) -> None:
    """Empty the logs, which have the requests by which we found out that the servers serve."""
    for log in directory.glob("*.log"):
        os.truncate(log, 0)


@contextmanager
def _deeds(trial: Trial, running: dict[str, Process], named: dict[str, Server], directory: Path) -> Iterator[None]:
    """Each at its time, counted from now; those whose time has not come when the load is over are not done."""
    over = threading.Event()
    failures: list[Exception] = []

    def go() -> None:
        began_s = time.monotonic()
        for deed in sorted(trial.deeds, key=lambda one: one.at_s):
            if over.wait(max(0.0, began_s + deed.at_s - time.monotonic())):
                return
            try:
                _do(deed, running, named, directory)
            except (OSError, Mistake) as error:
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


def _do(deed: Deed, running: dict[str, Process], named: dict[str, Server], directory: Path) -> None:
    if deed.touch:
        (directory / deed.touch).touch()
    elif deed.remove:
        with suppress(FileNotFoundError):
            (directory / deed.remove).unlink()
    else:
        process = running[deed.server]
        pid = process.root.pid
        if deed.whom == "worker":
            serving = workers(process.pids())
            if not serving:
                raise Mistake(f"{deed.server} has no worker to send {deed.signal}")
            pid = serving[-1]
        os.kill(pid, signal.Signals[f"SIG{deed.signal}"])


if __name__ == "__main__":
    main()
