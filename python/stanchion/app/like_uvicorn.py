"""`stanchion.run(app, host=…, port=…)` for programs that have called `uvicorn.run`, under its names.

Each name of `uvicorn.run` is a setting (RENAMED, or of that name), has a function here, or is in FOREIGN with why it
cannot be honoured; then only values are taken that ask for what happens here anyway.
docs/migrating/from-uvicorn.md has the table.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from stanchion import leaving
from stanchion.app.base import BaseApplication
from stanchion.effective import EXIT_USAGE, UsageError
from stanchion.interfaces import App
from stanchion.loader import load_app, product
from stanchion.output import complain

HOST, PORT = "127.0.0.1", 8000

RENAMED: Mapping[str, str] = MappingProxyType(
    {
        "app_dir": "pythonpath",
        "limit_concurrency": "worker_concurrency",
        "limit_max_requests": "max_requests",
        "limit_max_requests_jitter": "max_requests_jitter",
        "timeout_keep_alive": "keepalive",
        "timeout_graceful_shutdown": "graceful_timeout",
        "ssl_keyfile": "keyfile",
        "ssl_certfile": "certfile",
        "ssl_ca_certs": "ca_certs",
        "ssl_cert_reqs": "cert_reqs",
        "ssl_ciphers": "ciphers",
    }
)
"""uvicorn's name -> the setting."""

# With None they are off, and not what they are by default.
_OFF_BY_NONE = ("ws_ping_interval", "ws_ping_timeout")
_SECRETS = ("ssl_keyfile_password",)
# The program has named the app already, and reads no command line.
_NOT_OF_PROGRAMS = ("wsgi_app", "paste", "config", "check_config", "print_config")


class Foreign(NamedTuple):
    """A name of uvicorn's that cannot be honoured."""

    same: tuple[object, ...]
    """Values that ask for what happens here anyway; None always does."""
    refusal: str


_WATCHED = "Python files are watched, those of loaded modules and below the working directory: use reload_extra_files"
_ALWAYS_SENT = "the field is always sent, but for what the app sets itself"

FOREIGN: Mapping[str, Foreign] = MappingProxyType(
    {
        "http": Foreign(("auto", "h11", "httptools", "zttp"), "HTTP is read in Rust, by one parser"),
        "ws": Foreign(
            ("auto", "websockets", "websockets-sansio", "wsproto"), "WebSockets are always served, by the server itself"
        ),
        "ws_max_queue": Foreign((32,), "what an app has not received is bounded in bytes: use max_ws_memory"),
        "reload_dirs": Foreign(("", [], ()), _WATCHED),
        "reload_includes": Foreign(("", [], ()), _WATCHED),
        "reload_excludes": Foreign(("", [], ()), "what is watched cannot be left out"),
        "reload_delay": Foreign((0.25,), "there is none"),
        "env_file": Foreign((), "read it before, as by dotenv.load_dotenv(), or use raw_env"),
        "use_colors": Foreign((False,), "logs have no colours"),
        "server_header": Foreign((True,), _ALWAYS_SENT),
        "date_header": Foreign((True,), _ALWAYS_SENT),
        "headers": Foreign(([], ()), "let the app or the proxy set them"),
        "timeout_worker_healthcheck": Foreign((5,), "a worker that is stuck is replaced after `timeout`"),
        "h11_max_incomplete_event_size": Foreign((), "use limit_request_line and limit_request_field_size"),
        "reset_contextvars": Foreign((True, False), "a request never sees what another has set"),
        "ssl_keyfile_password": Foreign((), "keep the key in a file without one, which only root may read"),
        # ssl.PROTOCOL_TLS and ssl.PROTOCOL_TLS_SERVER.
        "ssl_version": Foreign((2, 17), "TLS 1.2 and 1.3 are served: use tls_min_version"),
        "ssl_context_factory": Foreign((), "TLS is served without Python's ssl module: use certfile and keyfile"),
    }
)
"""uvicorn's name -> why."""

HANDLED = (
    *("host", "port", "uds", "fd", "factory", "http2", "interface", "log_config", "log_level", "access_log"),
    *("proxy_headers", "forwarded_allow_ips", "reload"),
)
"""Names that become settings by more than another name."""

# The levels of Python's logging.
_LEVELS = MappingProxyType({50: "critical", 40: "error", 30: "warning", 20: "info", 10: "debug"})


def run(app: App | str, **options: Any) -> None:
    """Serve `app`, an object or the words `module:attr`, until a signal ends that.

    Returns in the program alone, if all went well; else that ends by SystemExit. A worker, which was forked in here,
    ends here: it would run again what stands behind the call, or in a `finally` around it.
    """
    program = os.getpid()
    try:
        code = _Launched(app, options).serve()
    except BaseException:
        if os.getpid() == program:
            raise
        traceback.print_exc()
        code = 1
    if os.getpid() != program:
        _end_here(code)
    if code == EXIT_USAGE and _has_threads():
        complain(
            "stanchion: run(): if what the program imports has started these threads, as pyarrow does, run "
            '`stanchion serve MODULE:APP`, or call run("MODULE:APP") in a file that imports nothing else'
        )
    if code != 0:
        sys.exit(code)


def _end_here(code: int) -> NoReturn:
    """End the process as Python does at the end of a program, without its frames."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    leaving.end_now(code, is_in_order=True)


def _has_threads() -> bool:
    """Whether this process has another thread than its first, be it Python's or not."""
    try:
        return len(os.listdir("/proc/self/task")) > 1
    except OSError:
        return False


class Translated(NamedTuple):
    """Settings and hooks that a program has asked for, by their names, and why other things cannot be."""

    settings: Mapping[str, Any]
    refusals: list[str]


class _Launched(BaseApplication):
    """The server of such a program."""

    def __init__(self, app: App | str, options: Mapping[str, Any]) -> None:
        self._app = app
        self._options = options
        super().__init__()

    def load_config(self) -> None:
        """Set what the program has asked for."""
        translated = translate(self._app, self._options)
        refusals = list(translated.refusals)
        for name, value in translated.settings.items():
            try:
                self.cfg.set(name, value)
            except AttributeError:
                refusals.append(_unknown(name, self.cfg.settings))
            except ValueError as error:
                refusals += str(error).splitlines()
        if refusals:
            raise UsageError(*(f"run(): {one}" for one in refusals))

    def load(self) -> App:
        """Import the app, if it is named, and call it, if it is a factory."""
        if isinstance(self._app, str):
            return load_app(_spec(self._app, self._options))
        if self._options.get("factory"):
            return product(self._app(), "the factory")
        return product(self._app, "run()")


def translate(app: App | str, options: Mapping[str, Any]) -> Translated:
    """The settings that these options of a program ask for. Of two that say the same, uvicorn's name counts less."""
    asked = dict(options)
    refusals: list[str] = []
    settings = _binds(asked, refusals)
    if isinstance(app, str):
        settings["wsgi_app"] = _spec(app, asked)
    elif asked.get("reload"):
        refusals.append('reload: the code of an object stays as it is; name the app as "module:app" in place of it')
    settings |= _plain(asked, refusals)
    for name, value in asked.items():
        if name in HANDLED:
            continue
        if name in FOREIGN:
            foreign = FOREIGN[name]
            if value is not None and value not in foreign.same:
                shown = name if name in _SECRETS else f"{name}={value!r}"
                refusals.append(f"{shown} cannot be honoured: {foreign.refusal}")
        elif name in _NOT_OF_PROGRAMS:
            refusals.append(f"{name}: the app is the first argument, and its settings are the others")
        elif value is not None:
            settings[RENAMED.get(name, name)] = os.fspath(value) if isinstance(value, os.PathLike) else value
        elif name in _OFF_BY_NONE:
            settings[name] = 0
    return Translated(settings, refusals)


def _spec(app: str, asked: Mapping[str, Any]) -> str:
    """The app's name, as the command line has it."""
    return f"{app}()" if asked.get("factory") else app


def _binds(asked: Mapping[str, Any], refusals: list[str]) -> dict[str, Any]:
    """Where to listen."""
    given = [name for name in ("uds", "fd", "bind") if asked.get(name) is not None]
    given += ["host and port"] if asked.get("host") is not None or asked.get("port") is not None else []
    if len(given) > 1:
        refusals.append(f"{', '.join(given)} name several places: give one of them, or all by bind=[…]")
        return {}
    if asked.get("uds") is not None:
        return {"bind": f"unix:{os.fspath(asked['uds'])}"}
    if asked.get("fd") is not None:
        return {"bind": f"fd://{asked['fd']}"}
    if given != ["host and port"]:
        return {}
    host, port = asked.get("host"), asked.get("port")
    host = HOST if host is None else host
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return {"bind": f"{shown}:{PORT if port is None else port}"}


def _plain(asked: Mapping[str, Any], refusals: list[str]) -> dict[str, Any]:
    """The settings of those names of uvicorn that are not just renamed."""
    settings: dict[str, Any] = {}
    if asked.get("http2"):
        settings["http_protocols"] = "h2,h1"
    if asked.get("reload"):
        settings["reload"] = True
    match asked.get("interface"):
        case None:
            pass
        case "asgi3":
            settings["interface"] = "asgi"
        case "asgi2":
            refusals.append("interface='asgi2': wrap the app in asgiref.compatibility.guarantee_single_callable()")
        case interface:
            settings["interface"] = interface
    if (level := asked.get("log_level")) is not None:
        settings["loglevel"] = level.lower() if isinstance(level, str) else _LEVELS.get(level, level)
    if asked.get("access_log"):
        settings["accesslog"] = "-"
    if asked.get("proxy_headers") is False:
        settings["forwarded_allow_ips"] = ""
    elif (peers := asked.get("forwarded_allow_ips")) is not None:
        settings["forwarded_allow_ips"] = peers if isinstance(peers, str) else ",".join(peers)
    if (config := asked.get("log_config")) is not None:
        settings |= _logging(config, refusals)
    return settings


def _logging(config: Any, refusals: list[str]) -> dict[str, Any]:
    """The settings of Python's logging."""
    if isinstance(config, dict):
        return {"logconfig_dict": config}
    if not isinstance(config, str | os.PathLike):
        refusals.append("log_config: give a dict, or the path of an ini file or a JSON file")
        return {}
    path = os.fspath(config)
    if path.endswith((".yaml", ".yml")):
        refusals.append(f"log_config={path!r}: YAML is not read here; give what it holds as a dict")
        return {}
    return {"logconfig_json" if path.endswith(".json") else "logconfig": path}


def _unknown(name: str, known: Mapping[str, object]) -> str:
    from difflib import get_close_matches

    names = [*known, *RENAMED, *HANDLED]
    near = get_close_matches(name, names, n=1)
    return f"there is no {name!r}" + (f"; did you mean {near[0]!r}?" if near else " here, nor in uvicorn.run()")
