"""`stanchion ctl`, as a user runs it."""

import subprocess
import sys
from pathlib import Path

from support.patience import PATIENCE_S


def ctl(control: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stanchion", "ctl", "--control", f"unix:{control}", "--timeout", "30", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=3 * PATIENCE_S)
