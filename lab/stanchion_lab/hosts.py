"""The hosts of a trial: network namespaces on one bridge, inside the cage, which take everything along when they end.

A namespace lives as long as a process that holds it (network_namespaces(7)), so that no file names it and no process
outside of the cage can see it.
"""

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from stanchion_lab import programs
from stanchion_lab.scenario import CLIENT, HOSTS, Mistake, Server

BRIDGE = "lab"
IN_HOST = "eth0"
DO_S = 10.0
# It reports that the namespace is there, and stays.
HOLD = "ip link set lo up && echo there && exec sleep infinity"


class Hosts:
    """By address; none unless a server asks for one."""

    def __init__(self) -> None:
        self._holders: dict[str, subprocess.Popen[bytes]] = {}

    def prefix(self, server: Server) -> list[str]:
        """Words before a command that is to run on the server's host. It becomes that command by execve(2), so the pid
        stays."""
        return self._inside(_host(server)) if server.hosts else []

    def link(self, server: Server, state: str) -> None:
        """`down`: no packet comes to the host or from it, and its peers are not told."""
        _ip("link", "set", self._port(_host(server)), state)

    def make(self, servers: Iterable[Server]) -> None:
        addresses = dict.fromkeys(_host(server) for server in servers if server.hosts)
        if not addresses:
            return
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("address", "add", f"{CLIENT}/{HOSTS.prefixlen}", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        for address in addresses:
            self._make_one(address)

    def end(self) -> None:
        for holder in self._holders.values():
            holder.kill()
            holder.wait()
        if self._holders:
            _ip("link", "delete", BRIDGE)
        self._holders.clear()

    def _make_one(self, address: str) -> None:
        holder = subprocess.Popen(
            [programs.path("unshare"), "--net", "sh", "-c", HOLD], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        self._holders[address] = holder
        assert holder.stdout is not None
        with holder.stdout:
            if not holder.stdout.readline():
                raise Mistake(f"the host {address} got no network of its own")
        port = self._port(address)
        _ip("link", "add", port, "type", "veth", "peer", "name", IN_HOST, "netns", str(holder.pid))
        _ip("link", "set", port, "master", BRIDGE, "up")
        _ip("address", "add", f"{address}/{HOSTS.prefixlen}", "dev", IN_HOST, prefix=self._inside(address))
        _ip("link", "set", IN_HOST, "up", prefix=self._inside(address))

    def _inside(self, address: str) -> list[str]:
        return [programs.path("nsenter"), f"--net=/proc/{self._holders[address].pid}/ns/net"]

    @staticmethod
    def _port(address: str) -> str:
        """The bridge's end of the host's cable."""
        return f"{BRIDGE}{address.rpartition('.')[2]}"


@contextmanager
def hosts(servers: Iterable[Server]) -> Iterator[Hosts]:
    made = Hosts()
    try:
        made.make(servers)
        yield made
    finally:
        made.end()


def _host(server: Server) -> str:
    return server.listen.rpartition(":")[0]


def _ip(*words: str, prefix: Iterable[str] = ()) -> None:
    done = subprocess.run([*prefix, programs.path("ip"), *words], capture_output=True, text=True, timeout=DO_S)
    if done.returncode != 0:
        raise Mistake(f"ip {' '.join(words)}: {done.stderr.strip()}")
