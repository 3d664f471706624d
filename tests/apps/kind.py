"""Asynchronous or not, as the file $KIND says when it is imported; each import announces itself and waits for a pass.

With $THREAD it leaves a thread. It answers with what it is and in which process.
"""

import os
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce, wait_for_pass

announce(f"loaded {os.getpid()}")
wait_for_pass()
if "THREAD" in os.environ:
    threading.Thread(target=threading.Event().wait, name="stays", daemon=True).start()


def wsgi(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"wsgi {os.getpid()}".encode()]


async def asgi(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": f"asgi {os.getpid()}".encode()})


app = {"wsgi": wsgi, "asgi": asgi}[Path(os.environ["KIND"]).read_text()]


def make() -> object:
    announce("made")
    return app
