"""`stanchion lab`: the lab is a distribution of its own, which the server's command line only starts."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from stanchion.cli import main
from support.patience import PATIENCE_S


def test_the_server_comes_without_the_lab() -> None:
    installed = metadata.files("stanchion")
    assert installed
    assert not [file for file in installed if str(file).startswith(("stanchion/lab", "stanchion_lab"))]
    assert "lab" not in (metadata.metadata("stanchion").get_all("Provides-Extra") or [])


def test_where_it_is_not_installed_the_command_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "stanchion_lab", None)
    assert main(["lab", "list"]) == 2
    [said] = capsys.readouterr().err.splitlines()
    assert said.startswith("stanchion: the lab is a package of its own") and "`pip install ./lab`" in said


def test_where_it_is_installed_the_command_becomes_it(tmp_path: Path) -> None:
    (tmp_path / "stanchion_lab").mkdir()
    (tmp_path / "stanchion_lab/__init__.py").touch()
    (tmp_path / "stanchion_lab/__main__.py").write_text("import sys\nprint(sys.argv[1:])\nsys.exit(5)\n")
    command = [sys.executable, "-m", "stanchion", "lab", "run", "--quick", "unix-backlog"]
    ran = subprocess.run(
        command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=3 * PATIENCE_S
    )
    assert (ran.returncode, ran.stdout) == (5, "['run', '--quick', 'unix-backlog']\n"), ran.stderr
