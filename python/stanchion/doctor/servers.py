"""Findings about stanchions, by their /status or their silence: lines or seats that do not move. Pure."""

from collections import Counter
from collections.abc import Iterator

from stanchion.doctor.facts import Facts, Server, Silence
from stanchion.doctor.finding import CRITICAL, NOTICE, WARNING, Finding

STUCK_US = 5_000_000
"""If no seat has taken a request for so long, all may be stuck. The server itself reports a line that stands."""
NEAR = 0.9
"""The share of the line's bound from which on it is nearly full."""
PLACES_SHOWN_MAX = 3
"""So many lines of code, and requests of seats, are named."""


def findings(facts: Facts) -> Iterator[Finding]:
    """The cause first: why seats are stuck, that they are, and that the line is full of it."""
    for pid, state in sorted(facts.stopped.items()):
        yield _master_stopped(pid, state)
    for pid, silence in sorted(facts.silent.items()):
        yield _silent(pid, silence)
    for pid, server in sorted(facts.servers.items()):
        if is_stuck(server) and not (pid in facts.event_loops and not server.waiting):
            yield from _one_dependency(pid, server)
            yield _seats_stuck(pid, server)
        yield from _line_full(pid, server)
        if not is_stuck(server):
            yield from _sizing(pid, server)


def is_stuck(server: Server) -> bool:
    """Whether all seats are busy, and none has taken a request for long."""
    return bool(server.seats) and server.stuck_us >= STUCK_US


def _master_stopped(pid: int, state: str) -> Finding:
    is_traced = state == "t"
    return Finding(
        "master-stopped",
        WARNING,
        f"stanchion ({pid})",
        f"The master of stanchion ({pid}) is stopped.",
        f"Its state is {state} (/proc/{pid}/stat): a {'debugger' if is_traced else 'signal'} has stopped it.",
        "Answers, as long as all workers live and none is stuck: the master replaces none meanwhile, and obeys no "
        "reload and no stop. With WatchdogSec= systemd ends the service.",
        ("See which process debugs it:", f"$ grep TracerPid /proc/{pid}/status")
        if is_traced
        else ("Let it go on:", f"$ kill -CONT {pid}"),
    )


def _silent(pid: int, silence: Silence) -> Finding:
    """The acceptor answers there by itself, also while all workers are stuck: if it does not, no client is served."""
    ask = f"$ stanchion ctl --control {silence.control} status" if silence.control else ""
    return Finding(
        "acceptor-silent",
        WARNING,
        f"stanchion ({pid})",
        f"The acceptor of stanchion ({pid}) does not answer.",
        f"At its admin listener: {silence.error}. It answers there at once, also while all workers are stuck.",
        "No answer and no refusal as long as the acceptor stands: it owns their connections.",
        (
            "See whether it is stopped (T), waits for a disk (D), or is busy (R):",
            f"$ ps -o pid,stat,pcpu,wchan:20,args --ppid {pid}",
            "`kill -CONT PID` has a stopped acceptor go on. A busy one needs CPU time: see what else takes it.",
            *(["The master says how long it has stood still, and so does the error log:", ask] if ask else []),
        ),
    )


def _one_dependency(pid: int, server: Server) -> Iterator[Finding]:
    places = {one.stands_at for one in server.seats}
    if len(server.seats) < 2 or len(places) != 1 or "" in places:
        return
    [place] = places
    within = {one.within for one in server.seats} - {""}
    called = f" It has called {_some(Counter(one.within for one in server.seats if one.within))}." if within else ""
    yield Finding(
        "one-dependency",
        _severity(server),
        f"stanchion ({pid})",
        f"All {len(server.seats)} seats of stanchion ({pid}) stand in one line of code: {place}.",
        f"By their stacks (stanchion ctl dump).{called} The longest has run for {_seconds(server.seats[0].running_us)} "
        f"with {server.seats[0].request} (/status).",
        _CLIENTS_SEE,
        (
            "See what that line waits for: a database, another service, a lock, a file system. It is not the server "
            "that is slow.",
            *_replaced(pid, server),
        ),
        ("Give that call a timeout shorter than `timeout` of the server: then one dependency cannot take all seats.",),
    )


def _seats_stuck(pid: int, server: Server) -> Finding:
    seats = server.seats
    all_of_them = "The one seat" if server.busy == 1 else f"All {server.busy} seats"
    places = Counter(one.stands_at for one in seats if one.stands_at)
    stand = f" They stand at: {_some(places)} (stanchion ctl dump)." if places else ""
    return Finding(
        "seats-stuck",
        _severity(server),
        f"stanchion ({pid})",
        f"{all_of_them} of stanchion ({pid}) {'has' if server.busy == 1 else 'have'} been busy for "
        f"{_seconds(server.stuck_us)} or longer.",
        f"The longest for {_seconds(seats[0].running_us)} with {seats[0].request}; they run "
        f"{_some(Counter(one.request for one in seats))} (/status at {server.admin}). {_waiting(server)}{stand}",
        _CLIENTS_SEE,
        (*_look_closer(server), *_replaced(pid, server)),
        (
            "Give what the app calls a timeout, and see `timeout` (--timeout) of the server.",
            "Keep a seat for requests that must always get through, such as health checks: a lane with a reserved seat "
            "(docs/the-line.md).",
        ),
    )


_CLIENTS_SEE = (
    "No answer until a seat gets free: requests wait in the line, for queue_timeout at most, and then get 503. Those "
    "that run get 504 after `timeout`."
)


def _look_closer(server: Server) -> tuple[str, ...]:
    if any(one.stands_at for one in server.seats):
        return ("See what they wait for at these lines of code.",)
    if server.control is not None:
        return ("See in which line of code they stand:", f"$ stanchion ctl --control {server.control} dump")
    return (
        "See what they run, and for how long:",
        f"$ stanchion top --admin {server.admin}",
        "To see the line of code where they stand, start the server with --control unix:/PATH, for stanchion ctl dump.",
    )


def _replaced(pid: int, server: Server) -> tuple[str, ...]:
    how = f"stanchion ctl --control {server.control} reload" if server.control else f"kill -HUP {pid}"
    return ("Once that is mended, fresh workers take over at once:", f"$ {how}")


def _line_full(pid: int, server: Server) -> Iterator[Finding]:
    is_full = bool(server.full_lanes) or 0 < server.waiting_max <= server.sharing
    is_near = 0 < NEAR * server.waiting_max <= server.sharing
    if not (is_full or is_near or server.standstill):
        return
    how = "is full" if is_full else "is nearly full" if is_near else "stands"
    which = f" (lane {', '.join(server.full_lanes)})" if server.full_lanes else ""
    refused = f" Refused since its start: {server.refused} (refused_line_full)." if server.refused else ""
    why = f" It says why: {server.standstill}." if server.standstill else ""
    more = "" if server.control is None else f"$ stanchion ctl --control {server.control} scale N"
    yield Finding(
        "line-full",
        CRITICAL if is_full else WARNING,
        f"stanchion ({pid})",
        f"The line of stanchion ({pid}) {how}{which}.",
        f"{_waiting(server)} Seats: {server.busy} busy, {server.idle} idle (/status at {server.admin}).{why}{refused}",
        "503 at once (refused_line_full). Those in the line wait, for queue_timeout at most, and then get 503."
        if is_full
        else "They wait in the line, for queue_timeout at most, and then get 503. Once it is full, 503 at once.",
        (
            "See what the seats do: if they hang, find out where; a longer line only lets more wait.",
            f"$ stanchion top --admin {server.admin}",
            "If they work and there are cores and memory left, give it more workers (--workers)"
            + (", at once by:" if more else "."),
            *([more] if more else []),
        ),
    )


FULL = {"cores_full", "gil_full", "throughput_full", "more_threads", "more_workers", "loops_full"}
"""Verdicts of a server (`Verdict` of stanchion-line) that say what is full."""


def _sizing(pid: int, server: Server) -> Iterator[Finding]:
    """The server's own verdict on its seats."""
    if server.causes is None or server.causes.verdict not in FULL:
        return
    spent = server.causes.recent_us
    whole = sum(spent.values()) or 1
    shares = ", ".join(f"{cause} {100 * spent_us / whole:.0f} %" for cause, spent_us in spent.items())
    yield Finding(
        "sizing",
        NOTICE,
        f"stanchion ({pid})",
        f"stanchion ({pid}) works at its limit: {server.causes.words}.",
        f"Its verdict on the last 10 to 20 s (causes in /status at {server.admin}). Their requests' time: {shares}.",
        "They wait in the line while all seats are busy, the longer the more come.",
        (
            "Let it record its arrivals through a busy time of day (--record-arrivals DIR), and see how long requests "
            "would wait with other numbers of workers and threads:",
            "$ stanchion plan DIR",
        ),
    )


def _severity(server: Server) -> str:
    return CRITICAL if server.waiting else WARNING


def _waiting(server: Server) -> str:
    if not server.waiting:
        return "Nothing waits in its line."
    oldest = _seconds(server.oldest_wait_us)
    return f"{server.waiting} wait in its line, which takes {server.waiting_max}; the oldest for {oldest}."


def _some(counts: Counter[str]) -> str:
    """`GET /pay (3), GET /up`, the most frequent first."""
    shown = [f"{what} ({count})" if count > 1 else what for what, count in counts.most_common(PLACES_SHOWN_MAX)]
    return ", ".join(shown) + (f" and {len(counts) - len(shown)} more" if len(counts) > len(shown) else "")


def _seconds(us: int) -> str:
    return f"{us / 1e6:.1f} s"
