"""Fixtures of the end-to-end tests: servers started for real, each in its own directory, each gone afterwards."""

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest

# `support` is imported by name from every directory of tests, whatever pytest's import mode.
sys.path.insert(0, str(Path(__file__).parent))

from support import plan
from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.results import Results
from support.server import KINDS, STANCHION, Kind, Serve, Server

FILES = pytest.StashKey[Path | None]()
"""The folder of this run's files. pytest's own, /tmp/pytest-of-USER, is shared by all runs of a user, and one run may
fail while it removes what another one removes too."""

TIMEOUT_S = 120
"""The limit of one test, unless it says otherwise."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server",
        choices=sorted(KINDS),
        default=STANCHION.name,
        help="what the end-to-end tests serve with; a peer shows which of them hold for any good server",
    )
    lists = list(plan.read().lists)
    parser.addoption("--only", action="append", choices=lists, default=[], help="files of this list of tests/plan.toml")
    parser.addoption("--without", action="append", choices=lists, default=[], help="no files of this list")
    parser.addoption("--large", action="store_true", help="with the sizes that are marked as large")
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
    if config.getoption("--server") == STANCHION.name and not hasattr(config, "workerinput"):
        refuse_an_old_wheel()
    config.addinivalue_line("markers", "large: a size of a test that only the night has time for (--large)")
    config.addinivalue_line("markers", "own(why): a promise of stanchion alone; skipped when a peer is the server")
    config.addinivalue_line(
        "markers",
        "privileges: what it tests depends on the rights that the server has, "
        "so root runs it again as an ordinary user",
    )


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
    if collection_path.suffix != ".py" or not collection_path.is_relative_to(plan.TESTS):
        return None
    file = str(collection_path.relative_to(plan.TESTS))
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


def refuse_an_old_wheel() -> None:
    """Refuse to run if the checkout is newer: the tests run the installed package, not the checkout."""
    # In two steps: of a package that is not there it is an error to ask what is in it.
    found = find_spec("stanchion") and find_spec("stanchion._stanchion")
    if found is None or found.origin is None:
        raise pytest.UsageError("stanchion is not installed here: run `make dev`")
    installed_s = Path(found.origin).stat().st_mtime
    checkout = Path(__file__).parent.parent
    sources = [checkout / "Cargo.lock", *(checkout / "python").rglob("*.py")]
    sources += [path for path in (checkout / "crates").rglob("*.rs") if "tests" not in path.relative_to(checkout).parts]
    newer = [path for path in sources if path.stat().st_mtime > installed_s]
    if newer:
        raise pytest.UsageError(
            f"the stanchion that is installed here is older than {newer[0].relative_to(checkout)}: run `make dev`"
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Large sizes only on request. The same test has a small one, which each run takes.
    large = [item for item in items if item.get_closest_marker("large") and not config.getoption("--large")]
    config.hook.pytest_deselected(items=large)
    items[:] = [item for item in items if item not in large]
    # The long ones first: at the end, all others would have to wait for them.
    items.sort(key=lambda item: not plan.read().has("long", str(item.path.relative_to(plan.TESTS))))
    peer = config.getoption("--server") != STANCHION.name
    for item in items:
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
        own = item.get_closest_marker("own")
        if peer and own:
            item.add_marker(pytest.mark.skip(reason=f"a promise of stanchion alone: {own.args[0]}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Skip a test that looks into an acceptor: only root may (PR_SET_DUMPABLE in prctl(2)), not even its own user."""
    try:
        return (yield)
    except (psutil.AccessDenied, PermissionError) as denied:
        is_of_process = isinstance(denied, psutil.AccessDenied) or str(denied.filename).startswith("/proc/")
        if os.geteuid() == 0 or not is_of_process:
            raise
        pytest.skip(f"only root may look at what an acceptor has open: {denied}")


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.config.getoption("--server")]


@pytest.fixture(scope="session")
def kind_name(kind: Kind) -> str:
    return kind.name.partition("-")[0]


class Builder:
    """Makes servers and, in the end, sees every one of them stopped."""

    def __init__(self, kind: Kind, home: Path) -> None:
        self._kind = kind
        self._home = home
        self._built: list[Server] = []

    def build(
        self,
        app: str,
        *arguments: str,
        bind: str | None = "127.0.0.1:0",
        env: dict[str, str] | None = None,
        kind: Kind | None = None,
        prefix: list[str] | None = None,
        pass_fds: tuple[int, ...] = (),
    ) -> Server:
        """A server not yet started."""
        kind = kind or self._kind
        home = self._home / f"{kind.name}-{len(self._built)}"
        home.mkdir()
        where = ["--bind", bind] if bind else []
        words = [*where, *kind.arguments, *arguments, *([app] if app else [])]
        server = Server(kind, words, home, env or {}, prefix or [], pass_fds)
        self._built.append(server)
        return server

    def serve(self, app: str, *arguments: str, **options: Any) -> Server:
        """A server that is ready."""
        return self.build(app, *arguments, **options).start()

    def stop(self) -> None:
        errors = []
        for server in self._built:
            if not server.launched:
                continue
            try:
                server.stop()
            except AssertionError as error:
                errors.append(f"{server.kind.name}: {error}")
            # Shown by pytest only if the test fails.
            print(f"--- log of {server.kind.name} {' '.join(server.arguments)}\n{server.log.text()}")
            print(f"--- its stdout\n{server.stdout.text()}")
        assert not errors, "\n".join(errors)


@pytest.fixture
def builder(kind: Kind, tmp_path: Path, gate: Gate) -> Iterator[Builder]:
    builder = Builder(kind, tmp_path)
    yield builder
    # An app that still waits, when a test has failed, must not look like a server that does not stop.
    gate.open()
    builder.stop()


@pytest.fixture
def build(builder: Builder) -> Serve:
    """Make a server without starting it: `build("module:app", "-w", "2", env={...}, kind=GUNICORN)`."""
    return builder.build


@pytest.fixture
def serve(builder: Builder) -> Serve:
    """Start a server and wait until it is ready."""
    return builder.serve


@pytest.fixture(scope="module")
def shared_serve(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """The same for one server that many tests of a module ask without changing it."""
    builder = Builder(kind, tmp_path_factory.mktemp("shared"))
    yield builder.serve
    builder.stop()


@pytest.fixture
def counts(tmp_path: Path) -> Counts:
    """Counts of the server that is started with the `arguments` of this."""
    return Counts(tmp_path / "counts")


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    opened = Gate(tmp_path / "gate")
    yield opened
    opened.close()


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[Clock]:
    """A clock for the servers that are given its `environment`."""
    with contextlib.closing(Clock(tmp_path / "clock")) as clock:
        yield clock


@pytest.fixture(scope="module")
def shared_clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clock]:
    """A clock for the servers of `shared_serve`, which all tests of a module set forward."""
    with contextlib.closing(Clock(tmp_path_factory.mktemp("clock") / "clock")) as clock:
        yield clock
