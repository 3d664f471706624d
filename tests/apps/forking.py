"""Asynchronous apps that fork."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

TIMER_S = 20.0
"""Less than a hundred requests take that wait for a heartbeat each, and far more than they take without."""
RUNG: list[bool] = [False]
CODES = {"/returns": 0, "/raises": 1, "/cancelled": 1, "/exits": 3, "/waits": 0}


async def app(scope: Message, receive: Receive, send: Send) -> None:
    """Forks in a request: the child comes back to the loop of its parent, as the path says.

    /returns /raises /cancelled /exits /waits answer with their process and the child's exit code; with ?later they wait
    before that. /timer begins to wait, /rings says whether that is over. A WebSocket hears again what it says.
    """
    match scope["type"]:
        case "http":
            await http(scope["path"], scope["query_string"], send)
        case "websocket":
            await echo(receive, send)
        case _:
            raise NotImplementedError


async def http(path: str, query: bytes, send: Send) -> None:
    said: dict[str, Any] = {"pid": os.getpid()}
    if path in CODES:
        if query == b"later":
            # Its task is one that the loop goes on with, also where tasks are eager (Python 3.12).
            await asyncio.sleep(0)
        said["code"] = await forked(path)
        if said["code"] is None:
            return
    elif path == "/timer":
        asyncio.get_running_loop().call_later(TIMER_S, RUNG.__setitem__, 0, True)
    elif path == "/rings":
        said["rings"] = RUNG[0]
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": json.dumps(said).encode()})


async def forked(path: str) -> int | None:
    """The exit code of a child; None in the child."""
    loop = asyncio.get_running_loop()
    waiting = loop.create_future()
    child = os.fork()
    if not child:
        print("the child was here")
        if path == "/raises":
            raise ValueError("in the child")
        if path == "/cancelled":
            raise asyncio.CancelledError
        if path == "/exits":
            sys.exit(CODES[path])
        if path == "/waits":
            await waiting
        return None
    _, status = await loop.run_in_executor(None, os.waitpid, child, 0)
    return os.waitstatus_to_exitcode(status)


async def echo(receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (event := await receive())["type"] == "websocket.receive":
        await send({**event, "type": "websocket.send"})


async def at_startup(scope: Message, receive: Receive, send: Send) -> None:
    """Forks as it starts up. Its child says that it cannot, and answers name the exit code of the child."""
    if scope["type"] == "lifespan":
        await lifespan(scope["state"], receive, send)
        return
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": str(scope["state"]["code"]).encode()})


async def lifespan(state: dict[str, Any], receive: Receive, send: Send) -> None:
    await receive()
    child = os.fork()
    if not child:
        await send({"type": "lifespan.startup.failed", "message": "in the child"})
        return
    _, status = await asyncio.get_running_loop().run_in_executor(None, os.waitpid, child, 0)
    state["code"] = os.waitstatus_to_exitcode(status)
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})
