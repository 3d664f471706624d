"""The facts that the doctor knows about a host: plain values, gathered in gather.py, which pure functions judge."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from stanchion.top.status import Causes, Certificate


@dataclass(frozen=True)
class Pressure:
    """PSI: the percentage of the last 10 s in which some tasks, or all of them, waited for a resource."""

    some_avg10: float
    full_avg10: float


@dataclass(frozen=True)
class Cgroup:
    """Limits of a cgroup and what they have cost; None where there is no limit or no such file."""

    path: str
    memory_max_bytes: int | None = None
    memory_bytes: int | None = None
    oom_kills: int | None = None
    pids_max: int | None = None
    pids: int | None = None
    pids_refused: int | None = None
    cpu_periods: int | None = None
    cpu_periods_throttled: int | None = None
    pressure: Mapping[str, Pressure] = field(default_factory=dict)


@dataclass(frozen=True)
class Owner:
    """A process that has a socket open."""

    pid: int
    name: str
    command: str
    """The command that started it, or the title that it gave itself."""
    fds: int | None = None
    fds_max: int | None = None
    """RLIMIT_NOFILE, the soft one: accept(2) fails with EMFILE beyond it."""
    cgroup: str | None = None
    """As /proc/PID/cgroup has it: `hierarchy:controllers:path` on each line (cgroups(7))."""


@dataclass(frozen=True)
class Listener:
    """A listening socket."""

    family: str
    """tcp or unix."""
    address: str
    inode: int
    waiting: int
    backlog: int
    """In force: one more than this fits."""
    drops: int | None
    """Connection attempts dropped since it listens; the kernel counts them for TCP alone."""
    half_open: int = 0
    owners: tuple[Owner, ...] = ()
    backlog_asked: int | None = None
    asked_by: str = ""
    """How that is known."""
    waiting_peak: int | None = None
    """The most that waited in any look of a watch."""
    drops_grown: int | None = None
    """Over a watch."""

    @property
    def is_full(self) -> bool:
        """`sk_acceptq_is_full` of the kernel, for TCP; `unix_recvq_full` is the same."""
        return self.waiting > self.backlog

    @property
    def room(self) -> int:
        return self.backlog + 1


@dataclass(frozen=True)
class Network:
    """A network namespace."""

    name: str
    """`this one`, or a container, a service or a process that lives there."""
    pid: int | None
    """A process in there; None for ours."""
    link: str
    """Such as net:[4026531833]."""
    listeners: tuple[Listener, ...]
    sysctls: Mapping[str, str]
    """By name, such as net.core.somaxconn."""
    counters: Mapping[str, int]
    """TcpExt of /proc/net/netstat, since the namespace began."""
    counters_grown: Mapping[str, int] = field(default_factory=dict)
    """Over a watch."""
    tcp_in_use: int | None = None
    tcp_time_wait: int | None = None

    @property
    def is_ours(self) -> bool:
        return self.pid is None

    def number(self, sysctl: str) -> int | None:
        text = self.sysctls.get(sysctl, "")
        return int(text) if text.lstrip("-").isdigit() else None


@dataclass(frozen=True)
class Seat:
    """The place where a worker of a stanchion runs one request."""

    worker: int
    seat: int
    pid: int | None
    running_us: int
    request: str
    """Such as `GET /pay`."""
    stands_at: str = ""
    """The app's line of code, `FILE:LINE in NAME`; empty if that is not known."""
    within: str = ""
    """The innermost line, which that one has called and waits for; empty if it is the same."""


@dataclass(frozen=True)
class Server:
    """A stanchion, as its /status describes it."""

    admin: str
    """The address of the admin listener that answered."""
    control: str | None
    """Its control socket, if we know that it is its own."""
    waiting: int
    """In all lanes of the line."""
    sharing: int
    """How many of these are in lanes without a bound of their own."""
    waiting_max: int
    """How many of those there may be."""
    full_lanes: tuple[str, ...]
    """The lanes with bounds of their own that are full."""
    oldest_wait_us: int
    standstill: str
    """Why the line stands; empty if it does not, or no request waits any more."""
    stuck_us: int
    """For how long no seat has taken a request while all were busy."""
    refused: int
    """503 since its start, since the line was full."""
    busy: int
    idle: int
    seats: tuple[Seat, ...]
    """The busy ones, the longest first; of event loops not all, if they are many."""
    causes: Causes | None
    """The time of its recent requests; None of a version without it."""


@dataclass(frozen=True)
class Silence:
    """A stanchion that listens at its admin listener and does not answer."""

    error: str
    control: str | None
    """Where its control socket is, if that is known."""


@dataclass(frozen=True)
class Facts:
    """One look at a host, or what a watch saw from its first look to its last."""

    kernel: str
    networks: tuple[Network, ...]
    cgroups: tuple[Cgroup, ...] = ()
    pressure: Mapping[str, Pressure] = field(default_factory=dict)
    files_open: int | None = None
    files_max: int | None = None
    backlog_dropped: int | None = None
    """Packets that netdev_max_backlog has cost, over all processors."""
    backlog_dropped_grown: int | None = None
    watched_s: float | None = None
    event_loops: tuple[int, ...] = ()
    """Servers whose workers have event loops, as their /status says: for asynchronous apps, or gevent's."""
    websockets: tuple[int, ...] = ()
    """Servers with event loops whose apps can have WebSockets, as their /status says."""
    worker_fds_max: Mapping[int, int] = field(default_factory=dict)
    """RLIMIT_NOFILE of a worker, the soft one, by the process of a stanchion's master."""
    stop_timeouts_s: Mapping[int, float] = field(default_factory=dict)
    """The time that systemd gives it to end, by the process of its master."""
    certificates: Mapping[int, tuple[Certificate, ...]] = field(default_factory=dict)
    """The TLS certificates that servers report, by the process of the master."""
    servers: Mapping[int, Server] = field(default_factory=dict)
    """The servers that report their status, by the process of the master."""
    silent: Mapping[int, Silence] = field(default_factory=dict)
    """The servers that do not answer, by the process of the master."""
    stopped: Mapping[int, str] = field(default_factory=dict)
    """Masters that are stopped, by the process: the letter of the state in proc(5)."""
    not_looked_at: tuple[str, ...] = ()
