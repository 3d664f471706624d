"""gunicorn's hooks of requests, around an ASGI app."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

from stanchion._stanchion import log
from stanchion.asgi import ASGIApp, Message, described
from stanchion.facades import Environ, Request, add_field
from stanchion.hooks import HookError, Hooks, Told

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_ERROR = 40


def between(app: ASGIApp, hooks: Hooks | None) -> ASGIApp:
    """The app between the hooks, if there are any."""
    return app if hooks is None else _Hooked(app, hooks)


class _Hooked:
    """An app between the hooks. They run for requests of HTTP, as in gunicorn: not for WebSockets."""

    def __init__(self, app: ASGIApp, hooks: Hooks) -> None:
        self._app = app
        self._hooks = hooks

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        environ = _environ(scope)
        req = self._hooks.request(environ)
        answer = _Answer(send)
        try:
            _begin(self._hooks, req, environ, scope)
            await self._app(scope, receive, answer.send)
        except asyncio.CancelledError:
            answer.is_cancelled = True
            raise
        finally:
            _end(self._hooks, req, environ, answer.told())


class _Answer:
    """The app's answer, as far as it was sent."""

    def __init__(self, send: Send) -> None:
        self.is_cancelled = False
        self.is_client_gone = False
        self._send = send
        self._start: Message = {}
        # The head goes out with the first piece of the body.
        self._is_out = False
        self._sent = 0

    async def send(self, message: Message) -> None:
        if isinstance(message, dict) and "headers" in message:
            # Looked at twice, and they may be a generator.
            message = {**message, "headers": list(message["headers"])}
        is_file = message["type"] == "http.response.pathsend"
        # Once it is sent it may be gone.
        size = os.path.getsize(message["path"]) if is_file else 0
        try:
            await self._send(message)
        except OSError:
            self.is_client_gone = True
            raise
        match message["type"]:
            case "http.response.start":
                self._start = message
            case "http.response.body":
                self._is_out = True
                self._sent += len(message.get("body", b""))
            case "http.response.pathsend":
                self._is_out = True
                self._sent += size

    def told(self) -> Told | None:
        """How the client was answered: by the server, if the app has not."""
        # Imported here, as few servers have such a hook.
        from http import HTTPStatus

        if not self._is_out:
            return None if self.is_cancelled or self.is_client_gone else (500, HTTPStatus(500).phrase, [], 0)
        status = self._start["status"]
        try:
            reason = HTTPStatus(status).phrase
        except ValueError:
            reason = ""
        fields = [(_text(name).lower(), _text(value)) for name, value in self._start.get("headers", ())]
        return status, reason, fields, self._sent


def _begin(hooks: Hooks, req: Request, environ: Environ, scope: Message) -> None:
    try:
        changed = hooks.before_request(req, environ)
    # Also what a hook's sys.exit() raises: it ends nothing.
    except BaseException as error:
        raise HookError("pre_request") from error
    if changed:
        names = {field.lower().encode("latin-1") for field, _ in changed}
        kept = [(name, value) for name, value in scope["headers"] if name not in names]
        added = [(field.lower().encode("latin-1"), value.encode("latin-1")) for field, value in changed]
        scope["headers"] = kept + added


def _end(hooks: Hooks, req: Request, environ: Environ, told: Told | None) -> None:
    try:
        hooks.after_request(req, environ, told)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the answer is out
        log(_ERROR, f"the hook post_request failed after {req.method} {req.uri}\n{described(error)}")


def _environ(scope: Message) -> Environ:
    """The environ that a WSGI app would get for the request, with the keys that hooks look at."""
    target, query = _text(scope["raw_path"]), _text(scope["query_string"])
    client: tuple[str, ...] = scope["client"] or ("",)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "RAW_URI": f"{target}?{query}" if query else target,
        "PATH_INFO": scope["path"],
        "QUERY_STRING": query,
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "REMOTE_ADDR": client[0],
        "wsgi.url_scheme": scope["scheme"],
    }
    for port in client[1:]:
        environ["REMOTE_PORT"] = str(port)
    for name, value in scope["headers"]:
        add_field(environ, _text(name), _text(value))
    return environ


def _text(sent: bytes) -> str:
    return sent.decode("latin-1")
