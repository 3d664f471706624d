"""The progress of a run, on standard error."""

import io
from pathlib import Path

import pytest

from lab_support import results
from stanchion_lab.progress import progress
from stanchion_lab.result import Measured
from stanchion_lab.scenario import Experiment
from stanchion_lab.trial import Note


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_what_servers_say_is_text(stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    """nginx says `[emerg] ...`, and a title may have brackets: to rich, that is how one writes in colours."""
    scenario = results.scenario()
    experiment = Experiment(name="one[/two]", path=Path("one.toml"), size="quick", scenario=scenario)
    measured = Measured(trial="small", repeat=0, failure="[emerg] open() [/run/nginx.pid] failed")
    said = stream()
    monkeypatch.setattr("sys.stderr", said)
    monkeypatch.setenv("COLUMNS", "200")
    with progress(experiment, 1, 1) as watch:
        watch(scenario.trials[0], 0, Note(doing="done", done=1.0, measured=measured))
    assert "one[/two]" in said.getvalue()
    assert "failed: [emerg] open() [/run/nginx.pid] failed" in said.getvalue()
