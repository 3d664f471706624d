"""Servers that stand side by side and take turns under load, so that a slow second of the machine hits all alike."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from subprocess import SubprocessError

from bench import h2load, nginx, wrk
from bench.apps import hello
from bench.measure import CLIENT_CORE, WARM_UP_S, Figures, OtherLoad, check, serving, serving_behind_nginx
from bench.processes import Cpu, ServerError, Tree
from bench.servers import ASYNCHRONOUS, OWN, Server

# One run of the load on a server that stands.
Turn = Callable[[], Figures]
# Starts a server for as long as the case lasts, checks what it answers, and warms it up.
Stand = Callable[[Server], AbstractContextManager[Turn]]

# The errors of a server. They are its result, and must not cost the others theirs.
FAILURES = (ServerError, OSError, SubprocessError, ExceptionGroup)
NGINX_WORKERS = 2
HOST_WORKERS = 2


@dataclass(frozen=True)
class Workload:
    """An app, what is asked of it, and whether a body is what it should have answered."""

    app: str
    load: wrk.Load
    expected: Callable[[bytes], bool]
    # The answer of nginx where it is the floor.
    floor: str = ""
    turn_s: int = 1
    # Answers so long that the end of a turn cuts off a good part of one: they are counted by their bytes.
    is_long: bool = False
    # Makes what the app needs.
    prepare: Callable[[], None] = lambda: None
    # Flags that only stanchion is given.
    own: tuple[str, ...] = ()
    # The app for servers of asynchronous apps, where a case has servers of both kinds.
    asynchronous_app: str = ""


@dataclass(frozen=True)
class Taken:
    """The result of one turn of one server."""

    server: str
    number: int
    figures: Figures
    error: str = ""


HELLO = Workload("hello:app", wrk.Load(), lambda body: body == hello.BODY, floor=nginx.floor())


def take_turns(stand: Stand, servers: Sequence[Server], turns: int) -> Iterator[Taken]:
    """A B C, C B A, A B C ...; a server that fails is left out from then on."""
    with ExitStack() as servers_end:
        standing: dict[str, Turn] = {}
        for server in servers:
            try:
                standing[server.name] = servers_end.enter_context(stand(server))
            except FAILURES as error:
                yield failed(server.name, 0, error)
        for number in range(turns):
            for name in [*standing] if number % 2 == 0 else [*reversed(standing)]:
                try:
                    yield Taken(name, number, standing[name]())
                except FAILURES as error:
                    del standing[name]
                    yield failed(name, number, error)


def failed(server: str, number: int, error: Exception) -> Taken:
    return Taken(server, number, {}, f"{type(error).__name__}: {error}")


def one_worker(work: Workload) -> Stand:
    """One worker on one core, and wrk on the other."""

    @contextlib.contextmanager
    def stand(server: Server) -> Iterator[Turn]:
        work.prepare()
        app = work.asynchronous_app if work.asynchronous_app and server.name in ASYNCHRONOUS else work.app
        load = work.load
        with serving(server, app, floor=work.floor, own=work.own, tls=load.tls, http2=load.streams > 0) as (tree, port):
            yield turn_of(work, port, {"": tree})

    return stand


@contextlib.contextmanager
def behind_nginx(server: Server) -> Iterator[Turn]:
    """nginx and the server's two workers on one core, a unix socket between them; the CPU time of the two apart."""
    with serving_behind_nginx(server, HELLO.app, NGINX_WORKERS) as (tree, nginx_tree, port):
        yield turn_of(HELLO, port, {"": tree, "nginx_": nginx_tree})


def whole_host(work: Workload) -> Stand:
    """All that clients over TLS need, on one core: our own servers by themselves, the others behind nginx."""

    @contextlib.contextmanager
    def stand(server: Server) -> Iterator[Turn]:
        app = work.asynchronous_app if server.name in ASYNCHRONOUS else work.app
        if server.name in OWN:
            http2 = work.load.streams > 0
            with serving(server, app, workers=HOST_WORKERS, tls=True, http2=http2) as (tree, port):
                yield turn_of(work, port, {"": tree})
        else:
            with serving_behind_nginx(server, app, HOST_WORKERS, tls=True) as (tree, nginx_tree, port):
                yield turn_of(work, port, {"": tree, "nginx_": nginx_tree})

    return stand


def turn_of(work: Workload, port: int, trees: dict[str, Tree]) -> Turn:
    """Checks and warms up. A turn's figures of CPU time begin with what a tree is called here."""
    body_bytes = check(port, work.load, work.expected)
    run = h2load.run if work.load.streams else wrk.run
    run(work.load, port, WARM_UP_S, CLIENT_CORE, body_bytes)

    def turn() -> Figures:
        others = OtherLoad()
        before = {prefix: tree.cpu() for prefix, tree in trees.items()}
        seen = run(work.load, port, work.turn_s, CLIENT_CORE, body_bytes)
        spent = {prefix: spent_since(before[prefix], tree.cpu()) for prefix, tree in trees.items()}
        if seen.requests == 0:
            raise ServerError("answered no request under load")
        requests = seen.bytes / body_bytes if work.is_long else seen.requests
        all_ns = sum(cpu.all_ns for of_tree in spent.values() for cpu in of_tree.values())
        return {
            "rps": requests / seen.duration_s,
            "p50_ms": seen.p50_ms,
            "p99_ms": seen.p99_ms,
            "failures": seen.failures,
            "requests": requests,
            "others_share": others.share(all_ns),
            "host_cpu_us": all_ns / 1e3 / requests,
            **{key: us for prefix, of_tree in spent.items() for key, us in cpu_figures(prefix, of_tree, requests)},
        }

    return turn


def spent_since(before: dict[str, Cpu], after: dict[str, Cpu]) -> dict[str, Cpu]:
    return {name: cpu - before.get(name, Cpu()) for name, cpu in after.items()}


def cpu_figures(prefix: str, spent: dict[str, Cpu], requests: float) -> Iterator[tuple[str, float]]:
    """Of a tree, and of each of its processes by what it is called."""
    whole = sum(spent.values(), Cpu())
    for name, cpu in {"": whole, **{f"{name}:": cpu for name, cpu in spent.items()}}.items():
        user_us, kernel_us = cpu.parts_us(requests)
        yield f"{prefix}{name}cpu_us", user_us + kernel_us
        yield f"{prefix}{name}user_us", user_us
        yield f"{prefix}{name}kernel_us", kernel_us
