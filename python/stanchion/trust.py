"""What root may run: what nobody else may change. For everybody else there is nothing to ask."""

import os
import stat

from stanchion import _stanchion


def obstacle(path: str) -> str | None:
    """Why root must not run what is at this path, with what to do about it; None where it may."""
    if os.geteuid() != 0:
        return None
    place = _stanchion.first_not_roots_alone(os.path.abspath(path))
    if place is None:
        return None
    found = os.stat(place)
    return (
        f"{place} may be changed by others than root (owner {found.st_uid}, group {found.st_gid}, "
        f"mode {stat.S_IMODE(found.st_mode):o})"
    )


def may_import_from(directory: str) -> bool:
    """Whether this process may import what lies there."""
    try:
        return obstacle(directory) is None
    except OSError:
        return True  # there is nothing that could be imported
