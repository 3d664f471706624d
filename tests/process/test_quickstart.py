"""The quickstart, followed step by step in an empty folder, for each framework. The steps of pip are taken already."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from support.example import SCRIPTS
from support.patience import PATIENCE_S
from support.server import Serve
from support.wire import request

pytestmark = pytest.mark.own("the page is ours")

PAGE = (Path(__file__).parents[2] / "docs" / "quickstart.md").read_text()
TABS = PAGE.partition("<!-- tabs -->")[2].partition("<!-- /tabs -->")[0]
PARTS = re.split(r"^### (.+)$", TABS, flags=re.MULTILINE)[1:]
SECTIONS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def in_shell(line: str, home: Path) -> None:
    done = subprocess.run(
        ["bash", "-ec", line],
        cwd=home,
        env={"PATH": f"{SCRIPTS}:/usr/bin:/bin", "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=3 * PATIENCE_S,
    )
    assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"


def test_each_framework_has_its_section() -> None:
    assert list(SECTIONS) == ["Flask", "Django", "FastAPI"]


@pytest.mark.parametrize("framework", SECTIONS)
def test_the_steps_of_a_framework(build: Serve, framework: str) -> None:
    blocks = BLOCK.findall(SECTIONS[framework])
    lines = [line for language, text in blocks if language == "sh" for line in text.splitlines()]
    [serving] = [shlex.split(line) for line in lines if line.startswith("stanchion serve ")]
    asking = [line for line in lines if line.startswith("curl ")]
    assert serving[-2:] == ["--admin", "127.0.0.1:8299"]
    assert [line.split()[0] for line in asking] == ["curl", "curl"]

    server = build(serving[2], *serving[3:-2], "--admin", "unix:admin")
    for language, text in blocks:
        if language == "python":
            name = text.splitlines()[0].removeprefix("# ")
            (server.home / name).write_text(text)
    for line in lines[: lines.index(shlex.join(serving))]:
        if not line.startswith("pip install "):
            in_shell(line, server.home)
    server.start()

    for line in asking:
        command, _, expected = line.partition("#")
        method = "HEAD" if "-I" in command.split() else "GET"
        path = command.split()[-1].removeprefix("http://127.0.0.1:8000")
        with server.connect() as wire:
            wire.send(request(method, path, host="localhost"))
            answer = wire.response(method)
        said = f"{answer.status} {answer.reason}\n{answer.body.decode()}"
        assert answer.status == 200
        assert expected.strip() in said, line
    # The app stays preloaded: nothing that an import leaves behind is in the way of a fork.
    assert "not preloaded" not in server.log.text()


def test_the_wheel_that_the_page_names_is_of_this_version() -> None:
    manifest = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    [version] = re.findall(r'^version = "(.+)"$', manifest, re.MULTILINE)
    assert re.findall(r"pip install \./(\S+)-cp3", PAGE) == [f"stanchion-{version}"]
