"""Names that gunicorn knows and stanchion does not, each with an explanation, so that nothing is dropped silently.

Some settings have another name here, and `worker_class` becomes `interface` for those classes that have an equivalent.
Each other name has one rule, for config files and command lines alike. The server accepts without a word a value that
asks for what happens here anyway, and any value of a setting that has no meaning here and whose effect no user misses:
`worker_tmp_dir`, or `dirty_timeout`, which in gunicorn too does nothing without `dirty_apps`. It ignores with a warning
a setting that a user may miss. Any other setting stops the start, with the way to get the same here.
docs/reference/gunicorn-settings.md is made from this.
"""

import reprlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Foreign(NamedTuple):
    """A setting of gunicorn that has no meaning here."""

    name: str
    flags: tuple[str, ...] = ()
    takes_value: bool = True
    refusal: str | None = None  # why it stops the start, and what to do instead
    harmless: str | None = None  # why no user misses it: it is accepted without a word
    instead: str | None = None  # what to use instead, for a setting that is ignored with a warning
    same: tuple[object, ...] = ()  # values that ask for what happens here anyway; None always does

    def is_honoured(self, value: object) -> bool:
        """Whether the value asks for what happens here anyway."""
        return value is None or self.harmless is not None or any(_is_same(value, one) for one in self.same)

    def ignored_as(self, given: str) -> str:
        """The words for what is given and ignored."""
        return f"{given} ({self.instead})" if self.instead is not None else given


def _is_same(value: object, wanted: object) -> bool:
    """Whether gunicorn would read them alike: a list is also written as a text, and so are numbers."""
    if isinstance(wanted, Mapping):
        return isinstance(value, Mapping) and {str(name).upper(): one for name, one in value.items()} == wanted
    if isinstance(value, type):
        value = f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    if not isinstance(value, str | int | float):
        return False
    return value == wanted or str(value).replace(" ", "").lower() == str(wanted).lower()


_SSL_CONTEXT = "TLS is served without Python's ssl module: use certfile, keyfile, ca_certs and the like instead"
_OLD_TLS = "TLS 1.2 and 1.3 are served, and none that is older: see tls_min_version"
_DIRTY = "there are no dirty workers here: give such work to a task queue"

_NO_DIRTY = "used only with `dirty_apps`"
_NO_CONTROL = "used only for `control_socket`"

# TLS versions by their numbers and names in Python's ssl module: those served here, or "any that both sides have".
_TLS_VERSIONS = (2, 5, 16, 17, "TLS", "TLS_SERVER", "TLS_CLIENT", "SSLv23", "TLSv1_2", "TLSv1_3")

_LOOPBACK = "127.0.0.1,::1"

# Also where a place below this one asks for gevent.
_THREADS = MappingProxyType({"interface": "wsgi", "loop": "auto"})
_GEVENT = MappingProxyType({"interface": "wsgi", "loop": "gevent"})
_EVENT_LOOP = MappingProxyType({"interface": "asgi"})
# uvicorn's worker whose parser is h11 has asyncio's loop, too.
_ASYNCIO = MappingProxyType({"interface": "asgi", "loop": "asyncio"})

WORKER_CLASSES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "sync": _THREADS,
        "gthread": _THREADS,
        "gunicorn.workers.sync.SyncWorker": _THREADS,
        "gunicorn.workers.gthread.ThreadWorker": _THREADS,
        "gevent": _GEVENT,
        "gevent_wsgi": _GEVENT,
        "gevent_pywsgi": _GEVENT,
        "gunicorn.workers.ggevent.GeventWorker": _GEVENT,
        "gunicorn.workers.ggevent.GeventPyWSGIWorker": _GEVENT,
        "asgi": _EVENT_LOOP,
        "gunicorn.workers.gasgi.ASGIWorker": _EVENT_LOOP,
        "uvicorn.workers.UvicornWorker": _EVENT_LOOP,
        "uvicorn.workers.UvicornH11Worker": _ASYNCIO,
        "uvicorn_worker.UvicornWorker": _EVENT_LOOP,
        "uvicorn_worker.UvicornH11Worker": _ASYNCIO,
    }
)
"""The settings that each class stands for."""


class Synonym(NamedTuple):
    """A setting of gunicorn that has another name here."""

    name: str
    flags: tuple[str, ...]
    setting: str


SYNONYMS = (
    Synonym("worker_connections", ("--worker-connections",), "worker_concurrency"),
    Synonym("asgi_loop", ("--asgi-loop",), "loop"),
    Synonym("asgi_lifespan", ("--asgi-lifespan",), "lifespan"),
    Synonym("websocket_max_message_size", ("--websocket-max-message-size",), "ws_max_size"),
)

FOREIGN = (
    Foreign(
        "worker_class",
        ("-k", "--worker-class"),
        refusal="workers run threads (sync, gthread), gevent's greenlets (gevent) or an event loop (asgi); an app for "
        "eventlet is served in threads (--threads), or under gevent if it can be, one for tornado by tornado itself",
        same=tuple(WORKER_CLASSES),
    ),
    Foreign(
        "worker_tmp_dir",
        ("--worker-tmp-dir",),
        harmless="workers write no heartbeat files; the master sees them through shared memory",
    ),
    Foreign("http_parser", ("--http-parser",), harmless="there is one parser, written in Rust"),
    Foreign("default_proc_name", harmless="gunicorn sets it itself; `proc_name` is the setting for people"),
    Foreign(
        "control_socket",
        ("--control-socket",),
        instead="gunicornc cannot talk to this server: use --control and `stanchion ctl`",
    ),
    Foreign("control_socket_mode", ("--control-socket-mode",), harmless=_NO_CONTROL),
    Foreign("control_socket_disable", ("--no-control-socket",), takes_value=False, harmless="there is no such socket"),
    Foreign("ssl_version", ("--ssl-version",), instead=_OLD_TLS, same=_TLS_VERSIONS),
    Foreign("ssl_context", refusal=_SSL_CONTEXT),
    Foreign(
        "suppress_ragged_eofs",
        ("--suppress-ragged-eofs",),
        takes_value=False,
        harmless="a client that ends without TLS's own end has ended, like any other",
    ),
    Foreign(
        "do_handshake_on_connect",
        ("--do-handshake-on-connect",),
        takes_value=False,
        harmless="handshakes are made as clients connect, and no other client waits for them",
    ),
    Foreign(
        "asgi_disconnect_grace_period",
        ("--asgi-disconnect-grace-period",),
        harmless="an app receives http.disconnect when its client has left, and is not cancelled",
    ),
    Foreign("dirty_apps", ("--dirty-app",), refusal=_DIRTY, same=("",)),
    Foreign("dirty_workers", ("--dirty-workers",), harmless=_NO_DIRTY),
    Foreign("dirty_timeout", ("--dirty-timeout",), harmless=_NO_DIRTY),
    Foreign("dirty_threads", ("--dirty-threads",), harmless=_NO_DIRTY),
    Foreign("dirty_graceful_timeout", ("--dirty-graceful-timeout",), harmless=_NO_DIRTY),
    Foreign("on_dirty_starting", harmless=_NO_DIRTY),
    Foreign("dirty_post_fork", harmless=_NO_DIRTY),
    Foreign("dirty_worker_init", harmless=_NO_DIRTY),
    Foreign("dirty_worker_exit", harmless=_NO_DIRTY),
)

BY_NAME: Mapping[str, Foreign] = MappingProxyType({foreign.name: foreign for foreign in FOREIGN})

NAMES = (*BY_NAME, *(synonym.name for synonym in SYNONYMS))


def meaning_of_class(value: object) -> Mapping[str, str]:
    """The settings that this `worker_class` stands for; none if it is None."""
    return next((meaning for name, meaning in WORKER_CLASSES.items() if _is_same(value, name)), {})


def translated(held: Mapping[str, object]) -> dict[str, object]:
    """Settings that these variables of a config file give by gunicorn's names, unless it has the own name, too."""
    given: dict[str, object] = {**meaning_of_class(held.get("worker_class"))}
    given |= {one.setting: held[one.name] for one in SYNONYMS if held.get(one.name) is not None}
    return {name: value for name, value in given.items() if name not in held}


def refused(given: str, foreign: Foreign) -> str:
    """The words for what is given and cannot be honoured."""
    return f"{given} is gunicorn's and not supported: {foreign.refusal}"


def sort_out(held: Mapping[str, object]) -> tuple[list[str], list[str]]:
    """For the variables of a config file: the reasons why it must not be used, and the names that are ignored."""
    asked = [(BY_NAME[name], value) for name, value in held.items() if name in BY_NAME]
    unmet = [(foreign, value) for foreign, value in asked if not foreign.is_honoured(value)]
    refusals = [refused(_written(one.name, value), one) for one, value in unmet if one.refusal is not None]
    return refusals, [foreign.ignored_as(foreign.name) for foreign, _ in unmet if foreign.refusal is None]


def _written(name: str, value: object) -> str:
    """The assignment as in the file, with a long value shortened; only the name if the value is no plain one."""
    is_plain = isinstance(value, str | int | float | list | tuple | dict)
    return f"{name} = {reprlib.repr(value)}" if is_plain else name
