"""Stanchion needs only a Python: its wheel installs, serves, and uninstalls without a trace.

`make test-install` does this with a wheel for every Python that is here; without it there is the one for this Python.
"""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from install.conftest import Installed
from support.server import STANCHION, Kind, Serve

APPS = Path(__file__).parents[1] / "apps"
FLASK = ("flask", "werkzeug", "jinja2", "markupsafe", "itsdangerous", "click", "blinker")

pytestmark = [pytest.mark.own("its packages"), pytest.mark.timeout(180)]


def test_it_serves_flask(installed: Installed, serve: Serve, tmp_path: Path) -> None:
    # Flask's own files, from the tests' Python: what is compiled of them is compiled for that one, and not needed.
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in FLASK:
        found = importlib.util.find_spec(name)
        assert found and found.origin
        (packages / name).symlink_to(Path(found.origin).parent)
    kind = Kind("stanchion", (installed.stanchion, "serve"), STANCHION.listening, STANCHION.ready)
    path = {"PYTHONPATH": "", "PATH": str(installed.venv / "bin")}
    server = serve("frameworks.flask:app", "--pythonpath", f"{packages},{APPS}", "--workers", "2", kind=kind, env=path)
    with server.connect() as wire:
        assert wire.get("/?name=Ada").body == b"hello Ada"
    with server.connect() as wire:
        assert wire.get("/stream").body == b"0\n1\n2\n"
    with server.connect() as wire:
        assert wire.get("/fails").status == 500
    server.log.wait("RuntimeError: flask view fails")


def test_its_commands_answer(installed: Installed) -> None:
    [version] = re.findall(r"stanchion-([\d.]+)-", installed.wheel.name)
    assert installed.run("stanchion", "--version").stdout.splitlines()[0] == f"stanchion {version}"
    assert installed.run("python", "-m", "stanchion", "--version").stdout.splitlines()[0] == f"stanchion {version}"
    assert "--workers" in installed.run("stanchion", "--help").stdout
    assert re.search(r"^ +workers +1 ", installed.run("stanchion", "check").stdout, re.MULTILINE)
    # 1, if it has found something: what that is is not ours to know.
    assert json.loads(installed.run("stanchion", "doctor", "--json", "--this-one", expects=(0, 1)).stdout)["version"]


@pytest.mark.parametrize(
    ("words", "code", "extra"),
    [
        (("doctor", "--nginx", "nginx.conf"), 3, "doctor"),
        (("top", "--admin", "127.0.0.1:1"), 1, "top"),
    ],
)
def test_what_needs_more_says_what_to_install(
    installed: Installed, words: tuple[str, ...], code: int, extra: str
) -> None:
    said = installed.run("stanchion", *words, expects=[code]).stderr
    assert f"pip install 'stanchion[{extra}]'" in said
    assert "Traceback" not in said


def test_the_lab_is_no_part_of_it(installed: Installed) -> None:
    assert not [name for name in installed.files() if "stanchion/lab" in name]
    said = installed.run("stanchion", "lab", "list", expects=[2]).stderr
    assert "the lab is a package of its own" in said and "Traceback" not in said


def test_it_needs_nothing_else(installed: Installed) -> None:
    names = installed.run("pip", "list", "--format", "freeze").stdout.split()
    assert {name.partition("==")[0] for name in names} <= {"pip", "setuptools", "stanchion"}


def test_it_goes_without_a_trace(installed: Installed) -> None:
    assert installed.files() > installed.before
    installed.run("pip", "uninstall", "--quiet", "--yes", "stanchion")
    left = installed.files()
    installed.install()  # for the tests after this one
    assert left == installed.before
