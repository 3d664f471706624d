"""An asynchronous app many of whose tasks send to one client that is slow, behind a message that it has given up.

It tells how often those who wait for their turn were asked whether they still do, until all of them waited. Then it
waits for a pass, and until all is sent.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from rendezvous import announce, wait_for_pass

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LONG = bytes(1 << 20)
PATIENCE_S = 0.01
TASKS = 1000


class Watched(asyncio.Future[None]):
    """Counts how often any of its kind is asked whether it is done."""

    asked = 0

    def done(self) -> bool:
        Watched.asked += 1
        return super().done()


async def app(scope: Message, receive: Receive, send: Send) -> None:
    loop: Any = asyncio.get_running_loop()

    async def say(text: str) -> None:
        await send({"type": "websocket.send", "text": text})

    await receive()
    await send({"type": "websocket.accept"})
    with contextlib.suppress(TimeoutError):
        while True:
            await asyncio.wait_for(send({"type": "websocket.send", "bytes": LONG}), PATIENCE_S)
    loop.create_future = lambda: Watched(loop=loop)
    tasks = [asyncio.create_task(say(str(number))) for number in range(TASKS)]
    # Each has its first step before this task has its next.
    await asyncio.sleep(0)
    del loop.create_future
    announce(str(Watched.asked))
    await loop.run_in_executor(None, wait_for_pass)
    await asyncio.gather(*tasks)
    await say("last")
