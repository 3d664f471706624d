"""`chaotic:app` as an asynchronous app: a request that ends its process, or holds it up, also hits the others there."""

import asyncio
import concurrent.futures
import functools
import hashlib
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import chaotic
from rendezvous import announce, wait_for_pass

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

CONCURRENCY_MAX = 16
"""Requests that wait to be let pass, each with a thread that looks for it."""


@functools.cache
def pool() -> concurrent.futures.Executor:
    """The pool of this process, which is made after the fork."""
    return concurrent.futures.ThreadPoolExecutor(CONCURRENCY_MAX)


async def begin(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})


async def stream(send: Send, last: bytes) -> None:
    for _ in range(chaotic.CHUNKS):
        await send({"type": "http.response.body", "body": chaotic.CHUNK, "more_body": True})
    await send({"type": "http.response.body", "body": last})


async def digest(receive: Receive) -> bytes | None:
    """The digest of the body; None if the client leaves before it is whole."""
    digest = hashlib.sha256()
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            return None
        digest.update(event["body"])
        if not event["more_body"]:
            return digest.hexdigest().encode()


def harm(path: str) -> None:
    match path:
        case "/exit":
            sys.exit(3)
        case "/os-exit":
            os._exit(4)
        case "/segv":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "/fork":
            chaotic.fork()
        case "/close-fds":
            os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        case "/threads":
            for _ in range(5):
                threading.Thread(target=time.sleep, args=(chaotic.NAP_S,)).start()
        case "/allocate":
            chaotic.allocate()


async def talk(receive: Receive, send: Send) -> None:
    """Say again what is said, but for words that end it, and paths that do harm: these are said again if we live."""
    await receive()
    await send({"type": "websocket.accept"})
    while (event := await receive())["type"] == "websocket.receive":
        match event.get("text"):
            case "close":
                await send({"type": "websocket.close", "code": 4001, "reason": "as asked"})
                continue
            case "return":
                return
            case "raise":
                raise ValueError("asked to")
            case "/garbage":
                chaotic.spoil_own_slot()
            case str() as path if path.startswith("/"):
                harm(path)
        await send({**event, "type": "websocket.send"})


async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await talk(receive, send)
        return
    if scope["type"] != "http":
        raise NotImplementedError
    query, body = scope["query_string"], scope["query_string"]
    match scope["path"]:
        case "/wait":
            announce(f"{os.getpid()} {id(asyncio.current_task())} {query.decode()}")
            await asyncio.get_running_loop().run_in_executor(pool(), wait_for_pass)
        case "/echo":
            found = await digest(receive)
            if found is None:
                return
            body = found + b" " + query
        case "/stream":
            await begin(send)
            await stream(send, query)
            return
        case "/file":
            await begin(send)
            await send({"type": "http.response.pathsend", "path": chaotic.__file__})
            return
        case "/nap":
            await asyncio.sleep(chaotic.NAP_S)
        case "/garbage":
            await begin(send)
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
            chaotic.spoil_own_slot()
            await stream(send, query)
            return
        case harmful:
            harm(harmful)
    await begin(send)
    await send({"type": "http.response.body", "body": body})
