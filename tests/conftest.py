"""Fixtures of the end-to-end tests: servers started for real, each in its own directory, each gone afterwards."""

import contextlib
import os
import socket
import tempfile
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.clock import Clock
from support.counts import Counts
from support.gate import Gate
from support.server import KINDS, STANCHION, Kind, Serve, Server


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server",
        choices=sorted(KINDS),
        default=STANCHION.name,
        help="what the end-to-end tests serve with; a peer shows which of them hold for any good server",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--server") == STANCHION.name and not hasattr(config, "workerinput"):
        refuse_an_old_wheel()
    config.addinivalue_line("markers", "own(why): a promise of stanchion alone; skipped when a peer is the server")
    config.addinivalue_line(
        "markers",
        "privileges: what it tests depends on the rights that the server has, "
        "so root runs it again as an ordinary user",
    )


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
    sources += (checkout / "crates").rglob("help/*.txt")
    newer = [path for path in sources if path.stat().st_mtime > installed_s]
    if newer:
        raise pytest.UsageError(
            f"the stanchion that is installed here is older than {newer[0].relative_to(checkout)}: run `make dev`"
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    peer = config.getoption("--server") != STANCHION.name
    for item in items:
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


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that every user may enter, as pytest's own, tmp_path, is for its user alone."""
    with tempfile.TemporaryDirectory(prefix="stanchion-test-") as name:
        home = Path(name)
        home.chmod(0o755)
        yield home


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
def peer() -> Iterator[str]:
    """The address of a server whose connections the kernel accepts."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        host, port = listener.getsockname()
        yield f"{host}:{port}"


@pytest.fixture
def admin(tmp_path: Path) -> str:
    """An address for the admin listener."""
    return f"unix:{tmp_path}/admin.sock"


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
