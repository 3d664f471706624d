"""The arguments of hooks: `server`, `worker`, and for requests `req` and `resp`.

They have the members of gunicorn's objects that hooks use in practice, under the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from typing import Any, TypeAlias

Environ: TypeAlias = "dict[str, Any]"

Listen = Callable[[str], str | None]
"""Gives this worker a listener of its own: from `bind` as JSON to the address, None while that is in use."""


def server_log() -> logging.Logger:
    """The logger of hooks."""
    # Imported here, so that no process has `logging` in its memory for nothing.
    # `logging` first, since its import may bring in the other.
    import logging  # noqa: F401

    from stanchion.server_log import LOGGER

    logger: logging.Logger = LOGGER
    return logger


class Config:
    """The settings in force, as attributes."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        try:
            # By vars(): a copy in the making has no attributes yet.
            return vars(self)["_values"][name]
        except KeyError:
            raise AttributeError(f"there is no setting {name!r} here") from None

    @property
    def proc_name(self) -> str:
        """The server's name: the setting, or else its app."""
        values = self._values
        name: str = values["proc_name"] or values["paste"] or values["wsgi_app"] or "stanchion"
        return name

    @property
    def address(self) -> list[tuple[str, int] | str]:
        """Where clients are let in: (host, port), or the path of a unix socket."""
        return [_address(text) for text in self._values["bind"]]


def _address(text: str) -> tuple[str, int] | str:
    if text.startswith("unix:"):
        return text.removeprefix("unix:")
    host, colon, port = text.rpartition(":")
    return (host.strip("[]"), int(port)) if colon and port.isdecimal() else text


def _fewest(workers: int | str) -> int:
    """Of a value of the setting: 2 of 2, of 2..8 too, and of auto as many as cores."""
    if workers == "auto":
        # Imported here, so that scripts which have only the sources can list the hooks.
        from stanchion import _stanchion

        return _stanchion.cores()
    return int(str(workers).partition("..")[0])


class Server:
    """The argument `server` of hooks: it stands for the master."""

    def __init__(self, cfg: Config, pid: int) -> None:
        self.cfg = cfg
        self.pid = pid
        """The master's."""
        self.num_workers = _fewest(cfg.workers)
        """How many are wanted, at first the fewest; in a worker, how many were when its template was forked."""

    @property
    def log(self) -> logging.Logger:
        return server_log()

    @property
    def address(self) -> list[tuple[str, int] | str]:
        return self.cfg.address

    def __repr__(self) -> str:
        return f"<server pid={self.pid} num_workers={self.num_workers}>"


class Worker:
    """The argument `worker` of hooks."""

    def __init__(self, cfg: Config, nr: int, pid: int | str, ppid: int, listen: Listen | None = None) -> None:
        self._listen = listen
        self.cfg = cfg
        self.nr = nr
        """Counted from 0; a replaced worker's number goes to its successor."""
        self.age = nr + 1
        self.pid = pid
        """In pre_fork, where there is none yet, the text that gunicorn has there."""
        self.ppid = ppid
        """The master's."""
        self.alive = True
        self.aborted = False
        self.wsgi: Callable[..., Any] | None = None
        """The app, once it is loaded."""

    @property
    def log(self) -> logging.Logger:
        return server_log()

    def listen(
        self,
        address: str,
        *,
        tries: int | None = None,
        delay: float | None = None,
        tcp_nopush: bool | None = None,
        **options: object,
    ) -> str | None:
        """Listen at this address, and serve its clients in this worker alone.

        The address and the options are those of `bind`. Returns the address with the port in force, or None if it is in
        use. If another worker has it, this worker gets it once that one is gone; otherwise the server tries again,
        `tries` times in all (5; -1 is for ever), every `delay` seconds (0.5), while the worker serves.

        Raises ValueError for an address or option that no worker can have, OSError if the kernel refuses it.
        """
        # Imported here, so that no process has it in its memory for nothing.
        import json

        if self._listen is None:
            raise RuntimeError("only a worker itself can listen: in post_fork or later, in its own process")
        if tcp_nopush is not None:
            self.log.info("tcp_nopush means nothing here: what is ready of an answer is sent in one go")
        given = {"tries": tries, "delay": delay, **options}
        given = {name: value for name, value in given.items() if value is not None}
        return self._listen(json.dumps({"address": address, **given} if given else address))

    def __repr__(self) -> str:
        return f"<worker nr={self.nr} pid={self.pid}>"


class Request:
    """The argument `req` of hooks: the request as it came, before the app has seen it."""

    def __init__(self, environ: Environ) -> None:
        self.method: str = environ["REQUEST_METHOD"]
        self.uri: str = environ["RAW_URI"]
        target, _, self.query = self.uri.partition("?")
        if "://" in target:
            target = "/" + target.partition("://")[2].partition("/")[2]
        self.path: str = target
        """As it was sent, not decoded."""
        version = environ["SERVER_PROTOCOL"].removeprefix("HTTP/").split(".")
        self.version: tuple[int, ...] = tuple(map(int, version))
        self.scheme: str = environ["wsgi.url_scheme"]
        address, port = environ["REMOTE_ADDR"], environ.get("REMOTE_PORT")
        self.remote_addr: tuple[str, int] | str = address if port is None else (address, int(port))
        """(address, port); over a unix socket an empty text."""
        self.peer_addr = self.remote_addr
        self.headers: list[tuple[str, str]] = [
            (_field(key), value) for key, value in environ.items() if _is_field(key) and isinstance(value, str)
        ]
        """Names in capitals. The app finds in its environ the fields that pre_request adds or changes here."""


def _is_field(key: str) -> bool:
    return key.startswith("HTTP_") or key in ("CONTENT_TYPE", "CONTENT_LENGTH")


def _field(key: str) -> str:
    return key.removeprefix("HTTP_").replace("_", "-")


def key_of(field: str) -> str:
    """The key in the environ of a header field."""
    key = field.upper().replace("-", "_")
    return key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"


def add_field(environ: Environ, name: str, value: str) -> None:
    """Under its key, joined to what fields of the same name have said."""
    key = key_of(name)
    environ[key] = f"{environ[key]},{value}" if key in environ else value


class Answer:
    """The argument `resp` of hooks: how the app's answer began, and how much of it went out."""

    def __init__(self, code: int, reason: str, headers: list[tuple[str, str]], sent: int) -> None:
        self.status = f"{code} {reason}"
        self.status_code = code
        self.headers = headers
        """Names in small letters; without those that concern the connection."""
        self.sent = sent
        """Bytes of the body that were given to the server to send."""
