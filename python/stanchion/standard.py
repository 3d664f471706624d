"""Standard modules that are imported late, found as they would have been at the start."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The modules that the server itself may import after the app's directory is on the path, and the modules that these
# import, in any supported Python. tests/unit/test_standard.py asks each Python that the machine has.
NAMES = frozenset(
    (
        *("__future__", "_bz2", "_colorize", "_compression", "_heapq", "_lzma", "_opcode", "_opcode_metadata"),
        *("_py_warnings", "_weakrefset", "annotationlib", "ast", "bz2", "codeop", "copy", "dataclasses", "difflib"),
        *("dis", "fnmatch", "glob", "heapq", "inspect", "io", "linecache", "logging", "lzma", "opcode", "shlex"),
        *("shutil", "signal", "string", "sysconfig", "textwrap", "threading", "token", "tokenize", "traceback"),
        *("unicodedata", "warnings", "weakref", "zlib"),
        # By `logging.config`, if gunicorn's settings of logging are set; under gunicorn too these are always Python's.
        *("_compat_pickle", "_pickle", "_queue", "_socket", "_struct", "array", "pickle", "queue", "select"),
        *("selectors", "socket", "socketserver", "struct"),
        # By asyncio, if the app is an ASGI one; the last by hooks of its requests.
        *("_asyncio", "_contextvars", "_posixsubprocess", "_ssl", "asyncio", "base64", "concurrent", "contextvars"),
        *("fcntl", "locale", "ssl", "subprocess", "http"),
        # By what reads the settings, which the master does itself if there is a config file.
        *("_json", "argparse", "copyreg", "enum", "gettext", "json", "math", "re", "sre_compile", "sre_constants"),
        *("_typing", "sre_parse", "typing"),
        # By `glogging.Logger`, when it is asked for an access line; and by `scribe`, which asks it.
        *("_datetime", "binascii", "datetime"),
    )
)


class _Standard:
    """Keeps an app's own `token.py` or `logging.py` from standing in for the module that the server means: finds these
    names on the path that Python had before the app's directory came first.
    """

    def __init__(self, path: Sequence[str]) -> None:
        self._path = path
        self.afterwards: dict[str, Callable[[], None]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None for all other modules, which Python finds as ever (importlib.abc.MetaPathFinder)."""
        if name not in NAMES:
            return None
        spec = PathFinder.find_spec(name, self._path)
        afterwards = self.afterwards.pop(name, None)
        if spec is not None and afterwards is not None:
            # Typed as `object` by importlib's own protocol; what is there need only be called through.
            spec.loader = _Followed(spec.loader, afterwards)  # type: ignore[assignment]
        return spec


class _Followed:
    """A loader after which something else is done, once (importlib.abc.Loader)."""

    def __init__(self, loader: Any, afterwards: Callable[[], None]) -> None:
        self._loader = loader
        self._afterwards = afterwards

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # As if this had never been: `inspect` and others ask the loader.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._afterwards()


def put_first(directory: str) -> None:
    """Let imports look here before anywhere else, but for these modules."""
    _finder()
    sys.path.insert(0, directory)


def once_imported(name: str, afterwards: Callable[[], None]) -> None:
    """Call this right after the first import of one of these modules, by any code: now, if it is imported already."""
    if name in sys.modules:
        afterwards()
    else:
        _finder().afterwards[name] = afterwards


def _finder() -> _Standard:
    for finder in sys.meta_path:
        if isinstance(finder, _Standard):
            return finder
    made = _Standard(list(sys.path))
    sys.meta_path.insert(0, made)
    return made
