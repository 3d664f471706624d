"""Each test file runs somewhere, once, and what is shaky stands in a short list."""

import datetime
import re
import subprocess
import sys
import tomllib

import pytest

from support import plan
from support.plan import RUNS, TESTS, Plan, is_at

FLAKY_MAX = 5


def misplaced(planned: Plan, files: list[str]) -> list[str]:
    """Complaints about the places where the files run."""
    found = [
        f"tests/plan.toml has {file} in {' and '.join(runs) or 'none'} of {', '.join(RUNS)}"
        for file in files
        if len(runs := planned.runs_of(file)) != 1
    ]
    places = [(name, place) for name, listed in planned.lists.items() for place in listed]
    found += [
        f"{name} of tests/plan.toml has {place}, where no test is"
        for name, place in places
        if not any(is_at(place, file) for file in files)
    ]
    for name, run in (("long", "gate"), ("own_verb", "nightly")):
        strange = [file for file in files if planned.has(name, file) and not planned.has(run, file)]
        found += [f"{name} of tests/plan.toml has {file}, not in {run}" for file in strange]
    return found


def test_each_test_file_is_in_exactly_one_of_gate_nightly_and_by_hand() -> None:
    assert misplaced(plan.read(), plan.files()) == []


@pytest.mark.parametrize(
    ("lists", "complaint"),
    [
        ({"gate": ["a"]}, "tests/plan.toml has b/test_y.py in none of gate, nightly, by_hand"),
        ({"gate": ["a", "b"], "nightly": ["b"]}, "tests/plan.toml has b/test_y.py in gate and nightly"),
        ({"gate": ["a", "b", "c"]}, "gate of tests/plan.toml has c, where no test is"),
        ({"gate": ["a"], "nightly": ["b"], "long": ["b"]}, "long of tests/plan.toml has b/test_y.py, not in gate"),
        ({"gate": ["a", "b"], "own_verb": ["b"]}, "own_verb of tests/plan.toml has b/test_y.py, not in nightly"),
    ],
)
def test_a_file_that_runs_nowhere_or_twice_is_found(lists: dict[str, list[str]], complaint: str) -> None:
    empty: dict[str, list[str]] = {name: [] for name in (*RUNS, "long", "alone", "own_verb")}
    [found] = misplaced(Plan(empty | lists), ["a/test_x.py", "b/test_y.py"])
    assert found.startswith(complaint)


def test_the_place_nearest_to_a_file_decides_where_it_runs() -> None:
    planned = Plan({"gate": ["a", "a/b/c"], "nightly": ["a/test_x.py", "a/b"], "by_hand": ["a/b/test_y.py"]})
    files = ("a/test_z.py", "a/test_x.py", "a/b/test_z.py", "a/b/test_y.py", "a/b/c/test_x.py", "ab/test_x.py")
    assert [planned.runs_of(file) for file in files] == [["gate"], ["nightly"], ["nightly"], ["by_hand"], ["gate"], []]


def test_few_tests_are_flaky_and_each_has_a_date_and_a_suspected_cause() -> None:
    rows = tomllib.loads((TESTS / "flaky.toml").read_text()).get("flaky", [])
    assert len(rows) <= FLAKY_MAX
    for row in rows:
        file, _, function = row["test"].partition("::")
        if file.endswith(".py"):
            assert f"def {function.partition('[')[0].rpartition('::')[2]}(" in (TESTS.parent / file).read_text(), row
        assert isinstance(row["date"], datetime.date), row
        assert row["cause"], row


def test_the_table_of_the_tests_names_each_place_that_is_not_in_the_gate() -> None:
    page = (TESTS / "README.md").read_text()
    planned = plan.read()
    missing = [place for run in ("nightly", "by_hand") for place in planned.lists[run] if f"`{place}`" not in page]
    assert not missing, f"tests/README.md, Where each test runs: {missing}"


@pytest.mark.parametrize(("options", "sizes"), [((), ["5"]), (("--large",), ["5", "20"])])
def test_large_sizes_run_on_request_only(options: tuple[str, ...], sizes: list[str]) -> None:
    test = "deploy/test_upgrade.py::test_upgrades_in_a_row_fail_no_request"
    collect = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", *options, str(TESTS / test)]
    said = subprocess.run(collect, cwd=TESTS.parent, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"no_request\[(\d+)\]", said) == sizes
