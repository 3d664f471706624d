"""The cases: which servers each is run on, and which figures of a cell are shown."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from bench import adversaries, cells, deploys, flood, handshakes, idle, nginx, overload, slow_clients, sockets, turns
from bench.apps import files, hello, stream
from bench.attacks import ATTACKS
from bench.columns import (
    ADVERSARY_COLUMNS,
    DEPLOY_COLUMNS,
    HANDSHAKE_COLUMNS,
    HOST_COLUMNS,
    KIND_COLUMNS,
    LOAD_COLUMNS,
    MEMORY_COLUMNS,
    MESSAGE_COLUMNS,
    MIXED_COLUMNS,
    OVERLOAD_COLUMNS,
    PRELOAD_COLUMNS,
    STALL_COLUMNS,
    Column,
)
from bench.servers import ASYNCHRONOUS, SERVERS
from bench.turns import HELLO, Stand, Workload, one_worker
from bench.wrk import Load


@dataclass(frozen=True)
class Case:
    """Its first column is what it is about."""

    name: str
    title: str
    servers: tuple[str, ...]
    columns: tuple[Column, ...]
    # Either one server runs at a time, or all of them stand side by side and take turns, or one server runs at a time
    # and has a row beside each of several things.
    run: cells.Cell | None = None
    stand: Stand | None = None
    run_beside: cells.CellBeside | None = None
    beside: tuple[str, ...] = ("",)

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(row_name(server, beside) for server in self.servers for beside in self.beside)


BESIDE = " beside "


def row_name(server: str, beside: str = "") -> str:
    """The name of a row in a table."""
    return f"{server}{BESIDE}{beside}" if beside else server


def is_flask_json(body: bytes) -> bool:
    answer = json.loads(body)
    return bool(answer["message"] == "Hello, World!" and answer["numbers"] == list(range(10)))


def is_whole_stream(body: bytes) -> bool:
    return body == b"x" * stream.TOTAL_BYTES


def is_page(body: bytes) -> bool:
    return (
        body.count(b"<tr ") == 40
        and b"Articles &amp; prices" in body
        and b'{"name": "Article \\u003c39\\u003e"' in body
    )


def is_file(size_mb: int) -> Callable[[bytes], bool]:
    return lambda body: len(body) == size_mb << 20 == body.count(b"x")


OVER_HTTP2 = (
    "stanchion",
    "granian",
    "gunicorn-gthread",
    "stanchion-asgi",
    "granian-asgi",
    "hypercorn",
    "gunicorn-asgi",
)
WHOLE_HOST = ("stanchion", "gunicorn-gthread", "uwsgi", "stanchion-asgi", "uvicorn")
WATCHED = ("stanchion", "stanchion-watched")
ONE_WORKER = ("stanchion", "bjoern", "fastpysgi", "granian", "uwsgi", "gunicorn-sync", "gunicorn-gthread")
OVER_TLS = ("nginx", "stanchion", "granian", "gunicorn-gthread")
PREFORKING = ("stanchion", "granian", "uwsgi", "gunicorn-sync", "gunicorn-gthread", "unicorn")
UPLOAD_BYTES = 64 << 10
# As many at a time as there are connections of HTTP/1.1, on one connection, as a proxy has it.
OVER_ONE = Load(connections=1, streams=32)
# Fewer: at a mebibyte each, those cut off by the end of the time would count.
STREAMS = 8


# uWSGI's http-socket answers with no length by closing, which wrk takes for an answer that broke off.
STREAMING = tuple("uwsgi-http" if name == "uwsgi" else name for name in ONE_WORKER)
WORKLOADS = {
    "hello": HELLO,
    "close": replace(HELLO, load=Load(close=True)),
    "tls-hello": replace(HELLO, load=Load(tls=True)),
    "h2-hello": replace(HELLO, load=OVER_ONE, asynchronous_app="asgi:hello"),
    "host-hello": replace(HELLO, load=Load(tls=True), asynchronous_app="asgi:hello"),
    "host-h2-hello": replace(HELLO, load=Load(connections=8, streams=4, tls=True), asynchronous_app="asgi:hello"),
    "flask": Workload("flask_json:app", Load(), is_flask_json),
    "page": Workload("flask_page:app", Load(), is_page),
    "upload": Workload("upload:app", Load(post_bytes=UPLOAD_BYTES), lambda body: body == b"%d\n" % UPLOAD_BYTES),
    "asgi-hello": Workload("asgi:hello", Load(), lambda body: body == hello.BODY),
    "asgi-json": Workload("starlette_json:app", Load(), is_flask_json),
    "asgi-upload": Workload("asgi:upload", Load(post_bytes=UPLOAD_BYTES), lambda body: body == b"%d\n" % UPLOAD_BYTES),
    "asgi-stream": Workload("asgi:stream", Load(STREAMS), is_whole_stream, is_long=True),
    "static": Workload(
        "hello:app",
        Load(path=f"/static/{files.SMALL}"),
        lambda body: len(body) == files.SMALL_BYTES == body.count(b"x"),
        floor=nginx.static_files(files.FOLDER),
        prepare=files.prepare,
        own=("--static", f"/static={files.FOLDER.resolve()}"),
    ),
    "stream16": Workload("stream:app", Load(STREAMS, path="/16"), is_whole_stream, is_long=True),
    "stream64": Workload("stream:app", Load(STREAMS, path="/64"), is_whole_stream, is_long=True),
    **{
        f"file{size_mb}": Workload(
            "files:app",
            Load(connections, path=f"/{size_mb}"),
            is_file(size_mb),
            floor=nginx.files(files.FOLDER),
            turn_s=turn_s,
            is_long=True,
            prepare=files.prepare,
        )
        for size_mb, connections, turn_s in ((1, STREAMS, 1), (100, 4, 3))
    },
}


def of_load(name: str, title: str, servers: tuple[str, ...], workload: str = "") -> Case:
    """How much of a workload one worker does."""
    return Case(name, title, servers, LOAD_COLUMNS, stand=one_worker(WORKLOADS[workload or name]))


CASES = {
    case.name: case
    for case in (
        of_load(
            "hello", "Hello over 32 keep-alive connections", ("nginx", *ONE_WORKER, "granian-default", "uwsgi-http")
        ),
        of_load("close", "Hello with a connection per request, 32 at a time", ("nginx", *ONE_WORKER)),
        of_load("tls-hello", "Hello over 32 keep-alive connections with TLS", OVER_TLS),
        Case(
            "tls-handshakes",
            "A connection with TLS per request, one after the other: a whole handshake each",
            OVER_TLS,
            HANDSHAKE_COLUMNS,
            stand=handshakes.handshakes(resumes=False),
        ),
        Case(
            "tls-resumed",
            "A connection with TLS per request, by a client that resumes its session where the server lets it",
            OVER_TLS,
            HANDSHAKE_COLUMNS,
            stand=handshakes.handshakes(resumes=True),
        ),
        of_load("h2-hello", "HTTP/2 in clear text: hello over one connection with 32 streams at a time", OVER_HTTP2),
        Case(
            "nginx",
            "Hello behind nginx, over a unix socket, 2 workers",
            tuple(name for name in ONE_WORKER if SERVERS[name].upstream),
            (*LOAD_COLUMNS, Column("nginx_cpu_us", "nginx's CPU µs/request", 2)),
            stand=turns.behind_nginx,
        ),
        Case(
            "host-hello",
            "A whole host over TLS: hello over 32 keep-alive connections; stanchion by itself, the others behind nginx",
            WHOLE_HOST,
            HOST_COLUMNS,
            stand=turns.whole_host(WORKLOADS["host-hello"]),
        ),
        Case(
            "host-h2-hello",
            "A whole host over TLS by HTTP/2: 8 connections with 4 streams at a time; the others behind nginx",
            WHOLE_HOST,
            HOST_COLUMNS,
            stand=turns.whole_host(WORKLOADS["host-h2-hello"]),
        ),
        of_load("flask", "A Flask view that answers JSON", ONE_WORKER),
        of_load("page", "A Flask view: a Jinja template of 40 rows, with JSON", ONE_WORKER),
        of_load("watched", "The Flask view with an access log and an admin listener", WATCHED, workload="flask"),
        of_load("watched-hello", "Hello with an access log and an admin listener", WATCHED, workload="hello"),
        of_load("upload", "A POST of 64 KiB, read by the app", ONE_WORKER),
        of_load("stream16", "A streamed answer of 1 MiB in chunks of 16 KiB, 8 connections", STREAMING),
        of_load("stream64", "A streamed answer of 1 MiB in chunks of 64 KiB, 8 connections", STREAMING),
        of_load("file1", "A file of 1 MiB by wsgi.file_wrapper, 8 connections", ("nginx", *ONE_WORKER)),
        of_load("file100", "A file of 100 MiB by wsgi.file_wrapper, 4 connections", ("nginx", *ONE_WORKER)),
        of_load(
            "static",
            "A static file of 10 KiB, without a worker, over 32 keep-alive connections",
            ("nginx", "stanchion"),
        ),
        of_load("asgi-hello", "ASGI: hello over 32 keep-alive connections", ASYNCHRONOUS),
        of_load("asgi-json", "ASGI: a Starlette view that answers JSON", ASYNCHRONOUS),
        of_load("asgi-upload", "ASGI: a POST of 64 KiB, read by the app", ASYNCHRONOUS),
        of_load("asgi-stream", "ASGI: a streamed answer of 1 MiB in pieces of 64 KiB, 8 connections", ASYNCHRONOUS),
        Case(
            "asgi-echo64",
            "WebSocket: a message of 64 bytes and back, 32 connections",
            ASYNCHRONOUS,
            MESSAGE_COLUMNS,
            stand=sockets.echo(64),
        ),
        Case(
            "asgi-echo64k",
            "WebSocket: a message of 64 KiB and back, 32 connections",
            ASYNCHRONOUS,
            MESSAGE_COLUMNS,
            stand=sockets.echo(64 << 10),
        ),
        Case(
            "asgi-sockets",
            "Memory of the server for each of 1,000 WebSockets that idle",
            ASYNCHRONOUS,
            MEMORY_COLUMNS,
            sockets.idle_sockets,
        ),
        Case(
            "asgi-streams",
            "Memory of the server for each of 5,000 streams of events that idle",
            ASYNCHRONOUS,
            MEMORY_COLUMNS,
            sockets.idle_streams,
        ),
        Case(
            "asgi-mixed",
            "ASGI, work-conserving: 90 % of 1 ms and 10 % of 200 ms at half load, from an app that blocks its loop",
            ASYNCHRONOUS,
            MIXED_COLUMNS,
            cells.mixed,
        ),
        Case(
            "asgi-blocked",
            "ASGI: fast requests beside one of every two seconds that blocks its loop for one, 4 workers",
            ASYNCHRONOUS,
            (Column("late", "100 ms late, a block"), *MIXED_COLUMNS[:4], Column("fast_max_ms", "longest fast ms", 0)),
            cells.blocked,
        ),
        Case(
            "asgi-killed",
            "ASGI: SIGKILL of one of 4 workers a second, under 400 requests a second that await 20 ms each",
            ASYNCHRONOUS,
            (Column("lost", "lost a kill"), Column("p99_ms", "p99 ms"), Column("max_ms", "longest ms", 0)),
            cells.killed,
        ),
        Case(
            "asgi-overload",
            "ASGI: twice the capacity for 20 s, from an app that blocks its loop; clients wait 10 s",
            ASYNCHRONOUS,
            OVERLOAD_COLUMNS,
            overload.overload,
        ),
        Case(
            "idle",
            "Memory of the server for each of 5,000 connections that were answered once and idle",
            ("nginx", "stanchion", "bjoern", "fastpysgi"),
            MEMORY_COLUMNS,
            idle.idle,
        ),
        Case(
            "mixed",
            "Work-conserving: 90 % of 1 ms and 10 % of 200 ms at half load, 4 workers, 32 keep-alive connections",
            ("stanchion", "granian", "uwsgi-http", "gunicorn-gthread"),
            MIXED_COLUMNS,
            cells.mixed,
        ),
        Case(
            "h2-mixed",
            "Work-conserving: the same load by HTTP/2 in clear text, as streams of one connection",
            # Elsewhere one worker has all streams of a connection, which would be twice what it can do.
            ("stanchion",),
            MIXED_COLUMNS,
            cells.mixed_over_one,
        ),
        Case(
            "death",
            "From a worker's SIGKILL to the next answer, 100 MB preloaded, one worker",
            ("stanchion", "uwsgi", "gunicorn-sync"),
            (Column("p50_ms", "p50 ms", ratio=True), Column("max_ms", "longest ms")),
            cells.worker_death,
        ),
        Case(
            "reload",
            "From HUP until only the new release answers, under load; an app that takes 0.5 s to boot, 2 workers",
            tuple(deploys.RELOADS),
            DEPLOY_COLUMNS,
            deploys.case_of(deploys.RELOADS),
        ),
        Case(
            "upgrade",
            "From USR2 until only the new release answers, under load; the first master leaves once the second answers",
            tuple(deploys.UPGRADES),
            DEPLOY_COLUMNS,
            deploys.case_of(deploys.UPGRADES),
        ),
        Case(
            "burst-tcp",
            "2,000 requests within a second onto 4 workers at 20 ms each, over TCP, somaxconn 128; clients wait 30 s",
            PREFORKING,
            (*KIND_COLUMNS, Column("p99_ms", "p99 ms", 0)),
            overload.burst_over_tcp,
        ),
        Case(
            "burst-nginx",
            "2,000 requests within a second onto 4 workers at 20 ms each, through nginx and a unix socket",
            PREFORKING,
            (*KIND_COLUMNS, Column("p99_ms", "p99 ms", 0)),
            overload.burst_behind_nginx,
        ),
        Case(
            "overload",
            "Twice the capacity for 20 s, over TCP; clients wait 10 s. Goodput: answered meanwhile, over the capacity",
            PREFORKING,
            OVERLOAD_COLUMNS,
            overload.overload,
        ),
        Case(
            "stall",
            "After 5 s in which no request was done; load 0.8, clients that wait 2 s and then give up without a sign",
            ("stanchion", "stanchion-adaptive", *PREFORKING[1:]),
            STALL_COLUMNS,
            overload.stall(hang_up=False),
        ),
        Case(
            "stall-gone",
            "After 5 s in which no request was done; load 0.8, clients that wait 2 s and then close the connection",
            ("stanchion", "stanchion-adaptive", *PREFORKING[1:]),
            STALL_COLUMNS,
            overload.stall(hang_up=True),
        ),
        Case(
            "slow",
            "Throughput of 32 clients beside 2,000 that send a byte a second and 200 that read 1 KB/s, over that alone",
            ("stanchion", "granian", "uwsgi-http", "gunicorn-gthread"),
            (
                Column("share", "share", 3),
                Column("rps", "requests/s", 0),
                Column("alone_rps", "alone", 0),
                Column("connected", "slow ones connected", 0),
            ),
            slow_clients.slow,
        ),
        Case(
            "tls-flood",
            "32 clients with TLS beside 240 that stop within handshakes, and 20 whole ones a second, over that alone",
            OVER_TLS[1:],
            (
                Column("share", "share", 3),
                Column("rps", "requests/s", 0),
                Column("alone_rps", "alone", 0),
                Column("p99_ms", "p99 ms", 2),
                Column("alone_p99_ms", "alone", 2),
                Column("connected", "in the middle", 0),
                Column("handshakes", "whole ones", 0),
            ),
            flood.flood,
        ),
        Case(
            "adversaries",
            "200 requests a second over TLS beside 8 connections of attackers, which have a core: over that alone",
            ("stanchion", "stanchion-asgi"),
            ADVERSARY_COLUMNS,
            run_beside=adversaries.adversaries,
            beside=tuple(ATTACKS),
        ),
        Case(
            "memory",
            "Memory of 4 workers with a preloaded app of 100 MB, against one copy in a plain Python",
            ("one copy", "stanchion", "bjoern", "uwsgi", "gunicorn-sync", "gunicorn-gthread", "granian", "unicorn"),
            PRELOAD_COLUMNS,
            cells.memory,
        ),
        *(
            Case(
                f"django-{workers}",
                f"Memory of a Django site with admin and database, each worker after 100 pages. Workers: {workers}",
                ("stanchion", "stanchion-warm", "gunicorn-gthread", "stanchion-asgi", "uvicorn"),
                PRELOAD_COLUMNS,
                cells.django_memory(workers),
            )
            for workers in (1, 4, 16)
        ),
    )
}
