"""Wheels as they are given away, installed as a user would: into a virtual environment that has nothing else."""

import os
import subprocess
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import interpreters
from support.interpreters import Interpreter

ROOT = Path(__file__).parents[2]
GIVEN = os.environ.get("STANCHION_WHEELS")
"""The directory of the wheels for every Python (`make test-install`). Without it, the one for this Python is used."""

collect_ignore = [] if GIVEN else ["test_wheels.py", "test_sdist.py"]
"""Files of tests that need all packages of a release."""


@dataclass
class Installed:
    """A virtual environment with the wheel in it, and the words with which its owner uses it."""

    interpreter: Interpreter
    venv: Path
    wheel: Path
    before: set[str]
    """The files there were before the wheel came."""

    @property
    def stanchion(self) -> str:
        return str(self.venv / "bin/stanchion")

    def install(self) -> None:
        self.run("pip", "install", "--quiet", "--no-index", str(self.wheel))

    def run(self, *command: str, expects: Container[int] = (0,)) -> subprocess.CompletedProcess[str]:
        """A program of its own. Nothing else is on the path: no compiler, no cargo."""
        environment = {
            "PATH": str(self.venv / "bin"),
            "HOME": str(self.venv),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        done = subprocess.run(
            [str(self.venv / "bin" / command[0]), *command[1:]],
            cwd=self.venv,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode in expects, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def files(self) -> set[str]:
        """The files in the environment, without those that Python compiled on the way."""
        return {
            str(path.relative_to(self.venv))
            for path in self.venv.rglob("*")
            if not path.is_dir() and "__pycache__" not in path.parts
        }


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "interpreter" in metafunc.fixturenames:
        chosen = interpreters.found() if GIVEN else [interpreters.this()]
        metafunc.parametrize("interpreter", chosen, ids=str, scope="module")
    if "any_wheel" in metafunc.fixturenames:
        wheels = sorted(Path(GIVEN or "").glob("stanchion-*.whl"))
        metafunc.parametrize("any_wheel", wheels, ids=lambda wheel: wheel.name)


@pytest.fixture(scope="module")
def wheel(interpreter: Interpreter) -> Path:
    """The wheel for this Python and this machine."""
    directory = Path(GIVEN or ROOT / "target/wheels")
    name = f"stanchion-*-{interpreter.tag}-*linux*_{os.uname().machine}.whl"
    wheels = list(directory.glob(name))
    assert len(wheels) == 1, f"{name} in {directory}, which `make wheels` writes: {wheels}"
    return wheels[0]


@pytest.fixture(scope="module")
def installed(interpreter: Interpreter, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    venv = tmp_path_factory.mktemp("venv")
    subprocess.run([str(interpreter.path), "-I", "-m", "venv", str(venv)], check=True, timeout=120)
    place = Installed(interpreter, venv, wheel, set())
    place.before = place.files()
    place.install()
    return place
