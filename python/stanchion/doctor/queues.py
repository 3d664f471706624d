"""Findings about the queues of listening sockets. docs/diagnosis.md has the measurements of what clients see."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from stanchion.doctor import asked, remedies
from stanchion.doctor.facts import Facts, Listener, Network
from stanchion.doctor.finding import CRITICAL, NOTICE, WARNING, Finding

SOMAXCONN = "net.core.somaxconn"

SMALL_BACKLOG = 512
"""Below this a backlog that is probably cut is worth a warning: nginx asks for 511, and most others for more."""

OWNERS_SHOWN_MAX = 5
"""So many owners of the sockets that one finding is about are named."""


def findings(facts: Facts) -> Iterator[Finding]:
    """One finding for each socket: the one that matters most."""
    for network in facts.networks:
        for listener in network.listeners:
            finding = _worst(network, listener, facts.watched_s)
            if finding is not None:
                yield replace(finding, network=network.link)


def of_idle(facts: Facts) -> Iterator[Finding]:
    """One finding for each network namespace, about all sockets that are probably cut and have no other finding."""
    for network in facts.networks:
        cut = [one for one in network.listeners if _is_probably_cut(network, one)]
        idle = [one for one in cut if _worst(network, one, facts.watched_s) is None]
        if idle:
            yield replace(_probably_cut(network, idle), network=network.link)


def _worst(network: Network, listener: Listener, watched_s: float | None) -> Finding | None:
    for judge in (_full, _dropping, _filling, _has_dropped):
        finding = judge(network, listener, watched_s)
        if finding is not None:
            return _remedied(finding, network, listener)
    if _is_probably_cut(network, listener) and max(listener.waiting, listener.waiting_peak or 0):
        return _probably_cut(network, [listener])
    return _cut(network, listener)


def named(listener: Listener, network: Network) -> str:
    """The socket, its owner and where it lives, for people."""
    prefix = "unix:" if listener.family == "unix" else ""
    owner = f" of {asked.name(listener.owners[0])} ({listener.owners[0].pid})" if listener.owners else ""
    where = "" if network.is_ours else f" in {network.name}"
    return f"{prefix}{listener.address}{owner}{where}"


def source(listener: Listener) -> str:
    return f"sock_diag, as in `ss -l{'x' if listener.family == 'unix' else 't'}n`"


SYN_RETRIES = 6
"""The kernel's default of tcp_syn_retries."""


def gives_up_s(network: Network) -> int:
    """When a client with these settings stops trying: at the first timeout from there on."""
    return int(2 ** ((network.number("net.ipv4.tcp_syn_retries") or SYN_RETRIES) + 1)) - 1


def syn_times_s(network: Network) -> list[int]:
    """When it sends its SYN again: each second for tcp_syn_linear_timeouts, then after twice the time each."""
    linear = network.number("net.ipv4.tcp_syn_linear_timeouts") or 0
    times = list(range(1, linear + 2))
    interval = 2
    while times[-1] + interval < gives_up_s(network):
        times.append(times[-1] + interval)
        interval *= 2
    return times


def clients_of_full(listener: Listener, network: Network) -> str:
    if listener.family == "unix":
        return (
            'connect(2) fails with EAGAIN at once if it is non-blocking: nginx answers 502 and logs "connect() to '
            'unix:… failed (11: Resource temporarily unavailable)". A blocking connect waits until there '
            "is room, for ever."
        )
    times = ", ".join(map(str, syn_times_s(network)))
    reset = (
        " With tcp_abort_on_overflow=1, those whose handshake was under way when it became full get ECONNRESET."
        if network.number("net.ipv4.tcp_abort_on_overflow") == 1
        else ""
    )
    return (
        f"No answer: the SYN is dropped, not refused. A client with this kernel's settings tries again {times} s after "
        f"its first, and gets ETIMEDOUT after about {gives_up_s(network)} s. So a client that gets in is at least 1 s "
        f"late, and connect timeouts below that fail.{reset} Syncookies help only half-open connections."
    )


_PLAN = (
    "An access log with times says how many workers and threads the app needs (docs/planning.md):",
    "$ stanchion plan ACCESS_LOG --now WORKERSxTHREADS",
)


def _remedied(finding: Finding, network: Network, listener: Listener) -> Finding:
    """The finding with the remedies for a queue that is too short."""
    somaxconn = network.number(SOMAXCONN)
    first = (
        "The server accepts too late: give it more workers, or let it accept while they are busy. A longer queue only "
        "helps against bursts."
    )
    value = remedies.somaxconn(listener.backlog_asked)
    ask = remedies.ask_for_more(listener, value)
    plan = _PLAN if any(asked.server(owner) == "gunicorn" for owner in listener.owners) else ()
    if somaxconn is None or somaxconn > listener.backlog:
        return replace(finding, now=(first, ask, remedies.listen_again(listener)), for_good=(ask, *plan))
    if int(value) <= somaxconn:
        value = str(2 * somaxconn)
    return replace(
        finding,
        now=(first, *remedies.sysctl_now(SOMAXCONN, value, network), remedies.listen_again(listener)),
        for_good=(*remedies.sysctl_for_good(SOMAXCONN, value), remedies.ask_for_more(listener, value), *plan),
        sysctls={SOMAXCONN: value},
    )


def _full(network: Network, listener: Listener, watched_s: float | None) -> Finding | None:
    peak = max(listener.waiting, listener.waiting_peak or 0)
    if peak <= listener.backlog:
        return None
    when = "is full now" if listener.is_full else f"was full within the last {watched_s or 0:g} s"
    return Finding(
        "queue-full",
        CRITICAL,
        named(listener, network),
        f"The queue of {named(listener, network)} {when}.",
        f"{peak} waiting, and there is room for {listener.room}: the backlog in force, {listener.backlog}, and one "
        f"more ({source(listener)}).{_drops(listener)}",
        clients_of_full(listener, network),
    )


def _drops(listener: Listener) -> str:
    parts = []
    if listener.drops_grown:
        parts.append(f" {listener.drops_grown} connection attempts were dropped here while we watched.")
    if listener.drops:
        parts.append(f" {listener.drops} since it listens (sk_drops by sock_diag, which ss does not show).")
    return "".join(parts)


def _dropping(network: Network, listener: Listener, watched_s: float | None) -> Finding | None:
    if not listener.drops_grown:
        return None
    return Finding(
        "drops-growing",
        CRITICAL,
        named(listener, network),
        f"{named(listener, network)} drops connection attempts.",
        f"{listener.drops_grown} more in {watched_s or 0:g} s, {listener.drops} since it listens (sk_drops by "
        f"sock_diag, which ss does not show). Waiting now: {listener.waiting} of {listener.room}, at most "
        f"{listener.waiting_peak}.",
        clients_of_full(listener, network),
    )


def _filling(network: Network, listener: Listener, _: float | None) -> Finding | None:
    peak = max(listener.waiting, listener.waiting_peak or 0)
    # A single waiting connection is no sign of anything, however short the queue.
    if peak < 2 or 2 * peak < listener.room:
        return None
    return Finding(
        "queue-filling",
        WARNING,
        named(listener, network),
        f"The queue of {named(listener, network)} is more than half full.",
        f"{peak} waiting, room for {listener.room} ({source(listener)}).",
        "They wait for the server to accept. When it is full: " + clients_of_full(listener, network),
    )


def _has_dropped(network: Network, listener: Listener, watched_s: float | None) -> Finding | None:
    if not listener.drops:
        return None
    quiet = "" if watched_s is None else f", none in the {watched_s:g} s that we watched"
    return Finding(
        "drops",
        WARNING,
        named(listener, network),
        f"{named(listener, network)} has dropped connection attempts.",
        f"{listener.drops} since it listens{quiet} (sk_drops by sock_diag, which ss does not show). Backlog in force "
        f"{listener.backlog}, waiting now {listener.waiting}. Run `stanchion doctor --watch 60` while it is busy.",
        clients_of_full(listener, network),
    )


def _cut(network: Network, listener: Listener) -> Finding | None:
    somaxconn = network.number(SOMAXCONN)
    if somaxconn is None or listener.backlog_asked is None or listener.backlog >= listener.backlog_asked:
        return None
    is_ours = any(asked.server(owner) == "stanchion" for owner in listener.owners)
    known = (
        f"In force {listener.backlog} ({source(listener)}), asked for {listener.backlog_asked} ({listener.asked_by})"
    )
    value = remedies.somaxconn(listener.backlog_asked)
    if listener.backlog < somaxconn:
        return Finding(
            "backlog-cut-earlier",
            NOTICE if is_ours else WARNING,
            named(listener, network),
            f"The backlog of {named(listener, network)} was cut when it began to listen, and still is.",
            f"{known}; net.core.somaxconn is {somaxconn} by now, but listen(2) was called before.",
            _of_cut(listener, network, is_ours),
            (remedies.listen_again(listener),),
        )
    return Finding(
        "backlog-cut",
        NOTICE if is_ours else WARNING,
        named(listener, network),
        f"The backlog of {named(listener, network)} is cut.",
        f"{known}; net.core.somaxconn is {somaxconn}, and listen(2) says nothing when it cuts.",
        _of_cut(listener, network, is_ours),
        (*remedies.sysctl_now(SOMAXCONN, value, network), remedies.listen_again(listener)),
        remedies.sysctl_for_good(SOMAXCONN, value),
        sysctls={SOMAXCONN: value},
    )


def _of_cut(listener: Listener, network: Network, is_ours: bool) -> str:
    if is_ours:
        return (
            "Nothing: stanchion accepts at once and keeps waiting requests in its own line. The backlog only "
            "counts while the acceptor starts again."
        )
    return f"Nothing until more than {listener.room} wait at once. Then: " + clients_of_full(listener, network)


def _is_probably_cut(network: Network, listener: Listener) -> bool:
    return listener.backlog_asked is None and listener.backlog == network.number(SOMAXCONN)


def _probably_cut(network: Network, listeners: Sequence[Listener]) -> Finding:
    """All of them have the same backlog, which is somaxconn."""
    first = listeners[0]
    value = remedies.somaxconn(None)
    enough = first.backlog >= int(value)
    if len(listeners) == 1:
        what = f"The backlog of {named(first, network)} is probably cut."
        again = remedies.listen_again(first)
    else:
        where = "" if network.is_ours else f" in {network.name}"
        what = f"The backlogs of {len(listeners)} idle sockets{where} are probably cut: {_owners(listeners)}."
        again = "Then restart the servers that need a longer queue. The kernel cuts a backlog at listen(2), not later."
    families = "".join(sorted({one.family[0] for one in listeners})).replace("u", "x")
    return Finding(
        "backlog-probably-cut",
        WARNING if first.backlog < SMALL_BACKLOG else NOTICE,
        ", ".join(named(one, network) for one in listeners),
        what,
        f"In force {first.backlog} (sock_diag, as in `ss -l{families}n`), which is just net.core.somaxconn. The kernel "
        "does not keep what was asked for; some servers, such as those in Go, ask for just that.",
        _of_cut(first, network, False),
        () if enough else (*remedies.sysctl_now(SOMAXCONN, value, network), again),
        () if enough else remedies.sysctl_for_good(SOMAXCONN, value),
        sysctls={} if enough else {SOMAXCONN: value},
    )


def _owners(listeners: Sequence[Listener]) -> str:
    """Their names, those with most sockets first: `systemd (6), dbus-daemon, prometheus`."""
    counts = Counter(asked.name(one.owners[0]) if one.owners else "processes out of sight" for one in listeners)
    ranked = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    shown = [f"{name} ({count})" if count > 1 else name for name, count in ranked[:OWNERS_SHOWN_MAX]]
    return ", ".join(shown) + (f" and {len(ranked) - len(shown)} more" if len(ranked) > len(shown) else "")
