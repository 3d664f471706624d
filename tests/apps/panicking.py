"""An asynchronous app that makes the server's own code panic, by the class that PyO3 tells a panic of Rust by."""

import asyncio
from collections.abc import Coroutine, MutableMapping
from typing import Any

from looping import Receive, Send
from looping import app as harmless

armed = False


def make_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None], **options: Any
) -> asyncio.Task[None]:
    """The task factory that the server calls for each request."""
    if armed:
        coroutine.close()
        (panic,) = (kind for kind in BaseException.__subclasses__() if kind.__name__ == "PanicException")
        raise panic("asked for")
    return asyncio.Task(coroutine, loop=loop, **options)


async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    global armed
    if scope["type"] == "lifespan":
        asyncio.get_running_loop().set_task_factory(make_task)
    if scope.get("path") == "/arm":
        armed = True
    await harmless(scope, receive, send)
