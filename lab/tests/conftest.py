"""The tests of the lab run the distribution that is installed, as those of the server do."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# `lab_support` is imported by name from every directory of these tests, whatever pytest's import mode.
sys.path.insert(0, str(Path(__file__).parent))

LAB = Path(__file__).parents[1]


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    found = find_spec("stanchion_lab")
    if found is None or found.origin is None:
        raise pytest.UsageError("the lab is not installed here: run `make test-lab`")
    # pip gives files the times that the wheel has for them, and makes this directory when it installs.
    installed_s = next((Path(found.origin).parents[1]).glob("stanchion_lab-*.dist-info")).stat().st_mtime
    newer = [path for path in (LAB / "stanchion_lab").rglob("*.*") if path.stat().st_mtime > installed_s]
    newer = [path for path in newer if "__pycache__" not in path.parts]
    if newer:
        raise pytest.UsageError(
            f"the lab that is installed here is older than {newer[0].relative_to(LAB.parent)}: run `make test-lab`"
        )
