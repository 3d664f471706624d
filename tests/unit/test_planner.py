"""The planner as Python has it: questions and answers in JSON, how far it is, and how it ends early."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from stanchion._stanchion import plan

MODEL = {"rate_per_s": 2e5, "service": [[0.5, 15]], "seconds": 2.0}


def question(**changes: Any) -> str:
    return json.dumps({"source": {"model": MODEL}, "scenarios": [{"name": "now", "workers": 4}], "seeds": 1, **changes})


def test_a_question_has_an_answer() -> None:
    shares: list[float] = []
    answer = json.loads(plan(question(), shares.append))
    assert answer["results"][0]["name"] == "now"
    assert answer["results"][0]["requests"] == pytest.approx(4e5, rel=0.01)
    assert shares[0] == 0.0
    assert shares == sorted(shares)
    assert json.loads(plan(question(seeds=3)))["results"][0]["wait_band"]["p99_us"]


def test_what_progress_raises_ends_the_planner() -> None:
    class EnoughError(Exception):
        pass

    def progress(_share: float) -> None:
        raise EnoughError

    with pytest.raises(EnoughError):
        plan(question(), progress)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        pytest.param("{", "question", id="no JSON"),
        pytest.param(question(scenarios=[{"workers": 0}]), "workers", id="a wrong scenario"),
        pytest.param(question(source={"recording": "/nowhere"}), "/nowhere cannot be read: No such file", id="nothing"),
        pytest.param(question(source={"recording": __file__}), "no recording of arrivals", id="another file"),
        pytest.param(question(source={"recording": str(Path(__file__).parent)}), "has no recording", id="no file"),
    ],
)
def test_a_question_without_an_answer_says_why(asked: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        plan(asked)


def test_a_pipe_among_the_files_is_named_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "arrivals-0.rec")
    with pytest.raises(ValueError, match=r"arrivals-0\.rec cannot be read: it is no regular file"):
        plan(question(source={"recording": str(tmp_path)}))
