"""The source distribution that `make sdist` has written (`make test-install`)."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from install.conftest import GIVEN, ROOT

pytestmark = [pytest.mark.own("its packages"), pytest.mark.timeout(900)]


def test_a_wheel_is_built_of_it_alone(tmp_path: Path) -> None:
    [sdist] = Path(GIVEN or "").parent.glob("stanchion-*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    [sources] = tmp_path.iterdir()
    assert {path.name for path in sources.iterdir()} >= {"Cargo.lock", "LICENSE", "README.md", "crates", "python"}
    wheels = tmp_path / "wheels"
    # Unoptimized, as that takes a minute instead of several. The registry's crates may have been compiled before.
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    pip += ["--config-settings", "build-args=--profile dev", "--wheel-dir", str(wheels), str(sources)]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "CARGO_TARGET_DIR": str(ROOT / "target/sdist")}
    subprocess.run(pip, cwd=tmp_path, env=environment, check=True, timeout=900)
    [wheel] = wheels.iterdir()
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=120)
    subprocess.run([venv / "bin/pip", "install", "--quiet", "--no-index", str(wheel)], check=True, timeout=120)
    said = subprocess.run([venv / "bin/stanchion", "check", "--json"], capture_output=True, check=True, timeout=60)
    assert b'"workers"' in said.stdout
