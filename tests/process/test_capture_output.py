"""The app's output goes to the error log with `capture_output`, as under gunicorn."""

import signal
from pathlib import Path

import pytest

from support.address import Address
from support.patience import PATIENCE_S, eventually
from support.server import GUNICORN, STANCHION, Kind, Serve, Server


@pytest.fixture(params=[STANCHION, GUNICORN], ids=lambda kind: kind.name)
def any_kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


def started(build: Serve, kind: Kind, log: Path, *arguments: str) -> Server:
    bind = f"unix:{log}.socket"
    server = build("surroundings:printing", "--error-logfile", str(log), *arguments, bind=bind, kind=kind).launch()
    server.addresses = [Address.parse(bind)]
    eventually(lambda: log.exists() and "istening at" in log.read_text(), "it listens", 2 * PATIENCE_S)
    return server


def printed(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if line.startswith(("printed", "by another"))]


def expected(path: str) -> list[str]:
    return [f"printed to stdout {path}", f"printed to stderr {path}", f"by another program {path}"]


def test_what_the_app_prints_is_in_the_error_log(build: Serve, tmp_path: Path, any_kind: Kind) -> None:
    log = tmp_path / "error.log"
    server = started(build, any_kind, log, "--capture-output")
    with server.connect() as wire:
        assert wire.get("/one").status == 200
    assert printed(log) == expected("/one")

    renamed = log.rename(tmp_path / "error.log.1")
    server.signal(signal.SIGUSR1)
    eventually(log.exists, "it is opened anew")

    def asked() -> bool:
        with server.connect() as wire:
            assert wire.get("/two").status == 200
        return printed(log)[-3:] == expected("/two")

    # A worker of gunicorn's hears of it after its next request, and one of ours perhaps in the middle of one.
    eventually(asked, "the worker has heard of it, too")
    assert not server.stdout.text() and "printed" not in server.log.text()
    assert expected("/one")[0] in renamed.read_text()


def test_without_it_nothing_of_that_is(build: Serve, tmp_path: Path, any_kind: Kind) -> None:
    log = tmp_path / "error.log"
    server = started(build, any_kind, log)
    with server.connect() as wire:
        assert wire.get("/one").status == 200
    server.stdout.wait("printed to stdout /one")
    server.log.wait("printed to stderr /one")
    assert printed(log) == []
