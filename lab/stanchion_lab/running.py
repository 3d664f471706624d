"""The servers of a trial while they run, each on its host."""

from collections.abc import Iterator
from contextlib import contextmanager

from stanchion_lab import servers
from stanchion_lab.hosts import Hosts, hosts
from stanchion_lab.processes import END_S, NotServing, Process
from stanchion_lab.scenario import Scenario, Server, Trial, behind, copies
from stanchion_lab.servers import KINDS, Address, Place

NAME_VARIABLE = "LAB_SERVER"
"""In the environment of each server: its name."""


class Running:
    def __init__(self, scenario: Scenario, trial: Trial, place: Place, network: Hosts) -> None:
        found = {name: copies(name, scenario.servers[name]) for name in trial.servers}
        self.named = {copy: server for each in found.values() for copy, server in each.items()}
        """Each server that is started, by name."""
        self.copies = {name: list(each) for name, each in found.items()} | {name: [name] for name in self.named}
        """By the name of one server or of a server with hosts."""
        self.processes: dict[str, Process] = {}
        self.hosts = network
        self._place = place
        self._behind = {
            copy: {other: self.named[other] for one in others for other in self.copies[one]}
            for name, others in behind(scenario, trial).items()
            for copy in self.copies[name]
        }

    def start(self, name: str) -> Process:
        """Not yet serving. NotServing, if the process that had this name does not end."""
        if name in self.processes and not self.processes[name].has_ended(END_S):
            raise NotServing(f"{name} has not ended, and was to start again")
        server = self.named[name]
        start = KINDS[server.kind].start(name, server, self._behind[name], self._place)
        argv = [*self.hosts.prefix(server), *start.argv]
        process = Process(name, argv, {NAME_VARIABLE: name, **start.environment}, self._place.directory)
        self.processes[name] = process
        return process

    def serve(self, name: str) -> None:
        server = self.named[name]
        address = str(Address.of(server, self._place.directory))
        self.start(name).wait_until(lambda: servers.serves(server, address))

    def stop(self) -> None:
        """The last one first; with hosts all at once, since each may take its time."""
        last_first = list(reversed(self.processes.values()))
        if any(server.hosts for server in self.named.values()):
            for process in last_first:
                process.ask_to_end()
        for process in last_first:
            process.stop()


@contextmanager
def running(scenario: Scenario, trial: Trial, place: Place) -> Iterator[Running]:
    """All of them serve when this yields, and have ended when it is left."""
    named: list[Server] = [one for name in trial.servers for one in copies(name, scenario.servers[name]).values()]
    with hosts(named) as network:
        whole = Running(scenario, trial, place, network)
        try:
            for name in whole.named:
                whole.serve(name)
            yield whole
        finally:
            whole.stop()
