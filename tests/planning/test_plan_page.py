"""The page of `stanchion plan` in a real browser: curves, the slider, and texts that are no markup."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from stanchion.plan import page
from support.chromium import BROWSER_PATIENCE_S, NEEDS_CHROMIUM
from support.devtools import Tab, tab
from support.patience import PATIENCE_S, eventually
from support.planned import SETTINGS, measured, result

pytestmark = [pytest.mark.timeout(180), pytest.mark.own("it plans"), NEEDS_CHROMIUM]

FOUL = '</script><script>document.title="foul"</script><b>&lt;'


@pytest.fixture
def kept() -> Iterator[ExitStack]:
    with ExitStack() as kept:
        yield kept


def shown(kept: ExitStack, file: Path) -> Tab:
    made = kept.enter_context(tab(file.as_uri()))
    eventually(
        lambda: made.evaluate("document.querySelectorAll('#settings tbody tr').length"),
        "it is drawn",
        BROWSER_PATIENCE_S,
    )
    return made


def attribute(made: Tab, selector: str, name: str) -> str:
    return str(made.evaluate(f"document.querySelector({json.dumps(selector)})?.getAttribute({json.dumps(name)})"))


def choose(made: Tab, number: int) -> str:
    made.evaluate(f"$('slider').value = {number}; $('slider').dispatchEvent(new Event('input'))")
    return str(made.evaluate("$('chosen').textContent"))


def drawn(made: Tab) -> tuple[str, float]:
    """The top of the scale of the line, and how much of it the highest point takes."""
    top = made.evaluate("[...document.querySelectorAll('#line text')][2].textContent")
    highest = float(attribute(made, "#line path.line", "d").split("L")[1].split()[1])
    return str(top), (236 - highest) / 226


def plan(**changes: Any) -> dict[str, Any]:
    results = [
        result({**SETTINGS, "name": f"{workers}x{threads}", "workers": workers, "threads": threads})
        for workers, threads in ((4, 2), (2, 2), (8, 2), (4, 4))
    ]
    return {
        "measured": measured(),
        "doubts": [],
        "now": "4x2",
        "cheapest": "8x2",
        "band": "The middle 90 % of 9 runs.",
        "about": ["rec: 360,000 requests."],
        "goals": "p99<50ms",
        "goal_us": 50_000,
        "series": page.series(results),
        "results": results,
        "unseen": ["8x2"],
        "unknown": ["The database beyond 8 busy seats."],
        **changes,
    }


def test_curves_and_a_slider(kept: ExitStack, tmp_path: Path) -> None:
    (tmp_path / "plan.html").write_text(page.made(plan()))
    made = shown(kept, tmp_path / "plan.html")
    text = made.text()
    assert "rec: 360,000 requests." in text and "The database beyond 8 busy seats." in text
    rows = made.evaluate(
        "[...document.querySelectorAll('#settings tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    assert rows[0][:3] == ["4x2", "10 ms", "200 ms"] and rows[0][-1] == "now"
    assert rows[2][-1] == "cheapest that meets the goals, more at seats than ever seen"
    # It begins with the present number of workers, between fewer and more.
    assert made.evaluate("$('chosen').textContent").startswith("4x2 now: p99 200 ms")
    chosen = [(choose(made, number), *drawn(made)) for number in (0, 1, 2)]
    assert [said.split(":")[0] for said, *_ in chosen] == ["2x2", "4x2 now", "8x2"]
    assert [(top, height) for _, top, height in chosen] == [("100", 1.0), ("50", 1.0), ("50", 0.5)]
    for selector in (
        "#waits path.p99",
        "#waits path.p50",
        "#waits path.band",
        "#line path.measured",
        "#throughput path",
    ):
        path = attribute(made, selector, "d")
        assert path.startswith("M") and "NaN" not in path and path.count("L") >= 2, selector
    assert made.evaluate("document.querySelectorAll('#waits circle').length") == 3
    assert made.errors == []


@pytest.mark.parametrize(
    "changes",
    [
        {"measured": None, "now": None, "goal_us": None, "unknown": [], "unseen": []},
        {"series": [], "cheapest": None},
        {"measured": measured(line=[], throughput=[]), "doubts": ["the plan does not reproduce what was measured"]},
        {
            "results": [result({**SETTINGS, "name": "2..8x2", "workers": [2, 8]}, wait_band=None)],
            "series": [],
            "now": "2..8x2",
        },
    ],
)
def test_a_plan_that_lacks_something_has_a_page_too(changes: dict[str, Any], kept: ExitStack, tmp_path: Path) -> None:
    (tmp_path / "plan.html").write_text(page.made(plan(**changes)))
    made = shown(kept, tmp_path / "plan.html")
    assert made.evaluate("$('waits-figure').hidden") is (changes.get("series") == [])
    assert made.evaluate("$('throughput-figure').hidden") is ("measured" in changes)
    assert attribute(made, "#line path.line", "d").startswith("M")
    assert all(one in made.text() for one in changes.get("doubts", []))
    assert made.errors == []


def test_texts_are_no_markup(kept: ExitStack, tmp_path: Path) -> None:
    foul = result({**SETTINGS, "name": FOUL})
    texts = {"about": [FOUL], "unknown": [FOUL], "doubts": [FOUL], "goals": FOUL, "band": FOUL}
    (tmp_path / "plan.html").write_text(page.made(plan(**texts, results=[foul], series=[FOUL], now=FOUL)))
    made = shown(kept, tmp_path / "plan.html")
    assert made.evaluate("document.title") == "stanchion plan"
    assert made.evaluate("document.querySelectorAll('b').length") == 0
    assert made.text().count(FOUL) >= 6
    assert made.errors == []


def test_a_page_that_the_command_has_written(kept: ExitStack, tmp_path: Path) -> None:
    model = ("--rate", "80", "--service", "p50=20ms,p99=300ms", "--now", "2x2", "--page", "plan.html")
    command = [sys.executable, "-m", "stanchion", "plan", *model]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=6 * PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    made = shown(kept, tmp_path / "plan.html")
    said = [choose(made, number) for number in range(int(made.evaluate("$('slider').max")) + 1)]
    assert any(one.startswith("2x2 now: ") for one in said) and len(said) == len(set(said)) >= 5
    assert "NaN" not in attribute(made, "#waits path.p99", "d")
    assert made.errors == []
