"""Findings about servers whose workers have event loops: what WebSockets and many requests at once need of the host,
and whether there is time to end them. Pure.
"""

from collections.abc import Callable, Iterator

from stanchion import config
from stanchion.doctor import asked
from stanchion.doctor.facts import Facts, Listener
from stanchion.doctor.finding import NOTICE, WARNING, Finding
from stanchion.doctor.settings import Settings

DESCRIPTORS_EACH = 2
DESCRIPTORS_SPARE = 64
"""The descriptors that the acceptor counts for a connection, and keeps for itself (docs/limits.md)."""

STOP_SPARE_S = 5.0
"""A server may need so much longer than graceful_timeout to end."""

SettingsOf = Callable[[int], Settings | None]


def findings(facts: Facts, settings_of: SettingsOf) -> Iterator[Finding]:
    for pid, listener in masters(facts):
        known = settings_of(pid)
        if known is None:
            continue
        yield from _stopped_early(pid, known, facts.stop_timeouts_s.get(pid))
        if has_websockets(pid, known, facts):
            yield from _websockets_take_all(pid, known, listener)
            yield from _restarts_cut(pid, known)
        if has_loops(pid, known, facts):
            yield from _descriptors_of_workers(pid, known, facts.worker_fds_max.get(pid))


def masters(facts: Facts) -> list[tuple[int, Listener]]:
    """Each stanchion of our network namespace, with one of its sockets."""
    found: dict[int, Listener] = {}
    for listener in facts.networks[0].listeners:
        pid = asked.stanchion(listener)
        if pid is not None:
            found.setdefault(pid, listener)
    return sorted(found.items())


def has_loops(pid: int, known: Settings, facts: Facts) -> bool:
    """Whether its workers have event loops, by its own status, or else by its settings."""
    return pid in facts.event_loops or known.values["interface"] == "asgi" or known.values["loop"] == "gevent"


def has_websockets(pid: int, known: Settings, facts: Facts) -> bool:
    """Whether its app may have WebSockets, by its status, or else by its settings: under gevent there are none."""
    return pid in facts.websockets if pid in facts.event_loops else known.values["interface"] == "asgi"


def _websockets_take_all(pid: int, known: Settings, listener: Listener) -> Iterator[Finding]:
    asked_for = int(known.values["max_connections"])
    limits = [owner.fds_max for owner in listener.owners if owner.fds_max]
    # The acceptor raises its soft limit to the hard one: its own is the highest.
    allowed = (max(limits) - DESCRIPTORS_SPARE) // DESCRIPTORS_EACH if limits else asked_for
    most = min(asked_for, allowed)
    if known.values["workers"] == "auto":
        return  # As many as that process has cores, which no fact says.
    workers = config.most_workers(known.values["workers"])
    sessions = workers * int(known.values["worker_sessions"])
    is_guess = not {"max_connections", "worker_sessions", "workers"}.isdisjoint(known.assumed)
    if sessions < most or is_guess:
        return
    is_cut = allowed < asked_for
    cures = [f"Start it with --worker-sessions {max(1, most // 2 // workers)} or less,"]
    if is_cut:
        wanted = DESCRIPTORS_EACH * max(asked_for, 2 * sessions) + DESCRIPTORS_SPARE
        cures += [f"systemd:     LimitNOFILE={wanted} in the unit", f"$ docker run --ulimit nofile={wanted} …"]
    else:
        cures += [f"or with --max-connections {2 * sessions}."]
    yield Finding(
        "websockets-take-all",
        WARNING if is_cut else NOTICE,
        f"stanchion ({pid})",
        f"WebSockets may take all connections of stanchion ({pid}).",
        f"{sessions} may be open (worker_sessions times workers; {known.sources['worker_sessions']}), and there may be "
        f"{most} connections (" + (f"limit of open files {max(limits)}" if is_cut else "max_connections") + ").",
        "Once that many are open, the server accepts no other client: requests and probes wait in the kernel's queue, "
        "and none is answered 503.",
        tuple(cures),
    )


def _restarts_cut(pid: int, known: Settings) -> Iterator[Finding]:
    grace_s, graceful_s = float(known.values["session_grace"]), float(known.values["graceful_timeout"])
    if grace_s > graceful_s / 2 and {"session_grace", "graceful_timeout"}.isdisjoint(known.assumed):
        yield Finding(
            "session-grace-cut",
            NOTICE,
            f"stanchion ({pid})",
            f"At a reload stanchion ({pid}) closes WebSockets faster than session_grace says.",
            f"session_grace is {grace_s:g} s ({known.sources['session_grace']}); it counts up to half of "
            f"graceful_timeout, {graceful_s:g} s ({known.sources['graceful_timeout']}).",
            f"1012 within {graceful_s / 2:g} s, and all of them connect again within that time.",
            (f"Start it with --graceful-timeout {2 * grace_s:g}.",),
        )


def _descriptors_of_workers(pid: int, known: Settings, fds_max: int | None) -> Iterator[Finding]:
    concurrency = int(known.values["worker_concurrency"])
    is_guess = "worker_concurrency" in known.assumed
    # The default goes with the 1024 that systemd and login shells allow.
    if fds_max is None or concurrency < fds_max or is_guess:
        return
    yield Finding(
        "worker-descriptors",
        NOTICE,
        f"stanchion ({pid})",
        f"Workers of stanchion ({pid}) may run more requests at once than they may have files open.",
        f"worker_concurrency is {concurrency} ({known.sources['worker_concurrency']}), the limit of open files of a "
        f"worker {fds_max} (RLIMIT_NOFILE, the soft one). Connections to clients do not count there.",
        "Nothing, unless the app opens a connection or a file for each request. Then it fails (Too many open files), "
        "mostly with 500.",
        ("Bound what the app opens, by a pool of connections, or start with a smaller --worker-concurrency.",),
        (
            f"systemd:     LimitNOFILE={4 * concurrency} in the unit",
            f"$ docker run --ulimit nofile={4 * concurrency} …",
        ),
    )


def _stopped_early(pid: int, known: Settings, stop_s: float | None) -> Iterator[Finding]:
    graceful_s, delay_s = float(known.values["graceful_timeout"]), float(known.values["drain_delay"])
    if stop_s is None or stop_s > graceful_s + delay_s or "graceful_timeout" in known.assumed:
        return
    delay = f", after drain_delay {delay_s:g} s ({known.sources['drain_delay']})" if delay_s else ""
    yield Finding(
        "stopped-early",
        WARNING,
        f"stanchion ({pid})",
        f"systemd kills stanchion ({pid}) before it has ended what it does.",
        f"TimeoutStopSec of its unit is {stop_s:g} s (systemctl show), graceful_timeout {graceful_s:g} s "
        f"({known.sources['graceful_timeout']}){delay}.",
        "At a stop or a restart: resets, where long requests could still have been answered and WebSockets closed.",
        (f"systemd:     TimeoutStopSec={graceful_s + delay_s + STOP_SPARE_S:g} in the unit",),
    )
