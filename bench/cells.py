"""One cell of the cases in which one server runs at a time: one server, one round."""

import asyncio
import contextlib
import http.client
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from bench import h2_client, mixed_load
from bench.measure import SCRATCH, Figures, Plan, ask, serving
from bench.mixed_load import Mix
from bench.processes import ServerError, Tree
from bench.servers import ASYNCHRONOUS, PYTHON, Server

# The last argument is the number of the round, from 0.
Cell = Callable[[Server, Plan, int], Figures]
# One server has several rows in a round, each beside something and with figures of its own.
CellBeside = Callable[[Server, Plan, int], Iterator[tuple[str, Figures]]]

PAUSE_BETWEEN_KILLS_S = 0.3
BETWEEN_KILLS_S = 1.0
# So much more than in the ideal line is no noise.
LATE_S = 0.1
BLOCKING = Mix("/block", 1 / 800, 400.0)
WAITING = Mix("/", 0.0, 400.0)
RECOVERY_S = 20.0
MEMORY_WORKERS = 4
# Pages of the Django site for each worker, on average.
DJANGO_PAGES = 100
START_S = 60.0
# Batches of requests sent together, until each worker has answered one.
MEMORY_BATCHES = 50


def mixed(server: Server, plan: Plan, round_number: int) -> Figures:
    """Four workers at half load, beside an ideal single line with the same arrivals."""
    app = "asgi:mixed" if server.name in ASYNCHRONOUS else "mixed:app"
    with serving(server, app, workers=mixed_load.WORKERS, pinned=False) as (_tree, port):
        return beside_ideal(asyncio.run(mixed_load.offer(port, plan.mixed_s, seed=round_number)))


def mixed_over_one(server: Server, plan: Plan, round_number: int) -> Figures:
    """The same by streams of one connection of HTTP/2."""

    async def offer(port: int) -> mixed_load.Outcome:
        async with h2_client.connected(port) as connection:
            return await mixed_load.offer_to([connection] * mixed_load.CONNECTIONS, plan.mixed_s, round_number)

    with serving(server, "mixed:app", workers=mixed_load.WORKERS, pinned=False, http2=True) as (_tree, port):
        return beside_ideal(asyncio.run(offer(port)))


def blocked(server: Server, plan: Plan, round_number: int) -> Figures:
    """The same at a tenth of the load, and every two seconds a request that blocks its loop for one."""
    with serving(server, "asgi:mixed", workers=mixed_load.WORKERS, pinned=False) as (_tree, port):
        outcome = asyncio.run(mixed_load.offer(port, plan.mixed_s, round_number, BLOCKING))
    late = sum(
        not request.slow and request.latency_s > ideal_s + LATE_S
        for request, ideal_s in zip(outcome.served, mixed_load.ideal_latencies_s(outcome.served), strict=True)
    )
    blocks = sum(request.slow for request in outcome.served)
    return {**beside_ideal(outcome), "late": late / max(1, blocks)}


def beside_ideal(outcome: mixed_load.Outcome) -> Figures:
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
        "fast_max_ms": p_ms("fast", 1.0),
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


def killed(server: Server, plan: Plan, round_number: int) -> Figures:
    """SIGKILL of one of four workers, once a second, under a load of requests that each await 20 ms."""
    with serving(server, "asgi:waiting", workers=mixed_load.WORKERS, pinned=False) as (tree, port):

        async def kill_often() -> None:
            for number in range(plan.kills):
                await asyncio.sleep(BETWEEN_KILLS_S)
                try:
                    worker = int((await asyncio.to_thread(ask, port, "/pid")).body)
                except OSError as error:
                    raise ServerError(f"the server does not answer after {number} kills: {error}") from error
                if worker == tree.root.pid or worker not in tree.pids():
                    raise ServerError(f"process {worker} answered, which is no child of the server")
                os.kill(worker, signal.SIGKILL)

        async def both() -> mixed_load.Outcome:
            load_s = (plan.kills + 1) * BETWEEN_KILLS_S
            load = mixed_load.offer(port, load_s, round_number, WAITING)
            return (await asyncio.gather(load, kill_often()))[0]

        outcome = asyncio.run(both())
    latencies_ms = [request.latency_s * 1e3 for request in outcome.served]
    return {
        "lost": outcome.failures / plan.kills,
        "p99_ms": mixed_load.percentile(latencies_ms, 0.99),
        "max_ms": max(latencies_ms),
        "failures": 0,  # They are what is measured.
        "requests": len(outcome.served),
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
    app = "bench/apps/heavy.ru" if server.name == "unicorn" else "heavy:app"
    return memory_of(server, app, copies)


def django_memory(workers: int) -> Cell:
    """The same of a Django site, whose workers have answered pages of it in between."""

    def cell(server: Server, _plan: Plan, _round: int) -> Figures:
        SCRATCH.mkdir(exist_ok=True)
        migrate = [PYTHON, "-m", "django", "migrate", "--verbosity=0", "--settings=bench.apps.django_site.settings"]
        subprocess.run(migrate, check=True, timeout=START_S)
        app = "django_site:asynchronous_app" if server.name in ASYNCHRONOUS else "django_site:app"
        return memory_of(server, app, workers, ["/", "/admin/login/"] * (DJANGO_PAGES * workers // 2))

    return cell


def memory_of(server: Server, app: str, workers: int, pages: Sequence[str] = ()) -> Figures:
    """Of workers that share what the server loads before it forks them, where it can."""
    with serving(server, app, workers=workers, pinned=False, preload=True) as (tree, port):
        # All must be there: a fork between the looks at two processes would make their shares add up wrongly.
        reach_all(tree, port, workers, "/hold")
        fresh_bytes = tree.pss_bytes()
        with ThreadPoolExecutor(2 * workers) as pool:
            failures = sum(answer.status != 200 for answer in pool.map(lambda page: ask(port, page), pages))
        reach_all(tree, port, workers, "/collect")
        return {"pss_mb": tree.pss_bytes() / 1e6, "fresh_mb": fresh_bytes / 1e6, "failures": failures}


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
