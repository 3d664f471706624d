"""The files of examples/, run as shipped but for where things are, and what a server makes of their settings."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.patience import PATIENCE_S

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = Path(sys.executable).parent
"""Where `stanchion` and its peers are installed: examples call them by name."""


def adapted(name: str, here: dict[str, str]) -> str:
    """The text of an example with these of its words replaced, each of which must be in it."""
    text = (EXAMPLES / name).read_text()
    for given, instead in here.items():
        assert given in text, f"{name} has no {given!r} any more"
        text = text.replace(given, instead)
    return text


def settings(words: Sequence[str], home: Path, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Each setting's value, as `stanchion check` reports it for a command line `stanchion serve ...`."""
    assert list(words[:2]) == ["stanchion", "serve"], words
    command = [sys.executable, "-m", "stanchion", "check", "--json", *words[2:]]
    checked = subprocess.run(
        command, cwd=home, env=env or {}, capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    return {name: entry["value"] for name, entry in json.loads(checked.stdout).items()}
