"""Root may run only code that no other user may change. Other users may run anything."""

import os
import stat
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from stanchion import _stanchion


class NotRoots(ImportError):
    """A module that root must not run."""


def obstacle(path: str) -> str | None:
    """Why root must not run what is at this path, with what to do about it; None where it may."""
    if os.geteuid() != 0:
        return None
    # Not os.path.abspath(): the kernel takes `link/..` for the parent of where the link leads to.
    place = _stanchion.first_not_roots_alone(os.path.join(os.getcwd(), path))
    if place is None:
        return None
    found = os.stat(place)
    return (
        f"{place} may be changed by others than root (owner {found.st_uid}, group {found.st_gid}, "
        f"mode {stat.S_IMODE(found.st_mode):o})"
    )


def may_import_from(directory: str) -> bool:
    """Whether this process may look for modules there. The modules found there are checked on their own (`Guard`)."""
    return _obstacle_of_any(directory) is None


def obstacle_of_module(spec: ModuleSpec) -> str | None:
    """The same for a module: for its file, and for the compiled file that Python would load instead."""
    if spec.has_location and spec.origin is not None:
        cached = [spec.cached, os.path.dirname(spec.cached)] if spec.cached is not None else []
        return _obstacle_of_any(spec.origin, *cached)
    # A package without a file of its own; or one that is built in, which has no places either.
    return _obstacle_of_any(*(spec.submodule_search_locations or ()))


def _obstacle_of_any(*paths: str) -> str | None:
    for path in paths:
        try:
            reason = obstacle(path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # there is nothing that could be run
        if reason is not None:
            return reason
    return None


class Guard:
    """Finds modules as Python does, ahead of it, and lets root import no other user's modules from the directories that
    it watches. Root may own a directory, and another user a file in it.
    """

    def __init__(self) -> None:
        self._directories: set[str] = set()

    def watch(self, directory: str) -> None:
        """Check modules in this directory from now on."""
        self._directories.add(os.path.join(directory, ""))
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def leave(self) -> None:
        """In a process that loads what the operator has named, as the user it is to run as: check nothing any more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Nothing where Python may find it itself (importlib.abc.MetaPathFinder)."""
        if os.geteuid() != 0:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None:
            return None
        places = [spec.origin] if spec.has_location and spec.origin else spec.submodule_search_locations or []
        if any(place.startswith(tuple(self._directories)) for place in places):
            reason = obstacle_of_module(spec)
            if reason is not None:
                raise NotRoots(f"{name} is not imported as root: {reason}", name=name, path=spec.origin)
        return None


GUARD = Guard()
