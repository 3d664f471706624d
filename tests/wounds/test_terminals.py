"""Escape sequences in text from apps, clients and peers: a log or a command's answer that sets the title, clears the
screen, or reads backwards. Such text reaches the operator's terminal, and the terminal may obey none of it.
"""

import json
import os
import re
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from support.clock import Clock
from support.ctl import ctl
from support.patience import eventually
from support.screen import Screen
from support.server import Serve, Server
from support.wire import request

pytestmark = pytest.mark.own("what others print is not asked here")

FOUL = "\x1b]0;owned\x07\x1b[2J\x9b1m\u202eevil\u2066\x7f\r"

STANCHION = (sys.executable, "-m", "stanchion")

# Sequences that stanchion sends itself: colours (ECMA-48 section 8.3.117), and a terminal's line ends.
_OURS = re.compile(r"\x1b\[[0-9;]*m|\r?\n")

_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f]")


def obeyed(text: str) -> list[str]:
    """The characters that a terminal would obey, apart from those that stanchion sends itself."""
    return _OBEYED.findall(_OURS.sub("", text))


def on_a_terminal(*words: str, home: Path, **environment: str) -> str:
    """All that a command has written on a terminal when it has ended."""
    screen = Screen(*STANCHION, *words, columns=200, PYTHONPATH=str(home), **environment)
    with closing(screen):
        screen.exit_code()
        return screen.written + screen.errors()


def test_an_app_that_cannot_be_loaded(build: Serve) -> None:
    server: Server = build("imports.foul:app", env={"FOUL": FOUL})
    server.launch()
    assert server.exit_code() == 4
    server.log.wait_end()
    text = server.log.text()
    assert obeyed(text) == []
    # A report keeps its lines, and nothing else.
    assert "\\x1b]0;owned\\x07\\x1b[2J\\x9b1m\\u202eevil\\u2066\\x7f\\x0d\nof two lines\\x1b]0;owned" in text


def test_the_stacks_of_a_worker_that_wrote_some_of_them_itself(serve: Serve, tmp_path: Path, clock: Clock) -> None:
    control = tmp_path / "control"
    arguments = ("--timeout", "1000", "--control", f"unix:{control}")
    server = serve("hostile:foul_mouthed", *arguments, env=clock.environment | {"FOUL": FOUL})
    with server.connect() as wire:
        wire.send(request("GET", "/"))

        def dump() -> str | None:
            written = on_a_terminal("ctl", "--control", f"unix:{control}", "dump", home=tmp_path)
            assert obeyed(written) == []
            return written if "owned" in written else None

        assert "  File \\x1b]0;owned\\x07" in (eventually(dump, "its words are among the stacks") or "")
        raw = json.loads(ctl(control, "--json", "dump").stdout)
        assert raw["ok"]
        clock.advance(1001)
        server.log.wait("the stacks of worker")
        assert wire.response().status == 504
    assert obeyed(server.log.text()) == []


_LISTENS = """
import ctypes, socket, sys
ctypes.CDLL(None).prctl(15, sys.argv[2].encode()[:15], 0, 0, 0)
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen(0)
print("listening", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def stranger(tmp_path: Path):
    """A process whose name and socket are foul, and whose queue is full, so that there is much to say of it."""
    path = f"{tmp_path}/{FOUL}"
    command = [sys.executable, "-c", _LISTENS, path, "\x1b]0;x\x07\x1b[2J\x7f"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "listening\n"
        with socket.socket(socket.AF_UNIX) as guest:
            guest.connect(path)
            yield process
        process.communicate()


@pytest.mark.parametrize("words", [("doctor", "--this-one"), ("top", "--any", "--once")])
@pytest.mark.usefixtures("stranger")
@pytest.mark.privileges
def test_names_of_processes_and_their_sockets(words: tuple[str, ...], tmp_path: Path) -> None:
    written = on_a_terminal(*words, home=tmp_path)
    assert obeyed(written) == []
    assert "\\x1b]0;owned\\x07" in written
    assert "\\x1b]0;x\\x07" in written


def test_a_config_file(tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text(f"bind = {FOUL!r}\nraise_in_check = 1\n")
    (tmp_path / "raises.py").write_text(f"raise ValueError({FOUL!r})\n")
    for name in ("c.py", "raises.py"):
        written = on_a_terminal("check", "-c", str(tmp_path / name), home=tmp_path)
        assert obeyed(written) == []
        assert "owned" in written


def test_an_answer_over_the_control_socket(tmp_path: Path) -> None:
    """The answer may come from any process that listens there."""
    path = tmp_path / "control"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(8)
        for answer in ({"ok": False, "message": FOUL}, {"ok": True, "message": FOUL}):
            screen = Screen(*STANCHION, "ctl", "--control", f"unix:{path}", "reload")
            with closing(screen):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(json.dumps(answer).encode() + b"\n")
                screen.exit_code()
                written = screen.written + screen.errors()
            assert obeyed(written) == []
            assert "\\x1b]0;owned\\x07" in written


def test_json_is_ascii_without_del(tmp_path: Path, stranger: subprocess.Popen[str]) -> None:
    command = [*STANCHION, "top", "--any", "--once", "--json"]
    done = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "HOME": str(tmp_path)})
    assert obeyed(done.stdout.decode("ascii")) == []
    names = [owner["name"] for one in json.loads(done.stdout)["listeners"] for owner in one["owners"]]
    assert "\x1b]0;x\x07\x1b[2J\x7f" in names
    assert stranger.poll() is None
