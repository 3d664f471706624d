"""The scripts that run the tests: what failed runs again alone, and the gate shows steps, times and flaky tests."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ONCE = """
import pathlib, pytest

@pytest.mark.parametrize("name", {names})
def test_it(name):
    tried = pathlib.Path(__file__).with_name(name)
    is_first = not tried.exists()
    tried.touch()
    assert not is_first

def test_other(): pass
"""
"""Tests that fail the first time they run."""
ALWAYS = "def test_it(): assert False\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """One with the two scripts, whose Makefile runs what is in tests/."""
    (tmp_path / "tests").mkdir()
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "tests/flaky.toml").write_text("# shaky\n")
    # The plugin that writes what came of each test.
    shutil.copy(ROOT / "tests/support/results.py", tmp_path)
    (tmp_path / "conftest.py").write_text(
        "from results import Results\n"
        "def pytest_addoption(parser): parser.addoption('--report-fd', type=int)\n"
        "def pytest_configure(config):\n"
        "    if not hasattr(config, 'workerinput'):\n"
        "        config.pluginmanager.register(Results(config.getoption('--report-fd')))\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    # Without other plugins it starts in half the time.
    run = f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 scripts/try {sys.executable} -m pytest -p xdist -p no:cacheprovider"
    (tmp_path / "Makefile").write_text(
        f"test-it:\n\t{run} -- tests\ncompile lint test-more:\n\t@echo $@ runs; test ! -e $@.fails\n"
    )
    return tmp_path


def gate(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "STANCHION"))}
    return subprocess.run(
        [sys.executable, checkout / "scripts/gate", *arguments],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def flaky(checkout: Path) -> list[str]:
    return [line for line in (checkout / "tests/flaky.toml").read_text().splitlines() if line.startswith("test")]


def test_a_test_that_passes_twice_alone_is_flaky_and_listed_and_fails_nothing(checkout: Path) -> None:
    (checkout / "tests/test_once.py").write_text(ONCE.format(names=["a"]))
    ran = gate(checkout, "--repeat", "test-it", "test-more")
    assert ran.returncode == 0, ran.stdout
    assert (
        "=== FLAKY: failed, and then passed twice alone\n  tests/test_once.py::test_it[a]  (make test-it)" in ran.stdout
    )
    assert flaky(checkout) == ['test = "tests/test_once.py::test_it[a]"']
    again = gate(checkout, "--repeat", "test-it")
    assert again.returncode == 0
    assert "FLAKY" not in again.stdout


def test_without_repeat_it_fails(checkout: Path) -> None:
    (checkout / "tests/test_once.py").write_text(ONCE.format(names=["a"]))
    ran = gate(checkout, "test-it")
    assert ran.returncode == 1
    assert "=== FAILED\n  tests/test_once.py::test_it[a]  (make test-it)" in ran.stdout
    assert flaky(checkout) == []


def test_one_that_fails_alone_too_fails_the_gate_and_so_does_its_neighbour_not(checkout: Path) -> None:
    (checkout / "tests/test_always.py").write_text(ALWAYS)
    (checkout / "tests/test_once.py").write_text(ONCE.format(names=["a"]))
    ran = gate(checkout, "--repeat", "test-it")
    assert ran.returncode == 1
    assert "=== FAILED\n  tests/test_always.py::test_it  (make test-it)\n=== FLAKY" in ran.stdout
    assert "1 failed, 1 flaky, 1 passed" in ran.stdout


def test_with_six_flaky_tests_the_gate_fails(checkout: Path) -> None:
    row = '[[flaky]]\ntest = "tests/test_{}.py::test_it"\ndate = 2026-01-01\ncause = "x"\n'
    (checkout / "tests/flaky.toml").write_text("".join(row.format(number) for number in range(4)))
    (checkout / "tests/test_once.py").write_text(ONCE.format(names=["a"]))
    assert gate(checkout, "--repeat", "test-it").returncode == 0
    (checkout / "tests/test_more.py").write_text(ONCE.format(names=["b"]))
    ran = gate(checkout, "--repeat", "test-it")
    assert ran.returncode == 1
    assert "tests/flaky.toml would have 6 rows, and may have 5" in ran.stdout
    assert len(flaky(checkout)) == 5


def test_more_than_five_that_fail_at_once_are_not_repeated(checkout: Path) -> None:
    (checkout / "tests/test_once.py").write_text(ONCE.format(names=list("abcdef")))
    ran = gate(checkout, "--repeat", "test-it")
    assert ran.returncode == 1
    assert "again, alone and twice" not in ran.stdout


def test_each_step_is_announced_and_timed_and_the_slowest_tests_are_shown(checkout: Path) -> None:
    (checkout / "tests/test_slow.py").write_text(
        "import time\ndef test_it(): time.sleep(0.3)\ndef test_other(): pass\n"
    )
    ran = gate(checkout, "compile", "test-it")
    said = ran.stdout.splitlines()
    assert said[0] == "This clone lacks what the tests need. First are made, on two cores, downloads apart:"
    assert [line for line in said if line.startswith("=== [")] == [
        "=== [1/2] make compile  (0 s so far)",
        "=== [2/2] make test-it  (0 s so far)",
    ]
    assert any(line.endswith("passed  test-it  2 passed") for line in said)
    slowest = said[said.index("=== the 2 slowest tests") + 1 :]
    assert slowest[0].endswith(" s  tests/test_slow.py::test_it")
    assert said[-1].startswith("PASSED after ")


def test_a_step_that_fails_keeps_no_other_from_running_but_one_that_needs_it(checkout: Path) -> None:
    (checkout / "lint.fails").touch()
    ran = gate(checkout, "lint", "test-more")
    assert ran.returncode == 1
    assert "test-more runs" in ran.stdout
    (checkout / "compile.fails").touch()
    ran = gate(checkout, "compile", "test-more")
    assert ran.returncode == 1
    assert "test-more runs" not in ran.stdout


CARGO = """#!/usr/bin/env python3
import pathlib, sys
tried = pathlib.Path("tried")
count = len(tried.read_text()) if tried.exists() else 0
tried.write_text("x" * (count + 1))
if count:
    assert sys.argv[-3:] == ["--", "--exact", "a::b"], sys.argv
    sys.exit(0)
print('''{output}''')
sys.exit(101)
"""
"""It fails as cargo does, and passes when it is to run one test again."""

RUNNING = "     Running unittests src/lib.rs (target/debug/deps/{}-0123456789abcdef)\n"
ONE_FAILS = (
    RUNNING.format("some_crate")
    + "test a::b ... FAILED\ntest a::c ... ok\nerror: test failed, to rerun pass `-p some-crate --lib`\n"
)
DOC_TEST_FAILS = (
    "   Doc-tests some_crate\ntest src/lib.rs - f (line 3) ... FAILED\nerror: doctest failed, to rerun pass `--doc`\n"
)
FLAKY_ONE = {"test": "some_crate::a::b", "outcome": "flaky", "took_s": 0.0}


@pytest.mark.parametrize(
    ("output", "status", "others"),
    [
        (ONE_FAILS, 0, []),
        (ONE_FAILS + DOC_TEST_FAILS, 101, ["src/lib.rs - f (line 3)"]),
        (f"{ONE_FAILS}{RUNNING.format('crashing')}error: test failed, to rerun pass `-p y`\n", 101, ["crashing"]),
    ],
    ids=["one", "beside a doc test", "beside a binary that crashed"],
)
def test_a_rust_test_that_failed_runs_again_too_and_hides_no_other(
    tmp_path: Path, output: str, status: int, others: list[str]
) -> None:
    cargo = tmp_path / "cargo"
    cargo.write_text(CARGO.format(output=output))
    cargo.chmod(0o755)
    results = tmp_path / "results"
    environment = {**os.environ, "STANCHION_RESULTS": str(results), "STANCHION_REPEAT": "1"}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    ran = subprocess.run([ROOT / "scripts/try", "cargo", "test"], cwd=tmp_path, env=environment, check=False)
    assert ran.returncode == status
    failed = [{"test": test, "outcome": "failed", "took_s": 0.0} for test in others]
    assert [json.loads(line) for line in results.read_text().splitlines()] == [FLAKY_ONE, *failed]
    assert (tmp_path / "tried").read_text() == "xxx"
