"""What happens in one cell of each case: one server, one round."""

import asyncio
import contextlib
import http.client
import os
import signal
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bench import mixed_load, wrk
from bench.apps import hello
from bench.measure import Figures, Plan, ask, check, loaded, serving, serving_behind_nginx, under_load, watching
from bench.processes import ServerError, Tree
from bench.servers import SERVERS, Server

# The last argument is the number of the round, from 0.
Cell = Callable[[Server, Plan, int], Figures]

PAUSE_BETWEEN_KILLS_S = 0.3
RECOVERY_S = 20.0
MEMORY_WORKERS = 4
# Batches of requests sent together, until each worker has answered one.
MEMORY_BATCHES = 50
# Of a second, for each second of load that other cases have.
TURNS_EACH_S = 10


@dataclass(frozen=True)
class Workload:
    """An app, what is asked of it, and whether a body is what it should have answered."""

    app: str
    load: wrk.Load
    expected: Callable[[bytes], bool]


HELLO = Workload("hello:app", wrk.Load(), lambda body: body == hello.BODY)


def one_worker(work: Workload) -> Cell:
    """One worker on one core, and wrk on the other."""

    def run(server: Server, plan: Plan, _round: int) -> Figures:
        with serving(server, work.app) as (tree, port):
            body_bytes = check(port, work.load, work.expected)
            return under_load(tree, port, work.load, plan.load_s, body_bytes)

    return run


def watched(work: Workload) -> Cell:
    """What it costs to be watched: both servers run and take turns, so that a slow second of the machine hits both."""

    def run(server: Server, plan: Plan, _round: int) -> Figures:
        with serving(server, work.app) as plain, serving(SERVERS["stanchion-watched"], work.app) as with_log:
            others_share = watching(plain[0], with_log[0])
            for _, port in (plain, with_log):
                body_bytes = check(port, work.load, work.expected)
            spent_us: tuple[list[float], list[float]] = ([], [])
            failures = 0
            for turn in range(TURNS_EACH_S * plan.load_s):
                pair = [(plain, spent_us[0]), (with_log, spent_us[1])]
                for (tree, port), us in pair if turn % 2 else reversed(pair):
                    seen, (spent_ns,) = loaded([tree], port, work.load, 1, body_bytes)
                    us.append(spent_ns / 1e3 / seen.requests)
                    failures += seen.failures
            plain_us, watched_us = map(statistics.median, spent_us)
            return {
                "cost": watched_us / plain_us - 1,
                "cpu_us": plain_us,
                "watched_cpu_us": watched_us,
                "failures": failures,
                "others_share": others_share(),
            }

    return run


def behind_nginx(server: Server, plan: Plan, _round: int) -> Figures:
    """nginx and the server on one core, a unix socket between them; the CPU time of the two apart."""
    with serving_behind_nginx(server, HELLO.app) as (tree, nginx_tree, port):
        body_bytes = check(port, HELLO.load, HELLO.expected)
        return under_load(tree, port, HELLO.load, plan.load_s, body_bytes, front=nginx_tree)


def mixed(server: Server, plan: Plan, round_number: int) -> Figures:
    """Four workers at half load, beside an ideal single line with the same arrivals."""
    with serving(server, "mixed:app", workers=mixed_load.WORKERS, pinned=False) as (_tree, port):
        outcome = asyncio.run(mixed_load.offer(port, plan.mixed_s, seed=round_number))
    latencies_s: dict[str, list[float]] = {"fast": [], "slow": [], "ideal fast": [], "ideal slow": []}
    for request, ideal_s in zip(outcome.served, mixed_load.ideal_latencies_s(outcome.served), strict=True):
        kind = "slow" if request.slow else "fast"
        latencies_s[kind].append(request.latency_s)
        latencies_s[f"ideal {kind}"].append(ideal_s)

    def p_ms(kind: str, share: float) -> float:
        return mixed_load.percentile(latencies_s[kind], share) * 1e3

    return {
        "to_ideal": p_ms("fast", 0.99) / p_ms("ideal fast", 0.99),
        "fast_p50_ms": p_ms("fast", 0.5),
        "fast_p99_ms": p_ms("fast", 0.99),
        "ideal_p99_ms": p_ms("ideal fast", 0.99),
        "slow_p99_ms": p_ms("slow", 0.99),
        "failures": outcome.failures,
        "requests": len(outcome.served),
    }


def worker_death(server: Server, plan: Plan, _round: int) -> Figures:
    """SIGKILL of the only worker of a preloaded app of 100 MB; the time until a new one has answered."""
    times_ms = []
    lost = 0
    with serving(server, "heavy:app", pinned=False, preload=True) as (tree, port):
        for _ in range(plan.kills):
            worker = int(ask(port).body)
            if worker == tree.root.pid or worker not in tree.pids():
                raise ServerError(f"process {worker} answered, which is no child of the server")
            os.kill(worker, signal.SIGKILL)
            killed_s = time.perf_counter()
            lost += lost_until_served(port, killed_s)
            times_ms.append((time.perf_counter() - killed_s) * 1e3)
            # Deaths in quick succession would measure the back-off that a supervisor should have.
            time.sleep(PAUSE_BETWEEN_KILLS_S)
    return {
        "p50_ms": mixed_load.percentile(times_ms, 0.5),
        "max_ms": max(times_ms),
        "failures": lost,
        "requests": len(times_ms),
    }


def lost_until_served(port: int, since_s: float) -> int:
    """Ask until there is an answer; the number of requests that got none, or another than 200."""
    lost = 0
    while time.perf_counter() - since_s < RECOVERY_S:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if ask(port, timeout_s=RECOVERY_S).status == 200:
                return lost
        lost += 1
    raise ServerError(f"no answer within {RECOVERY_S:.0f} s of a worker's death")


def memory(server: Server, _plan: Plan, _round: int) -> Figures:
    """The app's 100 MB in four workers, before and after each has collected garbage once."""
    copies = 1 if server.name == "one copy" else MEMORY_WORKERS
    with serving(server, "heavy:app", workers=copies, pinned=False, preload=True) as (tree, port):
        # All must be there: a fork between the looks at two processes would make their shares add up wrongly.
        reach_all(tree, port, copies, "/hold")
        fresh_bytes = tree.pss_bytes()
        reach_all(tree, port, copies, "/collect")
        return {"pss_mb": tree.pss_bytes() / 1e6, "fresh_mb": fresh_bytes / 1e6, "failures": 0}


def reach_all(tree: Tree, port: int, workers: int, path: str) -> None:
    """Ask until every worker has answered `path` once."""
    seen: set[int] = set()
    with ThreadPoolExecutor(2 * workers) as pool:
        for _ in range(MEMORY_BATCHES):
            answers = pool.map(lambda _: ask(port, path), range(2 * workers))
            seen |= {int(answer.body) for answer in answers}
            if len(seen) == workers:
                return
    raise tree.complaint(f"only {len(seen)} of {workers} workers answered")
