"""Large applications that `make test-apps` has installed, each under two servers for as long as its tests run."""

import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bigapps import report
from bigapps.application import NOT_INSTALLED, Application, names, read
from bigapps.pair import NotReady, Pair, served
from support import missing

collect_ignore = [] if os.environ.get("STANCHION_APPS") else ["test_applications.py"]

REPORT = Path(__file__).resolve().parents[2] / "target/apps-report.md"
ROWS = pytest.StashKey[dict[str, report.Row]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ROWS] = {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "application" in metafunc.fixturenames:
        metafunc.parametrize("application", names(), indirect=True, scope="module")


@pytest.fixture(scope="module")
def application(request: pytest.FixtureRequest) -> Application:
    return read(request.param)


@pytest.fixture(scope="module")
def begun(application: Application, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair | NotReady]:
    """Both servers, ready, or why not."""
    if application.missing:
        pytest.skip(missing.allowed(application.missing))
    with ExitStack() as stack:
        both: Pair | NotReady
        try:
            both = stack.enter_context(served(application, tmp_path_factory.mktemp(application.name)))
        except NotReady as why:
            both = why
        yield both


@pytest.fixture
def pair(begun: Pair | NotReady) -> Pair:
    if isinstance(begun, NotReady):
        pytest.skip("one of the servers did not start, which is a failure of its own")
    return begun


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put what came of a test into the row of its application."""
    made = yield
    callspec = getattr(item, "callspec", None)
    if callspec and "application" in callspec.params and (made.when == "call" or not made.passed):
        row = item.config.stash[ROWS].setdefault(callspec.params["application"], report.Row())
        check = item.name.partition("[")[0].rpartition("_")[2]
        reason = "" if made.passed else why(call)
        row.take(check, made.outcome, reason, {name: str(value) for name, value in item.user_properties})
    return made


def why(call: pytest.CallInfo[None]) -> str:
    """The reason that the test gives, without what pytest adds; "" for a check that is not for this application."""
    assert call.excinfo
    said = str(call.excinfo.value).partition("\nassert ")[0]
    return said if not call.excinfo.errisinstance(pytest.skip.Exception) or said.startswith(NOT_INSTALLED) else ""


def pytest_sessionfinish(session: pytest.Session) -> None:
    rows = session.config.stash[ROWS]
    if rows:
        REPORT.parent.mkdir(exist_ok=True)
        REPORT.write_text(report.page(rows, "`make test-apps` has written this page."))
