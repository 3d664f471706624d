"""helm and kustomize, which `make test-chart` builds."""

import os
import subprocess
from pathlib import Path

from support.example import EXAMPLES
from support.manifests import Manifests
from support.patience import PATIENCE_S

TOOLS = Path(__file__).parents[2] / "target/tools/chart"
NOT_HERE = "" if (TOOLS / "made").exists() else "NOT BUILT: `make test-chart` builds helm and kustomize"
CHART = EXAMPLES / "kubernetes/chart"
SETS = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").iterdir())
"""Whole sets of values."""


def run(home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a tool, which keeps its own files in a home of its own."""
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    words = [str(TOOLS / command[0]), *command[1:]]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=6 * PATIENCE_S)


def helm(home: Path, name: str, *more: str) -> subprocess.CompletedProcess[str]:
    """The objects for a set of values, as `helm template` prints them."""
    given = ("--values", str(CHART / "ci" / f"{name}-values.yaml"))
    return run(home, "helm", "template", "shop", str(CHART), "--namespace", "default", *given, *more)


def rendered(home: Path, name: str, *more: str) -> Manifests:
    done = helm(home, name, *more)
    assert done.returncode == 0, done.stderr
    return Manifests.read(done.stdout)
