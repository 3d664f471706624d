"""The kernel's counters, and how full its accept queues were, both in our own network namespace."""

from collections.abc import Mapping
from pathlib import Path

from stanchion_lab.witness.sampler import Sampler
from stanchion_lab.witness.sockets import listening

EVERY_S = 0.005
"""One look takes about a fiftieth of that."""

# A thread may be in another namespace than its process (proc(5)).
NETSTAT = Path("/proc/thread-self/net/netstat")
SNMP = Path("/proc/thread-self/net/snmp")
COUNTERS = {
    "TcpExt": (
        "ListenOverflows",  # a handshake that was complete found the accept queue full
        "ListenDrops",  # connections, SYNs too, that a listener lost for any reason
        "TCPReqQFullDrop",  # SYNs lost because too many handshakes were under way, without SYN cookies
        "TCPReqQFullDoCookies",  # the same, answered with a cookie
        "SyncookiesSent",
        "SyncookiesRecv",
        "SyncookiesFailed",
        "TCPTimeouts",  # of retransmission timers, those of SYNs too
        "TCPSynRetrans",  # SYNs and SYN-ACKs that were sent again: each is a client that waits a second or more
        "TCPAbortOnTimeout",
        "TCPAbortOnData",  # closed with unread data: what the peer sees is a reset
    ),
    "Tcp": (
        "ActiveOpens",
        "PassiveOpens",
        "AttemptFails",
        "EstabResets",
        "RetransSegs",
        "OutRsts",
    ),
}
"""As in proc_pid_net(5) and the kernel's Documentation/networking/snmp_counter.rst. Unix sockets have no counters: a
connect(2) that finds the queue full fails with EAGAIN, and only the caller knows."""


class Kernel:
    """`listening`: name of a server -> its address, a path being absolute."""

    def __init__(self, listening: Mapping[str, str]) -> None:
        self._listening = listening
        self._backlog: dict[str, int] = {}
        self._queues: dict[str, int] = {}
        self.waiting_max: dict[str, int] = {}
        """As far as was seen by now; `stop` has it with the rest."""
        self._before: dict[str, int] = {}
        self._sampler = Sampler(self._look, EVERY_S)

    def start(self) -> None:
        self._before = counters()
        self._sampler.start()

    def stop(self) -> dict[str, float]:
        """`kernel.COUNTER`, as it grew; of each server `backlog.NAME`, in force, `waiting_max.NAME`, the most that were
        seen in one accept queue, and `queues.NAME`, how many it has: one for each socket that listens there."""
        self._sampler.stop()
        figures: dict[str, float] = {
            f"kernel.{name}": value - self._before.get(name, 0) for name, value in counters().items()
        }
        for prefix, found in (
            ("backlog", self._backlog),
            ("waiting_max", self.waiting_max),
            ("queues", self._queues),
        ):
            figures |= {f"{prefix}.{name}": value for name, value in found.items()}
        return figures

    def _look(self) -> None:
        found = listening()
        for name, address in self._listening.items():
            here = [one for one in found if one.address in names_of(address)]
            if here:
                self._backlog[name] = max(one.backlog for one in here)
                self._queues[name] = max(len(here), self._queues.get(name, 0))
                self.waiting_max[name] = max(self.waiting_max.get(name, 0), *(one.waiting for one in here))


def names_of(address: str) -> tuple[str, ...]:
    """The kernel's possible names of the socket that clients reach at this address."""
    if address.startswith("unix:"):
        return (address.removeprefix("unix:"),)
    port = address.rpartition(":")[2]
    return (address, f"0.0.0.0:{port}", f"[::]:{port}")


def counters() -> dict[str, int]:
    """The counters in COUNTERS that this kernel has."""
    found: dict[str, int] = {}
    for path in (NETSTAT, SNMP):
        lines = [line.split() for line in path.read_text().splitlines()]
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            wanted = COUNTERS.get(names[0].rstrip(":"), ())
            found |= {name: int(value) for name, value in zip(names, values, strict=True) if name in wanted}
    return found
