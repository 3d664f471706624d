"""The backlog that a server has asked for. The kernel does not keep it; the server's command line may show it, or else
the server's default counts.
"""

import os
import re
from dataclasses import replace

from stanchion.doctor.facts import Listener, Owner

_FLAG = re.compile(r"\s--backlog[= ](\d+)(?=\s|$)")

SERVERS = ("nginx", "gunicorn", "stanchion", "uwsgi")
"""The doctor knows these."""

# The servers whose own default we have seen in force.
DEFAULTS = {"nginx": 511, "gunicorn": 2048, "stanchion": 2048}

_CONTROL_SOCKET = "/gunicorn.ctl"

OLD_SOMAXCONN = 128
"""The default of kernels before 5.4, which many set-ups still have."""


def with_backlog_asked(listener: Listener, somaxconn: int | None) -> Listener:
    """The listener with the backlog that an owner asked for: the first owner that shows it, as all share the socket."""
    if listener.address.endswith(_CONTROL_SOCKET):
        return listener  # it is not for clients, and has a backlog of its own
    for owner in listener.owners:
        kind = server(owner)
        if kind not in DEFAULTS:
            continue
        flag = _FLAG.search(owner.command)
        if flag and kind != "nginx":
            return replace(listener, backlog_asked=int(flag[1]), asked_by=f"--backlog of process {owner.pid}")
        default = DEFAULTS[kind]
        # A file of settings may give another backlog. It does not if the backlog in force is the default, or looks like
        # a default that was cut.
        may_be_cut = listener.backlog < default and listener.backlog in (somaxconn, OLD_SOMAXCONN)
        if may_be_cut or listener.backlog == default:
            return replace(listener, backlog_asked=default, asked_by=f"the default of {kind}")
    return listener


def server(owner: Owner) -> str | None:
    """Which of the servers that we know the process is: by its name, its program, or what Python runs in it."""
    return next((name for name in SERVERS if name in _names(owner)), None)


def name(owner: Owner) -> str:
    """The server's name, where we know it: gunicorn, say, and not the Python that runs it."""
    return server(owner) or owner.name


def stanchion(listener: Listener) -> int | None:
    """The process that serves there, if it is ours: of several the master, which has the lowest pid."""
    return next((owner.pid for owner in listener.owners if server(owner) == "stanchion"), None)


def _names(owner: Owner) -> set[str]:
    words = owner.command.split()
    names = {owner.name, *(os.path.basename(word).rstrip(":") for word in words[:1])}
    if any(name.startswith("python") for name in names):
        # `python -m gunicorn …`, or `python /usr/bin/gunicorn …`.
        first = next((word for word in words[1:] if not word.startswith("-")), "")
        names.add(os.path.basename(first))
    return names
