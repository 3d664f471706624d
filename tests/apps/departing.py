"""Apps that learn from their scope that their server leaves."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from rendezvous import announce

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

CROWD = 100


async def app(scope: Message, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        raise NotImplementedError
    leaving: asyncio.Event = scope["extensions"]["stanchion"]["leaving"]
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await leaving.wait()
        await send({"type": "websocket.send", "text": "leaving"})
        await send({"type": "websocket.close", "code": 1001})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    match scope["path"]:
        case "/stream":
            await send({"type": "http.response.body", "body": b"begun, ", "more_body": True})
            announce("streams")
            await leaving.wait()
            said = "leaving"
        case "/crowd":
            said = await crowd(leaving)
        case _:
            said = f"{leaving.is_set()}"
    await send({"type": "http.response.body", "body": said.encode()})


async def crowd(leaving: asyncio.Event) -> str:
    """Many wait. Each second one gives up before the event, one gives up again and again, and one comes afterwards."""
    waiting = [asyncio.ensure_future(leaving.wait()) for _ in range(CROWD)]
    for _ in range(CROWD):
        impatient = asyncio.ensure_future(leaving.wait())
        await asyncio.wait({impatient}, timeout=0)
        impatient.cancel()
    for one in waiting[::2]:
        one.cancel()
    announce("a crowd waits")
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    late = await leaving.wait()
    return f"{outcomes.count(True)} of {len(outcomes)}, and {late}"
