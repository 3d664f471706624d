"""The Pythons of this machine that a wheel may be installed for."""

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.patience import PATIENCE_S

MINOR_MIN = 10
"""The minor version in `requires-python` of pyproject.toml."""
MINOR_MAX = 20
"""How far names such as `python3.14` are tried."""

ASKED = "import ensurepip, sys; print(sys.implementation.name, sys.version_info[1], getattr(sys, 'abiflags', ''))"


@dataclass(frozen=True)
class Interpreter:
    path: Path
    minor: int
    flags: str
    """The flags of its ABI; `t` is a Python without the global lock (PEP 703)."""

    def __str__(self) -> str:
        return f"3.{self.minor}{self.flags}"

    @property
    def tag(self) -> str:
        """The tag in the name of a wheel for it."""
        return f"cp3{self.minor}-cp3{self.minor}{self.flags}"


def this() -> Interpreter:
    """The one that runs the tests."""
    interpreter = _asked(Path(sys.executable))
    assert interpreter, f"{sys.executable} does not say what it is"
    return interpreter


@functools.cache
def found() -> list[Interpreter]:
    """One interpreter of each version, oldest first: of this one, those on the path, those of pyenv and of uv."""
    known: dict[str, Interpreter] = {}
    for path in _candidates():
        interpreter = _asked(path)
        if interpreter is not None:
            known.setdefault(str(interpreter), interpreter)
    return sorted(known.values(), key=lambda one: (one.minor, one.flags))


def _candidates() -> Iterator[Path]:
    yield Path(sys.executable)
    home = Path.home()
    places = [Path(place) for place in os.get_exec_path()]
    places += sorted(Path(os.environ.get("PYENV_ROOT", home / ".pyenv")).glob("versions/*/bin"))
    places += sorted(Path(os.environ.get("XDG_DATA_HOME", home / ".local/share")).glob("uv/python/*/bin"))
    for place in places:
        for minor in range(MINOR_MIN, MINOR_MAX):
            yield from (place / f"python3.{minor}{kind}" for kind in ("", "t"))


def _asked(path: Path) -> Interpreter | None:
    """None if it is none, as pyenv's `python3.12` on the path is none where no 3.12 is chosen, or has no `ensurepip`
    and so nothing can be installed for it, as Debian's without its package for virtual environments."""
    if not os.access(path, os.X_OK):
        return None
    asked = subprocess.run(
        [path, "-I", "-c", ASKED], capture_output=True, text=True, check=False, timeout=3 * PATIENCE_S
    )
    match asked.stdout.split():
        case ["cpython", minor, *flags] if asked.returncode == 0:
            return Interpreter(path, int(minor), "".join(flags))
    return None
