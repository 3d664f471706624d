"""An asynchronous app that waits for room only for a moment, and then sends the next message: numbered, of a MiB each.

It tells how many it was through with before it gave up one. Then it waits for a pass, and for room for a last word. At
/ends it ends its answer instead, a WebSocket by code 1011, and does not wait for that for long either.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from rendezvous import announce, wait_for_pass

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SIZE = 1 << 20
PATIENCE_S = 0.01
GIVEN_UP = 40
"""So many it gives up, one after the other."""


async def app(scope: Message, receive: Receive, send: Send) -> None:
    is_http = scope["type"] == "http"

    async def say(data: bytes, more: bool = True) -> None:
        if is_http:
            await send({"type": "http.response.body", "body": data, "more_body": more})
        else:
            await send({"type": "websocket.send", "bytes": data})

    await receive()
    await send({"type": "http.response.start", "status": 200} if is_http else {"type": "websocket.accept"})
    through = given_up = sent = 0
    while given_up < GIVEN_UP:
        data = sent.to_bytes(4, "big") * (SIZE // 4)
        sent += 1
        try:
            await asyncio.wait_for(say(data), PATIENCE_S)
            through += not given_up
        except TimeoutError:
            given_up += 1
    if scope["path"] == "/ends":
        end = {"type": "http.response.body"} if is_http else {"type": "websocket.close", "code": 1011}
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(send(end), PATIENCE_S)
        announce("left")
        return
    announce(str(through))
    await asyncio.get_running_loop().run_in_executor(None, wait_for_pass)
    await say(b"last", more=False)
