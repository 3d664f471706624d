"""Apps that log by `gunicorn.error` and its like find what they find under gunicorn, line for line."""

import re
from pathlib import Path

import pytest

from support.address import Address
from support.patience import PATIENCE_S, eventually
from support.server import GUNICORN, STANCHION, Kind, Serve
from support.wire import BrokenOff, Wire

HEAD = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}\] (\[\d+\] \[[A-Z]+\] )")
OTHERS = re.compile(r"\[\d+\] \[")
FIRST = re.compile(r"a debug line|an info line|a warning|an exception")
LAST = "the last line"


class Borrowed:
    """The lines that one request to the app writes to the error log of a server."""

    def __init__(self, build: Serve, tmp_path: Path) -> None:
        self._build = build
        self._tmp_path = tmp_path

    def said(self, kind: Kind, *arguments: str, env: dict[str, str] | None = None) -> list[str]:
        """Without the times, and with PID for the worker's."""
        # A path is known beforehand: at some levels no server says where it listens.
        bind = f"unix:{self._tmp_path}/{kind.name}"
        address = Address.parse(bind)
        server = self._build("frameworks.flask:create_borrowing()", *arguments, kind=kind, bind=bind, env=env).launch()
        pid = eventually(lambda: _answer(address), "it serves", 2 * PATIENCE_S)
        server.log.wait(LAST)
        lines = [HEAD.sub(r"\1", line).replace(f"[{pid}]", "[PID]") for line in server.log.lines()]
        first = next(index for index, line in enumerate(lines) if FIRST.search(line))
        # Lines that other processes write meanwhile do not belong to the request.
        return [line for line in lines[first:] if not OTHERS.match(line)]


def _answer(address: Address) -> str | None:
    try:
        with Wire.connect(address) as wire:
            return wire.get("/log?name=more").text
    except (OSError, BrokenOff):
        return None


@pytest.fixture
def borrowed(build: Serve, tmp_path: Path) -> Borrowed:
    return Borrowed(build, tmp_path)


@pytest.mark.parametrize("preload", [True, False])
@pytest.mark.parametrize("level", ["debug", "info", "error"])
def test_lines_are_gunicorns(borrowed: Borrowed, level: str, preload: bool) -> None:
    ours = borrowed.said(STANCHION, "--log-level", level, *([] if preload else ["--no-preload"]))
    assert ours == borrowed.said(GUNICORN, "--log-level", level, *(["--preload"] if preload else []))
    assert ours[-1] == "[PID] [CRITICAL] the last line"
    assert ("[PID] [INFO] an info line with more" in ours) == (level != "error")


def test_the_level_of_a_borrower_is_its_own(borrowed: Borrowed) -> None:
    ours, theirs = (borrowed.said(kind, env={"LEVEL": "DEBUG"}) for kind in (STANCHION, GUNICORN))
    assert ours == theirs
    assert "[PID] [DEBUG] a debug line" in ours


def test_a_format_that_a_borrower_sets_is_the_only_one(borrowed: Borrowed) -> None:
    env = {"FORMAT": "%(name)s %(levelname)s: %(message)s"}
    ours, theirs = (borrowed.said(kind, env=env) for kind in (STANCHION, GUNICORN))
    assert ours == theirs
    assert ours[0] == "borrowing INFO: an info line with more"


def test_an_access_line_of_the_apps_goes_to_the_access_log(serve: Serve, tmp_path: Path) -> None:
    for kind in (STANCHION, GUNICORN):
        log = tmp_path / kind.name
        server = serve("frameworks.flask:create_borrowing()", "--access-logfile", str(log), kind=kind)
        with server.connect() as wire:
            assert wire.get("/log").status == 200
        assert log.read_text().splitlines()[0] == "an access line of the app's"


@pytest.mark.own("gunicorn's own lines go by the logger that is disabled then, and are lost")
def test_what_an_app_disables_is_not_the_servers(serve: Serve) -> None:
    server = serve("frameworks.flask:create_borrowing()")
    mark = server.log.mark()
    with server.connect() as wire:
        assert wire.get("/disable").body == b"True"
        assert wire.get("/fail?key=a").status == 500
        assert wire.get("/log?name=later").status == 200
        wire.send(b"nonsense\r\n\r\n")
        assert wire.response().status == 400
    server.log.wait("a client's fault", mark)
    assert not server.log.matches("straight to it", mark)
