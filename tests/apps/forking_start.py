"""An asynchronous app that forks as it starts up. Its child says that it cannot. Answers name that one's exit code."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def app(scope: Message, receive: Receive, send: Send) -> None:
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
