"""Findings about what surrounds the queues: counters and settings of a network namespace, descriptors, cgroups."""

from collections import Counter
from collections.abc import Iterator

from stanchion.doctor import remedies
from stanchion.doctor.facts import Cgroup, Facts, Listener, Network
from stanchion.doctor.finding import CRITICAL, NOTICE, WARNING, Finding
from stanchion.doctor.queues import named

NEAR = 0.9
"""The share of a limit from which on it counts as reached."""
THROTTLED_SHARE = 0.1
PRESSURE_AVG10 = {"cpu": 50.0, "io": 25.0, "memory": 10.0}
"""Percent of the last 10 s in which some task waited, from which on there is a finding."""


def findings(facts: Facts) -> Iterator[Finding]:
    for network in facts.networks:
        yield from _counters(network, facts.watched_s)
        yield from _settings(network)
        yield from _ports(network)
    yield from _descriptors(facts)
    for cgroup in facts.cgroups:
        yield from _cgroup(cgroup)
    yield from _packets(facts)
    yield from _pressure(facts)


def _here(network: Network) -> str:
    return "this network namespace" if network.is_ours else f"the network namespace {network.name}"


def _counters(network: Network, watched_s: float | None) -> Iterator[Finding]:
    shown = sum(listener.drops_grown or 0 for listener in network.listeners)
    grown = network.counters_grown.get("ListenDrops", 0)
    if grown > shown:
        yield Finding(
            "listen-drops-growing",
            CRITICAL,
            _here(network),
            f"Connection attempts are dropped in {_here(network)}, at sockets that are gone already.",
            f"ListenDrops grew by {grown} in {watched_s or 0:g} s, of which {shown} at sockets that are still there "
            "(/proc/net/netstat, TcpExt).",
            "No answer to their SYN, or a reset if the socket was closed with them in its queue.",
            ("Look which server starts again and again.",),
            network=network.link,
        )
    dropped = network.counters.get("TCPReqQFullDrop", 0)
    if dropped:
        yield Finding(
            "syn-queue-dropped",
            WARNING,
            _here(network),
            f"Half-open connections were more than fit in {_here(network)}, and SYNs were dropped.",
            f"TCPReqQFullDrop is {dropped} (/proc/net/netstat, TcpExt); tcp_max_syn_backlog is "
            f"{network.sysctls.get('net.ipv4.tcp_max_syn_backlog')}, tcp_syncookies "
            f"{network.sysctls.get('net.ipv4.tcp_syncookies')}.",
            "No answer to their SYN; they try again, as with a full queue.",
            *remedies.by_sysctl("net.ipv4.tcp_syncookies", "1", network),
        )
    if network.counters.get("TCPReqQFullDoCookies", 0):
        yield Finding(
            "syn-cookies-sent",
            NOTICE,
            _here(network),
            f"Half-open connections were more than fit in {_here(network)}, and were answered with syncookies.",
            f"TCPReqQFullDoCookies is {network.counters['TCPReqQFullDoCookies']} (/proc/net/netstat, TcpExt). The "
            "limit is the backlog of the socket: a burst of clients, or a flood of SYNs.",
            "Nothing: that is what syncookies are for. Such connections may lack window scaling and SACK.",
            network=network.link,
        )


def _settings(network: Network) -> Iterator[Finding]:
    tcp = [listener for listener in network.listeners if listener.family == "tcp"]
    if tcp and network.number("net.ipv4.tcp_abort_on_overflow") == 1:
        yield Finding(
            "abort-on-overflow",
            WARNING,
            _here(network),
            f"In {_here(network)} a full queue resets clients whose connect has succeeded.",
            f"net.ipv4.tcp_abort_on_overflow is 1; so far TCPAbortOnOverflow = "
            f"{network.counters.get('TCPAbortOnOverflow', 0)} (/proc/net/netstat).",
            "ECONNRESET; without this setting such a client would be let in as soon as there is room. A client that "
            "comes when the queue is full already gets no answer either way.",
            *remedies.by_sysctl("net.ipv4.tcp_abort_on_overflow", "0", network),
        )
    if tcp and network.number("net.ipv4.tcp_syncookies") == 0:
        yield Finding(
            "syncookies-off",
            NOTICE,
            _here(network),
            f"Syncookies are off in {_here(network)}.",
            "net.ipv4.tcp_syncookies is 0.",
            "Nothing in normal times. In a flood of SYNs, or a burst longer than a backlog, no answer.",
            *remedies.by_sysctl("net.ipv4.tcp_syncookies", "1", network),
        )
    shared = sorted(address for address, count in Counter(one.address for one in tcp).items() if count > 1)
    if shared and network.number("net.ipv4.tcp_migrate_req") == 0:
        yield Finding(
            "reuseport-loses",
            WARNING,
            ", ".join(shared),
            f"Several sockets listen at {', '.join(shared)} (SO_REUSEPORT), and one that closes takes its queue along.",
            "Several listening sockets with one address (sock_diag); net.ipv4.tcp_migrate_req is 0.",
            "ECONNRESET for each client in the queue of a worker that leaves or dies, while the others have room.",
            *remedies.by_sysctl("net.ipv4.tcp_migrate_req", "1", network),
        )


def _ports(network: Network) -> Iterator[Finding]:
    words = network.sysctls.get("net.ipv4.ip_local_port_range", "").split()
    if len(words) != 2 or network.tcp_time_wait is None:
        return
    ports = int(words[1]) - int(words[0]) + 1
    used = network.tcp_time_wait + (network.tcp_in_use or 0)
    if used >= NEAR * ports:
        yield Finding(
            "ports-run-out",
            WARNING,
            _here(network),
            f"Local ports may run out in {_here(network)}.",
            f"{network.tcp_in_use} TCP sockets in use and {network.tcp_time_wait} in TIME_WAIT (/proc/net/sockstat), "
            f"{ports} ports (net.ipv4.ip_local_port_range {' '.join(words)}), tcp_tw_reuse "
            f"{network.sysctls.get('net.ipv4.tcp_tw_reuse')}. A port can be used once for each remote address, so it "
            "is a matter of one proxy that talks to one upstream.",
            'The proxy\'s connect fails with EADDRNOTAVAIL: nginx answers 502, "Cannot assign requested address".',
            (
                "Keep connections to the upstream (nginx: `keepalive` in `upstream`), or use a unix socket.",
                *remedies.sysctl_now("net.ipv4.ip_local_port_range", "1024 65535", network),
            ),
            remedies.sysctl_for_good("net.ipv4.ip_local_port_range", "1024 65535"),
            network.link,
            {"net.ipv4.ip_local_port_range": "1024 65535"},
        )


def _descriptors(facts: Facts) -> Iterator[Finding]:
    clients_see = (
        "Nothing at first: they connect and wait in the queue. The server's accept(2) fails (Too many open files), "
        "then the queue fills up, and then they see a full queue."
    )
    if facts.files_open is not None and facts.files_max and facts.files_open >= NEAR * facts.files_max:
        yield Finding(
            "files-run-out",
            CRITICAL,
            "the whole host",
            "The host is about to run out of open files.",
            f"{facts.files_open} of fs.file-max {facts.files_max} (/proc/sys/fs/file-nr).",
            clients_see,
            (f"$ sysctl -w fs.file-max={2 * facts.files_max}",),
            remedies.sysctl_for_good("fs.file-max", str(2 * facts.files_max)),
        )
    seen: dict[int, Listener] = {}
    for network in facts.networks:
        for listener in network.listeners:
            for owner in listener.owners:
                full = owner.fds is not None and owner.fds_max and owner.fds >= NEAR * owner.fds_max
                if not full or owner.pid in seen:
                    continue
                seen[owner.pid] = listener
                yield Finding(
                    "descriptors-run-out",
                    CRITICAL,
                    f"{owner.name} ({owner.pid})",
                    f"{owner.name} ({owner.pid}), which listens at {named(listener, network)}, is about to run out of "
                    "file descriptors.",
                    f"{owner.fds} open (/proc/{owner.pid}/fd), limit {owner.fds_max} (RLIMIT_NOFILE, "
                    f"/proc/{owner.pid}/limits).",
                    clients_see,
                    (f"$ prlimit --pid {owner.pid} --nofile={4 * (owner.fds_max or 0)}",),
                    (
                        f"systemd:     LimitNOFILE={4 * (owner.fds_max or 0)} in the unit",
                        f"$ docker run --ulimit nofile={4 * (owner.fds_max or 0)} …",
                    ),
                )


def _cgroup(cgroup: Cgroup) -> Iterator[Finding]:
    if cgroup.oom_kills:
        yield Finding(
            "oom-killed",
            WARNING,
            cgroup.path,
            f"Processes of {cgroup.path} were killed for want of memory.",
            f"oom_kill is {cgroup.oom_kills} (memory.events, or memory.oom_control of cgroup v1); limit "
            f"{_mib(cgroup.memory_max_bytes)}, in use {_mib(cgroup.memory_bytes)}.",
            "Requests of a killed worker break off: 502 from a proxy.",
            (
                "Raise the limit (docker --memory, Kubernetes resources.limits.memory, systemd MemoryMax=),",
                "or let workers be replaced before they grow that far (stanchion: --max-memory).",
            ),
        )
    if cgroup.pids_refused or (cgroup.pids and cgroup.pids_max and cgroup.pids >= NEAR * cgroup.pids_max):
        yield Finding(
            "pids-run-out",
            WARNING,
            cgroup.path,
            f"{cgroup.path} has no room for more processes and threads.",
            f"{cgroup.pids} of pids.max {cgroup.pids_max}; fork was refused {cgroup.pids_refused or 0} times "
            "(pids.events).",
            "Nothing, until a worker must be replaced and cannot be: then there are fewer, and queues fill.",
            ("Raise it: docker --pids-limit, systemd TasksMax=, the kubelet's podPidsLimit.",),
        )
    periods, throttled = cgroup.cpu_periods, cgroup.cpu_periods_throttled
    if periods and throttled and throttled >= THROTTLED_SHARE * periods:
        yield Finding(
            "cpu-throttled",
            WARNING,
            cgroup.path,
            f"{cgroup.path} is stopped by its CPU limit.",
            f"In {throttled} of {periods} periods (cpu.stat, nr_throttled and nr_periods).",
            "Pauses of up to 100 ms at a time, in which the server does not accept, and queues fill.",
            (
                "Raise the limit (docker --cpus, Kubernetes resources.limits.cpu, systemd CPUQuota=), or start fewer "
                "threads.",
            ),
        )


def _mib(count: int | None) -> str:
    return "none" if count is None else f"{count / 2**20:.0f} MiB"


def _packets(facts: Facts) -> Iterator[Finding]:
    if facts.backlog_dropped_grown:
        yield Finding(
            "packets-dropped",
            WARNING,
            "the whole host",
            "The host drops packets before TCP sees them.",
            f"{facts.backlog_dropped_grown} in {facts.watched_s or 0:g} s, {facts.backlog_dropped} since boot "
            "(/proc/net/softnet_stat, second column).",
            "A lost SYN is sent again after 1 s, lost data after 200 ms or more.",
            ("$ sysctl -w net.core.netdev_max_backlog=10000",),
            remedies.sysctl_for_good("net.core.netdev_max_backlog", "10000"),
        )


def _pressure(facts: Facts) -> Iterator[Finding]:
    places = [("the whole host", "/proc/pressure", facts.pressure)]
    places += [(cgroup.path, cgroup.path, cgroup.pressure) for cgroup in facts.cgroups]
    for about, where, pressure in places:
        for resource, found in pressure.items():
            if found.some_avg10 >= PRESSURE_AVG10[resource]:
                yield Finding(
                    f"pressure-{resource}",
                    NOTICE,
                    about,
                    f"Processes of {about} wait for {resource}.",
                    f"Some did in {found.some_avg10:g} % of the last 10 s, all of them in {found.full_avg10:g} % "
                    f"({where}, PSI).",
                    "Everything takes longer, accept(2) too: queues fill earlier.",
                )
