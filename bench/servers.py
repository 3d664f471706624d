"""How each server is started, and what is not equal between them."""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

from bench.certificate import Certificate

# Relative to the checkout, so that the commands in a report say nothing of the machine.
PYTHON = os.path.relpath(sys.executable)
SCRIPTS = os.path.dirname(PYTHON)

# Longer than any pause between two requests of a case, so that no server closes a connection that is still in use.
KEEP_ALIVE_S = 75

# The servers that serve asynchronous apps here.
ASYNCHRONOUS = ("stanchion-asgi", "uvicorn", "uvicorn-zttp", "granian-asgi", "hypercorn", "gunicorn-asgi")
# The other servers of a case are compared with the one of these that is among them.
OWN = ("stanchion", "stanchion-asgi")


@dataclass(frozen=True)
class Address:
    """A TCP port of 127.0.0.1 or, where `path` is not empty, a unix socket."""

    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"127.0.0.1:{self.port}"


@dataclass(frozen=True)
class Launch:
    """A case's demands on a server."""

    app: str
    address: Address
    workers: int = 1
    # Load the app before the fork, also where that is not the server's default.
    preload: bool = False
    # The file to which the master writes its pid; empty if the case does not need it.
    pidfile: str = ""
    # uWSGI's backlog at listen(2): it refuses to start where the kernel has less. The others get the kernel's limit.
    backlog: int = 1024
    # Flags that only stanchion has.
    own: tuple[str, ...] = ()
    # The certificate with which it speaks TLS, if it is to.
    certificate: Certificate | None = None
    # Whether it is to speak HTTP/2 in clear text, too.
    http2: bool = False


@dataclass(frozen=True)
class Server:
    name: str
    # Its name on the package index; None for a program from the distribution.
    package: str | None
    command: Callable[[Launch], list[str]]
    # How nginx speaks to it over a unix socket; None where it has no unix sockets.
    upstream: str | None = "proxy_pass http://"
    note: str = ""
    # The program that must be there, if it is no package of the index.
    program: str | None = None

    def version(self) -> str | None:
        """The installed version; None where the server is missing."""
        if self.program is not None and shutil.which(self.program) is None:
            return None
        try:
            return metadata.version(self.package) if self.package else "distribution"
        except metadata.PackageNotFoundError:
            return None


def stanchion(launch: Launch) -> list[str]:
    return [
        *(PYTHON, "-m", "stanchion", "serve", launch.app, "-b", str(launch.address), "-w", str(launch.workers)),
        *("--keep-alive", str(KEEP_ALIVE_S), "--log-level", "warning"),
        *pid_flag("--pid", launch),
        *tls_flags(launch),
        *http2_flags("prior-knowledge", launch),
        *launch.own,
    ]


def stanchion_adaptive(launch: Launch) -> list[str]:
    return [*stanchion(launch), "--queue-order", "adaptive"]


def stanchion_watched(launch: Launch) -> list[str]:
    log, admin = os.path.join(".bench", "access.log"), os.path.join(".bench", "admin.sock")
    return [*stanchion(launch), "--access-logfile", log, "--admin", f"unix:{admin}"]


def stanchion_warm(launch: Launch) -> list[str]:
    return [*stanchion(launch), "--warm-up", "/, /admin/login/"]


def pid_flag(flag: str, launch: Launch) -> list[str]:
    return [flag, launch.pidfile] if launch.pidfile else []


def tls_flags(launch: Launch, certificate: str = "--certfile", key: str = "--keyfile") -> list[str]:
    files = launch.certificate
    return [certificate, files.certfile, key, files.keyfile] if files else []


def http2_flags(cleartext: str, launch: Launch) -> list[str]:
    return ["--http-protocols", "h2,h1", "--http2-cleartext", cleartext] if launch.http2 else []


def gunicorn(launch: Launch) -> list[str]:
    return [
        *(PYTHON, "-m", "gunicorn", launch.app, "-b", str(launch.address), "-w", str(launch.workers)),
        *("--keep-alive", str(KEEP_ALIVE_S), "--log-level", "warning"),
        *(["--preload"] if launch.preload else []),
        *pid_flag("--pid", launch),
        *tls_flags(launch),
        # With `prior-knowledge` alone it refuses HTTP/1.1, by which every server is first asked whether it is there.
        *http2_flags("both", launch),
    ]


def gunicorn_gthread(launch: Launch) -> list[str]:
    return [*gunicorn(launch), "-k", "gthread", "--threads", "1"]


def granian_with(*options: str, interface: str = "wsgi") -> Callable[[Launch], list[str]]:
    def command(launch: Launch) -> list[str]:
        address = launch.address
        bind = ["--uds", address.path] if address.path else ["--host", "127.0.0.1", "--port", str(address.port)]
        return [
            *(PYTHON, "-m", "granian", launch.app, "--interface", interface, *bind, "--workers", str(launch.workers)),
            *("--http", "auto" if launch.http2 else "1", "--log-level", "warning", *options),
            *tls_flags(launch, "--ssl-certificate", "--ssl-keyfile"),
        ]

    return command


def stanchion_asgi(launch: Launch) -> list[str]:
    return [*stanchion(launch), "--interface", "asgi", "--loop", "uvloop"]


def uvicorn_with(parser: str) -> Callable[[Launch], list[str]]:
    def command(launch: Launch) -> list[str]:
        address = launch.address
        bind = ["--uds", address.path] if address.path else ["--host", "127.0.0.1", "--port", str(address.port)]
        return [
            *(PYTHON, "-m", "uvicorn", launch.app, *bind, "--workers", str(launch.workers)),
            *("--loop", "uvloop", "--http", parser, "--timeout-keep-alive", str(KEEP_ALIVE_S)),
            *("--log-level", "warning", "--no-access-log"),
        ]

    return command


def hypercorn(launch: Launch) -> list[str]:
    return [
        *(PYTHON, "-m", "hypercorn", launch.app, "--bind", str(launch.address), "--workers", str(launch.workers)),
        *("--worker-class", "uvloop", "--keep-alive", str(KEEP_ALIVE_S), "--log-level", "warning"),
        # Or each connection would end after a thousand requests, and h2load makes no other.
        *(["--config", os.path.join("bench", "apps", "hypercorn.toml")] if launch.http2 else []),
    ]


def gunicorn_asgi(launch: Launch) -> list[str]:
    return [*gunicorn(launch), "-k", "asgi"]


def uwsgi_with(*sockets: str) -> Callable[[Launch], list[str]]:
    def command(launch: Launch) -> list[str]:
        where = ["--socket", launch.address.path] if launch.address.path else [sockets[0], str(launch.address)]
        return [
            *(os.path.join(SCRIPTS, "uwsgi"), *where, *sockets[1:], "--wsgi", launch.app),
            *("--virtualenv", os.path.dirname(SCRIPTS), "--master", "--processes", str(launch.workers)),
            *("--listen", str(launch.backlog), "--disable-logging", "--need-app", "--die-on-term"),
            *pid_flag("--pidfile", launch),
        ]

    return command


def embedded(name: str) -> Callable[[Launch], list[str]]:
    return lambda launch: [PYTHON, "-m", "bench.embed", name, launch.app, str(launch.address), str(launch.workers)]


def unicorn(launch: Launch) -> list[str]:
    """It takes most of its settings from a file, which finds the rest in the environment."""
    environment = [f"BENCH_WORKERS={launch.workers}", f"BENCH_PIDFILE={launch.pidfile}"]
    config = os.path.join("bench", "apps", "unicorn.rb")
    return ["env", *environment, "unicorn", "-c", config, "-l", str(launch.address), "-E", "none", launch.app]


def plain_python(launch: Launch) -> list[str]:
    return [PYTHON, "-m", "bench.embed", "wsgiref", launch.app, str(launch.address)]


SERVERS = {
    server.name: server
    for server in (
        Server("stanchion", "stanchion", stanchion, note="an acceptor process besides the worker, on the same core"),
        Server(
            "stanchion-adaptive",
            "stanchion",
            stanchion_adaptive,
            note="with --queue-order adaptive; only where the order of the line matters",
        ),
        Server(
            "stanchion-watched",
            "stanchion",
            stanchion_watched,
            note="with an access log in a file and an admin listener; only to see what these cost",
        ),
        Server(
            "stanchion-warm",
            "stanchion",
            stanchion_warm,
            note="with --warm-up of both pages; only where the memory of a Django site is compared",
        ),
        Server("bjoern", "bjoern", embedded("bjoern"), note="no master, its workers are forked by hand; in C"),
        Server(
            "fastpysgi",
            "fastpysgi",
            embedded("fastpysgi"),
            upstream=None,
            note="one process, no master; in C; no unix sockets, so no row behind nginx",
        ),
        Server(
            "granian",
            "granian",
            granian_with("--no-ws", "--blocking-threads", "1"),
            note="one blocking thread a worker, as the others have; cannot preload",
        ),
        Server(
            "granian-default",
            "granian",
            granian_with("--no-ws"),
            note="as many blocking threads as it likes, up to hundreds",
        ),
        Server(
            "uwsgi",
            "uwsgi",
            uwsgi_with("--http-socket", "--add-header", "Connection: close"),
            upstream="uwsgi_pass ",
            note="http-socket: no keep-alive, each request is a connection; behind nginx by its own protocol",
        ),
        Server(
            "uwsgi-http",
            "uwsgi",
            uwsgi_with("--http", "--http-keepalive", "--http-auto-chunked"),
            note="with its HTTP router, a process of its own: only so it has keep-alive for many, and chunked answers",
        ),
        Server("gunicorn-sync", "gunicorn", gunicorn, note="no keep-alive: each request is a connection"),
        Server(
            "gunicorn-gthread",
            "gunicorn",
            gunicorn_gthread,
            note="one thread a worker, as many as the others have; without the optional C parser, as pip installs it",
        ),
        Server(
            "unicorn",
            None,
            unicorn,
            note="Ruby, of the distribution; only where deploys, overload and memory are compared",
            program="unicorn",
        ),
        Server("stanchion-asgi", "stanchion", stanchion_asgi, note="an acceptor process besides the worker; uvloop"),
        Server("uvicorn", "uvicorn", uvicorn_with("httptools"), note="one worker: no master; uvloop, httptools"),
        Server("uvicorn-zttp", "zttp", uvicorn_with("zttp"), note="one worker: no master; uvloop"),
        Server(
            "granian-asgi",
            "granian",
            granian_with("--loop", "uvloop", "--respawn-failed-workers", interface="asgi"),
            note="a thread of the worker besides the loop; uvloop",
        ),
        Server("hypercorn", "hypercorn", hypercorn, note="a parser in Python; uvloop"),
        Server("gunicorn-asgi", "gunicorn", gunicorn_asgi, note="without the optional C parser, as pip installs it"),
        Server("nginx", None, lambda _: [], upstream=None, note="`return 200` or a file: no app at all, the floor"),
        Server("one copy", None, plain_python, upstream=None, note="wsgiref in one plain Python process"),
    )
}
