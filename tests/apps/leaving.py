"""An app that announces what it receives when a client leaves, beside a timer of its own that the test starts."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from rendezvous import announce, wait_for_pass

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

TIMER_S = 1


async def timer() -> None:
    await asyncio.to_thread(wait_for_pass)
    await asyncio.sleep(TIMER_S)
    announce("the timer")


async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        raise NotImplementedError
    await receive()
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
    elif scope["path"] == "/answers":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
    running = asyncio.create_task(timer())
    announce("listens")
    while not (event := await receive())["type"].endswith("disconnect"):
        pass
    announce(event["type"])
    await running
