"""What backlog a stanchion has asked for, whether it has event loops, and which certificates, by its own word:
`/status` of its admin listener (docs/reference/admin.md).

Nothing is sent to a socket unless its process was told that it is to be the admin listener: a request to any other
would be one to an app.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from stanchion.doctor import asked
from stanchion.doctor.facts import Facts, Listener
from stanchion.doctor.settings import Settings
from stanchion.effective import UsageError
from stanchion.top import source, status
from stanchion.top.status import Certificate

PATIENCE_S = 1.0
"""For one server; it answers at once, whatever waits in its line."""

ALL_S = 5.0
"""For all of them."""

BACKLOG_MAX = 2**31 - 1
"""What listen(2) takes: an int."""


def with_backlog_asked(facts: Facts, settings_of: Callable[[int], Settings | None]) -> Facts:
    """Of the stanchions in our network namespace; others cannot be reached from here."""
    ours, *others = facts.networks
    masters = dict.fromkeys(master for one in ours.listeners if (master := asked.stanchion(one)) is not None)
    listeners = ours.listeners
    event_loops: tuple[int, ...] = ()
    websockets: tuple[int, ...] = ()
    certificates: dict[int, tuple[Certificate, ...]] = {}
    not_looked_at = []
    deadline = time.monotonic() + ALL_S
    for pid in masters:
        left_s = deadline - time.monotonic()
        settings = settings_of(pid) if left_s > 0 else None
        where = _admin(settings, pid, ours.listeners) if settings else None
        if where is None:
            continue
        try:
            said = status.parse(source.status(where, min(PATIENCE_S, left_s)))
            listeners = _told(listeners, pid, where, said)
            if said.pid == pid and said.certificates:
                certificates[pid] = said.certificates
            if said.pid == pid and said.loops:
                event_loops += (pid,)
                websockets += (pid,) if said.has_websockets else ()
        except (source.Failed, status.Unexpected) as error:
            not_looked_at.append(f"what backlog process {pid} has asked for, at its admin listener: {error}")
    return replace(
        facts,
        networks=(replace(ours, listeners=listeners), *others),
        event_loops=event_loops,
        websockets=websockets,
        certificates=certificates,
        not_looked_at=(*facts.not_looked_at, *not_looked_at),
    )


def _admin(settings: Settings, pid: int, listeners: tuple[Listener, ...]) -> source.Place | None:
    """The socket of the process that it was told to tell at. None if it might be another's by now."""
    try:
        told = source.place(settings.values["admin"] or "")
    except UsageError:
        return None
    if isinstance(told.address, str):
        path = told.text.partition("?")[0].removeprefix("unix:")
        # A relative one is so to its directory, not to ours.
        is_whole = path.startswith(("/", "@"))
        there = [one for one in listeners if is_whole and one.family == "unix" and one.address == path]
        text = f"unix:{path}"
    else:
        # Whatever the host: somebody else at one of its addresses would get what is sent to all of them.
        port = told.address[1]
        there = [one for one in listeners if one.family == "tcp" and one.address.rpartition(":")[2] == str(port)]
        text = there[0].address if there else ""
    if len(there) != 1 or asked.stanchion(there[0]) != pid:
        return None
    return source.place(text)


def _told(listeners: tuple[Listener, ...], pid: int, where: source.Place, said: status.Status) -> tuple[Listener, ...]:
    backlogs = {one.address: one.backlog_asked for one in said.listeners}

    def with_own(listener: Listener) -> Listener:
        pids = {owner.pid for owner in listener.owners}
        schemes = ("unix:",) if listener.family == "unix" else ("http://", "https://")
        backlog = next((found for scheme in schemes if (found := backlogs.get(scheme + listener.address))), None)
        # Another server may have taken the address since we looked.
        if pid not in pids or said.pid not in pids or backlog is None or backlog > BACKLOG_MAX:
            return listener
        return replace(listener, backlog_asked=backlog, asked_by=f"/status of process {pid} at {where.text}")

    return tuple(map(with_own, listeners))
