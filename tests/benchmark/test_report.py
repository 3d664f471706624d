"""The verdicts on a run, and the page that shows it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from bench import front, host, page, pictures, report, targets
from bench.apps.flask_page import app
from bench.cases import CASES, WORKLOADS
from bench.columns import Column
from bench.measure import QUICK
from bench.report import Record
from bench.targets import TARGETS, Measured, Target, measured

HELLO = CASES["hello"]


def record(server: str, number: int, cpu_us: float, case: str = "hello", **more: float) -> Record:
    figures = dict.fromkeys((column.key for column in HELLO.columns), 1.0)
    return Record(case, server, number, {**figures, "kernel_us": cpu_us / 4, "failures": 0, **more, "cpu_us": cpu_us})


def cells(**servers: dict[str, float]) -> dict[str, dict[int, dict[str, float]]]:
    """The cells of a table, with one turn for each server."""
    return {server.replace("_", "-"): {0: figures} for server, figures in servers.items()}


def test_a_figure_is_compared_with_the_least_of_the_others():
    target = Target("hello", "cpu_us", ("bjoern", "fastpysgi"), 1.0, "")
    rows = cells(stanchion={"cpu_us": 6.0}, bjoern={"cpu_us": 5.0}, fastpysgi={"cpu_us": 4.0}, nginx={"cpu_us": 1.0})
    assert measured(target, {"hello": rows}) == Measured(1.5, None, "fastpysgi")


def test_servers_that_take_turns_are_compared_turn_by_turn():
    target = Target("hello", "cpu_us", ("bjoern",), 1.0, "")
    # A machine that becomes slower: 0.9 in each turn, but more by the medians, since one turn of bjoern failed.
    own = {number: {"cpu_us": 9.0 * (1 + number)} for number in range(5)}
    other = {number: {"cpu_us": 10.0 * (1 + number)} for number in range(4)}
    found = measured(target, {"hello": {"stanchion": own, "bjoern": other}})
    assert found == Measured(pytest.approx(0.9), (pytest.approx(0.9), pytest.approx(0.9)), "bjoern")


def test_servers_that_run_alone_are_compared_by_their_medians():
    target = Target("memory", "pss_mb", ("one copy",), 1.25, "")
    own = {0: {"pss_mb": 1.0}, 1: {"pss_mb": 3.0}, 2: {"pss_mb": 4.0}}
    other = {0: {"pss_mb": 4.0}, 1: {"pss_mb": 2.0}, 2: {"pss_mb": 1.0}}
    assert measured(target, {"memory": {"stanchion": own, "one copy": other}}) == Measured(1.5, None, "one copy")


def test_a_figure_may_be_another_servers_or_stand_alone():
    rows = cells(stanchion={"cpu_us": 5.0, "pss_kb": 3.0}, stanchion_watched={"cpu_us": 5.1})
    watched = Target("hello", "cpu_us", ("stanchion",), 1.02, "", of="stanchion-watched")
    assert measured(watched, {"hello": rows}) == Measured(pytest.approx(1.02), None, "stanchion")
    alone = Target("hello", "pss_kb", (), 4.0, "")
    assert measured(alone, {"hello": rows}) == Measured(3.0, None, "the figure itself")


def test_what_is_missing_is_not_judged():
    target = Target("hello", "cpu_us", ("bjoern",), 1.0, "")
    assert measured(target, {}) is None
    assert measured(target, {"hello": cells(stanchion={"cpu_us": 1.0})}) is None
    assert measured(target, {"hello": cells(stanchion={"rps": 1.0}, bjoern={"cpu_us": 1.0})}) is None


def test_verdicts_are_by_the_limit():
    rows = {
        "file1": cells(stanchion={"cpu_us": 121.0}, nginx={"cpu_us": 100.0}),
        "idle": cells(stanchion={"pss_kb": 4.0}),
    }
    lines = targets.lines(rows)
    assert any("1 MiB" in line and "1.21 |  | nginx | **not met**" in line for line in lines)
    assert any("idle" in line and "4.00 |  | the figure itself | met" in line for line in lines)
    assert len(lines) == 2 + 2, "the targets of other cases are not listed"


def test_every_target_names_a_case_its_servers_and_its_figure():
    for target in TARGETS:
        case = CASES[target.case]
        assert target.of in case.rows
        assert not target.against or set(target.against) & set(case.servers)
        assert target.key in {column.key for column in case.columns} | {"unused", "lost"}


def test_every_case_runs_in_one_of_three_ways():
    for case in CASES.values():
        assert sum(way is not None for way in (case.run, case.stand, case.run_beside)) == 1
        assert len(case.beside) == 1 or case.run_beside


def test_medians_are_over_the_turns_that_did_not_fail():
    records = [record("stanchion", number, cpu_us) for number, cpu_us in enumerate((5.0, 9.0, 6.0))]
    records += [Record("hello", "bjoern", 0, {}, "ServerError: broke")]
    assert list(report.cells_by_case(records)["hello"]) == ["stanchion"]
    table = report.table(HELLO, records)
    assert "| 6.00 (5.00..9.00) | 1.00 |" in table[2]
    assert "**FAILED**: ServerError: broke" in table[3]


def test_a_figure_that_is_not_in_every_turn_is_not_judged():
    records = [record("stanchion", 0, 5.0, **{"helper:cpu_us": 1.0}), record("stanchion", 1, 5.0)]
    target = Target("hello", "helper:cpu_us", (), 1.0, "")
    assert measured(target, report.cells_by_case(records)) is None


def test_a_run_beside_other_load_says_so():
    assert report.disturbed([record("stanchion", 0, 5.0, others_share=0.02)]) == []
    assert "in 1 cells" in report.disturbed([record("stanchion", 0, 5.0, others_share=0.04)])[0]


def bars(**medians: float) -> list[pictures.Bar]:
    return [pictures.Bar(server, median, median / 4, median, median) for server, median in medians.items()]


def widths(svg: str) -> list[float]:
    """The width of each bar: the sum of the user's and the kernel's part."""
    found = [float(width) for width in re.findall(r'<rect[^>]* width="([\d.]+)"', svg)]
    return [user + kernel for user, kernel in zip(found[::2], found[1::2], strict=True)]


def test_bars_are_as_long_as_their_figures():
    stanchion, bjoern = widths(pictures.svg(Column("cpu_us", "CPU"), bars(stanchion=4.0, bjoern=8.0)))
    assert bjoern == pytest.approx(2 * stanchion, abs=0.2)


def test_a_bar_that_is_far_longer_than_ours_is_cut_and_says_so():
    svg = pictures.svg(Column("cpu_us", "CPU"), bars(stanchion=4.0, gunicorn=400.0, bjoern=8.0))
    stanchion, gunicorn, bjoern = widths(svg)
    assert gunicorn == pytest.approx(pictures.CUT * stanchion, abs=0.5)
    assert bjoern == pytest.approx(2 * stanchion, abs=0.2)
    assert svg.count('class="cut"') == 1 and ">400.0</text>" in svg


def test_a_bar_shows_the_median_the_middle_half_and_the_kernels_part():
    turns = [record("stanchion", number, float(cpu_us)).figures for number, cpu_us in enumerate((1, 2, 3, 4, 100))]
    assert pictures.bar("stanchion", Column("cpu_us", "CPU"), turns) == pictures.Bar("stanchion", 3.0, 0.75, 2.0, 4.0)
    one = pictures.bar("stanchion", Column("rps", "rps"), turns[:1])
    assert (one.median, one.kernel, one.lower, one.upper) == (1.0, 0.0, 1.0, 1.0)


def write_run(name: str, records: list[Record]) -> str:
    run = Path("bench/runs") / name
    run.mkdir(parents=True)
    (run / "README.md").write_text(host.readme(["--case", "hello"], QUICK))
    (run / "raw.jsonl").write_text("\n".join(json.dumps(line.as_dict()) for line in records))
    return str(run)


def whole_run() -> list[Record]:
    """All figures that the front page needs: 2 of stanchion and nginx, 4 of every other server."""
    cases = {case for case, _ in front.PICTURED} | {row.case for row in front.ROWS}
    records = []
    for name in sorted(cases):
        for server in CASES[name].servers:
            keys = {column.key for column in CASES[name].columns} | {"failures", "deploys"}
            own = server.startswith("stanchion") or server == "nginx"
            figures = dict.fromkeys(keys, 2.0 if own else 4.0)
            # The greater one is the better one.
            # The front page says in words that stanchion has none of these.
            figures |= dict.fromkeys(keys & {"failures", "late"}, 0.0 if own else 4.0)
            figures |= dict.fromkeys(keys & {*front.GREATER_IS_BETTER}, 0.5 if own else 0.25)
            records += [Record(name, server, number, figures) for number in range(3)]
    return records


@pytest.fixture
def pages(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(host, "said", lambda command, pattern: "1.0")
    return home / "docs"


def test_a_page_shows_the_last_run_of_a_case_and_how_it_was_made(pages: Path):
    first = write_run("first", [*whole_run(), record("stanchion", 0, 5.0, "close")])
    second = write_run("second", [record("stanchion", 0, 7.0, "upload"), record("stanchion", 1, 8.0, "upload")])
    assert page.main([first, second]) == 0
    text = (pages / "benchmarks" / "requests.md").read_text()
    assert "| stanchion | 7.50 (7.00..8.00) | 1.00 |" in text, "upload is the second run's"
    assert "| stanchion | 5.00 | 1.00 |" in text, "close is the first one's"
    assert "(../../bench/runs/second/raw.jsonl)" in text and "Turns of each: 2." in text
    set_up = (pages / "benchmarks" / "set-up.md").read_text()
    assert set_up.count("made by `bench/run.sh --case hello`") == 2
    assert set_up.count("stanchion is two busy processes") == 1, "all cases share a set-up"
    for name in (pages / "benchmarks.md", *(pages / "benchmarks").glob("*.md")):
        for picture in re.findall(r"!\[[^]]*\]\((.*)\)", name.read_text()):
            assert (name.parent / picture).read_text().startswith("<svg ")


def test_turns_beside_other_load_are_left_out_and_counted(pages: Path):
    turns = [record("stanchion", 0, 7.0, "close"), record("stanchion", 1, 70.0, "close", others_share=0.5)]
    page.main([write_run("run", [*whole_run(), *turns])])
    text = (pages / "benchmarks" / "requests.md").read_text()
    assert "| stanchion | 7.00 |" in text and "1 of all servers' left out as disturbed" in text


def test_the_front_page_has_every_row_beside_the_best_and_the_known_server(pages: Path):
    page.main([write_run("run", whole_run())])
    text = (pages / "benchmarks.md").read_text()
    assert "| A Flask page: CPU time | **2 µs** | 4 µs, bjoern | 4 µs |" in text
    assert "that the others keep | **0.50** | 0.25, granian | 0.25 |" in text
    assert "| **0** | 12, gunicorn-sync | 12 |" in text, "failures of all rounds"
    assert text.count("\n| ") == 1 + len(front.ROWS)
    assert "\nNone.\n" in text, "stanchion loses no row"


def test_the_front_page_does_not_say_what_is_no_longer_so(pages: Path):
    lossy = write_run("run", [replace(one, figures={**one.figures, "failures": 1.0}) for one in whole_run()])
    with pytest.raises(SystemExit, match="failures in reload"):
        page.main([lossy])


def test_the_front_page_says_where_stanchion_loses_by_how_much_and_why(pages: Path):
    lost = [
        record(server, number, cpu_us, "close")
        for number in range(3)
        for server, cpu_us in (("stanchion", 15.0), ("bjoern", 10.0), ("fastpysgi", 12.0), ("nginx", 1.0))
    ]
    near = [record(server, 0, cpu_us, "upload") for server, cpu_us in (("stanchion", 1.04), ("bjoern", 1.0))]
    page.main([write_run("run", [*whole_run(), *lost, *near])])
    text = (pages / "benchmarks.md").read_text()
    assert f"{CASES['close'].title}**: stanchion 1.50 x bjoern. {front.WHY_LOST['close']}" in text
    assert text.count(" x bjoern. ") == 1
    assert "None." not in text


def test_every_case_has_one_page():
    placed = [name for group in page.GROUPS for name in group.cases]
    assert sorted(placed) == sorted(CASES)


def test_the_page_that_is_served_is_what_is_expected_of_it():
    assert WORKLOADS["page"].expected(app.test_client().get("/").data)
    assert not WORKLOADS["page"].expected(b"<tr " * 40)
