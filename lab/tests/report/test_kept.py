"""Three files of a run are kept in a repository: a page, its picture, and the result in one small file."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from lab_support import results
from stanchion_lab import report
from stanchion_lab.report import canvas, kept
from stanchion_lab.result import FILE, SERVED, Result, read, write
from stanchion_lab.scenario import Mistake

NAMES = ["unix-backlog.json.xz", "unix-backlog.md", "unix-backlog.svg"]

# Pictures take seconds of CPU, and the machine may be busy with other tests.
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def result() -> Result:
    return results.result()


@pytest.fixture(scope="module")
def directory(result: Result, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = report.keep(result, tmp_path_factory.mktemp("kept"))
    assert path.name == "unix-backlog.md"
    return path.parent


@pytest.fixture(scope="module")
def page(directory: Path) -> str:
    return (directory / "unix-backlog.md").read_text()


def test_three_files_are_kept_of_a_result(directory: Path) -> None:
    assert sorted(file.name for file in directory.iterdir()) == NAMES
    picture = ElementTree.parse(directory / "unix-backlog.svg").getroot()
    assert float(picture.attrib["width"]) == canvas.WIDE


def test_the_page_shows_the_picture_and_links_the_result(page: str) -> None:
    assert re.findall(r"\]\(([^)]*)\)", page) == ["unix-backlog.svg", "unix-backlog.json.xz"]
    assert "![What became of the requests](unix-backlog.svg)" in page


def test_the_page_has_claims_figures_and_the_published_ones(page: str) -> None:
    assert "# A burst, a unix socket, and 128 places" in page
    assert "2 of 5 claims hold, 2 do not, 1 was not measured." in page
    assert re.search(
        r"^\| ✓ \| At 128 some requests fail \| 502 or 504 · gunicorn, somaxconn 128 \| \d+ > 0 \|$", page, re.M
    )
    assert "(known exception: the line is long enough)" in page
    assert "siege is not installed; Debian has it in the package siege" in page
    assert re.search(
        r"^\| gunicorn, somaxconn 128 \| 502 or 504 \| 67 \| 7\d \(.*\) \| of 200, on a laptop \|$", page, re.M
    )
    assert "Linux 6.1.0-18-amd64, 2 cores, 7,950 MB" in page
    assert "stanchion-lab run unix-backlog --full --repeats 3" in page


def test_no_row_of_a_table_has_a_cell_too_many(page: str) -> None:
    tables = re.findall(r"(?:^\|.*\n)+", page, re.M)
    assert len(tables) == 3
    for rows in tables:
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows.splitlines()}) == 1, rows


def test_words_of_a_scenario_are_neither_html_nor_borders_of_tables() -> None:
    assert kept.plain("a | b <script>\n c") == "a \\| b &lt;script> c"


def test_the_kept_result_has_all_figures_and_latencies_in_order(result: Result, directory: Path) -> None:
    again = read(directory / NAMES[0])
    for one, other in zip(again.measured, result.measured, strict=True):
        if len(other.latencies_ms) <= kept.LATENCIES_MAX:
            assert one.latencies_ms == pytest.approx(sorted(other.latencies_ms), abs=0.005)
        one.latencies_ms, one.timeline = other.latencies_ms, other.timeline
    assert again == result


def test_of_many_latencies_those_at_even_ranks_are_kept_with_both_ends(result: Result, directory: Path) -> None:
    whole = next(one for one in result.measured if one.trial == "climb")
    (again, *_) = read(directory / NAMES[0]).of("climb")
    ordered = sorted(whole.latencies_ms)
    assert len(again.latencies_ms) == kept.LATENCIES_MAX < len(ordered)
    assert (again.latencies_ms[0], again.latencies_ms[-1]) == pytest.approx((ordered[0], ordered[-1]), abs=0.005)
    middle = ordered[len(ordered) // 2]
    assert again.latencies_ms[kept.LATENCIES_MAX // 2] == pytest.approx(middle, rel=0.02)


def test_requests_are_kept_for_timelines_and_every_failure(result: Result, directory: Path) -> None:
    again = read(directory / NAMES[0])
    assert again.of("small")[0].timeline and not again.of("large")[0].timeline, "only the first is drawn as one"
    whole = next(one for one in result.measured if one.trial == "climb")
    (timed, *_) = again.of("climb")
    failed = [request for request in whole.timeline if request[2] != SERVED]
    assert len([request for request in timed.timeline if request[2] != SERVED]) == len(failed)
    assert len(timed.timeline) == len(failed) + kept.REQUESTS_MAX
    assert timed.timeline == sorted(timed.timeline)


def test_a_file_that_is_cut_short_is_the_operators_mistake(directory: Path, tmp_path: Path) -> None:
    (tmp_path / NAMES[0]).write_bytes((directory / NAMES[0]).read_bytes()[:100])
    with pytest.raises(Mistake, match="is no result of a run"):
        read(tmp_path / NAMES[0])


def test_the_commands_keep_a_result_and_report_it_elsewhere(result: Result, tmp_path: Path) -> None:
    write(result, tmp_path / "run")
    assert lab("keep", tmp_path / "run", "--out", tmp_path / "kept") == f"{tmp_path}/kept/unix-backlog.md\n"
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == [FILE]
    told = lab("report", tmp_path / "kept" / NAMES[0], "--out", tmp_path / "whole")
    assert told == f"{tmp_path}/whole/report.html\n"
    assert sorted(file.name for file in (tmp_path / "kept").iterdir()) == NAMES


def lab(*arguments: str | Path) -> str:
    command = [sys.executable, "-P", "-m", "stanchion_lab", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=200).stdout
