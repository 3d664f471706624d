"""Which files to watch under --reload. Watching them is the master's business."""

import glob
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from types import ModuleType

# A working directory such as / or a home must not turn a reload into a search of the disk.
FILES_MAX = 10_000
DIRECTORIES_MAX = 10_000

_SKIPPED_DIRECTORIES = {"node_modules", "site-packages", "__pycache__"}


def watched_files(extra: Sequence[str] = ()) -> list[str]:
    """Absolute paths: sources of loaded modules, Python files below the working directory, `extra`.

    An `extra` that is a pattern stands for the files that match it now; any other is watched
    even if it is not there yet.
    """
    files = {os.path.abspath(path) for path in _module_sources()}
    files.update(_sources_below(os.getcwd()))
    for pattern in extra:
        matches = glob.glob(pattern, recursive=True) if glob.has_magic(pattern) else [pattern]
        files.update(os.path.abspath(path) for path in matches)
    return sorted(files)


def _module_sources() -> Iterator[str]:
    for module in list(sys.modules.values()):
        # Some programs put other objects there. cffi's objects claim to be modules, so ask for the type.
        if not issubclass(type(module), ModuleType):
            continue
        # object's own way: a lazy module would take any other for a reason to load.
        path = object.__getattribute__(module, "__dict__").get("__file__")
        if isinstance(path, str) and path.endswith(".py"):
            yield path


def _sources_below(top: str) -> Iterator[str]:
    files = 0
    for directory, subdirectories, names in islice(os.walk(top), DIRECTORIES_MAX):
        # In place, so that os.walk does not go there either.
        subdirectories[:] = sorted(name for name in subdirectories if _is_searched(directory, name))
        for name in sorted(names):
            if name.endswith(".py"):
                files += 1
                if files > FILES_MAX:
                    return
                yield os.path.join(directory, name)


def _is_searched(parent: str, name: str) -> bool:
    hidden_or_foreign = name.startswith(".") or name in _SKIPPED_DIRECTORIES
    return not hidden_or_foreign and not os.path.exists(os.path.join(parent, name, "pyvenv.cfg"))
