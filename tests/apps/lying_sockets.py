"""A WebSocket app whose worker lies: before the acceptor looks at a close that is in the shared memory, it becomes one
for which the client is blamed."""

import os
from collections.abc import Awaitable, Callable
from typing import Any

from rendezvous import announce, wait_for_pass
from shared_memory import exchange

CLOSE, FAULT = 3, 5

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def app(scope: Message, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        raise RuntimeError("it knows no lifespan")
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": str(os.getpid()).encode()})
        return
    await receive()
    await send({"type": "websocket.accept"})
    code = int((await receive())["text"])
    announce("asked")
    wait_for_pass()
    mark = os.urandom(16).hex()
    await send({"type": "websocket.close", "code": code, "reason": mark})
    rest = (2 + len(mark)).to_bytes(4, "little") + code.to_bytes(2, "little") + mark.encode()
    try:
        with exchange() as memory:
            memory.replace(bytes([CLOSE]) + rest, bytes([FAULT]) + rest, mark.encode())
    except (OSError, AssertionError) as error:
        announce(f"not told: {error}")
        raise
    announce("told")
