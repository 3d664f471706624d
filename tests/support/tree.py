"""The part that each process of a stanchion server plays, found out from outside, without its names and log lines."""

from dataclasses import dataclass

import psutil

from support.gate import Gate
from support.seats import seats
from support.server import Server


@dataclass(frozen=True)
class Tree:
    """The parts that are not workers; these come and go."""

    server: Server
    acceptor: psutil.Process
    template: psutil.Process

    def workers(self) -> list[psutil.Process]:
        """The master's other children; what the template has just forked is not yet one of them."""
        found = []
        for process in self.server.processes():
            try:
                if process.ppid() == self.server.pid and process not in (self.acceptor, self.template):
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found


def tree(server: Server, gate: Gate, seat_count: int) -> Tree:
    """The parts of a server of `waiting:app`: workers answer, the acceptor has connections, one is the template."""
    acceptor = server.acceptor()
    known = {server.pid, acceptor.pid} | {seat.pid for seat in seats(server, gate, seat_count)}
    rest = [process for process in server.processes() if process.pid not in known]
    assert len(rest) == 1, f"besides master, acceptor and workers there are {rest}"
    return Tree(server, acceptor, rest[0])
