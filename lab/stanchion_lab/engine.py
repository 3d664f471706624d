"""A run: each trial of an experiment in a cage of its own, one after the other, as often as it is repeated."""

import contextlib
import os
import platform
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import psutil

from stanchion_lab import cage, programs
from stanchion_lab.result import Host, Measured, Result
from stanchion_lab.scenario import SHIPPED, Experiment, Load, Trial, lasts_s, rates
from stanchion_lab.trial import Note, Task

# For servers to start and to end; beside the time of the load itself.
AROUND_S = 240.0
END_S = 10.0
# Characters shown of the error output of a cage that ended without a result.
LAST_WORDS = 2_000

Watch = Callable[[Trial, int, Note], None]
"""Called as a trial goes on, with the trial, the number of the repeat, and the cage's note."""


def run(experiment: Experiment, watch: Watch) -> Result:
    """All of it. KeyboardInterrupt leaves nothing behind."""
    scenario = experiment.scenario
    missing = {trial.name: lack for trial in scenario.trials if (lack := programs.lacking(scenario, trial))}
    result = Result(
        name=experiment.name,
        size=experiment.size,
        scenario=scenario,
        began=datetime.now(UTC).isoformat(timespec="seconds"),
        host=_host(experiment),
        measured=[],
        missing=missing,
    )
    for repeat in range(scenario.repeats):
        # All trials before the next repeat: what disturbs the machine for a while disturbs them alike.
        for trial in scenario.trials:
            if trial.name in result.missing:
                continue
            try:
                result.measured.append(_trial(experiment, trial, repeat, watch))
            except _Missing as lack:
                result.missing[trial.name] = str(lack)
    return result


class _Missing(Exception):
    """The trial found out that the machine lacks something that it needs; the text names it."""


def _trial(experiment: Experiment, trial: Trial, repeat: int, watch: Watch) -> Measured:
    with tempfile.TemporaryDirectory(prefix="stanchion-lab-") as directory:
        task = Task(
            scenario=experiment.scenario,
            trial=trial.name,
            repeat=repeat,
            directory=directory,
            files=str(_files(experiment)),
            outside=cage.network(),
        )
        measured = Measured(trial=trial.name, repeat=repeat)
        with _caged(Path(directory), seconds_max(experiment.scenario.loads[trial.load])) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(msgspec.json.encode(task) + b"\n")
            process.stdin.flush()
            for line in process.stdout:
                note = msgspec.json.decode(line, type=Note)
                if note.missing:
                    raise _Missing(note.missing)
                if note.measured is not None:
                    measured = note.measured
                    break
                watch(trial, repeat, note)
            else:
                measured.failure = _last_words(Path(directory))
        watch(trial, repeat, Note(doing="done", done=1.0, measured=measured))
        return measured


@contextlib.contextmanager
def _caged(directory: Path, seconds_max: float) -> Iterator[subprocess.Popen[bytes]]:
    """The trial's pid 1. When this is left, for whatever reason, the cage is empty: pid 1 ends when its standard input
    does, the kernel kills whatever else is inside, and only then `unshare` has its child's end and ends as well."""
    with (directory / "cage.err").open("wb") as errors:
        process = subprocess.Popen(
            [*cage.prefix(), sys.executable, "-P", "-m", "stanchion_lab.trial"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            # Ctrl-C is ours; the cage is ended below.
            start_new_session=True,
        )
    bound = threading.Timer(seconds_max, process.kill)
    bound.start()
    try:
        yield process
    finally:
        bound.cancel()
        bound.join()
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()  # and so pid 1: --kill-child
            process.wait()
        process.stdout.close()


def seconds_max(load: Load) -> float:
    """That a trial with it may take."""
    return AROUND_S + rates(load) * (lasts_s(load) + 2 * load.patience_s)


def _last_words(directory: Path) -> str:
    said = (directory / "cage.err").read_text(errors="replace").strip()[-LAST_WORDS:]
    return f"the trial ended without a result: {said or 'it took longer than it may'}"


def _files(experiment: Experiment) -> Path:
    """Where its apps and configurations are: beside one's own file."""
    beside = experiment.path.parent
    return beside / "files" if beside == SHIPPED else beside


def _host(experiment: Experiment) -> Host:
    return Host(
        kernel=platform.release(),
        cores=len(os.sched_getaffinity(0)),
        memory_mb=psutil.virtual_memory().total >> 20,
        python=platform.python_version(),
        versions=programs.versions(experiment.scenario),
    )
