"""Targets for stanchion's figures, mostly as multiples of the peers' in the same run."""

from dataclasses import dataclass
from statistics import median, quantiles

from bench.attacks import NONE
from bench.cases import CASES
from bench.measure import Figures
from bench.servers import ASYNCHRONOUS, SERVERS

# cells[case][server][number of the turn or round]: of those that did not fail.
Cells = dict[str, dict[str, dict[int, Figures]]]

PEERS = tuple(name for name in SERVERS if not name.startswith("stanchion") and name not in {"nginx", "one copy"})
ASYNCHRONOUS_PEERS = tuple(name for name in ASYNCHRONOUS if name in PEERS)

C_SERVERS = ("bjoern", "fastpysgi")


@dataclass(frozen=True)
class Target:
    case: str
    key: str
    # The one with the least of these is what it is compared with; where there are none, it is the figure itself.
    against: tuple[str, ...]
    # The figure over the other's. Less is better in all of them.
    limit: float
    text: str
    # The server whose figure is judged.
    of: str = "stanchion"


TARGETS = (
    Target("hello", "cpu_us", C_SERVERS, 1.0, "hello, keep-alive: no more CPU than the better of bjoern and fastpysgi"),
    Target("close", "cpu_us", ("bjoern",), 1.1, "a connection per request: at most 1.1 x bjoern's CPU"),
    Target("nginx", "cpu_us", ("bjoern",), 1.1, "behind nginx, 2 workers: at most 1.1 x bjoern's CPU"),
    Target("upload", "cpu_us", ("fastpysgi",), 1.0, "64 KiB POST: no more CPU than fastpysgi"),
    # The body is copied once more, as no worker touches a client's socket.
    Target("stream64", "cpu_us", ("fastpysgi",), 1.45, "1 MiB in chunks of 64 KiB: at most 1.45 x fastpysgi's CPU"),
    Target("file1", "cpu_us", ("nginx",), 1.2, "a file of 1 MiB: at most 1.2 x nginx's CPU"),
    Target("file100", "cpu_us", ("nginx",), 1.2, "a file of 100 MiB: at most 1.2 x nginx's CPU"),
    Target("static", "cpu_us", ("nginx",), 1.2, "a static file of 10 KiB: at most 1.2 x nginx's CPU"),
    Target("page", "cpu_us", PEERS, 1.03, "Flask, Jinja, JSON: at most 1.03 x the CPU of the best peer"),
    Target("page", "p99_ms", PEERS, 1.0, "Flask, Jinja, JSON: the lowest p99"),
    Target("memory", "pss_mb", (), 119.0, "4 workers, 100 MB preloaded: at most 119 MB"),
    Target("memory", "pss_mb", ("one copy",), 1.25, "the same: at most 1.25 x one copy"),
    Target("idle", "pss_kb", (), 4.0, "an idle connection that was answered: at most 4 KB"),
    Target("mixed", "to_ideal", (), 1.03, "mixed load: fast p99 at most 1.03 x the ideal line's"),
    Target(
        "h2-hello",
        "cpu_us",
        ("granian", "gunicorn-gthread", "hypercorn"),
        1.0,
        "HTTP/2, hello: no more CPU than the best peer",
    ),
    Target(
        "h2-hello",
        "cpu_us",
        ("granian-asgi", "hypercorn", "gunicorn-asgi"),
        1.0,
        "HTTP/2, ASGI, hello: no more CPU than the best peer",
        of="stanchion-asgi",
    ),
    Target(
        "h2-mixed", "to_ideal", (), 1.03, "HTTP/2, mixed load, one connection: fast p99 at most 1.03 x the ideal line's"
    ),
    Target("overload", "unused", (), 0.05, "overload: at most 5 % of the capacity unused"),
    Target(
        "watched",
        "cpu_us",
        ("stanchion",),
        1.02,
        "an access log and an admin listener, Flask: at most 2 % more",
        of="stanchion-watched",
    ),
    Target(
        "watched-hello",
        "cpu_us",
        ("stanchion",),
        1.02,
        "an access log and an admin listener, hello: at most 2 % more CPU",
        of="stanchion-watched",
    ),
    *(
        Target(f"asgi-{case}", key, ASYNCHRONOUS_PEERS, 1.0, f"ASGI, {what} than the best peer", of="stanchion-asgi")
        for case, key, what in (
            ("hello", "cpu_us", "hello: no more CPU"),
            ("json", "cpu_us", "Starlette: no more CPU"),
            ("upload", "cpu_us", "64 KiB POST: no more CPU"),
            ("stream", "cpu_us", "1 MiB streamed: no more CPU"),
            ("echo64", "cpu_us", "a WebSocket's 64 bytes and back: no more CPU"),
            ("echo64k", "cpu_us", "a WebSocket's 64 KiB and back: no more CPU"),
            ("sockets", "pss_kb", "an idle WebSocket: no more memory"),
        )
    ),
    Target("asgi-streams", "pss_kb", (), 12.0, "ASGI, an idle stream of events: at most 12 KB", of="stanchion-asgi"),
    Target(
        "asgi-mixed",
        "to_ideal",
        (),
        1.05,
        "ASGI, an app that blocks its loop: fast p99 at most 1.05 x the ideal line's",
        of="stanchion-asgi",
    ),
    Target("asgi-blocked", "late", (), 0.0, "ASGI, beside a blocked loop: none is 100 ms late", of="stanchion-asgi"),
    Target(
        "asgi-killed",
        "lost",
        ASYNCHRONOUS_PEERS,
        1.0,
        "ASGI, SIGKILL of a worker: none loses less",
        of="stanchion-asgi",
    ),
    Target("asgi-overload", "unused", (), 0.05, "ASGI, overload: at most 5 % unused", of="stanchion-asgi"),
    Target("slow", "lost", (), 0.05, "slow clients: cost the others at most 5 % of their throughput"),
    *(
        Target("adversaries", "p99_ratio", (), 1.2, f"{name}: others' p99 is at most 1.2 x that of before", of=name)
        for name in CASES["adversaries"].rows
        if not name.endswith(NONE.name)
    ),
    Target("tls-flood", "lost", (), 0.05, "a flood of handshakes: costs the others at most 5 % of their throughput"),
)


@dataclass(frozen=True)
class Measured:
    figure: float
    # Between which the middle half of the turns is, where servers took turns.
    middle_half: tuple[float, float] | None
    against: str


def measured(target: Target, cells: Cells) -> Measured | None:
    """The figure in units of the other's, and who that was; None where one of the two is missing.

    Servers that take turns are compared turn by turn, each with what the other did in the same second or two: a noisy
    machine is slow for both of them then. The median of these ratios is the figure.
    """
    figures = {
        server: found for server, rows in cells.get(target.case, {}).items() if (found := of_key(target.key, rows))
    }
    if target.of not in figures:
        return None
    own = figures[target.of]
    if not target.against:
        return Measured(median(own.values()), None, "the figure itself")
    others = {server: median(figures[server].values()) for server in target.against if server in figures}
    if not others:
        return None
    other = min(others, key=others.__getitem__)
    if CASES[target.case].stand is None:
        return Measured(median(own.values()) / others[other], None, other)
    ratios = [own[number] / figure for number, figure in figures[other].items() if number in own]
    return Measured(median(ratios), middle_half(ratios), other) if ratios else None


def of_key(key: str, rows: dict[int, Figures]) -> dict[int, float]:
    """Empty unless all have it: some figures are there only where a process of that name was seen at the time."""
    return {number: row[key] for number, row in rows.items()} if all(key in row for row in rows.values()) else {}


def middle_half(values: list[float]) -> tuple[float, float] | None:
    if len(values) < 2:
        return None
    lower, _, upper = quantiles(values, n=4, method="inclusive")
    return lower, upper


def lines(cells: Cells) -> list[str]:
    """A Markdown table of the targets of these cases."""
    rows = ["| target | limit | measured | middle half | against | |", "|---|---:|---:|---|---|---|"]
    for target in TARGETS:
        if target.case not in cells:
            continue
        found = measured(target, cells)
        if found is None:
            rows.append(f"| {target.text} | {target.limit} | | | | not measured |")
        else:
            verdict = "met" if found.figure <= target.limit else "**not met**"
            half = "{:.2f} to {:.2f}".format(*found.middle_half) if found.middle_half else ""
            rows.append(
                f"| {target.text} | {target.limit} | {found.figure:.2f} | {half} | {found.against} | {verdict} |"
            )
    return rows
