"""The command line: has servers take turns and writes a directory below bench/runs/."""

import argparse
import dataclasses
import datetime
import json
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from bench import host, report
from bench.attacks import ATTACKS
from bench.cases import CASES, Case
from bench.measure import FULL, QUICK, Plan
from bench.report import Record
from bench.servers import SERVERS, Server
from bench.turns import FAILURES, take_turns

RUNS = Path("bench/runs")
PROGRAMS = ("wrk", "h2load", "taskset", "nginx")


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    # So that the servers are ended on a TERM as they are on Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    if lacking:
        sys.exit(f"bench: not installed: {', '.join(lacking)}")
    missing = [
        f"{server.name} is not installed and was not measured" for server in options.servers if server.version() is None
    ]
    for line in missing:
        print(f"bench: MISSING: {line}", file=sys.stderr)
    directory = options.out or new_directory()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "README.md").write_text(host.readme(without_out(arguments), options.plan))
    records = []
    with (directory / "raw.jsonl").open("w") as raw:
        for record in measure(options.cases, [server for server in options.servers if server.version()], options.plan):
            records.append(record)
            raw.write(json.dumps(record.as_dict()) + "\n")
            raw.flush()
            print(progress(record), flush=True)
            (directory / "summary.md").write_text(report.summary(records, missing))
    print(f"\n{report.summary(records, missing)}\nWritten to {directory}/")
    # The summary shows a missing peer, which is no failure of this run.
    stanchion_missing = any(server.name == "stanchion" and not server.version() for server in options.servers)
    return 1 if stanchion_missing or any(record.error for record in records) else 0


def measure(cases: Sequence[Case], servers: Sequence[Server], plan: Plan) -> Iterator[Record]:
    for case in cases:
        chosen = [server for server in servers if server.name in case.servers]
        if case.stand:
            for number in range(plan.rounds):
                # Restart the servers in each round: where its memory lies makes a process quicker or slower for life.
                for taken in take_turns(case.stand, chosen, plan.turns):
                    at = number * plan.turns + taken.number
                    yield Record(case.name, taken.server, at, taken.figures, taken.error)
        else:
            yield from alternating(case, chosen, plan)


def alternating(case: Case, servers: Sequence[Server], plan: Plan) -> Iterator[Record]:
    """Each server by itself, A B C A B C, so that a slow minute of the machine hits all alike."""
    broken: set[str] = set()
    for number in range(plan.rounds):
        for server in servers:
            if server.name not in broken:
                for record in cell(case, server, plan, number):
                    if record.error:
                        broken.add(server.name)
                    yield record


def cell(case: Case, server: Server, plan: Plan, number: int) -> Iterator[Record]:
    """One record, or one for each thing that the server runs beside."""
    try:
        if case.run_beside:
            for beside, figures in case.run_beside(server, plan, number):
                yield Record(case.name, server.name, number, figures, beside=beside)
        else:
            assert case.run
            yield Record(case.name, server.name, number, case.run(server, plan, number))
    except FAILURES as error:
        yield Record(case.name, server.name, number, {}, f"{type(error).__name__}: {error}")


def progress(record: Record) -> str:
    keys = [column.key for column in CASES[record.case].columns] + ["failures"]
    figures = " ".join(f"{key}={record.figures[key]:,.2f}" for key in keys if key in record.figures)
    return f"{record.case:9} {record.round + 1:2} {record.row:17} {record.error or figures}"


def without_out(arguments: Sequence[str]) -> list[str]:
    """The arguments without that of --out, which would tell a path of this machine."""
    kept = list(arguments)
    while "--out" in kept:
        at = kept.index("--out")
        del kept[at : at + 2]
    return [argument for argument in kept if not argument.startswith("--out=")]


def new_directory() -> Path:
    name = f"{datetime.date.today().isoformat()}-{host.kind()}"
    names = [name, *(f"{name}-{number}" for number in range(2, 100))]
    return next(RUNS / name for name in names if not (RUNS / name).exists())


@dataclasses.dataclass(frozen=True)
class Options:
    cases: list[Case]
    servers: list[Server]
    plan: Plan
    out: Path | None


def parse(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="bench/run.sh", description="Compare WSGI servers, side by side in one run.")
    parser.add_argument(
        "--case", type=names_of(CASES), default=[*CASES], help=f"comma separated, of: {', '.join(CASES)}"
    )
    parser.add_argument(
        "--server", type=names_of(SERVERS), default=[*SERVERS], help=f"comma separated, of: {', '.join(SERVERS)}"
    )
    parser.add_argument("--quick", action="store_true", help="one short round, about three minutes")
    parser.add_argument("--rounds", type=int, help=f"default {FULL.rounds}")
    parser.add_argument("--turns", type=int, help=f"of each server in a round, default {FULL.turns}")
    parser.add_argument("--seconds", type=int, help=f"of load, where a server runs by itself; default {FULL.load_s}")
    parser.add_argument(
        "--attack", type=names_of(ATTACKS), default=[], help="of `adversaries`, comma separated; default all"
    )
    parser.add_argument("--out", type=Path, help="directory of the results, default a new one in bench/runs/")
    parsed = parser.parse_args(arguments)
    plan = QUICK if parsed.quick else FULL
    plan = dataclasses.replace(
        plan,
        rounds=parsed.rounds or plan.rounds,
        turns=parsed.turns or plan.turns,
        load_s=parsed.seconds or plan.load_s,
        attacks=parsed.attack,
    )
    return Options([CASES[name] for name in parsed.case], [SERVERS[name] for name in parsed.server], plan, parsed.out)


def names_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """A type for argparse: comma separated names, each of which must be known."""

    def names(text: str) -> list[str]:
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(f"unknown: {name}")
        return text.split(",")

    return names


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
