"""A thread that is no daemon, begun in a request of the WSGI `app` or the ASGI `asgi_app`; $ENDS: what it waits for.

It announces its end, and that of the process.
"""

import asyncio
import atexit
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from rendezvous import announce

told = threading.Event()
atexit.register(announce, "at exit")
if os.environ["ENDS"] == "at exit":
    # Python calls the last one first. Once the thread is through, the main thread has time to go on.
    pauses_s = iter([0.5])
    atexit.register(lambda: time.sleep(next(pauses_s, 0)))
    atexit.register(told.set)
    atexit.register(announce, "ending")


def wait_for_ever() -> None:
    if os.environ["ENDS"] == "with the main thread":
        threading.main_thread().join()
    else:
        told.wait()
    announce("through")


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    threading.Thread(target=wait_for_ever, name="lingers").start()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"begun"]


def daemon_app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """A thread of an executor is a daemon if one has made it, and Python waits for it."""

    def begin() -> None:
        ThreadPoolExecutor(1, "marimo").submit(wait_for_ever)

    beginning = threading.Thread(target=begin, daemon=True)
    beginning.start()
    beginning.join()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"begun"]


async def asgi_app(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    if scope["type"] != "http":
        return
    # marimo's kernel does so: it runs in a thread of the loop's own, for which no code waits.
    asyncio.get_running_loop().run_in_executor(None, wait_for_ever)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"begun"})
