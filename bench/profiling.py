"""Where the CPU time goes: perf on each busy process of a server under load, the top entries as text."""

import argparse
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from bench import wrk
from bench.cases import WORKLOADS
from bench.measure import CLIENT_CORE, SCRATCH, WARM_UP_S, check, serving
from bench.processes import Tree, process_cpu_ns
from bench.servers import SERVERS

LOAD_S = 5
# Not a divisor of any timer's rate, so that the samples do not fall in step with one.
SAMPLES_PER_S = 1999
# Of the tree's CPU time, below which a process is left out.
SHARE_MIN = 0.02
TOP = 40
DATA = SCRATCH / "perf.data"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench/profile.sh", description=__doc__)
    parser.add_argument("--server", choices=SERVERS, default="stanchion")
    parser.add_argument("--case", choices=WORKLOADS, default="hello")
    parser.add_argument("--out", type=Path, help="default .bench/profile-SERVER-CASE.txt")
    options = parser.parse_args()
    server, work = SERVERS[options.server], WORKLOADS[options.case]
    if server.version() is None:
        sys.exit(f"bench: MISSING: {server.name} is not installed")
    out = options.out or SCRATCH / f"profile-{server.name}-{options.case}.txt"
    work.prepare()
    with serving(server, work.app, floor=work.floor) as (tree, port):
        body_bytes = check(port, work.load, work.expected)
        wrk.run(work.load, port, WARM_UP_S, CLIENT_CORE, body_bytes)
        shares, seen = record(tree, work.load, port, body_bytes)
        names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in shares}
    parts = [
        f"{server.name} {server.version()}, {options.case}: {seen.requests / seen.duration_s:,.0f} requests/s with perf"
    ]
    taken = samples()
    for pid, share in sorted(shares.items(), key=lambda item: -item[1]):
        parts.append(f"\n## {names[pid]}: {share:.0%} of the server's CPU time\n\n{top(taken[pid])}")
    out.write_text("\n".join(parts))
    print(out.read_text(), f"Written to {out}", sep="\n")


def record(tree: Tree, load: wrk.Load, port: int, body_bytes: int) -> tuple[dict[int, float], wrk.Seen]:
    """Sample the tree during one run of wrk; each busy process's share of the tree's CPU time."""
    before_ns = {pid: process_cpu_ns(pid) for pid in tree.pids()}
    # cpu-clock is a timer: virtual machines often have no hardware counters.
    sampling = subprocess.Popen(
        [
            *("perf", "record", "--quiet", "-e", "cpu-clock", "-F", str(SAMPLES_PER_S), "-o", str(DATA)),
            *("-p", ",".join(map(str, before_ns)), "--", "sleep", str(LOAD_S)),
        ]
    )
    seen = wrk.run(load, port, LOAD_S, CLIENT_CORE, body_bytes)
    if sampling.wait(timeout=LOAD_S) != 0:
        sys.exit("bench: perf record failed; see above (as another than root it may want kernel.perf_event_paranoid=1)")
    spent_ns = {pid: process_cpu_ns(pid) - before for pid, before in before_ns.items()}
    shares = {pid: spent / sum(spent_ns.values()) for pid, spent in spent_ns.items()}
    return {pid: share for pid, share in shares.items() if share >= SHARE_MIN}, seen


# As perf script prints a sample: pid, address, function (library).
SAMPLE = re.compile(r"^\s*(\d+)\s+[0-9a-f]+\s+(.*) \((.*)\)$", re.MULTILINE)


def samples() -> dict[int, list[tuple[str, str]]]:
    """Library and function of each sample, by process. (perf report --pid filters only after it merged processes.)"""
    done = subprocess.run(
        ["perf", "script", "-i", str(DATA), "-F", "pid,ip,sym,dso"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for pid, function, library in SAMPLE.findall(done.stdout):
        found[int(pid)].append((Path(library).name, function))
    return dict(found)


def top(taken: Sequence[tuple[str, str]]) -> str:
    """By library, then by function."""
    libraries = Counter(library for library, _ in taken).most_common(8)
    functions = Counter(f"{function}  ({library})" for library, function in taken).most_common(TOP)
    blocks = [[f"{count / len(taken):7.2%}  {what}" for what, count in counted] for counted in (libraries, functions)]
    return "\n\n".join("\n".join(block) for block in blocks)


if __name__ == "__main__":
    main()
