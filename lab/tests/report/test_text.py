"""The report for a terminal."""

import pytest

from lab_support import results
from stanchion_lab.report import text
from stanchion_lab.result import Measured, Result


@pytest.fixture(scope="module")
def result() -> Result:
    return results.result()


def test_it_has_verdicts_with_both_figures_and_fits_a_terminal(result: Result) -> None:
    summary = text.summary(result)
    assert max(map(len, summary.splitlines())) <= text.WIDTH
    lines = [line.strip() for line in summary.splitlines()]
    assert "2 of 5 claims hold, 2 do not, 1 was not measured." in lines
    failed = sorted(one.figures["gateway"] for one in result.of("small"))[1]
    assert lines[lines.index("ok  At 128 some requests fail") + 1] == f"small:gateway {failed:.0f} > 0"
    assert lines[lines.index("NO  stanchion turns somebody away") + 1] == "ours:told 0 > 0"
    assert lines[lines.index("??  siege sees the same") + 1] == "absent:gateway \N{EN DASH} > 0"
    assert "unless: the line is long enough" in lines
    assert "not run: absent: siege is not installed; Debian has it in the package siege" in lines
    assert "failed: large, repeat 4: web did not listen within 10 s" in lines


def test_the_table_has_each_trial_with_its_figures(result: Result) -> None:
    lines = text.summary(result).splitlines()
    row = next(line for line in lines if line.startswith("ours ")).split()
    assert row[:4] == ["ours", "200", "200", "0"]
    assert not [line for line in lines if line.startswith("absent ")]


def test_histograms_are_in_the_form_of_the_literature(result: Result) -> None:
    of = Result(
        name="one",
        size="quick",
        scenario=result.scenario,
        began="",
        host=result.host,
        measured=[
            Measured(trial="small", repeat=0, latencies_ms=[3.0, 17.0, 18.0, 20.0, 30.0]),
            Measured(trial="large", repeat=0, latencies_ms=[40.0]),
        ],
    )
    assert text.histograms(of, ["small", "large"]).splitlines() == [
        "gunicorn, somaxconn 128 (ms)                       gunicorn, somaxconn 1024 (ms)",
        "min:3 avg:17.6 med:18 max:30 dev:8.64 count:5      min:40 avg:40 med:40 max:40 dev:0 count:1",
        "value |---------------------------------- count    value |---------------------------------- count",
        "    2 |********                               1        2 |                                       0",
        "    4 |                                       0        4 |                                       0",
        "    8 |                                       0        8 |                                       0",
        "   16 |**********************************     4       16 |                                       0",
        "   32 |                                       0       32 |**********************************     1",
    ]


def test_without_anything_it_still_says_what_was_asked(result: Result) -> None:
    empty = Result(
        name="one", size="quick", scenario=result.scenario, began="", host=result.host, measured=[], missing={}
    )
    summary = text.summary(empty)
    assert "5 were not measured" in summary and summary.startswith("one: A burst")
