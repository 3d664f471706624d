"""Where a run is: a bar for a person at a terminal, a line for each trial otherwise. On standard error."""

import contextlib
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from stanchion_lab.engine import Watch
from stanchion_lab.result import OUTCOMES, Measured
from stanchion_lab.scenario import Experiment, Trial
from stanchion_lab.trial import Note


@contextlib.contextmanager
def progress(experiment: Experiment, number: int, of: int) -> Iterator[Watch]:
    """`number`: this is the how-many-th experiment."""
    title = f"{experiment.name} ({number} of {of})" if of > 1 else experiment.name
    console = Console(stderr=True)
    if not sys.stderr.isatty():
        print(title, file=sys.stderr, flush=True)
        yield _lines
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[doing]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bars:
        console.print(title, style="bold", markup=False, highlight=False)
        tasks: dict[tuple[str, int], TaskID] = {}

        def watch(trial: Trial, repeat: int, note: Note) -> None:
            key = (trial.name, repeat)
            if key not in tasks:
                tasks[key] = bars.add_task(_name(trial, repeat), total=1.0, doing="")
            doing = _ending(note.measured) if note.measured else note.doing
            bars.update(tasks[key], completed=note.done, doing=doing)
            if note.measured:
                bars.stop_task(tasks[key])

        yield watch


def _lines(trial: Trial, repeat: int, note: Note) -> None:
    if note.measured is not None:
        took_s = note.measured.took_s
        print(f"  {_name(trial, repeat)}: {_ending(note.measured)} ({took_s:.1f} s)", file=sys.stderr, flush=True)


def _name(trial: Trial, repeat: int) -> str:
    return f"{trial.title}, again ({repeat + 1})" if repeat else trial.title


def _ending(measured: Measured) -> str:
    if measured.failure:
        return f"failed: {measured.failure.splitlines()[0]}"
    return ", ".join(f"{measured.figures[one]:.0f} {one}" for one in OUTCOMES if measured.figures.get(one)) or "done"
