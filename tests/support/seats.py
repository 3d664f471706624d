"""How many requests a server runs at once, found out from outside."""

from dataclasses import dataclass

from support.gate import Gate
from support.server import Server
from support.wire import request


@dataclass(frozen=True)
class Seat:
    """One thread of one worker, as the app `waiting` announces it."""

    pid: int
    thread: int


def seats(server: Server, gate: Gate, expected: int) -> set[Seat]:
    """Occupy every seat of a server of `waiting:app`: `expected` requests run at once, and one more waits."""
    wires = [server.connect() for _ in range(expected + 1)]
    for wire in wires:
        wire.send(request("GET", "/wait?probe"))
    found = set()
    for line in gate.announcements(expected):
        pid, thread, query = line.split()
        assert query == "probe", line
        found.add(Seat(int(pid), int(thread)))
    assert len(found) == expected, f"{expected} requests ran on {found}"
    assert wires[0].silent(0.2), "nobody is let pass yet"
    assert gate.announced() == [], f"more than {expected} requests run at once"
    gate.let_pass(expected + 1)
    for wire in wires:
        assert wire.response().status == 200
        wire.close()
    gate.announcement()
    return found
