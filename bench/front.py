"""The front page of the benchmarks: the verdict, one picture, eight rows, and where stanchion loses."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import pictures, report, targets
from bench.cases import CASES
from bench.columns import Column
from bench.report import Record, Rounds
from bench.servers import OWN
from bench.targets import Target

# records[case]: those of the run that the page shows the case of.
Records = Mapping[str, Sequence[Record]]

# The picture has a hello by each of these, from two cases.
PICTURED = (
    ("hello", ("nginx", "stanchion", "granian", "uwsgi-http", "gunicorn-gthread")),
    ("asgi-hello", ("stanchion-asgi", "granian-asgi", "uvicorn")),
)
PICTURED_COLUMN = Column("cpu_us", "CPU time in µs for a hello: WSGI, then ASGI", 1)

# The greater one of these figures is the better one, the lesser one of all others.
GREATER_IS_BETTER = ("goodput", "share")
# A figure that is worse than the best peer's by more is a row that stanchion loses.
LOST_BY = 1.05

WHY_LOST = {
    "close": "A connection passes through the acceptor to a worker and back; a server of one process has it in hand.",
    "nginx": "A connection for each request, as above; `keepalive` in nginx spares both.",
    "stream64": "Workers never touch a client's socket, so a slow reader keeps none; a body is copied once more.",
    "upload": "A body passes through the acceptor, and is copied once more.",
    "asgi-streams": "Half of it is the stream's part of the memory that the acceptor and the worker share.",
    "idle": "The acceptor keeps deadlines and its client's account for each connection, in 0.6 KB.",
    "django-1": "The acceptor is a process beside the only worker.",
}


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure of a case, of stanchion and of others."""

    text: str
    case: str
    key: str
    unit: str
    digits: int = 0
    of: str = "stanchion"
    known: str = "gunicorn-gthread"


ROWS = (
    Row("A Flask page: CPU time", "page", "cpu_us", " µs"),
    Row("A hello over TLS, the others behind nginx: CPU time of the host", "host-hello", "host_cpu_us", " µs", 1),
    Row("One request in ten takes 200 ms: p99 of the short ones", "mixed", "fast_p99_ms", " ms"),
    Row("Twice the load that the workers can do, for 20 s: clients without an answer", "overload", "late", ""),
    Row("2,200 slow clients: throughput that the others keep", "slow", "share", "", 2),
    Row("`kill -9` of the only worker: time to the next answer", "death", "p50_ms", " ms", 1, known="gunicorn-sync"),
    Row("Deploys by HUP under load: failed requests", "reload", "failures", ""),
    Row("A Django site with four workers: memory", "django-4", "pss_mb", " MB"),
)

TEMPLATE = Path(__file__).with_name("front.template")


def page(records: Records, links: Sequence[str], cores: int) -> str:
    cells = report.cells_by_case([record for of_case in records.values() for record in of_case])

    def middle(case: str, server: str, key: str) -> float:
        return median(figures[key] for figures in cells[case][server].values())

    # The page says so in words.
    for case, key in (("overload", "late"), ("reload", "failures")):
        if medians(case, key, cells)["stanchion"]:
            sys.exit(f"bench: stanchion has {key} in {case}: change the first paragraph of {TEMPLATE.name}")
    turned = [name for name in cells if CASES[name].stand]
    alone = [name for name in cells if not CASES[name].stand]
    return TEMPLATE.read_text().format(
        hello=middle("hello", "stanchion", "cpu_us"),
        gunicorn=middle("hello", "gunicorn-gthread", "cpu_us"),
        uwsgi=middle("hello", "uwsgi-http", "cpu_us"),
        asgi_hello=middle("asgi-hello", "stanchion-asgi", "cpu_us"),
        uvicorn=middle("asgi-hello", "uvicorn", "cpu_us"),
        mixed=middle("mixed", "stanchion", "to_ideal"),
        slow=middle("slow", "stanchion", "share"),
        picture=PICTURED_COLUMN.title,
        rows="\n".join(line(row, cells) for row in ROWS),
        deploys=round(sum(figures["deploys"] for figures in cells["reload"]["stanchion"].values())),
        lost_by=LOST_BY - 1,
        losses="\n".join(losses(cells)),
        cores=cores,
        turns=counted(cells, turned),
        rounds=counted(cells, alone),
        others=report.OTHERS_SHARE,
        noise=noise(cells),
        links="\n".join(links),
    )


def counted(cells: targets.Cells, cases: Sequence[str]) -> str:
    """How many turns or rounds stanchion has in these cases."""
    counts = {len(turns) for name in cases for server, turns in cells[name].items() if server in OWN}
    least, most = min(counts), max(counts)
    return f"{least}" if least == most else f"{least} to {most}"


def line(row: Row, cells: targets.Cells) -> str:
    figures = medians(row.case, row.key, cells)
    rival = best(row.case, row.key, figures)

    def shown(server: str) -> str:
        return f"{figures[server]:,.{row.digits}f}{row.unit}" if server in figures else "-"

    return f"| {row.text} | **{shown(row.of)}** | {shown(rival)}, {rival} | {shown(row.known)} |"


def medians(case: str, key: str, cells: targets.Cells) -> dict[str, float]:
    """Failures are summed: a median of 0 could hide some."""
    gathered = sum if key == "failures" else median
    return {server: gathered(row[key] for row in turns.values()) for server, turns in cells[case].items()}


def best(case: str, key: str, figures: Mapping[str, float]) -> str:
    """The best of the other servers."""
    others = [name for name in CASES[case].servers if name in figures and name in targets.PEERS]
    choose = max if key in GREATER_IS_BETTER else min
    return choose(others, key=figures.__getitem__)


def losses(cells: targets.Cells) -> list[str]:
    found = []
    for name in cells:
        column = CASES[name].columns[0]
        for of in OWN:
            figures = medians(name, column.key, cells)
            others = {server: figure for server, figure in figures.items() if is_rival(server, of)}
            if of not in figures or not others:
                continue
            rival = best(name, column.key, others)
            worse = ratio(name, column.key, of, rival, cells)
            if worse > LOST_BY:
                if name not in WHY_LOST:
                    sys.exit(f"bench: {of} loses {name} to {rival}, {worse:.2f} x, and WHY_LOST does not say why")
                found.append(f"- **{CASES[name].title}**: {of} {worse:.2f} x {rival}. {WHY_LOST[name]}")
    return found or ["None."]


def is_rival(server: str, of: str) -> bool:
    """Asynchronous servers are compared with each other, where a case has both."""
    return server in targets.PEERS and (server in targets.ASYNCHRONOUS_PEERS) == (of != "stanchion")


def ratio(case: str, key: str, of: str, rival: str, cells: targets.Cells) -> float:
    """How many times worse than the rival: 1 if equal."""
    if key in GREATER_IS_BETTER:
        figures = medians(case, key, cells)
        return figures[rival] / figures[of]
    found = targets.measured(Target(case, key, (rival,), 1.0, "", of=of), cells)
    assert found
    return found.figure


def noise(cells: targets.Cells) -> str:
    """How far a ratio of two servers varies from turn to turn."""
    rival = best("hello", "cpu_us", medians("hello", "cpu_us", cells))
    found = targets.measured(Target("hello", "cpu_us", (rival,), 1.0, ""), cells)
    assert found and found.middle_half
    return "{:.2f} to {:.2f} x {}".format(*found.middle_half, rival)


def picture(records: Records) -> str:
    bars = []
    for case, servers in PICTURED:
        rounds: dict[str, Rounds] = report.rounds_by_row(records[case])
        bars += [pictures.bar(server, PICTURED_COLUMN, rounds[server]) for server in servers if server in rounds]
    return pictures.svg(PICTURED_COLUMN, bars)
