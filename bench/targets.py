"""What stanchion's figures should be, as multiples of the peers' in the same run."""

from dataclasses import dataclass

from bench.servers import SERVERS

# medians[case][server][key], over the rounds.
Medians = dict[str, dict[str, dict[str, float]]]

PEERS = tuple(
    name
    for name in SERVERS
    if name not in {"stanchion", "stanchion-adaptive", "stanchion-watched", "nginx", "one copy"}
)
GRANIAN = ("granian", "granian-default")


@dataclass(frozen=True)
class Target:
    case: str
    key: str
    # The one with the least of these is what stanchion is compared with; where there are none, it is the figure itself.
    against: tuple[str, ...]
    # Stanchion's figure over the other's. Less is better in all of them.
    limit: float
    text: str


TARGETS = (
    Target("hello", "cpu_us", GRANIAN, 1.0, "hello, keep-alive: CPU per request below granian's"),
    Target("hello", "cpu_us", ("bjoern",), 1.0, "hello, keep-alive: on the way to bjoern's"),
    Target("close", "cpu_us", ("bjoern",), 1.35, "a connection per request: at most 1.35 x bjoern's CPU"),
    Target("flask", "cpu_us", PEERS, 1.1, "Flask: at most 10 % more CPU than the best peer"),
    Target("upload", "cpu_us", PEERS, 1.1, "64 KiB POST: at most 10 % more CPU than the best peer"),
    Target("memory", "pss_mb", ("one copy",), 1.25, "4 workers, 100 MB preloaded: at most 1.25 x one copy"),
    Target("mixed", "to_ideal", (), 1.03, "mixed load: fast p99 at most 1.03 x the ideal line's"),
    Target("overload", "unused", (), 0.05, "overload: at most 5 % of the capacity unused"),
    Target("watched", "cost", (), 0.03, "an access log and an admin listener: at most 3 % more CPU, Flask"),
    Target("watched-hello", "cost", (), 0.03, "an access log and an admin listener: at most 3 % more CPU, hello"),
    Target("slow", "lost", (), 0.05, "slow clients: cost the others at most 5 % of their throughput"),
)


def measured(target: Target, medians: Medians) -> tuple[float, str] | None:
    """Stanchion's figure in units of the other's, and who that was; None where one of the two is missing."""
    figures = {server: row[target.key] for server, row in medians.get(target.case, {}).items()}
    if "stanchion" not in figures:
        return None
    if not target.against:
        return figures["stanchion"], "the figure itself"
    others = [server for server in target.against if server in figures]
    if not others:
        return None
    other = min(others, key=figures.__getitem__)
    return figures["stanchion"] / figures[other], other


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
