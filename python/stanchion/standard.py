"""Standard modules that are imported late, found as they would have been at the start."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

# What the server itself may import after the app's directory, and what that imports in its turn, in any Python that it
# runs on. tests/unit/test_standard.py asks each that the machine has.
NAMES = frozenset(
    (
        *("_bz2", "_colorize", "_compression", "_heapq", "_lzma", "_opcode", "_opcode_metadata", "_weakrefset", "ast"),
        *("bz2", "difflib", "dis"),
        *("fnmatch", "glob", "heapq", "inspect", "linecache", "logging", "lzma", "opcode", "shlex", "shutil"),
        *("signal", "string", "sysconfig", "textwrap", "threading", "token", "tokenize", "traceback", "unicodedata"),
        *("warnings", "weakref", "zlib"),
    )
)


class _Standard:
    """Keeps an app's own `token.py` or `logging.py` from standing in for the module that the server means. The server
    had these loaded before it looked into the app's directory, once; now it is Python's path from then that tells.
    """

    def __init__(self, path: Sequence[str]) -> None:
        self._path = path

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Nothing where Python is to find it as ever (importlib.abc.MetaPathFinder)."""
        return PathFinder.find_spec(name, self._path) if name in NAMES else None


def put_first(directory: str) -> None:
    """Let imports look here before anywhere else, but for these modules."""
    if not any(isinstance(finder, _Standard) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Standard(list(sys.path)))
    sys.path.insert(0, directory)
