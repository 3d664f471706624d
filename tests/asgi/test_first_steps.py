"""The page on asynchronous apps, followed step by step with a FastAPI app."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from support.server import STANCHION, Serve
from support.websocket import Open

pytestmark = pytest.mark.own("the page is ours")

PAGE = (Path(__file__).parents[2] / "docs" / "asynchronous-apps.md").read_text()
SECTION = PAGE.partition("## First steps, with FastAPI")[2].partition("\n## ")[0]
COMMANDS = [shlex.split(line, comments=True)[1:] for line in re.findall(r"^stanchion .*$", SECTION, re.MULTILINE)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with the file that the page shows."""
    (source,) = re.findall(r"```python\n# main\.py\n(.*?)```", SECTION, re.DOTALL)
    (tmp_path / "main.py").write_text(source)
    return tmp_path


def test_the_commands_are_those_that_are_tried_here() -> None:
    assert [words[0] for words in COMMANDS] == ["check", "serve", "serve"]


def test_the_app_can_be_checked(home: Path) -> None:
    done = subprocess.run([*STANCHION.command[:-1], *COMMANDS[0]], cwd=home, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", COMMANDS[1:], ids=" ".join)
def test_the_app_is_served(serve: Serve, opens: Open, home: Path, words: list[str]) -> None:
    at = words.index("--bind")
    arguments = [*words[1:at], *words[at + 2 :]]
    server = serve(arguments[-1], *arguments[:-1], "--pythonpath", str(home))
    with server.connect() as wire:
        assert wire.get("/").json() == {"said": "hello"}
    client = opens(server, "/echo")
    client.text("héllo")
    assert client.hear() == "héllo"
    client.close()
    assert client.until_end() == [(1000, "")]
