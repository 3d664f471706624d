"""The programs of a Kubernetes: its own, which `make fleet-k8s` builds, and those of Debian."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from support.patience import PATIENCE_S

BUILT = Path(__file__).parents[2] / "target/tools/kubernetes"
HYPERKUBE, PAUSE = BUILT / "hyperkube", BUILT / "pause"

CNI = Path("/usr/lib/cni")
"""The place where Debian's containernetworking-plugins are."""


def missing(*debian: str) -> str:
    """Why there can be no Kubernetes here, or ""."""
    if not HYPERKUBE.exists():
        return "NOT BUILT: `make fleet-k8s` builds Kubernetes"
    lacking = [name for name in debian if not shutil.which(name)]
    return f"NOT INSTALLED: {', '.join(lacking)}" if lacking else ""


class Programs:
    """Running programs, each with a file for all that it says; they end together, the youngest first."""

    def __init__(self, logs: Path) -> None:
        logs.mkdir(parents=True)
        self._logs = logs
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> None:
        # A Go program with one thread for Go code takes no core from the pods while it starts.
        given = {**os.environ, "GOMAXPROCS": "1", **(env or {})}
        with (self._logs / name).open("wb") as log:
            words = [str(word) for word in command]
            running = subprocess.Popen(words, env=given, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        self._running.append(running)

    def log(self, name: str) -> str:
        return (self._logs / name).read_text(errors="replace")

    @contextlib.contextmanager
    def for_a_while(self) -> Iterator[None]:
        """Programs that start within the `with` end with it."""
        before = len(self._running)
        try:
            yield
        finally:
            self._end(before)

    def stop(self) -> None:
        """End all of them at once: they leave things only in folders and namespaces that end, too."""
        self._end(0)

    def _end(self, first: int) -> None:
        ending, self._running = self._running[first:], self._running[:first]
        for running in reversed(ending):
            running.kill()
        for running in ending:
            running.wait(PATIENCE_S)
