"""The server's tests, in tests/, and the lab's, in lab/tests/, share this: options, lists, limits of time, signals."""

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import psutil
import pytest

# `support` is imported by name from every directory of tests, whatever pytest's import mode.
sys.path.insert(0, str(Path(__file__).parent / "tests"))

from support import plan
from support.gate import Gate
from support.results import Results

FILES = pytest.StashKey[Path | None]()
"""The folder of this run's files. pytest's own, /tmp/pytest-of-USER, is shared by all runs of a user, and one run may
fail while it removes what another one removes too."""

TIMEOUT_S = 120
"""The limit of one test, unless it says otherwise."""


def pytest_addoption(parser: pytest.Parser) -> None:
    lists = list(plan.read().lists)
    parser.addoption("--only", action="append", choices=lists, default=[], help="files of this list of tests/plan.toml")
    parser.addoption("--without", action="append", choices=lists, default=[], help="no files of this list")
    parser.addoption("--large", action="store_true", help="with the sizes and rows that are marked as large")
    parser.addoption("--report-fd", type=int, help="a descriptor for what came of each test, as lines of JSON")


def pytest_configure(config: pytest.Config) -> None:
    has_workers = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")

    def end(number: int, frame: FrameType | None) -> None:
        """TERM ends as Ctrl-C does, also in pytest-xdist's workers: the fixtures stop the servers that were started."""
        for worker in psutil.Process().children() if has_workers else []:
            worker.terminate()
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGTERM, end)
    heed_what_is_ignored()
    if not hasattr(config, "workerinput") and config.option.basetemp is None:
        config.option.basetemp = config.stash[FILES] = Path(tempfile.mkdtemp(prefix="tests-"))
    report_fd = config.getoption("--report-fd")
    if report_fd is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Results(report_fd))
    config.addinivalue_line("markers", "large: a size or a row of a test that only the night has time for (--large)")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A failed run leaves its files, so that a person can look into them."""
    if exitstatus == pytest.ExitCode.TESTS_FAILED:
        session.config.stash[FILES] = None


def pytest_unconfigure(config: pytest.Config) -> None:
    files = config.stash.get(FILES, None)
    if files:
        shutil.rmtree(files)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Only files of the lists that were asked for."""
    file = plan.file_of(collection_path)
    if collection_path.suffix != ".py" or file is None:
        return None
    planned = plan.read()
    is_wanted = all(planned.has(name, file) for name in config.getoption("--only")) and not any(
        planned.has(name, file) for name in config.getoption("--without")
    )
    return None if is_wanted else True


def heed_what_is_ignored() -> None:
    """Programs that the tests start would ignore it too (signal(7)): INT and QUIT where a shell has put pytest into the
    background, HUP under nohup(1)."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Only on request. The same test has a small size, or a few rows, which each run takes.
    large = [item for item in items if item.get_closest_marker("large") and not config.getoption("--large")]
    config.hook.pytest_deselected(items=large)
    items[:] = [item for item in items if item not in large]
    # The long ones first: at the end, all others would have to wait for them.
    items.sort(key=lambda item: not plan.read().has("long", plan.file_of(item.path) or ""))
    for item in items:
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    opened = Gate(tmp_path / "gate")
    yield opened
    opened.close()
