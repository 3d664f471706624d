"""Says what it sees of the target of a request, in hexadecimal digits, since any byte may be in it.

`wsgi` and `asgi` are two apps. A request to `wsgi` with the field X-Hold announces itself and waits, one with X-Raise
or X-Die ends so.
"""

import json
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass


def wsgi(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    if "HTTP_X_HOLD" in environ:
        announce("holds")
        wait_for_pass()
    if "HTTP_X_RAISE" in environ:
        raise RuntimeError("asked for")
    if "HTTP_X_DIE" in environ:
        os._exit(9)
    start_response("200 OK", [("Content-Type", "application/json")])
    seen = {name: environ[name].encode("latin-1").hex() for name in ("RAW_URI", "PATH_INFO", "QUERY_STRING")}
    return [json.dumps(seen).encode()]


async def asgi(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    if scope["type"] != "http":
        raise NotImplementedError(scope["type"])
    # Servers differ in what stands for bytes that are no UTF-8.
    path = scope["path"].encode("utf-8", "surrogateescape").hex()
    seen = {"path": path, "raw_path": scope["raw_path"].hex(), "query_string": scope["query_string"].hex()}
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(seen).encode()})
