"""Asks stanchions how they are: `/status` of their admin listeners (docs/reference/admin.md).

The doctor sends nothing to a socket unless its process was started with that address as its admin listener: a request
to any other would be one to an app. So it asks no socket that systemd has passed (`ListenStream=`): these are all for
clients, and the server makes its admin listener itself.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from stanchion.doctor import asked
from stanchion.doctor.facts import Facts, Listener, Seat, Server, Silence
from stanchion.doctor.settings import Settings
from stanchion.effective import UsageError
from stanchion.top import source, status
from stanchion.top.status import Certificate

PATIENCE_S = 1.0
"""For one server; it answers at once, whatever waits in its line."""

ALL_S = 5.0
"""For all of them."""

BACKLOG_MAX = 2**31 - 1
"""The largest value that listen(2) takes: an int."""


def with_status(facts: Facts, settings_of: Callable[[int], Settings | None]) -> Facts:
    """The facts with the status of each stanchion in our network namespace; others cannot be reached from here."""
    ours, *others = facts.networks
    masters = dict.fromkeys(master for one in ours.listeners if (master := asked.stanchion(one)) is not None)
    listeners = ours.listeners
    event_loops: tuple[int, ...] = ()
    websockets: tuple[int, ...] = ()
    certificates: dict[int, tuple[Certificate, ...]] = {}
    servers: dict[int, Server] = {}
    silent: dict[int, Silence] = {}
    not_looked_at = []
    deadline = time.monotonic() + ALL_S
    for pid in masters:
        left_s = deadline - time.monotonic()
        settings = settings_of(pid) if left_s > 0 else None
        where = _admin(settings, pid, ours.listeners) if settings else None
        if settings is None or where is None:
            continue
        try:
            said = status.parse(source.status(where, min(PATIENCE_S, left_s)))
            listeners = _told(listeners, pid, where, said)
        except source.Silent as error:
            not_looked_at.append(f"what process {pid} says at its admin listener: {error}")
            # With less patience than that it is no finding.
            if left_s >= PATIENCE_S:
                silent[pid] = Silence(str(error), _control(settings, pid, ours.listeners))
            continue
        except (source.Failed, status.Unexpected) as error:
            not_looked_at.append(f"what process {pid} says at its admin listener: {error}")
            continue
        if said.pid != pid:
            continue
        servers[pid] = _server(said, where, _control(settings, pid, ours.listeners))
        if said.certificates:
            certificates[pid] = said.certificates
        if said.loops:
            event_loops += (pid,)
            websockets += (pid,) if said.has_websockets else ()
    return replace(
        facts,
        networks=(replace(ours, listeners=listeners), *others),
        event_loops=event_loops,
        websockets=websockets,
        certificates=certificates,
        servers=servers,
        silent=silent,
        not_looked_at=(*facts.not_looked_at, *not_looked_at),
    )


def _admin(settings: Settings, pid: int, listeners: tuple[Listener, ...]) -> source.Place | None:
    """The socket of the process's admin listener. None if it might belong to another process by now."""
    try:
        told = source.place(settings.values["admin"] or "")
    except UsageError:
        return None
    if isinstance(told.address, str):
        text = told.text.partition("?")[0]
        return source.place(text) if _is_own(text, pid, listeners) else None
    # Another server at one address of this port would get what is sent to all of them, so the host does not matter.
    port = told.address[1]
    there = [one for one in listeners if one.family == "tcp" and one.address.rpartition(":")[2] == str(port)]
    return source.place(there[0].address) if len(there) == 1 and asked.stanchion(there[0]) == pid else None


def _control(settings: Settings, pid: int, listeners: tuple[Listener, ...]) -> str | None:
    text = settings.values["control"]
    return text if text is not None and _is_own(text, pid, listeners) else None


def _is_own(text: str, pid: int, listeners: tuple[Listener, ...]) -> bool:
    """Whether this process listens at `unix:PATH`, and no other."""
    path = text.removeprefix("unix:")
    # A relative one is so to its directory, not to ours.
    is_whole = path.startswith(("/", "@"))
    there = [one for one in listeners if is_whole and one.family == "unix" and one.address == path]
    return len(there) == 1 and asked.stanchion(there[0]) == pid


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


def _server(said: status.Status, where: source.Place, control: str | None) -> Server:
    lanes, stand = said.line.lanes, said.standstill
    busy = [one for one in said.seats if one.running_us is not None]
    return Server(
        admin=where.text,
        control=control,
        waiting=said.line.waiting,
        sharing=sum(lane.waiting for lane in lanes if lane.waiting_max is None),
        waiting_max=said.line.waiting_max,
        full_lanes=tuple(lane.name for lane in lanes if lane.waiting_max and lane.waiting >= lane.waiting_max),
        oldest_wait_us=said.line.oldest_wait_us,
        standstill=stand.why if stand is not None and stand.waiting else "",
        stuck_us=said.seats_stuck_us,
        refused=said.requests.get("refused_line_full", 0),
        busy=said.seat_counts.get("busy", 0),
        idle=said.seat_counts.get("idle", 0),
        seats=tuple(map(_seat, sorted(busy, key=lambda one: -(one.running_us or 0)))),
        causes=said.causes,
    )


def _seat(of: status.Seat) -> Seat:
    request = " ".join(filter(None, (of.method, of.path)))
    return Seat(of.worker, of.seat, of.pid, of.running_us or 0, request or "a request that has just ended")
