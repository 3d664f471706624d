"""Apps with each kind of lifespan, by the variable MODE; /state answers what a request has in its state.

With AHEAD_S the clock of an event loop of asyncio's own jumps by so many seconds when the app is to shut down.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

from rendezvous import announce

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MODE = os.environ.get("MODE", "")
AHEAD_S = float(os.environ.get("AHEAD_S", "0"))


def is_first() -> bool:
    """Whether no worker has come as far before."""
    try:
        os.close(os.open(os.path.join(os.environ["GATE"], "first"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


async def lifespan(scope: Message, receive: Receive, send: Send) -> None:
    if MODE == "raises at once":
        raise RuntimeError("no lifespan here")
    if MODE == "returns at once":
        return
    event = await receive()
    announce(event["type"])
    match MODE:
        case "startup hangs later" if is_first():
            pass
        case "startup hangs" | "startup hangs later":
            try:
                await asyncio.Event().wait()
            finally:
                announce("cancelled")
        case "raises":
            raise RuntimeError("the database is away")
        case "exits":
            raise SystemExit(1)
        case "fails":
            await send({"type": "lifespan.startup.failed", "message": "no database"})
            raise RuntimeError("after startup.failed")
        case "wrong order":
            await send({"type": "lifespan.shutdown.complete"})
    scope["state"]["number"] = 1
    scope["state"]["list"] = []
    await send({"type": "lifespan.startup.complete"})
    if MODE == "twice":
        try:
            await send({"type": "lifespan.startup.complete"})
        except RuntimeError:
            announce("refused")
    if MODE == "dies":
        raise RuntimeError("died while serving")
    event = await receive()
    announce(event["type"])
    if AHEAD_S:
        event_loop = asyncio.get_running_loop()
        told_s = event_loop.time
        event_loop.time = lambda: told_s() + AHEAD_S  # type: ignore[method-assign]
    if MODE == "shutdown fails":
        await send({"type": "lifespan.shutdown.failed", "message": "cannot flush"})
        return
    if MODE == "shutdown raises":
        raise RuntimeError("cannot close")
    while MODE.startswith("shutdown hangs"):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            announce("cancelled")
            if MODE != "shutdown hangs on":
                raise
    await send({"type": "lifespan.shutdown.complete"})
    if MODE == "asks again":
        await receive()
    announce("left")


async def app(scope: Message, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await lifespan(scope, receive, send)
        return
    if scope["path"] == "/wait":
        announce("waits")
        await asyncio.sleep(0.5)
        announce("waited")
    state = scope["state"]
    state["number"] = state.get("number", 0) + 1
    state.setdefault("list", []).append(1)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps([state["number"], len(state["list"])]).encode()})
