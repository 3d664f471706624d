"""One trial, from inside its cage: `python -m stanchion_lab.trial`, with a Task on standard input.

The trial writes a line of JSON to standard output for each Note. It ends when standard input ends: then no process
waits for the result any more.
"""

import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from stanchion_lab import cage, ideal, load
from stanchion_lab.deeds import during
from stanchion_lab.load import Target
from stanchion_lab.processes import NotServing, NotSupported, tail
from stanchion_lab.result import SERVED, Measured
from stanchion_lab.running import Running, running
from stanchion_lab.scenario import SHIPPED, Mistake, Scenario, Trial, copies
from stanchion_lab.servers import Address, Place
from stanchion_lab.witness import executions, logs, shares
from stanchion_lab.witness.cpu import Cpu
from stanchion_lab.witness.kernel import Kernel


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
    scenario = task.scenario
    wanted = scenario.loads[trial.load]
    asked = wanted.to or trial.servers[-1]
    if scenario.servers[asked].kind == ideal.KIND:
        _take(measured, trial, ideal.offer(wanted, scenario.servers[asked]))
        return
    tell(Note(doing="starting"))
    target = _target(scenario, asked, directory)
    with running(scenario, trial, Place(directory, (Path(task.files), SHIPPED / "files"))) as servers:
        measured.commands = {name: shlex.join(one.argv) for name, one in servers.processes.items()}
        _forget(directory)
        with _witnesses(servers, directory) as witnessed:
            tell(Note(doing="loading"))
            with during(trial.deeds, servers, directory):
                offered = load.offer(wanted, target, directory, lambda done: tell(Note(doing="loading", done=done)))
    measured.figures |= witnessed.figures
    # The servers have ended, and written what they had to.
    tell(Note(doing="collecting", done=1.0))
    for name, server in servers.named.items():
        measured.figures |= logs.figures(name, server, directory)
        measured.words[f"{name}.log"] = tail(directory / f"{name}.log", logs.REQUEST_TEXT)
    if wanted.numbered:
        measured.figures |= executions.figures(directory, [outcome for _, _, outcome in offered.timeline])
    _take(measured, trial, offered)
    measured.shares = shares.complete(measured.shares or witnessed.cpu_shares, scenario.servers[asked].workers)
    measured.figures |= shares.figures(measured.shares)


def _target(scenario: Scenario, asked: str, directory: Path) -> Target:
    hosts = copies(asked, scenario.servers[asked]).values()
    address, *more = (str(Address.of(one, directory)) for one in hosts)
    return Target(address, tuple(more))


@dataclass
class Witnessed:
    figures: dict[str, float] = field(default_factory=dict)
    cpu_shares: dict[str, float] = field(default_factory=dict)


@contextmanager
def _witnesses(servers: Running, directory: Path) -> Iterator[Witnessed]:
    """The kernel and the scheduler, until this is left. With hosts there are none: they see this network only, and to
    look at so many processes would take the client's time."""
    witnessed = Witnessed()
    if any(server.hosts for server in servers.named.values()):
        yield witnessed
        return
    kernel = Kernel({name: str(Address.of(one, directory)) for name, one in servers.named.items()})
    cpu = Cpu({name: one.pids for name, one in servers.processes.items()})
    kernel.start()
    cpu.start()
    yield witnessed
    witnessed.figures, witnessed.cpu_shares = cpu.stop()
    witnessed.figures |= kernel.stop()


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


def _forget(directory: Path) -> None:
    """Empty the logs, which have the requests by which we found out that the servers serve."""
    for log in directory.glob("*.log"):
        os.truncate(log, 0)


if __name__ == "__main__":
    main()
