"""Which processes of a server's tree do its work."""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import psutil

HELPERS = re.compile(
    r"""stanchion-(acpt|tmpl)
      | nginx:\ cache\ .*
      | uWSGI\ http\ .*                       # its router
      | .*multiprocessing\.resource_tracker.* # of Python; granian has one
    """,
    re.VERBOSE,
)
"""By the names that they give themselves: comm, or the command line."""


@dataclass(frozen=True)
class Member:
    pid: int
    began_s: float
    parent: int
    helper: bool


def members(pids: Iterable[int]) -> list[Member]:
    """The processes among them that live, oldest first."""
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            one = psutil.Process(pid)
            names = (one.name(), " ".join(one.cmdline()))
            helper = any(HELPERS.fullmatch(name) for name in names)
            found.append(Member(pid, one.create_time(), one.ppid(), helper))
    return sorted(found, key=lambda one: (one.began_s, one.pid))


def workers(pids: Iterable[int]) -> list[int]:
    """The workers among these, oldest first: processes without children, also below a second master, that are no
    helpers. A program that forks no process is its own worker."""
    tree = members(pids)
    parents = {one.parent for one in tree}
    return [one.pid for one in tree if one.pid not in parents and not one.helper]
