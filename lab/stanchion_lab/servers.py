"""The servers that an experiment can name: how each is started, and how one sees that it serves.

Each is started in the trial's directory, in the foreground, with its output in NAME.log there. All of them write a
line for each request, since all of them are to have that work.
"""

import json
import os
import re
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from string import Template

from stanchion_lab import programs
from stanchion_lab.scenario import Mistake, Server

PROBE_S = 10.0
"""How long one request may take by which we see whether a server serves; also the slowest app's."""
STATUS_LINE_BYTES_MAX = 4096
GATEWAY_ERRORS = (502, 504)
SUN_PATH_BYTES_MAX = 107
"""unix(7): 108 with the byte that ends it."""

ACCESS_FORMAT = (
    '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" '
    "upstream_status=$upstream_status request_time=$request_time upstream_response_time=$upstream_response_time"
)
"""nginx's log format: Apache's combined one, so that one reader reads all logs, and the outcome at the upstream."""

# As nginx's own uwsgi_params, which not every package puts in the same place.
UWSGI_PARAMS = {
    "QUERY_STRING": "$query_string",
    "REQUEST_METHOD": "$request_method",
    "CONTENT_TYPE": "$content_type",
    "CONTENT_LENGTH": "$content_length",
    "REQUEST_URI": "$request_uri",
    "PATH_INFO": "$document_uri",
    "DOCUMENT_ROOT": "$document_root",
    "SERVER_PROTOCOL": "$server_protocol",
    "REQUEST_SCHEME": "$scheme",
    "REMOTE_ADDR": "$remote_addr",
    "REMOTE_PORT": "$remote_port",
    "SERVER_PORT": "$server_port",
    "SERVER_NAME": "$server_name",
}


@dataclass(frozen=True)
class Place:
    directory: Path
    """The trial's own: the working directory of every server."""
    files: tuple[Path, ...]
    """Where apps and configurations are looked for, in order; the first is that of the experiment's file."""

    def find(self, name: str) -> Path:
        for directory in self.files:
            if (directory / name).is_file():
                return directory / name
        raise Mistake(f"there is no file {name} in {' or '.join(map(str, self.files))}")


@dataclass(frozen=True)
class Start:
    argv: list[str]
    environment: dict[str, str]


Behind = Mapping[str, Server]
"""The servers to which a front passes requests on, by name."""


@dataclass(frozen=True)
class Kind:
    name: str
    start: Callable[[str, Server, Behind, Place], Start]
    """(name, settings, the servers behind it, place) -> how to start it; writes the files that it needs."""
    requests: str = "log"
    """NAME followed by this is the log with a line for each request."""


@dataclass(frozen=True)
class Address:
    """The address of a server. A path is absolute: so it is the same for the kernel and every process of the trial."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def of(cls, server: Server, directory: Path) -> "Address":
        return cls.parse(server.listen, directory)

    @classmethod
    def parse(cls, listen: str, directory: Path = Path("/")) -> "Address":
        if listen.startswith("unix:"):
            path = str(directory / listen.removeprefix("unix:"))
            if len(os.fsencode(path)) > SUN_PATH_BYTES_MAX:
                raise Mistake(f"{path} is too long for a unix socket: set TMPDIR to a shorter one")
            return cls(path=path)
        host, _, port = listen.rpartition(":")
        if not host or not port.isdecimal():
            raise Mistake(f"listen = {listen!r} is neither HOST:PORT nor unix:PATH")
        return cls(host=host, port=int(port))

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"{self.host}:{self.port}"

    def connect(self, timeout_s: float) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX if self.path else socket.AF_INET)
        try:
            sock.settimeout(timeout_s)
            sock.connect(self.path or (self.host, self.port))
        except OSError:
            sock.close()
            raise
        return sock


def _python(place: Place, server: Server, **more: str) -> dict[str, str]:
    """The environment in which the app is found."""
    paths = [*map(str, place.files), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", **more, **server.environment}


def _backlog(server: Server, flag: str) -> list[str]:
    return [] if server.backlog is None else [flag, str(server.backlog)]


def _app(name: str, server: Server) -> str:
    if not server.app:
        raise Mistake(f"servers.{name}: a {server.kind} needs an app")
    return server.app


def _stanchion(name: str, server: Server, _: Behind, place: Place) -> Start:
    argv = [
        *(sys.executable, "-m", "stanchion", "serve", _app(name, server)),
        *("--bind", str(Address.of(server, place.directory))),
        *("--workers", str(server.workers), "--threads", str(server.threads)),
        *("--access-logfile", f"{name}.access.log"),
        *_backlog(server, "--backlog"),
    ]
    return Start([*argv, *server.options], _python(place, server))


def _gunicorn(name: str, server: Server, _: Behind, place: Place) -> Start:
    argv = [
        *(sys.executable, "-m", "gunicorn", _app(name, server)),
        *("--bind", str(Address.of(server, place.directory))),
        *("--workers", str(server.workers), "--threads", str(server.threads)),
        *("--access-logfile", f"{name}.access.log"),
        *_backlog(server, "--backlog"),
    ]
    # Newer ones have a control socket, in here or else in the home directory; older ones do not know its flags.
    runtime = place.directory / f"{name}.run"
    runtime.mkdir(exist_ok=True)
    return Start([*argv, *server.options], _python(place, server, XDG_RUNTIME_DIR=str(runtime)))


def _granian(name: str, server: Server, _: Behind, place: Place) -> Start:
    address = Address.of(server, place.directory)
    bind = ["--uds", address.path] if address.path else ["--host", address.host, "--port", str(address.port)]
    argv = [
        *(sys.executable, "-m", "granian", _app(name, server), "--interface", "wsgi", *bind),
        *("--workers", str(server.workers), "--blocking-threads", str(server.threads)),
        *("--no-ws", "--access-log"),
        *_backlog(server, "--backlog"),
    ]
    return Start([*argv, *server.options], _python(place, server))


def _uwsgi(name: str, server: Server, _: Behind, place: Place) -> Start:
    """By HTTP; with `values.protocol = "uwsgi"` by its own protocol, for an nginx before it; with `values.router = 1`
    behind its own router, the only way to keep-alive."""
    address = Address.of(server, place.directory)
    flag = "--http" if server.values.get("router") else "--uwsgi-socket" if _speaks_uwsgi(server) else "--http-socket"
    log_format = '%(addr) - %(user) [%(ltime)] "%(method) %(uri) %(proto)" %(status) %(rsize)'
    argv = [
        *(programs.path("uwsgi"), flag, address.path or str(address), "--module", _app(name, server)),
        *("--master", "--processes", str(server.workers), "--need-app", "--die-on-term"),
        *(("--threads", str(server.threads)) if server.threads > 1 else ()),
        *("--req-logger", f"file:{name}.access.log", "--log-format", log_format),
        *(("--virtualenv", sys.prefix) if sys.prefix != sys.base_prefix else ()),
        *_backlog(server, "--listen"),
    ]
    return Start([*argv, *server.options], _python(place, server))


def _speaks_uwsgi(server: Server | None) -> bool:
    return server is not None and server.kind == "uwsgi" and server.values.get("protocol") == "uwsgi"


def _unicorn(name: str, server: Server, _: Behind, place: Place) -> Start:
    """It takes most of its settings from a file. Each of `values` is a line of it, the value being Ruby: `timeout`,
    `preload_app`, `pid`."""
    address = Address.of(server, place.directory)
    backlog = "" if server.backlog is None else f", backlog: {server.backlog}"
    config = place.directory / f"{name}.unicorn.rb"
    lines = [f"worker_processes {server.workers}", f'listen "{address.path or address}"{backlog}']
    config.write_text("\n".join([*lines, *(f"{key} {value}" for key, value in server.values.items())]) + "\n")
    # `deployment` is the rack environment that logs requests and does nothing else of note (rack's server.rb).
    argv = [programs.path("unicorn"), "-c", str(config), "-E", "deployment"]
    return Start([*argv, *server.options, str(place.find(_app(name, server)))], dict(server.environment))


def _puma(name: str, server: Server, _: Behind, place: Place) -> Start:
    address = Address.of(server, place.directory)
    query = "" if server.backlog is None else f"?backlog={server.backlog}"
    argv = [
        *(programs.path("puma"), "--no-config", "--environment", "production", "--log-requests"),
        *("--bind", (f"unix://{address.path}" if address.path else f"tcp://{address}") + query),
        *("--workers", str(server.workers), "--threads", f"{server.threads}:{server.threads}"),
    ]
    return Start([*argv, *server.options, str(place.find(_app(name, server)))], dict(server.environment))


def _nginx(name: str, server: Server, behind: Behind, place: Place) -> Start:
    """`config` is a template, or a whole nginx.conf: what is not one of our names stays as it is. Of a whole one only
    `daemon`, `user`, `pid` and `error_log` are replaced: it stays in the foreground, there is no user but root in a
    user namespace, no second nginx may have the same pid file, and one log has each error once."""
    if not behind and not server.config:
        raise Mistake(f"servers.{name}: there is no server behind it, and no config that could do without")
    upstream = next(iter(behind.values()), None)
    names: dict[str, str | int] = {
        "upstream": "" if upstream is None else str(Address.of(upstream, place.directory)),
        "servers": " ".join(f"server {Address.of(one, place.directory)};" for one in behind.values()),
        "pass": _pass(upstream),
        "access_format": f"'{ACCESS_FORMAT}'",
    }
    filled = _filled(name, server, "proxy.conf", names, place)
    # Where a directive can begin: nothing of a log_format that goes over several lines looks like that.
    text = re.sub(r"(?m)(^|[;{}])\s*(daemon|user|pid|error_log)\s[^;{}]*;", r"\1", filled)
    config = place.directory / f"{name}.nginx.conf"
    config.write_text(text)
    ours = f"daemon off; user root root; pid {name}.pid; error_log {name}.log error;"
    argv = [programs.path("nginx"), "-p", f"{place.directory}/", "-e", f"{name}.log", "-c", str(config), "-g", ours]
    return Start([*argv, *server.options], dict(server.environment))


def _haproxy(name: str, server: Server, behind: Behind, place: Place) -> Start:
    """In the foreground. Its log for people has its requests as well."""
    lines = [f"server {other} {Address.of(one, place.directory)}" for other, one in behind.items()]
    config = place.directory / f"{name}.haproxy.cfg"
    config.write_text(_filled(name, server, "fleet.haproxy.cfg", {"servers": "\n    ".join(lines)}, place))
    return Start([programs.path("haproxy"), "-db", "-f", str(config), *server.options], dict(server.environment))


def _envoy(name: str, server: Server, behind: Behind, place: Place) -> Start:
    """With nothing that a second one on its host would share with it, and with its log written soon. The value
    `ready_port` is that of the servers' health checks: `alt_port` of the checks has no effect (Envoy 1.40)."""
    checked = {"health_check_config": {"port_value": server.values["ready_port"]}}
    addresses = [Address.of(one, place.directory) for one in behind.values()]
    endpoints = [
        {"endpoint": {"address": {"socket_address": {"address": one.host, "port_value": one.port}}, **checked}}
        for one in addresses
    ]
    own = Address.of(server, place.directory)
    names: dict[str, str | int] = {"host": own.host, "port": own.port, "servers": json.dumps(endpoints)}
    config = place.directory / f"{name}.envoy.yaml"
    config.write_text(_filled(name, server, "fleet.envoy.yaml", names, place))
    alone = ["--disable-hot-restart", "--concurrency", str(server.workers), "--file-flush-interval-msec", "100"]
    argv = [programs.path("envoy"), "-c", str(config), "--log-level", "warning", *alone]
    return Start([*argv, *server.options], dict(server.environment))


def _filled(name: str, server: Server, otherwise: str, names: Mapping[str, str | int], place: Place) -> str:
    """The template of a front, with what it is to know; what is not one of these names stays as it is."""
    template = place.find(server.config or otherwise).read_text()
    listen = f"{Address.of(server, place.directory)}{_listen_options(server)}"
    return Template(template).safe_substitute(
        {"name": name, "listen": listen, "workers": server.workers, **names, **server.values}
    )


def _listen_options(server: Server) -> str:
    return "" if server.backlog is None else f" backlog={server.backlog}"


def _pass(upstream: Server | None) -> str:
    """The directives that pass a request on to `upstream lab { ... }`, in the protocol of the server behind it."""
    if not _speaks_uwsgi(upstream):
        return "proxy_pass http://lab;"
    return "".join(f"uwsgi_param {key} {value}; " for key, value in UWSGI_PARAMS.items()) + "uwsgi_pass lab;"


def _program(name: str, server: Server, _: Behind, place: Place) -> Start:
    if not server.command:
        raise Mistake(f"servers.{name}: a program needs a command")
    filled = {
        "{python}": sys.executable,
        "{listen}": str(Address.of(server, place.directory)),
        "{workers}": str(server.workers),
        "{files}": str(place.files[0]),
    }
    argv = []
    for word in server.command:
        for key, value in filled.items():
            word = word.replace(key, value)
        argv.append(word)
    return Start([*argv, *server.options], _python(place, server))


KINDS = {
    kind.name: kind
    for kind in (
        Kind("stanchion", _stanchion, requests="access.log"),
        Kind("gunicorn", _gunicorn, requests="access.log"),
        Kind("granian", _granian),
        Kind("uwsgi", _uwsgi, requests="access.log"),
        Kind("unicorn", _unicorn),
        Kind("puma", _puma),
        Kind("nginx", _nginx, requests="access.log"),
        Kind("haproxy", _haproxy, requests="log"),
        Kind("envoy", _envoy, requests="access.log"),
        Kind("program", _program),
    )
}


def serves(server: Server, address: str) -> bool:
    """Whether it answers a request at all, within PROBE_S: with any status but the errors of a gateway that reaches no
    server behind it."""
    ask = _UWSGI_REQUEST if _speaks_uwsgi(server) else b"GET / HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n"
    answer = b""
    with suppress(OSError), Address.parse(address).connect(PROBE_S) as sock:
        sock.sendall(ask)
        while b"\r\n" not in answer and len(answer) < STATUS_LINE_BYTES_MAX and (more := sock.recv(4096)):
            answer += more
    status = re.match(rb"HTTP/1\.[01] (\d{3}) ", answer)
    return status is not None and int(status[1]) not in GATEWAY_ERRORS


def _uwsgi_packet(variables: dict[str, str]) -> bytes:
    """The uwsgi protocol: modifier1, the size, modifier2, then each key and value with its size before it."""
    words = [word.encode() for pair in variables.items() for word in pair]
    body = b"".join(len(word).to_bytes(2, "little") + word for word in words)
    return b"\0" + len(body).to_bytes(2, "little") + b"\0" + body


_UWSGI_REQUEST = _uwsgi_packet(
    {
        "REQUEST_METHOD": "GET",
        "REQUEST_URI": "/",
        "PATH_INFO": "/",
        "QUERY_STRING": "",
        "SERVER_PROTOCOL": "HTTP/1.0",
        "SERVER_NAME": "lab",
        "SERVER_PORT": "80",
        "HTTP_HOST": "lab",
    }
)
