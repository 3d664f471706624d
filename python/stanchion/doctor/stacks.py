"""Where the seats of a stanchion stand that have all been busy for long: by `dump` of its control socket
(docs/reference/command-line.md).

The doctor asks a server alone that it has found stuck: there a signal handler that writes the stacks down interrupts
nothing that moves. The server lets root and its own user ask.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from stanchion import ctl
from stanchion.configuration import INSTALLED
from stanchion.doctor import servers
from stanchion.doctor.facts import Facts, Seat, Server

PATIENCE_S = 5.0
"""For one server; it waits a second at most for each worker."""
ALL_S = 20.0
"""For all of them together."""

_OURS = tuple(f"{part}stanchion{os.sep}" for part in INSTALLED)
_STANDARD = re.compile(r"<frozen |.*/lib(?:64)?/python3\.\d+/")

# As `faulthandler` writes them, and below them the server (crates/stanchion-sys/src/signal/dump.rs).
_THREAD = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]+)")
_FRAME = re.compile(r'\s+File "(.*)", line (\d+) in (.*)')
_SEAT = re.compile(r"seat (\d+) is thread 0x([0-9a-f]+)")


class Frame(NamedTuple):
    """A line of code that a thread is at, or waits to come back to."""

    file: str
    line: str
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


Stack = Sequence[Frame]
"""The innermost frame first."""


def with_places(facts: Facts) -> Facts:
    """Each busy seat of a stuck server with the line of code where it stands."""
    known = dict(facts.servers)
    not_looked_at = []
    deadline = time.monotonic() + ALL_S
    for pid, server in facts.servers.items():
        if server.control is None or pid in facts.event_loops or not servers.is_stuck(server):
            continue
        left_s = deadline - time.monotonic()
        try:
            if left_s <= 0:
                raise ctl.Failed("other servers have used up the time for it")
            known[pid] = placed(server, _dump(server.control, min(PATIENCE_S, left_s)))
        except ctl.Failed as failure:
            not_looked_at.append(f"where the seats of process {pid} stand, at its control socket: {failure}")
    return replace(facts, servers=known, not_looked_at=(*facts.not_looked_at, *not_looked_at))


def _dump(control: str, patience_s: float) -> Sequence[Mapping[str, Any]]:
    with ctl.Call(ctl.socket_path(control), patience_s) as call:
        answer = ctl.checked(call.ask({"command": "dump"}))
    data = answer.get("data")
    if not answer["ok"]:
        raise ctl.Failed(answer["message"])
    if not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
        raise ctl.Failed("the answer has no stacks")
    return data


def placed(server: Server, dump: Iterable[Mapping[str, Any]]) -> Server:
    """With what the dump says of each seat."""
    stacks: dict[tuple[int | None, int], Stack] = {
        (pid, seat): stack
        for one in dump
        if isinstance(pid := one.get("pid"), int)
        for seat, stack in of_seats(str(one.get("stacks"))).items()
    }
    found = {one: stacks.get((one.pid, one.seat), ()) for one in server.seats}
    # The app's own line, if all stand there; else that of a library that they all wait in.
    choose = next((pick for pick in (_apps, _librarys) if _is_one(map(pick, found.values()))), _apps)
    return replace(server, seats=tuple(_seat(one, stack, choose) for one, stack in found.items()))


def _is_one(places: Iterable[Frame | None]) -> bool:
    return len(set(places)) == 1


def _seat(seat: Seat, stack: Stack, choose: Callable[[Stack], Frame | None]) -> Seat:
    chosen = choose(stack) or _librarys(stack)
    if chosen is None:
        return seat
    return replace(seat, stands_at=str(chosen), within="" if stack[0] == chosen else str(stack[0]))


def _apps(stack: Stack) -> Frame | None:
    """The innermost line of the user's own code."""
    return next(
        (one for one in stack if not _is_standard(one) and not any(part in one.file for part in INSTALLED)), None
    )


def _librarys(stack: Stack) -> Frame | None:
    """The innermost line of whatever is installed, but for Python and for this server."""
    return next((one for one in stack if not _is_standard(one) and not any(part in one.file for part in _OURS)), None)


def _is_standard(frame: Frame) -> bool:
    return _STANDARD.match(frame.file) is not None and not any(part in frame.file for part in INSTALLED)


def of_seats(text: str) -> dict[int, Stack]:
    """The stacks of the threads that are seats, by the number of the seat."""
    threads: dict[str, list[Frame]] = {}
    seats: dict[int, str] = {}
    stack: list[Frame] = []
    for line in text.splitlines():
        if found := _FRAME.fullmatch(line):
            stack.append(Frame(found[1], found[2], found[3]))
        elif found := _SEAT.fullmatch(line):
            seats[int(found[1])] = found[2]
        elif found := _THREAD.match(line):
            stack = threads.setdefault(found[1], [])
    return {seat: threads[thread] for seat, thread in seats.items() if threads.get(thread)}
