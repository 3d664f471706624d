"""An import that announces itself, and does what the environment says.

$DIES: it ends its process. $KIND: it waits for a pass, and the file of that name says whether the app is asynchronous.
$THREAD: it leaves a thread.
"""

import os
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

import hello
from rendezvous import announce, wait_for_pass

announce(f"loaded {os.getpid()}")
if os.environ.get("DIES"):
    os._exit(9)

if "KIND" in os.environ:
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


app: object = hello.app
if "KIND" in os.environ:
    app = {"wsgi": wsgi, "asgi": asgi}[Path(os.environ["KIND"]).read_text()]


def make() -> object:
    announce("made")
    return app
