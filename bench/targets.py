"""What stanchion's figures should be, mostly as multiples of the peers' in the same run."""

from dataclasses import dataclass

from bench.servers import ASYNCHRONOUS, SERVERS

# medians[case][server][key], over the rounds.
Medians = dict[str, dict[str, dict[str, float]]]

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
    # Whose figure.
    of: str = "stanchion"


TARGETS = (
    Target("hello", "cpu_us", C_SERVERS, 1.0, "hello, keep-alive: no more CPU than the better of bjoern and fastpysgi"),
    Target("close", "cpu_us", ("bjoern",), 1.1, "a connection per request: at most 1.1 x bjoern's CPU"),
    Target("nginx", "cpu_us", ("bjoern",), 1.1, "behind nginx, 2 workers: at most 1.1 x bjoern's CPU"),
    Target("upload", "cpu_us", ("fastpysgi",), 1.0, "64 KiB POST: no more CPU than fastpysgi"),
    Target("stream64", "cpu_us", ("fastpysgi",), 1.0, "1 MiB in chunks of 64 KiB: no more CPU than fastpysgi"),
    Target("file1", "cpu_us", ("nginx",), 1.2, "a file of 1 MiB: at most 1.2 x nginx's CPU"),
    Target("file100", "cpu_us", ("nginx",), 1.2, "a file of 100 MiB: at most 1.2 x nginx's CPU"),
    Target("static", "cpu_us", ("nginx",), 1.2, "a static file of 10 KiB: at most 1.2 x nginx's CPU"),
    Target("page", "cpu_us", PEERS, 1.03, "Flask, Jinja, JSON: at most 1.03 x the CPU of the best peer"),
    Target("page", "p99_ms", PEERS, 1.0, "Flask, Jinja, JSON: the lowest p99"),
    Target("memory", "pss_mb", (), 119.0, "4 workers, 100 MB preloaded: at most 119 MB"),
    Target("memory", "pss_mb", ("one copy",), 1.25, "the same: at most 1.25 x one copy"),
    Target("idle", "pss_kb", (), 4.0, "an idle connection that was answered: at most 4 KB"),
    Target("mixed", "to_ideal", (), 1.03, "mixed load: fast p99 at most 1.03 x the ideal line's"),
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
)


def measured(target: Target, medians: Medians) -> tuple[float, str] | None:
    """The figure in units of the other's, and who that was; None where one of the two is missing."""
    figures = {server: row[target.key] for server, row in medians.get(target.case, {}).items() if target.key in row}
    if target.of not in figures:
        return None
    if not target.against:
        return figures[target.of], "the figure itself"
    others = [server for server in target.against if server in figures]
    if not others:
        return None
    other = min(others, key=figures.__getitem__)
    return figures[target.of] / figures[other], other


def lines(medians: Medians) -> list[str]:
    """A Markdown table of every target."""
    rows = ["| target | limit | measured | against | |", "|---|---:|---:|---|---|"]
    for target in TARGETS:
        found = measured(target, medians)
        if found is None:
            rows.append(f"| {target.text} | {target.limit} | | | not measured |")
        else:
            verdict = "met" if found[0] <= target.limit else "**not met**"
            rows.append(f"| {target.text} | {target.limit} | {found[0]:.2f} | {found[1]} | {verdict} |")
    return rows
