"""More than the server can do: for a moment (burst), for good (overload), and after it has stood still (stall)."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import nginx
from bench.apps.steady import SERVICE_S
from bench.measure import SCRATCH, Figures, Plan, answers, watching
from bench.mixed_load import percentile
from bench.open_load import (
    BROKEN,
    GATEWAY,
    LATE,
    OTHER,
    REFUSED,
    SERVED,
    TOLD,
    Load,
    Request,
    count,
    evenly,
    offer,
    poisson,
)
from bench.processes import ServerError, Tree, free_port, running
from bench.servers import ASYNCHRONOUS, Address, Launch, Server

WORKERS = 4
CAPACITY_PER_S = WORKERS / SERVICE_S

# As a container or an old host has it, and before 5.4 every kernel.
SOMAXCONN_SMALL = 128
SOMAXCONN = 4096

BURST = 2_000
BURST_S = 1.0
# Three times the work that the burst is.
BURST_PATIENCE_S = 30.0

OVERLOAD = 2.0
OVERLOAD_S = 20.0
OVERLOAD_PATIENCE_S = 10.0
# Two seconds of work may wait, and no request longer than half the clients' patience.
OVERLOAD_LIMITS = ("--max-waiting", "400", "--queue-timeout", "5")

STALL_LOAD = 0.8
STALL_FROM_S, STALL_TO_S, STALL_LOAD_S = 3.0, 8.0, 23.0
STALL_PATIENCE_S = 2.0
STALL = SCRATCH / "stall"


def burst_over_tcp(server: Server, _plan: Plan, _round: int) -> Figures:
    """Straight at the server."""
    address = Address(port=free_port())
    with somaxconn(SOMAXCONN_SMALL), serving(server, address) as tree:
        return burst(address, tree)


def burst_behind_nginx(server: Server, _plan: Plan, _round: int) -> Figures:
    """At nginx, whose own queue is long enough, and through it over a unix socket."""
    assert server.upstream is not None
    socket_path = SCRATCH / "burst.sock"
    socket_path.unlink(missing_ok=True)
    behind, port = Address(path=str(socket_path)), free_port()
    with somaxconn(SOMAXCONN):
        front = nginx.command(SCRATCH / "front", port, nginx.front(server.upstream, behind))
        with (
            # nginx answers 502 as long as no server is behind it.
            running(front, core=None, log=SCRATCH / "nginx.log", ready=answers(port, 502)) as nginx_tree,
            # A backlog is cut to the limit that is in force at listen(2).
            somaxconn(SOMAXCONN_SMALL),
            serving(server, behind, through=port) as tree,
        ):
            return burst(Address(port=port), tree, nginx_tree)


def burst(address: Address, *trees: Tree) -> Figures:
    others_share = watching(*trees)
    requests = offer(address, Load(evenly(BURST, BURST_S), BURST_PATIENCE_S))
    served_s = [one.latency_s for one in requests if one.kind == SERVED]
    return {**kinds(requests), "p99_ms": 1e3 * percentile(served_s, 0.99), "others_share": others_share()}


def overload(server: Server, _plan: Plan, round_number: int) -> Figures:
    """Twice what the workers can do. Goodput is what was answered while the load lasted."""
    address = Address(port=free_port())
    due_s = poisson(OVERLOAD * CAPACITY_PER_S, OVERLOAD_S, round_number)
    with serving(server, address, own=OVERLOAD_LIMITS) as tree:
        watched = watching(tree)
        requests = offer(address, Load(due_s, OVERLOAD_PATIENCE_S))
        others_share = watched()
    served = [one for one in requests if one.kind == SERVED]
    in_time = sum(one.due_s + one.latency_s <= OVERLOAD_S for one in served)
    could_s = OVERLOAD_S * WORKERS
    service_s = sum(one.service_s for one in served) / max(1, len(served))
    told_s = [one.latency_s for one in requests if one.kind == TOLD]
    return {
        **kinds(requests),
        "goodput": in_time * service_s / could_s,
        "unused": 1 - in_time * service_s / could_s,
        "p99_ms": 1e3 * percentile([one.latency_s for one in served], 0.99),
        "told_max_ms": 1e3 * max(told_s, default=0.0),
        "others_share": others_share,
    }


def stall(*, hang_up: bool) -> Callable[[Server, Plan, int], Figures]:
    """All requests stand still for five seconds, as when a database does; clients wait two."""

    def run(server: Server, _plan: Plan, round_number: int) -> Figures:
        address = Address(port=free_port())
        load = Load(
            poisson(STALL_LOAD * CAPACITY_PER_S, STALL_LOAD_S, round_number),
            STALL_PATIENCE_S,
            hang_up=hang_up,
            at=[(STALL_FROM_S, STALL.touch), (STALL_TO_S, STALL.unlink)],
        )
        STALL.unlink(missing_ok=True)
        os.environ["BENCH_STALL"] = str(STALL.absolute())
        try:
            with serving(server, address) as tree:
                watched = watching(tree)
                requests = offer(address, load)
                others_share = watched()
        finally:
            STALL.unlink(missing_ok=True)
        after = [one for one in requests if one.due_s >= STALL_TO_S]
        return {
            **kinds(after),
            "goodput": sum(one.kind == SERVED for one in after) / len(after),
            "recovered_s": recovered_s(after) - STALL_TO_S,
            "others_share": others_share,
        }

    return run


def recovered_s(requests: list[Request]) -> float:
    """The time from which on no request was lost any more."""
    lost = [index for index, one in enumerate(requests) if one.kind != SERVED]
    after = lost[-1] + 1 if lost else 0
    return requests[after].due_s if after < len(requests) else STALL_LOAD_S


def kinds(requests: list[Request]) -> Figures:
    """How many ended in each way; a request that got neither the page nor an answer that says why has failed."""
    counted = count(requests)
    figures: Figures = {kind: counted[kind] for kind in (SERVED, TOLD, GATEWAY, REFUSED, BROKEN, LATE, OTHER)}
    return {**figures, "failures": len(requests) - counted[SERVED] - counted[TOLD], "requests": len(requests)}


@contextlib.contextmanager
def serving(server: Server, address: Address, *, own: tuple[str, ...] = (), through: int = 0) -> Iterator[Tree]:
    """The server with the app of 20 ms and four workers, ready for requests, also `through` another port."""
    SCRATCH.mkdir(exist_ok=True)
    app = "asgi:steady" if server.name in ASYNCHRONOUS else "steady:app"
    app = "bench/apps/steady.ru" if server.name == "unicorn" else app
    command = server.command(Launch(app, address, WORKERS, backlog=SOMAXCONN_SMALL, own=own))
    ready = answers(through or address.port)
    with running(command, core=None, log=SCRATCH / f"{server.name}.log", ready=ready) as tree:
        yield tree


@contextlib.contextmanager
def somaxconn(value: int) -> Iterator[None]:
    """In the network namespace of this run only."""
    if not os.environ.get("BENCH_NAMESPACE"):
        raise ServerError("needs a network namespace of its own for net.core.somaxconn")
    setting = Path("/proc/sys/net/core/somaxconn")
    before = setting.read_text()
    setting.write_text(str(value))
    try:
        yield
    finally:
        setting.write_text(before)
